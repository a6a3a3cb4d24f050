"""Agnostic FedAvg with an exponential moving average of the server model: cheap, and steadier under a few participants.

    θ̂^t = (1/|S^t|) Σ_{i∈S^t} θ_i                                  broadcast: the iterates are FedAvg's, bit for bit
    θ̃^t = Σ_{s≤t} d^{t−s} θ̂^s / Σ_{s≤t} d^{t−s}                    reported: evaluated and saved as the model of the run

| code | here |
| --- | --- |
| ``ema_decay`` | d ∈ [0, 1): 0 is FedAvg itself, and towards 1 θ̃ becomes the plain average of all checkpoints |
| ``memory["ema"]`` | Σ d^{t−s} θ̂^s, float64 |
| ``memory["ema_weight"]`` | Σ d^{t−s} |

Divided by the sum of its weights the average needs no start (Kingma & Ba, ICLR 2015, section 3). It moves when a round brings
a usable reply. Integer arrays are the last ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from flwr.app import ArrayRecord

from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.rounds import Update
from fedrage_flwr.settings import Interval
from strategies.base import BaseStrategy, StrategySettings


@dataclass(frozen=True)
class FedAvgEmaSettings(StrategySettings):
    """Settings of FedAvg with a moving average."""

    ema_decay: Annotated[float, Interval(ge=0, lt=1)]


class FedAvgEma(BaseStrategy):
    """Broadcasts what FedAvg broadcasts, reports the moving average of it.

    Aims at: Σ p_i f_i for small steps, as FedAvg, with less variance in what is reported.
    Stores: one more model, on the server.
    Must know: nothing.
    """

    Settings = FedAvgEmaSettings

    def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
        """θ̂ of FedAvg; the average takes it in."""
        arrays = super().reduce(updates)
        decay, sums = self.settings.ema_decay, self.memory.get("ema", {})
        weight = self.memory["ema_weight"]["value"] if sums else np.zeros(())
        self.memory["ema"] = {
            name: np.asarray(decay * sums.get(name, 0.0) + array.astype(np.float64))
            for name, array in to_arrays(arrays).items()
            if array.dtype.kind == "f"
        }
        self.memory["ema_weight"] = {"value": np.asarray(decay * weight + 1.0)}
        return arrays

    def reported(self, arrays: ArrayRecord) -> ArrayRecord:
        """θ̃ in the dtypes of ``arrays``; ``arrays`` itself before anything was averaged."""
        last, sums = to_arrays(arrays), self.memory.get("ema", {})
        weight = self.memory["ema_weight"]["value"] if sums else np.ones(())
        averages = {name: np.asarray(total / weight).astype(last[name].dtype) for name, total in sums.items()}
        return to_record({**last, **averages})
