"""FedAU, averaging with weights from the participation seen so far (Wang & Ji, ICLR 2024).

    θ̂ ← θ̂ + (η_g/N) Σ_{i∈S^t} ω_i (θ_i − θ̂)

ω_i is the mean length of i's participation intervals completed before round t, 1 while there is none. An interval ends when i
takes part, and also when it has lasted K rounds: rounds 1 and 2 missed and 3 attended make one interval of 3.

| code | paper |
| --- | --- |
| ``cutoff`` | K; null for none |
| ``server_lr`` | η_g |
| ``num_clients`` | N |
| ``interval_means`` | ω_i^t |
| ``memory["intervals"]`` | per client: the round in which the last interval ended, sum and number of the completed ones |

Cut-offs are counted when a client turns up again, which is the only time they matter; a round in which nobody arrived is a
round missed by all, and a reply that is rejected is an absence. Intervals are those of the authors' public code.

For a client that comes with probability π in every round, ω → (1 − (1−π)^K)/π: what it weighs in the long run is
πω = 1 − (1−π)^K, so K must be large against 1/π of the rarest client.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from flwr.app import ArrayRecord

from fedrage_flwr.rounds import Update
from fedrage_flwr.settings import Ge
from strategies.base import BaseStrategy, StrategySettings


@dataclass(frozen=True)
class FedAUSettings(StrategySettings):
    """Settings of FedAU."""

    cutoff: Annotated[int, Ge(1)] | None  # K


class FedAU(BaseStrategy):
    """The sum of the changes, each times the client's mean interval, over N. Any server optimiser may take that as its Δ.

    Aims at: Σ f_i/N asymptotically, once the intervals are learned (and but for the cut-off).
    Stores: three integers per client, on the server.
    Must know: N, who is who, and that rounds pass in which a client is absent.
    """

    Settings = FedAUSettings

    def __init__(self, settings: Any, client: Any, num_clients: int) -> None:
        super().__init__(settings, client, num_clients)
        self.memory["intervals"] = {name: np.zeros(num_clients, np.int64) for name in ("last", "sum", "count")}

    def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
        """θ̂ + (η_g/N) Σ ω_i Δθ_i; then this round's intervals are complete."""
        clients = np.array([update.client for update in updates])
        weights = self.interval_means(clients)
        mean = self.mean_with_broadcast(updates, weights.tolist(), stay=self.num_clients - float(weights.sum()))
        self._complete(clients)
        return self.server_step(mean)

    def interval_means(self, clients: np.ndarray) -> np.ndarray:
        """ω of participants of this round, float64, shape of ``clients``."""
        book, cuts = self.memory["intervals"], self._cuts(clients)
        sums = book["sum"][clients] + cuts * (self.settings.cutoff or 0)
        counts = book["count"][clients] + cuts
        return np.where(counts > 0, sums / np.maximum(counts, 1), 1.0)

    def _cuts(self, clients: np.ndarray) -> np.ndarray:
        """How many intervals have ended by cut-off since the client's last one was booked, before this round."""
        lengths = self.round - self.memory["intervals"]["last"][clients]
        return (lengths - 1) // self.settings.cutoff if self.settings.cutoff else np.zeros_like(lengths)

    def _complete(self, clients: np.ndarray) -> None:
        book, cuts = {name: array.copy() for name, array in self.memory["intervals"].items()}, self._cuts(clients)
        book["sum"][clients] += self.round - book["last"][clients]
        book["count"][clients] += cuts + 1
        book["last"][clients] = self.round
        self.memory["intervals"] = book
