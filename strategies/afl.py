"""AFL, agnostic federated learning: minimax weights on the clients (Mohri, Sivek & Suresh, ICML 2019).

    min_w max_{λ∈Λ} Σ_i λ_i F_i(w)                       Λ: the simplex over the N clients
    w ← w + Σ_i λ_i (w_i − w)                            with the λ of before
    λ ← Π_Λ(λ + γ_λ (F_1(w), …, F_N(w)))                 with the losses at the w of before; Π_Λ is Euclidean

| code | paper |
| --- | --- |
| ``memory["lambda"]`` | λ, 1/N each at first |
| ``lr_lambda`` | γ_λ |
| metric ``initial-loss`` | F_i(w) |
| ``project_simplex`` | Π_Λ |

The paper takes one gradient step where a client here takes H, and it needs the losses of all clients. Who is absent
from S keeps λ_i as it is: an unknown loss is not a loss of zero. The participants share the mass they had, so λ stays on
the simplex: λ_S ← the projection of λ_S + γ_λ F_S onto {v ≥ 0, Σ v = Σ_S λ_i}. Weights of the mean are λ_S, renormalised
over S; if all of them are 0 the mean is plain. A weight that fell to 0 comes back when it meets a smaller loss in a round
with some mass. One participant per round (M = 1) leaves λ alone for ever: that is FedAvg.

The paper's answer is the average of the iterates, which a run saves as ``polyak.safetensors``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from flwr.app import ArrayRecord

from fedrage_flwr.rounds import Update
from fedrage_flwr.settings import Ge
from strategies.base import StrategySettings
from strategies.loss_first import LossFirst


@dataclass(frozen=True)
class AFLSettings(StrategySettings):
    """Settings of AFL."""

    lr_lambda: Annotated[float, Ge(0)]


class AFL(LossFirst):
    """The mean weighted by λ, which climbs where the loss is high.

    Aims at: max_i F_i, the worst client's loss, if all take part; under a RAM a heuristic for it.
    Stores: one weight per client, on the server.
    Must know: N, who is who, and every client's loss at the model sent (here: every participant's).
    """

    Settings = AFLSettings

    def __init__(self, settings: Any, client: Any, num_clients: int) -> None:
        super().__init__(settings, client, num_clients)
        self.memory["lambda"] = {"weights": np.full(num_clients, 1 / num_clients)}

    def weights(self, updates: Sequence[Update]) -> list[float] | None:
        """λ_S as parts of the largest of them (equal ones are 1 exactly: the plain mean); None if all are 0."""
        own = self.memory["lambda"]["weights"][[update.client for update in updates]]
        return [float(weight) for weight in own / own.max()] if own.max() > 0 else None

    def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
        """Average with λ, then move λ."""
        arrays = super().reduce(updates)
        clients, weights = [update.client for update in updates], self.memory["lambda"]["weights"].copy()
        risen = weights[clients] + self.settings.lr_lambda * self.losses(updates)
        weights[clients] = project_simplex(risen, total=float(weights[clients].sum()))
        self.memory["lambda"] = {"weights": weights}
        return arrays


def project_simplex(values: np.ndarray, total: float = 1.0) -> np.ndarray:
    """Return the point of {v ≥ 0, Σ v = total} nearest to ``values``, exactly and by one sort (Duchi et al., ICML 2008, Fig. 1).

    Args:
        values: float64, shape (n,).
        total: ≥ 0.
    """
    values = values - values.max()  # the answer is the same, and large values lose no digits of the sum
    descending = np.sort(values)[::-1]
    shifts = (np.cumsum(descending) - total) / np.arange(1, len(values) + 1)
    shift = shifts[np.flatnonzero(descending >= shifts)[-1]]
    return np.asarray(np.maximum(values - shift, 0.0))
