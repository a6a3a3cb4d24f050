"""Local SGD that first measures the model received: what q-FFL, AFL, Δ-FL and TERM ask of their clients.

    F_i(θ̂) = (1/n_i) Σ_{(x,y)∈D_i} ℓ(x, y; θ̂)          on all of the client's training data, before the first step

The H steps after it are FedAvg's, with the same mini-batches. It costs a forward pass over the local data and one number.
"""

from dataclasses import replace

from clients.base import ClientAlgorithm, Work
from fedrage_flwr.cohort import Process


class LossFirstClient(ClientAlgorithm):
    """Plain local SGD that also sends the metric ``initial-loss``, F_i(θ̂)."""

    def train(self) -> Process[Work]:
        """Measure, then train."""
        model = self.task.workspace.model
        model.load(self.task.received["arrays"])
        inputs, targets = self.task.data.all()
        losses = model.example_loss(model.outputs(inputs), targets)
        work = yield from super().train()
        return replace(work, metrics={**work.metrics, "initial-loss": float(losses.double().mean())})
