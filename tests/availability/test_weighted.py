"""Successive sampling: inclusion against the enumeration of all ordered draws, draws against the exact law."""

from collections import defaultdict
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from fedrage_flwr.availability.weighted import successive_inclusion


def ordered_draws(weights: list[float], size: int) -> dict[frozenset[int], float]:
    """Return P(S): the sum over the orders of Π q_i / (weight still in the urn)."""
    table: dict[frozenset[int], float] = defaultdict(float)
    for order in permutations([i for i, q in enumerate(weights) if q > 0], size):
        probability = 1.0
        for step, i in enumerate(order):
            probability *= weights[i] / sum(q for j, q in enumerate(weights) if j not in order[:step])
        table[frozenset(order)] += probability
    return table


@pytest.mark.parametrize(
    "weights",
    [
        [1.0, 2.0, 3.0, 4.0, 5.0],
        [1e-8, 1e-4, 1.0, 1e2, 1e4, 3.0],
        [1e-8, 1e-8, 1e-8, 1e4, 1e4, 1e4],
        [1.0, 1.0, 1.0, 1e-8, 2.0, 0.0, 0.0],
        [1.0] * 6,
        [1e-300, 1.0, 1e300],
        [1e-90, 1.0, 1e90, 1e90],
    ],
)
def test_exact_against_all_ordered_draws(make_law: Any, check_exact: Any, weights: list[float]) -> None:
    for size in range(1, np.count_nonzero(weights) + 1):
        law = make_law("weighted", len(weights), weights=weights, clients_per_round=size)
        check_exact(law, ordered_draws(weights, size))


def test_by_hand(make_law: Any) -> None:
    """Weights 1, 1, 2 and M = 2: client 2 is left out by the orders (0, 1), (1, 0), each ¼·⅓."""
    law = make_law("weighted", 3, weights=[1, 1, 2], clients_per_round=2)
    np.testing.assert_allclose(law.inclusion().values, [7 / 12, 7 / 12, 5 / 6], rtol=1e-14)
    np.testing.assert_allclose(law.marginals().values, [7 / 24, 7 / 24, 5 / 12], rtol=1e-14)


def test_limits(make_law: Any) -> None:
    weights = [1.0, 0.0, 5.0, 4.0]
    single = make_law("weighted", 4, weights=weights, clients_per_round=1)
    np.testing.assert_allclose(single.inclusion().values, [0.1, 0, 0.5, 0.4], rtol=1e-13)
    everybody = make_law("weighted", 4, weights=weights, clients_per_round=3)
    assert everybody.inclusion().values.tolist() == [1, 0, 1, 1]
    assert everybody.sample(0).tolist() == [0, 2, 3]


@pytest.mark.parametrize("size", [1, 3])
def test_draws(make_law: Any, check_draws: Any, draw_many: Any, size: int) -> None:
    weights = [1.0, 0.2, 3.0, 0.0, 2.0, 0.1]
    law = make_law("weighted", 6, weights=weights, clients_per_round=size)
    check_draws(draw_many(law), ordered_draws(weights, size), 6)


def test_presets_are_weighted(make_law: Any) -> None:
    rare = make_law("rare", 6, rare_clients=2, epsilon=0.2, clients_per_round=3)
    same = make_law("weighted", 6, weights=[1, 1, 1, 1, 0.2, 0.2], clients_per_round=3)
    np.testing.assert_array_equal(rare.inclusion().values, same.inclusion().values)
    exponential = make_law("exponential", 6, tau=2.0, clients_per_round=3)
    same = make_law("weighted", 6, weights=np.exp(-np.arange(6) / 2).tolist(), clients_per_round=3)
    np.testing.assert_allclose(exponential.inclusion().values, same.inclusion().values, rtol=1e-13)
    assert [exponential.sample(r).tolist() for r in range(50)] == [same.sample(r).tolist() for r in range(50)]


def test_weights_too_small_for_a_float(make_law: Any) -> None:
    """τ = 1e-3: client i has weight e^{−1000 i}, zero as a float; the draw is certain to be the first M in order."""
    law = make_law("exponential", 30, tau=1e-3, clients_per_round=29)
    np.testing.assert_allclose(law.inclusion().values, [1.0] * 29 + [0.0], atol=1e-14)
    assert law.sample(0).tolist() == list(range(29))


@pytest.mark.parametrize("size", [10, 1000])
def test_many_clients(size: int) -> None:
    """N = 10⁵, two weights. First order (Rosén 1972): P(i ∈ S) = 1 − e^{−q_i t} with Σ = M, correct to O(1/M)·(M/N)."""
    n, rare = 100_000, 300
    log_weights = np.zeros(n)
    log_weights[-rare:] = np.log(0.2)
    values = successive_inclusion(log_weights, size)
    assert values.sum() == pytest.approx(size, rel=1e-12)
    t = size / n  # Newton on Σ (1 − e^{−q t}) = M
    for _ in range(50):
        gap = (n - rare) * -np.expm1(-t) + rare * -np.expm1(-0.2 * t) - size
        t -= gap / ((n - rare) * np.exp(-t) + rare * 0.2 * np.exp(-0.2 * t))
    assert values[0] == pytest.approx(-np.expm1(-t), rel=1e-3)
    assert values[-1] == pytest.approx(-np.expm1(-0.2 * t), rel=1e-3)


def test_groups_change_nothing() -> None:
    """Equal weights, as one group of each kind and as clients told apart by 1e-13: two paths through the tree."""
    weights = np.repeat([1.0, 0.2, 7.0], [30, 5, 12])
    apart = weights * (1 + 1e-13 * np.arange(47))
    for size in (1, 3, 20, 45, 46):
        one, other = successive_inclusion(np.log(weights), size), successive_inclusion(np.log(apart), size)
        np.testing.assert_allclose(one, other, rtol=1e-11)
