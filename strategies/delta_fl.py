"""Δ-FL, the superquantile over clients (Pillutla, Laguel, Malick & Harchaoui, Machine Learning 113, 2024).

    Q     = the (1−θ)-quantile of the losses F_i(w), i ∈ S          inf{x : share of losses ≤ x is at least 1−θ}
    S_θ   = {i ∈ S : F_i(w) ≥ Q}
    w     ← mean of w_i over S_θ

| code | paper |
| --- | --- |
| ``tail`` | θ, the conformity level: the share of clients in the tail; 1 is agnostic FedAvg |
| metric ``initial-loss`` | F_i(w), the loss at the model received |
| ``weights`` | 1{F_i ≥ Q}; clients weigh alike here, by n_i in the authors' code |

The client on the quantile counts in full, so S_θ has ⌊θ|S|⌋ + 1 clients (at most |S|), and more where losses tie: not
the exact superquantile unless θ|S| < 1 or θ = 1. Quantile and comparison are those of the authors' public code. There, who
is filtered out does not train; here they have trained when the server learns their loss: the numbers are the same, the
uplink is FedAvg's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Annotated

import numpy as np

from fedrage_flwr.rounds import Update
from fedrage_flwr.settings import Interval
from strategies.base import StrategySettings
from strategies.loss_first import LossFirst


@dataclass(frozen=True)
class DeltaFLSettings(StrategySettings):
    """Settings of Δ-FL."""

    tail: Annotated[float, Interval(gt=0, le=1)]


class DeltaFL(LossFirst):
    """The plain mean over the participants with the largest losses.

    Aims at: the superquantile (CVaR) of the F_i at tail share θ if all take part; under a RAM its mean over the draws of S.
    Stores: nothing.
    Must know: each participant's loss at the model sent.
    """

    Settings = DeltaFLSettings

    def weights(self, updates: Sequence[Update]) -> list[float]:
        """1 for S_θ, 0 for the others."""
        losses = self.losses(updates)
        rank = max(1, ceil(len(losses) * (1 - self.settings.tail) - 1e-9))  # 10 (1 − 0.7) is 3, not 3.0000000000000004
        threshold = np.sort(losses)[rank - 1]
        return [float(loss >= threshold) for loss in losses]
