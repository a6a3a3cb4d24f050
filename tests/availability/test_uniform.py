"""Uniform and full: M of N, all subsets alike."""

from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_exact_against_enumeration(make_law: Any, check_exact: Any, size: int) -> None:
    table = {frozenset(s): 1 / comb(5, size) for s in combinations(range(5), size)}
    check_exact(make_law("uniform", 5, clients_per_round=size), table)


def test_draws(make_law: Any, check_draws: Any, draw_many: Any) -> None:
    table = {frozenset(s): 1 / comb(6, 3) for s in combinations(range(6), 3)}
    check_draws(draw_many(make_law("uniform", 6, clients_per_round=3)), table, 6)


def test_rounds_are_independent_draws_of_the_law(make_law: Any) -> None:
    """Through the public door. Pearson's statistic is (N−M)/(N−1) times χ²_{N−1} (ALGORITHMS §8). Error rate 1e-4."""
    n, m, rounds = 30, 3, 20_000
    law = make_law("uniform", n, clients_per_round=m)
    counts = np.bincount(np.concatenate([law.sample(r) for r in range(rounds)]), minlength=n)
    pearson = ((counts - rounds * m / n) ** 2 / (rounds * m / n)).sum()
    tail = stats.chi2.sf(pearson * (n - 1) / (n - m), n - 1)
    assert 0.5e-4 < tail < 1 - 0.5e-4  # too even is wrong, too


def test_full_is_everybody(make_law: Any, check_exact: Any) -> None:
    law = make_law("full", 4)
    assert law.sample(7).tolist() == [0, 1, 2, 3]
    check_exact(law, {frozenset(range(4)): 1.0})
