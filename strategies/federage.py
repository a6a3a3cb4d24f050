"""FedeRage, the server half (FedeRage paper, Algorithm 2, lines 5-8).

    (θ̂, β̂) = (1/|S^t|) Σ_{i∈S^t} (θ_i, β_i)

The server learns nothing about who is rare: it averages what arrives, and one scalar more than FedAvg travels each way.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from fedrage_flwr.errors import UserError
from fedrage_flwr.records import to_record
from strategies.base import BaseStrategy, StrategySettings


@dataclass(frozen=True)
class FedeRageSettings(StrategySettings):
    """Settings of the server half."""

    weight_log: str | None  # folder of a run, for the ablation client.weight_mode=matched


class FedeRage(BaseStrategy):
    """The plain mean of the pairs (θ, β).

    Aims at: the mean-CVaR (1−γ) E f + γ CVaR_α f of the mini-batch loss under p.
    Stores: nothing; the one scalar β travels with the model.
    Must know: nothing.
    """

    Settings = FedeRageSettings
    columns = ("beta", "step_weight_mean", "tail_share")
    progress = ("beta",)

    def __init__(self, settings: FedeRageSettings, client: Any, num_clients: int) -> None:
        super().__init__(settings, client, num_clients)
        self._logged = _logged_weights(settings.weight_log) if client.weight_mode == "matched" else {}

    def initial_records(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """β₀."""
        return {"beta": to_record({"value": np.array(self.client.beta_init, np.float32)})}

    def message_config(self, server_round: int) -> dict[str, Any]:
        """What the ablations of ``clients/weight_modes.py`` need to know; nothing for the algorithm itself."""
        if self.client.weight_mode in ("shuffle_round", "shuffle_time"):
            return {"participants": sorted(self._partitions.values())}
        if self.client.weight_mode == "matched":
            if server_round not in self._logged:
                raise UserError(
                    f"strategy.weight_log={self.settings.weight_log} has no step weight for round {server_round}"
                )
            return {"step-weight": self._logged[server_round]}
        return {}


def _logged_weights(folder: str | None) -> dict[int, float]:
    """Mean step weight of every round of an earlier run."""
    path = Path(folder or "") / "rounds.csv"
    if folder is None or not path.is_file():
        raise UserError(
            f"client.weight_mode=matched needs strategy.weight_log, the folder of a FedeRage run; {folder} holds no rounds.csv"
        )
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["step_weight_mean"]]
    return {int(row["round"]): float(row["step_weight_mean"]) for row in rows}
