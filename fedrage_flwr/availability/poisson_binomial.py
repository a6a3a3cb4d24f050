"""The number K of independent events that happen: exact pieces for the laws of this folder.

Clients with equal probability are one *group*; its count is binomial, so the cost follows the number of groups G, not
N. Leaving one client out is done without dividing it out (deconvolution cancels when probabilities are near ½ or 1):
the groups are multiplied in a binary tree, and what lies *outside* each leaf comes from walking down the tree, i.e.
from the adjoint of the product. Every term is a product of positive numbers, so relative accuracy is kept. Cost: O(G·M)
when all groups are single clients, O(G·M²) at the most.

Sources: Loader (2000), "Fast and accurate computation of binomial probabilities" (the pmf); Hong (2013), "On computing
the distribution function for the Poisson binomial distribution", CSDA 59 (the convolution recursion).
"""

import math

import numpy as np
from numpy.typing import NDArray

from fedrage_flwr.availability.base import Floats

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_STIRLING = np.array(
    [0.0] + [math.lgamma(k + 1) - (k + 0.5) * math.log(k) + k - 0.5 * math.log(2 * math.pi) for k in range(1, 16)]
)


def gauss_panels(low: float, high: float, width: float) -> tuple[Floats, Floats]:
    """Return nodes and weights of 16-point Gauss–Legendre on equal panels over [low, high], each at most ``width``."""
    edges = np.linspace(low, high, max(1, math.ceil((high - low) / width)) + 1)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (_NODES + 1)).ravel(), (half * _WEIGHTS).ravel()


def _stirling_error(k: NDArray[np.int64]) -> Floats:
    """Return log k! − log(√(2πk) (k/e)^k), k ≥ 1."""
    x = np.maximum(k, 16).astype(np.float64)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * x**2)) / x**2) / x**2) / x
    return np.where(k < 16, _STIRLING[np.minimum(k, 15)], series)


def _deviance(x: Floats, mean: Floats) -> Floats:
    """Return x log(x/mean) + mean − x; the first two terms cancel, hence log1p."""
    return x * np.log1p((x - mean) / mean) - (x - mean)


def _log(p: Floats, complement: Floats) -> Floats:
    """Return log p where p + complement = 1, accurate at both ends."""
    return np.where(complement < 0.5, np.log1p(-np.minimum(complement, 0.5)), np.log(p))


def binomial_pmf(n: NDArray[np.int64], p: Floats, q: Floats, length: int) -> Floats:
    """Return P(Binomial(n, p) = k) for k < ``length``, shape (length, *p.shape), relative error about 1e-14.

    Args:
        n: trials per group, broadcastable to ``p``; zero gives (1, 0, 0, …).
        p: probability of success.
        q: 1 − p, given apart so that neither end loses digits.
        length: how many values of k.
    """
    k = np.arange(length, dtype=np.int64).reshape(-1, *[1] * p.ndim)
    hits, misses, trials = np.maximum(k, 1), np.maximum(n - k, 1), np.maximum(n, 1)
    with np.errstate(all="ignore"):  # ends (k = 0, k ≥ n) and p or q = 0 are set or vanish below
        log_pmf = _stirling_error(trials) - _stirling_error(hits) - _stirling_error(misses)
        log_pmf = log_pmf - _deviance(hits.astype(np.float64), n * p) - _deviance(misses.astype(np.float64), n * q)
        pmf = np.exp(log_pmf) * np.sqrt(trials / (2 * math.pi * hits * misses))
        pmf = np.where((n * p > 0) & (n * q > 0), pmf, 0.0)
        pmf = np.where(k == n, np.exp(n * _log(p, q)), pmf)
        pmf = np.where(k == 0, np.where(n == 0, 1.0, np.exp(n * _log(q, p))), pmf)
    return np.where(k > n, 0.0, pmf)


def _product(a: Floats, b: Floats, length: int) -> Floats:
    """Return the pmf of the sum of two counts, cut to ``length``; the counts run along the first axis."""
    out = np.zeros((min(length, len(a) + len(b) - 1), *a.shape[1:]))
    for j in range(min(len(b), len(out))):
        part = a[: len(out) - j]
        out[j : j + len(part)] += part * b[j]
    return out


def _adjoint(outside: Floats, sibling: Floats, length: int) -> Floats:
    """Return Σ_j sibling[j] · outside[r + j] for r < ``length`` (``outside`` is 0 past its end)."""
    out = np.zeros((length, *sibling.shape[1:]))
    for j in range(min(len(sibling), len(outside))):
        part = outside[j : j + length]
        out[: len(part)] += part * sibling[j]
    return out


def expect_outside(pmfs: Floats, function: Floats) -> Floats:
    """Return E[f(r + sum of all other groups' counts)] for each group and r.

    Args:
        pmfs: counts of the groups, shape (L, T, G): L values of the count, T independent problems.
        function: f(0), f(1), …; zero past its end. No count past its end is ever formed.

    Returns:
        Shape (L, T, G).
    """
    groups, levels = pmfs.shape[2], []
    while pmfs.shape[2] > 1:
        if pmfs.shape[2] % 2:  # an empty group (count 0) makes pairs
            pmfs = np.concatenate([pmfs, np.zeros_like(pmfs[:, :, :1])], axis=2)
            pmfs[0, :, -1] = 1.0
        levels.append(pmfs)
        half = pmfs.shape[2] // 2
        pmfs = _product(pmfs[:, :, :half], pmfs[:, :, half:], len(function))
    outside = np.tile(function[: len(pmfs), None, None], (1, pmfs.shape[1], 1))
    for level in reversed(levels):
        half, length = level.shape[2] // 2, len(level)
        outside = outside[:, :, :half]  # without the empty group
        left, right = level[:, :, :half], level[:, :, half:]
        outside = np.concatenate([_adjoint(outside, right, length), _adjoint(outside, left, length)], axis=2)
    return outside[:, :, :groups]


def mean_share(pi: Floats) -> Floats:
    """Return p_i = E[1{i}/K | K > 0] for independent events of probabilities ``pi`` (N,), not all zero.

    E[1{i}/K] = π_i E[1/(1 + K₋ᵢ)] = π_i ∫₀¹ Π_{j≠i} (1 − π_j y) dy, since ∫₀¹ s^k ds = 1/(k+1) (s = 1 − y). For N ≤ 32
    the 16-point rule is exact for the polynomial. In general, with μ = Σπ, the integrand is below e^{1−μy}, so it is cut at
    μy = 50 (e^{−49} = 5e-22), and at most e^{2μr} times larger within a distance r of the real line, so that panels of
    width 4/μ leave an error near 1e-26: 13 panels at most, for any N.
    """
    mean = float(pi.sum())
    nodes, weights = gauss_panels(0.0, min(1.0, 50 / mean), 4 / mean)
    integral = np.zeros_like(pi)
    for y, weight in zip(nodes, weights, strict=True):
        log_factors = np.log1p(-pi * y)
        integral += weight * np.exp(log_factors.sum() - log_factors)
    return pi * integral / probability_any(pi)


def probability_any(pi: Floats) -> float:
    """Return P(K > 0), without losing digits when every π is tiny."""
    with np.errstate(divide="ignore"):  # a certain event: log 0
        return float(-np.expm1(np.log1p(-pi).sum()))
