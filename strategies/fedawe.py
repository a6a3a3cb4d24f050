"""FedAWE, adaptive innovation echoing and implicit gossiping (Xiang, Ioannidis, Yeh, Joe-Wong & Su, NeurIPS 2024, Algorithm 1).

    x_i = x⁰, τ_i = 0                            at first (the paper counts rounds from 0 and begins with τ_i = −1)
    y_i ← H local steps from x_i, i ∈ S^t        from the client's own model, not from the latest global one
    x_i† ← x_i − η_g (t − τ_i)(x_i − y_i)        lines 10-11: a change after t − τ_i rounds counts as many times
    x    ← mean of x_i† over S^t                 line 15
    x_i  ← x, τ_i ← t                            lines 12, 18, for i ∈ S^t; the others keep what they have (lines 20-21)

| code | paper |
| --- | --- |
| ``memory["model7"]`` | x_7; x⁰ (``memory["initial"]``) before client 7 took part |
| ``memory["last"]`` | τ_i |
| ``server_lr`` | η_g |
| the reply's ``arrays`` | y_i = x_i^{(t,s)} |

In the paper the server sends x to S^t at the end of the round, the clients keep it and report x_i† the next time they are
there. Here the server keeps x_i until then, sends it as the model to start from, and makes x_i† of the reply: the same
numbers and bytes with one exchange a round, and nothing that a lost reply could put out of step. The price is paid by
the server: it holds a model per client, though participants of one round share theirs until they take part again.

An echo is an extrapolation: for a client of which the last was heard 200 rounds ago it is 200 times its step. The theory asks
for η η_g well below the smallest participation probability; a larger step makes rare clients throw the model about.

Written after the paper's listing. The authors' public code departs from it in two ways that are not taken over: it scales the
mean echoed change down to a norm of 0.5 where that is exceeded, and evaluates the mean of all N x_i instead of x.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedrage_flwr.records import to_arrays, to_record, weighted_mean
from fedrage_flwr.rounds import Update
from strategies.base import BaseStrategy, StrategySettings


@dataclass(frozen=True)
class FedAWESettings(StrategySettings):
    """Settings of FedAWE: η_g is ``server_lr``."""

    def __post_init__(self) -> None:
        self.refuse_server_optimizer(step_size=True)


class FedAWE(BaseStrategy):
    """Every client goes on from where it was; participants meet in their mean.

    Aims at: Σ f_i/N for small steps, whatever the (independent) RAM.
    Stores: a model per client, N at most, and the round of each one's last participation.
    Must know: who is who, and the number of the round.
    """

    Settings = FedAWESettings

    def __init__(self, settings: Any, client: Any, num_clients: int) -> None:
        super().__init__(settings, client, num_clients)
        self.memory["last"] = {"round": np.zeros(num_clients, np.int64)}

    def initial_records(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """None; x⁰ is kept for those not seen yet."""
        self.memory.setdefault("initial", to_arrays(arrays))
        return {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send every client its own x_i."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message in messages:
            own = to_record(self.model_of(self._partitions[message.metadata.dst_node_id]))
            message.content = RecordDict({**message.content, "arrays": own})
        return messages

    def model_of(self, client: int) -> dict[str, np.ndarray]:
        """x_i."""
        return self.memory.get(f"model{client}", self.memory["initial"])

    def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
        """The mean of the x_i†, which is x_i of the participants from now on."""
        mean = weighted_mean([self._echo(update) for update in updates])
        like = to_arrays(self.broadcast["arrays"])
        fresh = {name: array.astype(like[name].dtype) for name, array in mean.items()}
        last = self.memory["last"]["round"].copy()
        for update in updates:
            self.memory[f"model{update.client}"] = fresh
            last[update.client] = self.round
        self.memory["last"] = {"round": last}
        return to_record(fresh)

    def _echo(self, update: Update) -> dict[str, np.ndarray]:
        """x_i† in float64; what is no parameter, as the client sent it. A factor of 1 gives y_i itself, to the bit."""
        start, end = self.model_of(update.client), to_arrays(update.records["arrays"])
        factor = self.settings.server_lr * float(self.round - self.memory["last"]["round"][update.client])
        echoed = {
            name: np.asarray((1 - factor) * start[name].astype(np.float64) + factor * end[name].astype(np.float64))
            for name in self.parameter_names(end)
        }
        return {**end, **echoed}
