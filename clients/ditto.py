"""Ditto, the client half (Li et al., ICML 2021, Algorithm 1): a personal model with a pull towards the global one.

    θ_i ← θ̂, then H SGD steps                                     as FedAvg, and sent
    v_i ← v_i − η (∇f_i(v_i; ξ) + λ (v_i − θ̂)),  H times          kept

| code | paper |
| --- | --- |
| ``lam`` | λ: 0 is local training, large λ holds v_i at the global model |
| ``received["arrays"]`` | w^t, the global model (θ̂ here) |
| ``memory["personal"]`` | v_k |

v_i starts at the θ̂ of the client's first participation. Its mini-batches are draws of their own, so θ_i is FedAvg's to the bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from clients.base import Arrays, ClientAlgorithm, ClientSettings, Work
from fedrage_flwr.cohort import Process
from fedrage_flwr.randomness import Stream
from fedrage_flwr.settings import Ge
from fedrage_flwr.training import Tensors


@dataclass(frozen=True)
class DittoSettings(ClientSettings):
    """Settings of Ditto; both models take the same number of steps of the same size."""

    lam: Annotated[float, Ge(0)]  # λ


class DittoClient(ClientAlgorithm):
    """FedAvg's local steps for the server, and a personal model to predict with."""

    Settings = DittoSettings
    trainings = 2
    keeps_state = True

    def train(self) -> Process[Work]:
        """Send FedAvg's reply; keep the personal model."""
        work = yield from super().train()
        pull = Pull(self.settings.lam, self.task.workspace.parameters_of(self.task.received["arrays"]))
        trained = yield self.local_training([self.personal], Stream.PERSONAL, pull)
        metrics = {**work.metrics, "personal_loss": float(trained.losses.mean())}
        return Work(work.records, metrics, memory={"personal": trained.models[0]})

    @property
    def personal(self) -> Arrays:
        """v_i; the global model before the first participation."""
        return self.task.memory.get("personal", self.task.received["arrays"])

    def evaluate(self) -> Mapping[str, float | list[float]]:
        """Measure v_i, or the global model if this client never took part, on its test part."""
        model = self.task.workspace.model
        model.load(self.personal)
        return self.task.data.measure(model.outputs(self.task.data.test_inputs()))


class Pull:
    """Adds λ (v − θ̂) to the gradient.

    Args:
        lam: λ.
        centre: θ̂, one tensor per parameter.
    """

    cohort_shared = ("centre",)

    def __init__(self, lam: float, centre: Tensors) -> None:
        self.lam, self.centre = lam, centre

    def step_weight(self, loss: Tensor) -> None:
        """Every step counts alike."""

    def direction(self, parameters: Tensors) -> Tensors:
        """λ (v − θ̂)."""
        away = torch._foreach_sub(parameters, self.centre)
        torch._foreach_mul_(away, self.lam)
        return tuple(away)

    def update_state(self, weight: Tensor | None) -> None:
        """Nothing to move."""
