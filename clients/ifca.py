"""IFCA, the client half (Ghosh et al., NeurIPS 2020, Algorithm 1, model averaging): the hard sibling of FOCUS.

    ĵ = argmin_j F_i(θ_j)                       F_i the loss on all local training data
    θ̃_i ← θ_ĵ, then H SGD steps

Only θ̃_i and ĵ are sent: one model up, G down. Nothing is kept; a client predicts with the model it would choose now.
"""

import numpy as np
import torch

from clients.base import Work
from clients.clusters import ClusteredClient
from fedrage_flwr.cohort import Process


class IfcaClient(ClusteredClient):
    """Chooses one of the models and trains it."""

    def train(self) -> Process[Work]:
        """Send the trained model, under its own names, and the number of its cluster."""
        cluster = self.choice()
        trained = yield self.local_training([self.models[cluster]])
        records = {"arrays": trained.models[0], "cluster": {"value": np.array(cluster)}}
        return Work(records, {"train-loss": float(trained.losses.mean())})

    def choice(self) -> int:
        """ĵ; the first of equals."""
        if len(self.models) == 1:
            return 0
        losses = self.losses()
        return int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))

    @torch.no_grad()
    def evaluate(self) -> dict[str, float | list[float]]:
        """Measure the chosen model on this client's test part; ``pi`` is 1 at its cluster."""
        cluster = self.choice()
        outputs = self.test_outputs()[cluster]
        return {**self.task.data.measure(outputs), "pi": [float(m == cluster) for m in range(len(self.models))]}
