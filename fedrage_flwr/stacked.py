"""M models of one architecture trained as one batched computation on stacked parameters.

``nn.Sequential`` of known layers (``training.KNOWN_LAYERS``) is walked layer by layer with plain autograd; any other goes through
``torch.func.vmap``. Both give, model by model, what ``LocalModel`` gives, to rounding.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedrage_flwr.linear_stack import LinearStack
from fedrage_flwr.training import LocalModel, Tensors, as_tensor, is_known_chain, make_step, wants_channels_last

Layer = Callable[[nn.Module, Sequence[Tensor], Tensor], Tensor]
"""(layer, its stacked parameters, inputs (M, b, …)) -> outputs (M, b, …)."""


class StackedModel:
    """M copies of a model's network, each with parameters of its own.

    Args:
        like: gives architecture, loss and device.
        models: M.
        memory: of at least as many models, from ``empty_stack``; None takes new one.
    """

    def __init__(self, like: LocalModel, models: int, memory: Tensors | None = None) -> None:
        self.models = models
        self.device = like.device
        self.pass_size = like.pass_size
        self._module = like.module
        self._loss = like.example_loss
        self._names = like.parameter_names
        self.parameters: Tensors = tuple(
            tensor[:models].requires_grad_() for tensor in memory or empty_stack(like, models)
        )
        self._step = make_step(self.loss, self.parameters, like.by_hand, like.compile)
        self._outputs = self._walk if can_walk(like.module) else self._vmap
        if wants_channels_last(like.module, like.device):
            self._outputs = self._in_turn
        if isinstance(self._step, LinearStack):
            self._outputs = self._step.outputs

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """See ``Trainable``; inputs and targets as for ``loss``."""
        if targets.ndim == 1:
            inputs, targets = inputs.unsqueeze(0), targets.expand(self.models, -1)
        return self._step.forward(inputs, targets)

    def descend(self, weight: Tensor | None, lr: float) -> None:
        """See ``Trainable``."""
        self._step.descend(weight, lr)

    @torch.no_grad()
    def load(self, arrays: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Overwrite the parameters with those of M models."""
        for name, parameter in zip(self._names, self.parameters, strict=True):
            if all(model is arrays[0] for model in arrays):  # the broadcast: one transfer, M copies on the device
                parameter.copy_(as_tensor(arrays[0][name]).to(self.device, non_blocking=True))
                continue
            for own, model in zip(parameter, arrays, strict=True):
                own.copy_(as_tensor(model[name]), non_blocking=True)

    @torch.no_grad()
    def arrays(self) -> list[dict[str, np.ndarray]]:
        """Return copies of the parameters of the M models on the CPU."""
        copies = [parameter.detach().to("cpu", copy=True).numpy() for parameter in self.parameters]
        return [{n: c[m] for n, c in zip(self._names, copies, strict=True)} for m in range(self.models)]

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of one mini-batch for each model, shape (M,).

        Args:
            inputs: (b, …) shared by all models if ``targets`` is (b,), else (M, b, …), or (1, b, …) shared.
            targets: (b,) or (M, b).
        """
        return self.example_losses(inputs, targets).mean(1)

    def example_losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of every example under every model, shape (M, b)."""
        if targets.ndim == 1:
            inputs, targets = inputs.unsqueeze(0), targets.expand(self.models, -1)
        outputs = self._outputs(inputs.expand(self.models, *inputs.shape[1:]))
        return self._loss(outputs.flatten(0, 1), targets.flatten()).view(self.models, -1)

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Tensor:
        """Outputs of every model for many examples, ``pass_size`` at a time; shape (M, n, …)."""
        parts = torch.split(inputs, self.pass_size)
        return torch.cat([self._outputs(part.expand(self.models, *part.shape)) for part in parts], dim=1)

    def _walk(self, inputs: Tensor) -> Tensor:
        position = 0
        for layer in self._module.children():
            count = sum(1 for _ in layer.parameters())
            inputs = _LAYERS[type(layer)](layer, self.parameters[position : position + count], inputs)
            position += count
        return inputs

    def _in_turn(self, inputs: Tensor) -> Tensor:
        """One model after another, as ``LocalModel`` computes it: on a CPU a grouped convolution takes twice as long."""
        models = zip(*(parameter.unbind() for parameter in self.parameters), strict=True)
        outputs: list[Tensor] = []
        for own, part in zip(models, inputs, strict=True):
            parameters = {name: _images_last(p) for name, p in zip(self._names, own, strict=True)}
            outputs.append(functional_call(self._module, parameters, (_images_last(part),)))
        return torch.stack(outputs)

    def _vmap(self, inputs: Tensor) -> Tensor:
        def one(parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
            output: Tensor = functional_call(self._module, parameters, (inputs,))
            return output

        stacked = dict(zip(self._names, self.parameters, strict=True))
        outputs: Tensor = torch.func.vmap(one)(stacked, inputs)
        return outputs


def _images_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def empty_stack(like: LocalModel, models: int) -> Tensors:
    """Return memory for the parameters of so many models."""
    return tuple(torch.zeros((models, *p.shape), dtype=p.dtype, device=p.device) for p in like.parameters)


def can_walk(module: nn.Module) -> bool:
    """Whether a module is a chain of layers known here."""
    return is_known_chain(module) and all(_is_plain(layer) for layer in module.children())


def _is_plain(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros"
    return not isinstance(layer, nn.Flatten) or (layer.start_dim, layer.end_dim) == (1, -1)


def _linear(layer: nn.Module, parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    weight = parameters[0].transpose(1, 2)
    if len(parameters) == 1:
        return torch.bmm(inputs, weight)
    return torch.baddbmm(parameters[1].unsqueeze(1), inputs, weight)


def _conv2d(layer: nn.Module, parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    """One grouped convolution: the models' channels lie side by side."""
    assert isinstance(layer, nn.Conv2d)
    models, batch = inputs.shape[:2]
    side_by_side = inputs.transpose(0, 1).flatten(1, 2)
    bias = parameters[1].flatten() if len(parameters) > 1 else None
    outputs = functional.conv2d(
        side_by_side, parameters[0].flatten(0, 1), bias, layer.stride, layer.padding, layer.dilation, groups=models
    )
    return outputs.view(batch, models, -1, *outputs.shape[2:]).transpose(0, 1)


def _group_norm(layer: nn.Module, parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    assert isinstance(layer, nn.GroupNorm)
    models = len(inputs)
    normal = functional.group_norm(inputs.flatten(0, 1), layer.num_groups, eps=layer.eps).view(inputs.shape)
    if not parameters:
        return normal
    shape = (models, 1, -1, *(1,) * (inputs.ndim - 3))
    return normal * parameters[0].view(shape) + parameters[1].view(shape)


def _elementwise(layer: nn.Module, parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    output: Tensor = layer(inputs)
    return output


def _per_image(layer: nn.Module, parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    outputs: Tensor = layer(inputs.flatten(0, 1))
    return outputs.view(*inputs.shape[:2], *outputs.shape[1:])


def _flatten(layer: nn.Module, parameters: Sequence[Tensor], inputs: Tensor) -> Tensor:
    return inputs.flatten(2)


_LAYERS: dict[type[nn.Module], Layer] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    nn.GroupNorm: _group_norm,
    nn.ReLU: _elementwise,
    nn.Tanh: _elementwise,
    nn.Identity: _elementwise,
    nn.MaxPool2d: _per_image,
    nn.AvgPool2d: _per_image,
    nn.Flatten: _flatten,
}
