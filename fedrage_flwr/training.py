"""The only local-SGD loop. Client algorithms are small hooks on it.

    for each of the H steps, on one mini-batch ξ:
        f, ∇f ← loss and gradient at θ
        w     ← step_weight(f)                 how much this step counts (1 unless the algorithm says otherwise)
        d     ← direction(w·∇f)                what is added to the gradient (nothing unless …)
        θ     ← Π_C(θ − η_θ d)
        update_state(w)                        with the values from before the step

Every quantity may carry a leading cohort axis; hooks contain no branches on data, so they run unchanged on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""(outputs (b, …), targets (b, …)) -> mean loss over the batch, shape ()."""


Tensors = tuple[Tensor, ...]
"""One tensor per parameter, in the model's order."""


class Hooks(Protocol):
    """What a client algorithm adds to plain SGD."""

    def step_weight(self, loss: Tensor) -> Tensor | None:
        """Return w from the mini-batch loss; None means 1 and costs nothing."""

    def direction(self, gradients: Tensors, parameters: Tensors) -> Tensors:
        """Return the direction d from the weighted gradients and the current parameters."""

    def update_state(self, weight: Tensor | None) -> None:
        """Move the algorithm's own state after a step of weight ``weight``."""


class LocalModel:
    """A module whose parameters are overwritten by each model received; one per process and device.

    Args:
        module: the network; it is moved to ``device``.
        loss: mean loss of a batch; cross-entropy unless given.
        device: where the arithmetic runs.
    """

    def __init__(
        self, module: nn.Module, loss: LossFunction = functional.cross_entropy, device: torch.device | str = "cpu"
    ) -> None:
        self.module = module.to(device).train()
        self.device = torch.device(device)
        self._loss = loss
        self.parameters: Tensors = tuple(p for p in module.parameters() if p.requires_grad)
        self.parameter_names: tuple[str, ...] = tuple(n for n, p in module.named_parameters() if p.requires_grad)
        self._tensors: dict[str, Tensor] = dict(module.state_dict())

    @torch.no_grad()
    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """Overwrite parameters and buffers with ``arrays`` (names of the module's state dict)."""
        for name, tensor in self._tensors.items():
            tensor.copy_(as_tensor(arrays[name]), non_blocking=True)

    @torch.no_grad()
    def arrays(self) -> dict[str, np.ndarray]:
        """Return a copy of parameters and buffers on the CPU."""
        return {name: tensor.detach().to("cpu", copy=True).numpy() for name, tensor in self._tensors.items()}

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of one mini-batch, shape ()."""
        return self._loss(self.module(inputs), targets)


def as_tensor(array: np.ndarray) -> Tensor:
    """Share an ndarray with torch for reading only (torch has no read-only tensors and would warn)."""
    if not array.flags.writeable:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        array = np.asarray(_Interface(interface, array))
    return torch.from_numpy(array)


@dataclass(frozen=True)
class _Interface:
    __array_interface__: dict[str, object]
    owner: np.ndarray  # keeps the memory alive


def draw_batches(rng: np.random.Generator, num_examples: int, batch_size: int, steps: int) -> np.ndarray:
    """Draw ``steps`` fresh mini-batches, each uniform without replacement (ALGORITHMS.md §1).

    Returns:
        int64 positions in 0..num_examples-1, shape (steps, min(batch_size, num_examples)); the whole set, in order, when
        it is no larger than a batch.
    """
    if num_examples <= batch_size:
        return np.tile(np.arange(num_examples), (steps, 1))
    return np.stack([rng.choice(num_examples, batch_size, replace=False, shuffle=False) for _ in range(steps)])


def local_sgd(
    model: LocalModel, inputs: Tensor, targets: Tensor, hooks: Hooks, lr: float, radius: float | None = None
) -> Tensor:
    """Run H local steps in place on ``model``.

    Args:
        model: the parameters to move.
        inputs: H mini-batches, shape (H, b, …).
        targets: their targets, shape (H, b, …).
        hooks: the algorithm.
        lr: η_θ.
        radius: Π_C, the ball round the origin of all trainable parameters flattened; None leaves it out.

    Returns:
        The H mini-batch losses, each before its step, shape (H,), on the model's device.
    """
    losses = []
    parameters = model.parameters
    for batch, target in zip(inputs, targets, strict=True):
        loss = model.loss(batch, target)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            loss = loss.detach()
            weight = hooks.step_weight(loss)
            if weight is not None:
                torch._foreach_mul_(gradients, weight)
            torch._foreach_add_(parameters, hooks.direction(gradients, parameters), alpha=-lr)
            if radius is not None:
                project_ball_(parameters, radius)
            hooks.update_state(weight)
        losses.append(loss)
    return torch.stack(losses)


@torch.no_grad()
def project_ball_(parameters: Tensors, radius: float) -> None:
    """Π_C in place: scale all parameters together so that their joint Euclidean norm is at most ``radius``."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(parameters)))
    torch._foreach_mul_(parameters, torch.clamp(radius / norm, max=1.0).nan_to_num(1.0, posinf=1.0))
