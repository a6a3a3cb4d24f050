"""Losses by kind of task; each gives one number per example."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs (n, …), targets (n, …)) -> losses (n,)."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """−log softmax(outputs)[target]."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """(output − target)², without the ½ (FOCUS paper, Section 4)."""
    return (outputs.reshape(targets.shape) - targets).square()


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """|output − target|: convex and not smooth, as FedeRage's theorems allow."""
    return (outputs.reshape(targets.shape) - targets).abs()


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "squared_error": squared_error,
    "absolute_error": absolute_error,
}


def correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """Which examples are classified right, bool (n,); for real targets there is no such thing: NaN."""
    if targets.is_floating_point():
        return torch.full(targets.shape[:1], torch.nan, device=targets.device)
    return outputs.argmax(-1) == targets
