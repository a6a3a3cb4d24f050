"""FedeRage, the client half (FedeRage paper, Algorithm 2, lines 10-13; objective, eq. 14).

    w ← (1−γ) + (γ/α)·1{f(θ; ξ) ≥ β}          β before the update; a tie counts as tail
    θ ← Π_C(θ − η_θ w ∇f(θ; ξ))
    β ← Π_B(β − η_β (1 − w))                   at the same time as θ

| code | paper |
| --- | --- |
| ``alpha``, ``gamma`` | α, γ: tail fraction and mean-CVaR mix |
| ``lr_beta`` | η_β |
| ``beta_range`` | B |
| ``kappa`` | κ(α, γ) = (1−γ) + γ/α, the weight of a tail step |

The weight belongs to the *mini-batch* ξ, not to an example: the batch size is part of the objective.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import Tensor

from clients.base import ClientAlgorithm, ClientSettings, Records, Task, Work, scalar
from clients.weight_modes import WeightMode, replaced_weights
from fedrage_flwr.cohort import Process
from fedrage_flwr.records import to_record
from fedrage_flwr.settings import Gt, Interval


@dataclass(frozen=True)
class FedeRageSettings(ClientSettings):
    """Settings of FedeRage; the names are the paper's."""

    alpha: Annotated[float, Interval(gt=0, le=1)]
    gamma: Annotated[float, Interval(ge=0, le=1)]
    lr_beta: Annotated[float, Gt(0)]
    beta_init: float  # β₀
    beta_range: list[float]  # B = [lower, upper]
    weight_mode: WeightMode  # "loss" is the algorithm; the others are the ablation of clients/weight_modes.py

    def __post_init__(self) -> None:
        if len(self.beta_range) != 2 or not self.beta_range[0] <= self.beta_init <= self.beta_range[1]:
            raise ValueError(
                f"client.beta_range={list(self.beta_range)} must be [lower, upper] and contain client.beta_init={self.beta_init}"
            )

    @property
    def kappa(self) -> float:
        """κ, the price of risk aversion and the largest step weight."""
        return (1 - self.gamma) + self.gamma / self.alpha


class FedeRageClient(ClientAlgorithm):
    """Mean-CVaR local objective with one scalar, β, beside the model."""

    Settings = FedeRageSettings
    cohort_state = ("beta", "replacement")
    cohort_logs = ("weights",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.beta = torch.tensor(task.received["beta"]["value"], dtype=torch.float32, device=self.device)
        self.tail_weight = torch.tensor(self.settings.kappa, device=self.device)
        self.base_weight = torch.tensor(1 - self.settings.gamma, device=self.device)
        self.weights: list[Tensor] = []  # w of every step
        self.replacement: Tensor | None = None  # what the model's steps are weighed with instead; only in an ablation

    @classmethod
    def receives(cls, parameters: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """β̂."""
        return {"beta": to_record({"value": np.zeros((), np.float32)})}

    def train(self) -> Process[Work]:
        """Local SGD with weights, unless an ablation replaces them."""
        if self.settings.weight_mode != "loss":
            self.replacement = replaced_weights(self.task, type(self))
        return (yield from super().train())

    def step_weight(self, loss: Tensor) -> Tensor:
        """κ where the mini-batch loss reaches β, else 1−γ."""
        self.weights.append(torch.where(loss >= self.beta, self.tail_weight, self.base_weight))
        return self.weights[-1] if self.replacement is None else self.replacement[..., len(self.weights) - 1]

    def update_state(self, weight: Tensor | None) -> None:
        """β ← Π_B(β − η_β(1 − w))."""
        lower, upper = self.settings.beta_range
        self.beta = torch.clamp(self.beta - self.settings.lr_beta * (1 - self.weights[-1]), lower, upper)

    def reply(self) -> tuple[Records, dict[str, Any]]:
        """β_i, and for the log: the mean step weight and the share of tail batches."""
        weights = torch.stack(self.weights)
        used = weights if self.replacement is None else self.replacement
        return {"beta": scalar(self.beta)}, {
            "beta": float(self.beta),
            "step_weight_mean": float(used.double().mean()),
            "tail_share": float((weights == self.tail_weight).double().mean()),
        }
