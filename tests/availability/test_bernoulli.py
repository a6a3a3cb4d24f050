"""Independent clients given a non-empty round: everything against the sum over 2^N subsets."""

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

from fedrage_flwr.availability.poisson_binomial import mean_share


def nonempty_law(pi: list[float]) -> dict[frozenset[int], float]:
    table = {}
    for on in product([False, True], repeat=len(pi)):
        table[frozenset(np.flatnonzero(on).tolist())] = prod(
            p if came else 1 - p for p, came in zip(pi, on, strict=True)
        )
    table.pop(frozenset())
    total = sum(table.values())
    return {subset: probability / total for subset, probability in table.items()}


def listed(make_law: Any, pi: list[float]) -> Any:
    return make_law("bernoulli", len(pi), probability=0.0, rare_probability=None, probabilities=pi)


@pytest.mark.parametrize(
    "pi", [[0.3], [0.5, 0.5], [1.0, 0.5], [0.1, 0.9, 0.0, 0.4, 1.0], [1e-3, 0.2, 0.7, 1e-9, 0.5], [0.99] * 10]
)
def test_exact_against_enumeration(make_law: Any, check_exact: Any, pi: list[float]) -> None:
    check_exact(listed(make_law, pi), nonempty_law(pi))


def test_by_hand(make_law: Any) -> None:
    """π = (1, ½): client 0 alone or both, each ½; p = (½·1 + ½·½, ½·½). Two fair coins: three rounds alike."""
    law = listed(make_law, [1.0, 0.5])
    np.testing.assert_allclose(law.marginals().values, [0.75, 0.25], rtol=1e-15)
    law = make_law("bernoulli", 2, probability=0.5, rare_probability=None, probabilities=None)
    np.testing.assert_allclose(law.inclusion().values, [2 / 3, 2 / 3], rtol=1e-15)


def test_equal_clients_share_equally() -> None:
    """By symmetry p = 1/N whatever π; N = 10⁵ exercises the panels, N ≤ 32 the polynomial rule."""
    for n in (1, 2, 32, 33, 1000, 100_000):
        for pi in (1e-12, 1e-3, 0.5, 0.999, 1.0):
            np.testing.assert_allclose(mean_share(np.full(n, pi)), 1 / n, rtol=1e-11)


def test_share_of_two_kinds_by_the_binomial_law() -> None:
    """One client with π₀ among n with π: p₀ = π₀ E[1/(1 + Bin(n, π))]/P, and E[1/(1 + Bin)] = (1 − (1−π)^{n+1})/((n+1)π)."""
    for n, pi, first in ((50, 0.3, 0.9), (400, 0.01, 0.2), (5000, 0.5, 1e-6)):
        expected = first * (1 - (1 - pi) ** (n + 1)) / ((n + 1) * pi) / (1 - (1 - first) * (1 - pi) ** n)
        shares = mean_share(np.array([first] + [pi] * n))
        assert shares[0] == pytest.approx(expected, rel=1e-12)
        assert shares.sum() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("pi", [[0.1, 0.3, 0.0, 0.5, 0.2], [0.02, 0.01, 1.0, 0.6]])
def test_draws(make_law: Any, check_draws: Any, draw_many: Any, pi: list[float]) -> None:
    check_draws(draw_many(listed(make_law, pi)), nonempty_law(pi), len(pi))


def test_nearly_always_empty(make_law: Any) -> None:
    """Redrawing would take 10¹² tries: the draw is one client, all alike."""
    law = make_law("bernoulli", 4, probability=1e-12, rare_probability=None, probabilities=None)
    draws = np.array([law.sample(r) for r in range(4000)])
    assert draws.shape == (4000, 1)
    assert (abs(np.bincount(draws[:, 0]) - 1000) < 5 * np.sqrt(4000 * 0.25 * 0.75)).all()  # error rate 4 · 6e-7


def test_rare_probability(make_law: Any) -> None:
    law = make_law("bernoulli", 4, rare_clients=1, probability=0.5, rare_probability=0.1, probabilities=None)
    assert law.pi.tolist() == [0.5, 0.5, 0.5, 0.1]
