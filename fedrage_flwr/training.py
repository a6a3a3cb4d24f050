"""The only local-SGD loop. Client algorithms are small hooks on it.

    for each of the H steps, on one mini-batch ξ:
        f ← loss at θ
        w ← step_weight(f)                     how much this step counts (1 unless the algorithm says otherwise)
        d ← direction(θ)                       what is added to the gradient (nothing unless …)
        θ ← Π_C(θ − η_θ (w ∇f + d))
        update_state(w)                        with the values from before the step

Every quantity may carry a leading cohort axis of M models; hooks contain no branches on data, so they run unchanged on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedrage_flwr.linear_stack import LinearStack, is_linear_stack, same_bits_stacked
from fedrage_flwr.losses import Loss, cross_entropy

Tensors = tuple[Tensor, ...]
"""One tensor per parameter, in the model's order."""


class Hooks(Protocol):
    """What a client algorithm adds to plain SGD."""

    def step_weight(self, loss: Tensor) -> Tensor | None:
        """Return w from the mini-batch loss, shape () or (M,); None means 1 and costs nothing."""

    def direction(self, parameters: Tensors) -> Tensors | None:
        """Return what is added to the weighted gradient at these parameters; None means nothing and costs nothing."""

    def update_state(self, weight: Tensor | None) -> None:
        """Move the algorithm's own state after a step of weight ``weight``."""


class Trainable(Protocol):
    """What the loop trains: one model, or M of them stacked."""

    parameters: Tensors

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of one mini-batch, shape () or (M,), outside autograd; remembers what ``descend`` needs."""

    def descend(self, weight: Tensor | None, lr: float) -> None:
        """θ ← θ − η w ∇f, once after each ``forward``."""


class AutogradStep:
    """Forward and descent of any model by autograd.

    Args:
        loss: (inputs, targets) -> mean losses, shape () or (M,), differentiable.
        parameters: what moves.
    """

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor], parameters: Tensors) -> None:
        self._loss, self._parameters = loss, parameters
        self._graph: Tensor | None = None

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """See ``Trainable``."""
        with torch.enable_grad():
            loss = self._loss(inputs, targets)
            self._graph = loss.sum() if loss.ndim else loss
        return loss.detach()

    def descend(self, weight: Tensor | None, lr: float) -> None:
        """See ``Trainable``."""
        assert self._graph is not None
        gradients = torch.autograd.grad(self._graph, self._parameters)
        self._graph = None
        if weight is not None:
            _scale_(gradients, weight)
        torch._foreach_add_(self._parameters, gradients, alpha=-lr)


def make_step(
    loss: Callable[[Tensor, Tensor], Tensor], parameters: Tensors, by_hand: bool, compile: bool
) -> LinearStack | AutogradStep:
    """Return what computes forward and descent: by hand, or by autograd of ``loss``, which torch may compile."""
    if by_hand:
        return LinearStack(parameters)
    return AutogradStep(torch.compile(loss) if compile else loss, parameters)


KNOWN_LAYERS = (
    nn.Conv2d, nn.GroupNorm, nn.ReLU, nn.Tanh, nn.Identity, nn.MaxPool2d, nn.AvgPool2d, nn.Flatten, nn.Linear,
)  # fmt: skip


def is_known_chain(module: nn.Module) -> bool:
    """Whether a module is a chain of layers that the engine knows."""
    return type(module) is nn.Sequential and all(type(layer) in KNOWN_LAYERS for layer in module.children())


def wants_channels_last(module: nn.Module, device: torch.device) -> bool:
    """Whether images are to lie in memory with their channels last: a fifth less time for convolutions and pooling on a CPU.

    Only for chains of known layers: a module of the user's may rely on the other order (``view`` does).
    """
    has_images = any(type(layer) is nn.Conv2d for layer in module.children())
    return device.type == "cpu" and has_images and is_known_chain(module)


PASS, PASS_OF_IMAGES = 2048, 64
"""Examples in one forward pass over many; the second for convolutions on a CPU, whose activations are then small enough for the
memory that is kept (``memory.py``): 64 images of 32 channels and 32×32 take 8 MiB."""


class LocalModel:
    """A module whose parameters are overwritten by each model received; one per process and device.

    Args:
        module: the network; it is moved to ``device``.
        loss: loss of each example.
        device: where the arithmetic runs.
        compile: hand forward and backward to ``torch.compile``; it leaves linear chains alone, which are written by hand.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss = cross_entropy,
        device: torch.device | str = "cpu",
        compile: bool = False,
    ) -> None:
        self.device = torch.device(device)
        self.module = module.to(self.device).train()
        self.pass_size = PASS
        """Examples in one forward pass over many."""
        if wants_channels_last(module, self.device):
            self.module.to(memory_format=torch.channels_last)
            self.pass_size = PASS_OF_IMAGES
        self.example_loss = loss
        self.parameters: Tensors = tuple(p for p in module.parameters() if p.requires_grad)
        self.parameter_names: tuple[str, ...] = tuple(n for n, p in module.named_parameters() if p.requires_grad)
        self._tensors: dict[str, Tensor] = dict(module.state_dict())
        self.by_hand = is_linear_stack(module, loss)
        """Gradients are written out (``fedrage_flwr.linear_stack``); else autograd finds them."""
        self.compile = compile and not self.by_hand
        self._step = make_step(self.loss, self.parameters, self.by_hand, self.compile)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """See ``Trainable``."""
        return self._step.forward(inputs, targets)

    def descend(self, weight: Tensor | None, lr: float) -> None:
        """See ``Trainable``."""
        self._step.descend(weight, lr)

    @torch.no_grad()
    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Overwrite parameters and buffers with ``arrays`` (names of the module's state dict)."""
        for name, tensor in self._tensors.items():
            tensor.copy_(as_tensor(arrays[name]), non_blocking=True)

    @torch.no_grad()
    def arrays(self) -> dict[str, np.ndarray]:
        """Return a copy of parameters and buffers on the CPU, in C order."""
        plain = torch.contiguous_format  # not as the layers have them in memory
        copies = {n: t.detach().to("cpu", copy=True, memory_format=plain) for n, t in self._tensors.items()}
        return {name: tensor.numpy() for name, tensor in copies.items()}

    def same_bits_stacked(self, batch_size: int) -> bool:
        """Whether models trained as a stack, on mini-batches of this size, have the bits of models trained alone, on a CPU."""
        return self.by_hand and same_bits_stacked(self.parameters, batch_size)

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of one mini-batch, shape ()."""
        return self.example_loss(self.module(inputs), targets).mean()

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Tensor:
        """Outputs for many examples, in evaluation mode, ``pass_size`` at a time; shape (n, …)."""
        parts = torch.split(inputs, self.pass_size)
        if isinstance(self._step, LinearStack):
            return torch.cat([self._step.outputs(part) for part in parts])
        self.module.eval()
        outputs = [self.module(part) for part in parts]
        self.module.train()
        return torch.cat(outputs)


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
    """Draw ``steps`` fresh mini-batches, each uniform without replacement (FedeRage paper, Section IV).

    Returns:
        int64 positions in 0..num_examples-1, shape (steps, min(batch_size, num_examples)); the whole set, in order, when
        it is no larger than a batch.
    """
    if num_examples <= batch_size:
        return np.tile(np.arange(num_examples), (steps, 1))
    return np.stack([rng.choice(num_examples, batch_size, replace=False, shuffle=False) for _ in range(steps)])


@torch.no_grad()
def local_sgd(
    model: Trainable, inputs: Tensor, targets: Tensor, hooks: Hooks, lr: float, radius: float | None = None
) -> Tensor:
    """Run H local steps in place on ``model``.

    Args:
        model: the parameters to move.
        inputs: H mini-batches, shape (H, …).
        targets: their targets, shape (H, …).
        hooks: the algorithm.
        lr: η_θ.
        radius: Π_C, the ball round the origin of all trainable parameters flattened; None leaves it out.

    Returns:
        The mini-batch losses, each before its step, shape (H,) or (H, M), on the model's device.
    """
    losses = []
    parameters = model.parameters
    for batch, target in zip(inputs, targets, strict=True):
        loss = model.forward(batch, target)
        weight = hooks.step_weight(loss)
        extra = hooks.direction(parameters)
        model.descend(weight, lr)
        if extra is not None:
            torch._foreach_add_(parameters, extra, alpha=-lr)
        if radius is not None:
            project_ball_(parameters, radius, cohort=loss.ndim == 1)
        hooks.update_state(weight)
        losses.append(loss)
    return torch.stack(losses)


def _scale_(gradients: Tensors, weight: Tensor) -> None:
    if weight.ndim == 0:
        torch._foreach_mul_(gradients, weight)
    else:
        for gradient in gradients:
            gradient.mul_(per_model(weight, gradient))


def per_model(values: Tensor, like: Tensor) -> Tensor:
    """View (M,) values so that they broadcast along the models of a stacked tensor (M, …)."""
    return values.view(-1, *(1,) * (like.ndim - 1))


@torch.no_grad()
def project_ball_(parameters: Tensors, radius: float, cohort: bool = False) -> None:
    """Π_C in place: scale all parameters of a model together so that their joint Euclidean norm is at most ``radius``."""
    dims = [tuple(range(int(cohort), p.ndim)) for p in parameters]
    norms = [torch.linalg.vector_norm(p, dim=d) if d else p.abs() for p, d in zip(parameters, dims, strict=True)]
    norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    _scale_(parameters, torch.where(norm > radius, radius / norm, 1.0))
