"""q-FedAvg for q-FFL, fair resource allocation (Li, Sanjabi, Beirami & Smith, ICLR 2020, Algorithm 2).

    F_k   = client k's loss on all its data at the model received, L = 1/η
    Δw_k  = L (w − w_k)
    Δ_k   = F_k^q Δw_k
    h_k   = q F_k^{q−1} ‖Δw_k‖² + L F_k^q
    w     ← w − Σ_{k∈S} Δ_k / Σ_{k∈S} h_k

| code | paper |
| --- | --- |
| ``q`` | q: 0 is agnostic FedAvg, ∞ would be the worst client alone |
| metric ``initial-loss`` | F_k |
| ``1 / client.lr`` | L |
| ``weights`` | F_k^q |
| ``stay`` | Σ_k q F_k^{q−1} ‖Δw_k‖² / L |

Both sums divided by L, the step says: w becomes the mean of the w_k with weights F_k^q and of w itself with the weight
``stay``. That form is the one computed; at q = 0 it is the plain mean to the bit.

Flower's ``QFedAvg`` takes the same step, 1e-10 included, provided that ``train_loss_key`` names the loss at the model
*received*; the mean loss along the local steps, which most clients report, gives another method. It also sums in float32 in
the order of arrival, lets NaN through and makes floats of integer arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from flwr.app import ArrayRecord

from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.rounds import Update
from fedrage_flwr.settings import Ge
from strategies.base import StrategySettings
from strategies.loss_first import LossFirst

EPSILON = 1e-10  # keeps F^{q−1} finite at F = 0, as in the authors' code and in Flower's


@dataclass(frozen=True)
class QFFLSettings(StrategySettings):
    """Settings of q-FFL."""

    q: Annotated[float, Ge(0)]

    def __post_init__(self) -> None:
        self.refuse_server_optimizer(step_size=False)


class QFFL(LossFirst):
    """The mean weighted by F_k^q, with a step size from an estimated Lipschitz constant.

    Aims at: Σ F_k^{q+1}/(q+1) if all take part; under a RAM frequent clients count more, as in FedAvg.
    Stores: nothing.
    Must know: each participant's loss at the model sent.
    """

    Settings = QFFLSettings

    def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
        """w − ΣΔ_k/Σh_k."""
        q, losses = self.settings.q, self.losses(updates) + EPSILON
        squares = np.array([self._squared_distance(update) for update in updates])  # ‖w − w_k‖² = ‖Δw_k‖²/L²
        stay = float((q * losses ** (q - 1) * squares).sum() / self.client.lr)
        return to_record(self.mean_with_broadcast(updates, (losses**q).tolist(), stay))

    def _squared_distance(self, update: Update) -> float:
        before, after = to_arrays(self.broadcast["arrays"]), to_arrays(update.records["arrays"])
        return sum(
            float(np.square(after[n] - before[n].astype(np.float64)).sum()) for n in self.parameter_names(before)
        )
