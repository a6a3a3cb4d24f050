"""FedAvg weighted by numbers of examples (McMahan et al., AISTATS 2017, Algorithm 1), as plain Flower does it.

θ̂ = Σ_{i∈S^t} n_i θ_i / Σ_{i∈S^t} n_i
"""

from collections.abc import Sequence

from fedrage_flwr.rounds import Update
from strategies.base import BaseStrategy


class WeightedFedAvg(BaseStrategy):
    """The mean weighted by n_i; a client that reports no examples takes no part.

    Aims at: Σ E[n_i 1{i∈S}/Σ_S n_j] f_i: frequent and large clients count more.
    Stores: nothing.
    Must know: each participant's number of examples.
    """

    def weights(self, updates: Sequence[Update]) -> list[float]:
        """n_i of every update."""
        return [max(0.0, update.metrics.get("num-examples", 0.0)) for update in updates]
