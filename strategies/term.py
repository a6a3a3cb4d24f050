"""TERM, tilted averaging over clients (Li, Beirami, Sanjabi & Smith, ICLR 2021; clients for examples).

    min_w  (1/t) log( (1/|S|) Σ_{i∈S} e^{t F_i(w)} )
    w      ← Σ_{i∈S} v_i w_i,      v_i = e^{t F_i(w)} / Σ_{j∈S} e^{t F_j(w)}

| code | paper |
| --- | --- |
| ``tilt`` | t: 0 is agnostic FedAvg, t → ∞ the worst client, t < 0 plays large losses down |
| metric ``initial-loss`` | F_i(w), the loss at the model received |
| ``weights`` | v_i up to a common factor |

v is the gradient of the tilted loss with respect to the F_i. It is normalised over the round's participants; the moving estimate
of the normaliser in the paper's stochastic solver is left out, so under a RAM the objective is the mean over S
of the tilted loss within S.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedrage_flwr.rounds import Update
from strategies.base import StrategySettings
from strategies.loss_first import LossFirst


@dataclass(frozen=True)
class TERMSettings(StrategySettings):
    """Settings of TERM."""

    tilt: float


class TERM(LossFirst):
    """The mean weighted by e^{t F_i}.

    Aims at: (1/t) log mean_i e^{t F_i} if all take part; under a RAM its mean over the draws of S.
    Stores: nothing.
    Must know: each participant's loss at the model sent.
    """

    Settings = TERMSettings

    def weights(self, updates: Sequence[Update]) -> list[float]:
        """v_i over the largest of them: no exponential is above 1, and t = 0 gives ones."""
        tilted = self.settings.tilt * self.losses(updates)
        return [float(weight) for weight in np.exp(tilted - tilted.max())]
