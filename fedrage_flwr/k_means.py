"""Choosing models far from each other: k-means++ (Arthur and Vassilvitskii, SODA 2007), the best of many seedings."""

from collections.abc import Mapping, Sequence

import numpy as np

Arrays = Mapping[str, np.ndarray]

SEEDINGS = 100  # one alone overlooks a small group too often
ROUNDING = 1e-12  # squared distances below this share of the largest squared norm are none


def spread_out(distances: np.ndarray, number: int, rng: np.random.Generator) -> list[int]:
    """Choose models far from each other: the best of many k-means++ seedings.

    Args:
        distances: squared, between all models, (n, n).
        number: G.

    Returns:
        Positions of the seeding with the smallest Σ_i min_{chosen j} D²(i, j); fewer than ``number`` if there are not so many
        different models.
    """
    seedings = [k_means_plus_plus(distances, number, rng) for _ in range(SEEDINGS)]
    return min(seedings, key=lambda chosen: float(distances[chosen].min(0).sum()))


def k_means_plus_plus(distances: np.ndarray, number: int, rng: np.random.Generator) -> list[int]:
    """One seeding: the first uniformly, each next one with probability ∝ its squared distance to the nearest chosen."""
    chosen = [int(rng.integers(len(distances)))]
    while len(chosen) < number:
        nearest = distances[chosen].min(0)
        if not nearest.any():
            break
        chosen.append(int(rng.choice(len(distances), p=nearest / nearest.sum())))
    return chosen


def squared_distances(models: Sequence[Arrays]) -> np.ndarray:
    """Squared Euclidean distances between models, float64 (n, n); 0 between equal ones. Integer buffers are left out."""
    gram = np.zeros((len(models), len(models)))
    for name, first in models[0].items():
        if first.dtype.kind == "f":
            rows = np.stack([model[name].ravel().astype(np.float64) for model in models])
            rows -= rows.mean(0)  # far less is lost to cancellation below
            gram += rows @ rows.T
    norms = np.diag(gram)
    distances = norms[:, None] + norms - 2 * gram
    distances[distances <= ROUNDING * norms.max()] = 0
    return np.asarray(distances)
