"""Exact laws by enumeration, and statistics with the law they claim.

A *table* maps each possible set of clients to its probability. Seeds are fixed, so a test that passes once passes always; when
the seed is changed each statistical assertion fails with probability ``ERROR_RATE`` although the code is right.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from fedrage_flwr.availability import LAWS
from fedrage_flwr.availability.base import Law
from fedrage_flwr.settings import lookup

ERROR_RATE = 1e-4
DRAWS = 200_000
Table = Mapping[frozenset[int], float]
MakeLaw = Callable[..., Any]


@pytest.fixture(scope="session")
def make_law() -> MakeLaw:
    def make(name: str, num_clients: int, *, rare_clients: int = 0, seed: int = 0, **settings: Any) -> Law:
        cls = lookup(LAWS, name)
        law = cls(cls.Settings(name=name, **settings), num_clients, rare_clients, seed)
        assert isinstance(law, Law)
        return law

    return make


def moments(table: Table, num_clients: int) -> tuple[Any, Any, Any]:
    """Return P(i ∈ S), E[1{i}/|S| | S ≠ ∅] and the covariance of the indicators, by summing over the table."""
    inclusion, marginals = np.zeros(num_clients), np.zeros(num_clients)
    joint, nonempty = np.zeros((num_clients, num_clients)), 0.0
    for subset, probability in table.items():
        ids = sorted(subset)
        inclusion[ids] += probability
        joint[np.ix_(ids, ids)] += probability
        if ids:
            marginals[ids] += probability / len(ids)
            nonempty += probability
    return inclusion, marginals / nonempty, joint - np.outer(inclusion, inclusion)


@pytest.fixture(scope="session")
def check_exact() -> Callable[..., None]:
    def check(law: Law, table: Table, rtol: float = 1e-12) -> None:
        assert sum(table.values()) == pytest.approx(1, abs=1e-12)
        inclusion, marginals, _ = moments(table, law.num_clients)
        np.testing.assert_allclose(law.inclusion().values, inclusion, rtol=rtol, atol=1e-300)
        np.testing.assert_allclose(law.marginals().values, marginals, rtol=rtol, atol=1e-300)
        assert law.inclusion().exact
        assert law.marginals().exact

    return check


@pytest.fixture(scope="session")
def check_draws() -> Callable[..., None]:
    """Check draws in two ways: how often each client came (Wald), and how often each subset (Pearson)."""

    def check(draws: list[Any], table: Table, num_clients: int) -> None:
        counts = Counter(frozenset(ids.tolist()) for ids in draws)
        inclusion, _, covariance = moments(table, num_clients)
        came = np.zeros(num_clients)
        for subset, count in counts.items():
            came[sorted(subset)] += count
        excess = (came - len(draws) * inclusion) / np.sqrt(len(draws))
        rank = int(np.linalg.matrix_rank(covariance, tol=1e-9))
        wald = excess @ np.linalg.pinv(covariance, rcond=1e-9, hermitian=True) @ excess
        assert stats.chi2.sf(wald, rank) > ERROR_RATE

        assert set(counts) <= {subset for subset, probability in table.items() if probability > 0}
        expected = np.array([len(draws) * p for p in table.values() if p > 0])
        observed = np.array([counts[subset] for subset, p in table.items() if p > 0])
        assert expected.min() > 5  # or Pearson's statistic is not χ²
        pearson = float(((observed - expected) ** 2 / expected).sum())
        assert stats.chi2.sf(pearson, len(expected) - 1) > ERROR_RATE

    return check


@pytest.fixture(scope="session")
def draw_many() -> Callable[..., list[Any]]:
    def draw(law: Any, seed: int = 1, count: int = DRAWS) -> list[Any]:
        rng = np.random.default_rng(seed)
        return [law._draw(rng) for _ in range(count)]

    return draw
