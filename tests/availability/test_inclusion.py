"""Conditional Poisson sampling: the law is Π w over subsets of size M, and its inclusion is the one prescribed."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fedrage_flwr.availability.inclusion import maximum_entropy_log_odds

CASES = [
    [0.5, 0.5],
    [0.3, 0.7],
    [0.2, 0.4, 0.6, 0.8],
    [0.1, 0.2, 0.3, 0.4, 0.45, 0.55],
    [0.999, 0.5, 0.5, 0.001],
    [1 - 1e-6, 1 - 1e-6, 1e-6, 1e-6],
    [1 - 1e-3, 1 - 1e-5, 1e-3, 1e-5, 0.3, 0.7],
    [1e-12, 0.5, 0.5, 1 - 1e-12],
    [0.6] * 5,
    [1.0, 0.0, 0.25, 0.75, 1.0, 0.5, 0.5],
    [1.0, 0.0, 1.0],
]


def product_law(law: Any, size: int) -> dict[frozenset[int], float]:
    """Return P(S) ∝ Π_{i∈S} w_i over the subsets of the size that is left when the certain clients are in."""
    certain, free = frozenset(law.certain.tolist()), size - len(law.certain)
    log_weights = dict(zip(law.uncertain.tolist(), law.log_odds.tolist(), strict=True))
    products = {certain | set(s): np.exp(sum(log_weights[i] for i in s)) for s in combinations(log_weights, free)}
    total = sum(products.values())
    return {subset: float(product / total) for subset, product in products.items()}


@pytest.mark.parametrize("pi", CASES)
def test_the_product_law_has_the_prescribed_inclusion(make_law: Any, pi: list[float]) -> None:
    size = round(sum(pi))
    law = make_law("inclusion", len(pi), probabilities=pi, rare_probability=None, clients_per_round=size)
    inclusion = np.zeros(len(pi))
    for subset, probability in product_law(law, size).items():
        inclusion[sorted(subset)] += probability
    np.testing.assert_allclose(inclusion, pi, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(law.inclusion().values, pi)
    np.testing.assert_allclose(law.marginals().values, np.array(pi) / size, rtol=1e-15)


def test_working_weights_by_hand() -> None:
    """M = 1: P(i) = w_i/Σw, so w ∝ π. M = N−1: P(i left out) ∝ 1/w_i, so w ∝ 1/(1−π)."""
    pi = np.array([0.1, 0.2, 0.7])
    ratios = maximum_entropy_log_odds(pi, 1) - np.log(pi)
    np.testing.assert_allclose(ratios, ratios[0], rtol=0, atol=1e-12)
    ratios = maximum_entropy_log_odds(1 - pi, 2) + np.log(pi)
    np.testing.assert_allclose(ratios, ratios[0], rtol=0, atol=1e-12)


def test_complement() -> None:
    """Leaving out is drawing with 1 − π and weights 1/w."""
    pi = np.array([0.1, 0.2, 0.3, 0.4, 0.45, 0.55])
    total = maximum_entropy_log_odds(pi, 2) + maximum_entropy_log_odds(1 - pi, 4)
    np.testing.assert_allclose(total, total[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("pi", [[0.1, 0.2, 0.3, 0.4, 0.45, 0.55], [1.0, 0.0, 0.25, 0.75, 0.02, 0.98]])
def test_draws(make_law: Any, check_draws: Any, draw_many: Any, pi: list[float]) -> None:
    size = round(sum(pi))
    law = make_law("inclusion", len(pi), probabilities=pi, rare_probability=None, clients_per_round=size)
    table = {s: p for s, p in product_law(law, size).items() if p > 0}
    check_draws(draw_many(law), table, len(pi))


def test_everybody_certain(make_law: Any) -> None:
    law = make_law("inclusion", 3, probabilities=[1, 0, 1], rare_probability=None, clients_per_round=2)
    assert law.sample(0).tolist() == [0, 2]
    law = make_law("inclusion", 3, rare_clients=3, probabilities=None, rare_probability=1.0, clients_per_round=3)
    assert law.sample(0).tolist() == [0, 1, 2]


def test_rare_probability(make_law: Any) -> None:
    """The paper's skewed setting: others (3 − 3P)/27."""
    law = make_law("inclusion", 30, rare_clients=3, probabilities=None, rare_probability=0.005, clients_per_round=3)
    np.testing.assert_allclose(law.inclusion().values, [2.985 / 27] * 27 + [0.005] * 3, rtol=1e-15)
    listed = make_law("inclusion", 30, probabilities=law.pi.tolist(), rare_probability=0.005, clients_per_round=3)
    assert listed.sample(4).tolist() == law.sample(4).tolist()


@pytest.mark.parametrize("size", [3, 1000])
def test_many_clients(make_law: Any, size: int) -> None:
    n = 100_000
    law = make_law("inclusion", n, rare_clients=3, probabilities=None, rare_probability=2e-5, clients_per_round=size)
    ids = law.sample(0)
    assert len(ids) == size
    assert (np.diff(ids) > 0).all()
    # To first order in 1/d the odds of w are those of π (Hájek): equality within 1 %.
    odds = np.exp(law.log_odds[0] - law.log_odds[-1])
    pi = law.pi
    assert odds == pytest.approx(pi[0] / (1 - pi[0]) / (pi[-1] / (1 - pi[-1])), rel=1e-2)
