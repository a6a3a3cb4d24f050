"""SCAFFOLD, the client half (Karimireddy et al., ICML 2020, Algorithm 1, lines 7-14).

    K times:  θ_i ← θ_i − η_θ (∇f_i(θ_i; ξ) − c_i + c)
    option I   c_i⁺ = ∇f_i(θ̂)                              the full local gradient at the model received
    option II  c_i⁺ = c_i − c + (θ̂ − θ_i)/(K η_θ)          the mean of the gradients met on the way
    send θ_i and c_i⁺ − c_i; keep c_i⁺

| code | paper |
| --- | --- |
| ``received["control"]`` | c |
| ``memory["control"]`` | c_i, zero at first, moves only when the client takes part |
| ``steps`` | K, the local steps really taken |
| ``correction`` | c − c_i |

Only trainable parameters have control variates. Option II reads the gradients off the way from θ̂ to θ_i, so nothing else may
bend that way: no projection.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import Tensor

from clients.base import Arrays, ClientAlgorithm, ClientSettings, Task, Work
from fedrage_flwr.cohort import Process
from fedrage_flwr.records import non_finite
from fedrage_flwr.training import Tensors, as_tensor


@dataclass(frozen=True)
class ScaffoldSettings(ClientSettings):
    """Settings of SCAFFOLD's clients."""

    option: Literal[1, 2]
    compact_uplink: bool  # what strategy.compact_uplink says

    def __post_init__(self) -> None:
        if self.option == 2 and self.theta_radius is not None:
            raise ValueError(
                f"client.theta_radius={self.theta_radius:g} does not go with client.option=2, which takes the whole way for"
                " gradient steps; type client.option=1 or client.theta_radius=null"
            )
        if self.option == 1 and self.compact_uplink:
            raise ValueError(
                "strategy.compact_uplink=true does not go with client.option=1: the server cannot work out a full gradient;"
                " type client.option=2"
            )


class ScaffoldClient(ClientAlgorithm):
    """Local SGD, corrected by the difference of two control variates."""

    Settings = ScaffoldSettings
    keeps_state = True
    cohort_state = ("correction",)
    cohort_counts = ("steps",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        model = task.workspace.model
        theta = {name: task.received["arrays"][name] for name in model.parameter_names}
        self.control: Arrays = task.received["control"]
        self.own: Arrays = task.memory.get("control") or {name: np.zeros_like(a) for name, a in theta.items()}
        self.correction: Tensors = tuple(
            as_tensor(self.control[name] - self.own[name]).to(self.device) for name in theta
        )
        self.steps = 0

    @classmethod
    def receives(cls, parameters: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """c, like the parameters."""
        return {"control": parameters}

    def direction(self, parameters: Tensors) -> Tensors:
        """− c_i + c."""
        return self.correction

    def update_state(self, weight: Tensor | None) -> None:
        """Count the step."""
        self.steps += 1

    def train(self) -> Process[Work]:
        """K local steps, then c_i⁺. What is not finite is not kept: the server will reject it as well."""
        full = self._full_gradient() if self.settings.option == 1 else None
        work = yield from super().train()
        fresh = full if full is not None else self._mean_gradient(work.records["arrays"])
        change = {name: fresh[name] - own for name, own in self.own.items()}
        records = {} if self.settings.compact_uplink else {"control": change}
        memory = None if non_finite(fresh) else {"control": fresh}
        return Work({**work.records, **records}, work.metrics, memory)

    def _mean_gradient(self, end: Arrays) -> Arrays:
        """Option II, in float64 and back."""
        start, travel = self.task.received["arrays"], self.steps * self.settings.lr
        return {
            name: ((own - self.control[name]) + (start[name].astype(np.float64) - end[name]) / travel).astype(own.dtype)
            for name, own in self.own.items()
        }

    def _full_gradient(self) -> Arrays:
        """Option I: ∇f_i(θ̂) over all n_i examples."""
        model, data = self.task.workspace.model, self.task.data
        model.load(self.task.received["arrays"])
        total = [torch.zeros_like(parameter) for parameter in model.parameters]
        for inputs, targets in data.in_passes(model.pass_size):
            share = len(targets) / data.num_examples
            gradients = torch.autograd.grad(model.loss(inputs, targets), model.parameters)
            torch._foreach_add_(total, gradients, alpha=share)
        return {name: g.cpu().numpy() for name, g in zip(model.parameter_names, total, strict=True)}
