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
from fedrage_flwr.outlook import Explanation, Outlook, name_clients
from fedrage_flwr.records import to_record
from strategies.base import BaseStrategy, StrategySettings

LARGE_STEP = 0.5  # κ η_θ; the largest that our tuning tries (it covers 0.02 to 0.5)


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
    plain_mean = True

    def __init__(self, settings: FedeRageSettings, client: Any, num_clients: int) -> None:
        super().__init__(settings, client, num_clients)
        self._logged = _logged_weights(settings.weight_log) if client.weight_mode == "matched" else {}

    @classmethod
    def explain(cls, settings: Any, client: Any, outlook: Outlook) -> Explanation:
        """Whom κ can help (a client's weight is at most κ p_i), the largest step, and how fast β moves."""
        gain = client.kappa * outlook.marginals * outlook.num_clients
        step = f"{client.kappa:.3g} = (1−γ) + γ/α, the largest step weight; κ · lr = {client.kappa * client.lr:.3g}"
        return Explanation([("κ", step), *_hedge(client.kappa, outlook, gain), _travel(client)], {"κ p_i N": gain})

    def warnings(self) -> list[str]:
        """Says so when a tail step is longer than any that was found to work."""
        effective = self.client.kappa * self.client.lr
        if effective <= LARGE_STEP:
            return []
        return [
            f"a step on a tail batch has the effective size κ · client.lr = {self.client.kappa:.3g} · {self.client.lr:g} ="
            f" {effective:.3g}; above {LARGE_STEP} a run may diverge: lower client.lr, or κ = (1−γ) + γ/α"
        ]

    def advice(self) -> str:
        """Names κ as well."""
        kappa = self.client.kappa
        return (
            f"{super().advice()}; a tail batch makes a step of κ · client.lr = {kappa:.3g} · {self.client.lr:g} ="
            f" {kappa * self.client.lr:.3g}: a larger client.alpha or a smaller client.gamma lowers κ"
        )

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


def _hedge(kappa: float, outlook: Outlook, gain: np.ndarray) -> list[tuple[str, str]]:
    """κp_i against 1/N, and the rarest participation κ makes up for (exact where |S| is fixed)."""
    short = np.flatnonzero(gain < 1 - 1e-9)
    worst = f"clients {name_clients(short)} cannot be brought up to 1/N: κ p_i N is {gain.min():.3g} at the least"
    needed = outlook.participants / (outlook.num_clients * kappa)
    return [
        ("hedge capacity", worst if len(short) else "κ p_i ≥ 1/N: every client can be brought up to the weight 1/N"),
        ("smallest P(i∈S)", f"{needed:.3g} = M/(Nκ): κ makes up for participation this rare and no rarer"),
    ]


def _travel(client: Any) -> tuple[str, str]:
    """β falls by η_βγ in a step below it (w = 1 − γ), by 1 in 1/(η_βγH) rounds."""
    if not client.gamma:
        return "β", "does not matter: with client.gamma=0 every step weighs 1"
    return "β", (
        f"falls by 1 in {1 / (client.lr_beta * client.gamma * client.local_steps):.3g} rounds"
        " = 1/(lr_beta · gamma · local_steps) while no batch is in the tail"
    )


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
