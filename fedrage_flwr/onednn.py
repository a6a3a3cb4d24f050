"""Large matrix products on AMD processors with AVX-512, by oneDNN.

torch multiplies float32 matrices with Intel's MKL, which stays with AVX2 on processors that are not Intel's. oneDNN, which torch
takes for convolutions, goes by what the processor can do, and there needs half to two thirds of MKL's time
(``python -m benchmarks.floor``). Which library computes a product follows from processor and sizes alone, and is never timed.
"""

import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

LARGE = 2_000_000
"""Multiplications from which oneDNN wins; below, what it costs to call (10 µs) decides."""


@cache
def is_better_here() -> bool:
    """Whether this processor is one that MKL leaves half used."""
    present = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return present and torch.backends.cpu.get_cpu_capability() == "AVX512" and "AuthenticAMD" in _processor()


def _processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()


def is_large(inputs: Tensor, weight: Tensor) -> bool:
    """Whether the product of ``affine``, of one model, is large enough."""
    return inputs.shape[-2] * weight.shape[-2] * weight.shape[-1] >= LARGE


def affine(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, of one model or of M models, one after another: a model's bits are those it has alone.

    Args:
        inputs: x, float32 (b, in) or (M, b, in).
        weight: W, (out, in) or (M, out, in).
        bias: b, (out,) or (M, out).

    Returns:
        (b, out) or (M, b, out).
    """
    if weight.ndim == 2:
        return _linear(inputs, weight, bias)
    biases = [None] * len(weight) if bias is None else bias
    return torch.stack([_linear(x, w, b) for x, w, b in zip(inputs, weight, biases, strict=True)])


def add_product_(weight: Tensor, delta: Tensor, inputs: Tensor, scale: float) -> None:
    """W ← W + scale δᵀ x in place; δ (b, out), x (b, in), and a leading axis of M models on all three or none."""
    models = zip(weight, delta, inputs, strict=True) if weight.ndim == 3 else [(weight, delta, inputs)]
    for w, d, x in models:
        w.add_(_linear(d.t(), x.t(), None), alpha=scale)


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return product
