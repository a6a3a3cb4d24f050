"""FedProx, the client half (Li et al., MLSys 2020, eq. 2).

    min_θ  f_i(θ) + (μ/2)‖θ − θ̂‖²         by H steps  θ ← Π_C(θ − η_θ (∇f_i(θ; ξ) + μ(θ − θ̂)))

| code | paper |
| --- | --- |
| ``mu`` | μ |
| ``received`` | θ̂ (w^t), the model as it came: a copy that stays where it is |

The norm is squared, so its gradient is μ(θ − θ̂). The loss reported is f_i alone. Only parameters are pulled, not buffers.
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from clients.base import ClientAlgorithm, ClientSettings, Task
from fedrage_flwr.settings import Ge
from fedrage_flwr.training import Tensors


@dataclass(frozen=True)
class FedProxSettings(ClientSettings):
    """Settings of FedProx."""

    mu: Annotated[float, Ge(0)]


class FedProxClient(ClientAlgorithm):
    """Local SGD with a pull towards the model received."""

    Settings = FedProxSettings
    cohort_shared = ("received",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.received = task.workspace.parameters_of(task.received["arrays"])

    def direction(self, parameters: Tensors) -> Tensors:
        """μ(θ − θ̂)."""
        away = torch._foreach_sub(parameters, self.received)
        torch._foreach_mul_(away, self.settings.mu)
        return tuple(away)
