"""Chains of linear layers with ReLU under cross-entropy, differentiated by hand.

A gradient is never stored: each layer's is multiplied straight into its parameters (``addmm_``). For one model on a CPU that is
the fastest path there is (docs/performance.md); for M stacked models the same lines run on batched products.

    forward   a_0 = x,   z_l = a_{l−1} W_lᵀ + b_l,   a_l = max(z_l, 0),   f = mean cross-entropy of z_L
    backward  δ_L = (softmax(z_L) − onehot)/b,   δ_{l−1} = (δ_l W_l) ∘ 1{a_{l−1} > 0}
    descend   W_l ← W_l − η w δ_lᵀ a_{l−1},   b_l ← b_l − η w Σ δ_l
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedrage_flwr.losses import Loss, cross_entropy


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
    """Forward and descent over parameters that live elsewhere.

    Args:
        parameters: W_1, b_1, W_2, b_2, …; of one model, or of M models with a leading axis.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        tensors = [parameter.detach() for parameter in parameters]  # the same memory, outside autograd
        self._weights, self._biases = tensors[0::2], tensors[1::2]
        self._stacked = self._weights[0].ndim == 3
        self._activations: list[Tensor] = []
        self._delta = tensors[0]

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss, shape () or (M,); keeps what ``descend`` needs.

        Args:
            inputs: (b, …), or for M models (M, b, …); an (M, …) axis of size 1 is shared by all.
            targets: (b,) or (M, b).
        """
        activation = inputs.flatten(2 if self._stacked else 1)
        self._activations = [activation]
        last = len(self._weights) - 1
        for layer, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            activation = self._affine(activation, weight, bias)
            if layer < last:
                self._activations.append(activation.relu_())
        log_p = functional.log_softmax(activation, -1)
        index = targets.unsqueeze(-1)
        loss = -log_p.gather(-1, index).squeeze(-1).mean(-1)
        self._delta = log_p.exp_()
        self._delta.scatter_add_(-1, index, torch.full_like(index, -1, dtype=self._delta.dtype))
        self._delta /= targets.shape[-1]
        return loss

    def descend(self, weight: Tensor | None, lr: float) -> None:
        """θ ← θ − η w ∇f, with w of shape () or (M,); None is 1."""
        delta = self._delta
        if weight is not None:
            delta = delta.mul_(weight.view(-1, 1, 1) if self._stacked else weight)
        for layer in range(len(self._weights) - 1, -1, -1):
            activation, matrix = self._activations[layer], self._weights[layer]
            behind = (delta @ matrix).mul_(activation > 0) if layer else None
            if self._stacked:
                matrix.baddbmm_(delta.transpose(1, 2), activation.expand(len(matrix), -1, -1), alpha=-lr)
            else:
                matrix.addmm_(delta.t(), activation, alpha=-lr)
            self._biases[layer].add_(delta.sum(-2), alpha=-lr)
            if behind is not None:
                delta = behind

    def _affine(self, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if self._stacked:
            return torch.baddbmm(bias.unsqueeze(1), inputs.expand(len(weight), -1, -1), weight.transpose(1, 2))
        return torch.addmm(bias, inputs, weight.t())
