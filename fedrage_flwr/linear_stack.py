"""Chains of linear layers with ReLU under cross-entropy, differentiated by hand.

A gradient is never stored: each layer's is multiplied straight into its parameters (``addmm_``). For one model on a CPU that is
the fastest path there is (docs/performance.md); for M stacked models the same lines run on batched products.

    forward   a_0 = x,   z_l = a_{l−1} W_lᵀ + b_l,   a_l = max(z_l, 0),   f = mean cross-entropy of z_L
    backward  δ_L = softmax(z_L) − onehot,   δ_{l−1} = (δ_l W_l) ∘ 1{a_{l−1} > 0}
    descend   W_l ← W_l − (η w/b) δ_lᵀ a_{l−1},   b_l ← b_l − (η w/b) Σ δ_l
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedrage_flwr import onednn
from fedrage_flwr.losses import Loss, cross_entropy

ALIGNED = 16  # float32 numbers in 64 bytes
SMALLEST = 400  # multiplications below which torch has a kernel of its own for batched products


def is_linear_stack(module: nn.Module, loss: Loss) -> bool:
    """Whether a module is Flatten, Linear, (ReLU, Linear)… with biases, trained under cross-entropy."""
    layers = list(module.children()) if type(module) is nn.Sequential else []
    kinds = [type(layer) for layer in layers]
    wanted = [nn.Flatten, nn.Linear] + [nn.ReLU, nn.Linear] * ((len(layers) - 2) // 2)
    if loss is not cross_entropy or kinds != wanted or not layers:
        return False
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    return all(layer.bias is not None and layer.weight.requires_grad and layer.bias.requires_grad for layer in linear)


class LinearStack:
    """Forward and descent over parameters that live elsewhere and never move in memory.

    Args:
        parameters: W_1, b_1, W_2, b_2, …; of one model, or of M models with a leading axis.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        tensors = [parameter.detach() for parameter in parameters]  # the same memory, outside autograd
        self._weights, self._biases = tensors[0::2], tensors[1::2]
        self._stacked = self._weights[0].ndim == 3
        self._transposed = [weight.transpose(-1, -2) for weight in self._weights]
        self._rows = [bias.unsqueeze(-2) if self._stacked else bias for bias in self._biases]
        self._onednn = onednn.is_better_here() and (tensors[0].device.type, tensors[0].dtype) == ("cpu", torch.float32)
        self._activations: list[Tensor] = []
        self._delta = tensors[0]
        self._minus_one = tensors[0]

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss, shape () or (M,); keeps what ``descend`` needs.

        Args:
            inputs: (b, …), or for M models (M, b, …); an (M, …) axis of size 1 is shared by all.
            targets: (b,) or (M, b).
        """
        log_p = torch.log_softmax(self.outputs(inputs), -1)
        index = targets.unsqueeze(-1)
        loss = log_p.gather(-1, index).mean((-2, -1)).neg_()
        if self._minus_one.shape != index.shape:
            self._minus_one = log_p.new_full(index.shape, -1)
        self._delta = log_p.exp_().scatter_add_(-1, index, self._minus_one)
        return loss

    def outputs(self, inputs: Tensor) -> Tensor:
        """z_L, (b, classes) or (M, b, classes); inputs as for ``forward``. Keeps the a_l."""
        activation = inputs.flatten(2 if self._stacked else 1)
        if self._stacked and len(activation) != len(self._weights[0]):
            activation = activation.expand(len(self._weights[0]), -1, -1)
        self._activations = [activation]
        for layer in range(len(self._weights) - 1):
            activation = self._affine(layer, activation).relu_()
            self._activations.append(activation)
        return self._affine(-1, activation)

    def _affine(self, layer: int, activation: Tensor) -> Tensor:
        if self._onednn and onednn.is_large(activation, self._weights[layer]):
            return onednn.affine(activation, self._weights[layer], self._biases[layer])
        affine = torch.baddbmm if self._stacked else torch.addmm
        return affine(self._rows[layer], activation, self._transposed[layer])

    def descend(self, weight: Tensor | None, lr: float) -> None:
        """θ ← θ − η w ∇f, with w of shape () or (M,); None is 1."""
        delta = self._delta
        step = -lr / delta.shape[-2]
        if weight is not None:
            delta = delta.mul_(weight.view(-1, 1, 1) if self._stacked else weight)
        for layer in range(len(self._weights) - 1, -1, -1):
            activation, matrix = self._activations[layer], self._weights[layer]
            large = self._onednn and onednn.is_large(activation, matrix)
            behind = delta
            if layer:
                behind = onednn.affine(delta, self._transposed[layer]) if large else torch.matmul(delta, matrix)
                behind.mul_(activation > 0)
            if large:
                onednn.add_product_(matrix, delta, activation, step)
            else:
                add = matrix.baddbmm_ if self._stacked else matrix.addmm_
                add(delta.transpose(-1, -2), activation, alpha=step)
            self._biases[layer].add_(delta.sum(-2), alpha=step)
            delta = behind


def same_bits_stacked(parameters: Sequence[Tensor], batch_size: int) -> bool:
    """Whether M such models, stacked in any number, give on a CPU the bits they give one by one.

    Matrix products round differently for operands that do not begin at a multiple of 64 bytes, so every matrix of one model
    must fill whole such blocks; very small products, and those with a vector, have other kernels.
    ``tests/test_linear_stack.py`` tries this condition over many shapes.

    Args:
        parameters: W_1, b_1, …, of one model.
        batch_size: b.
    """
    shapes = [tuple(weight.shape) for weight in parameters[0::2]]
    matrices = [size for rows, columns in shapes for size in (rows * columns, batch_size * rows, batch_size * columns)]
    smallest = min(batch_size * rows * columns for rows, columns in shapes)
    no_vectors = batch_size > 1 and all(min(shape) > 1 for shape in shapes)
    return no_vectors and smallest >= SMALLEST and all(size % ALIGNED == 0 for size in matrices)
