"""The numerical pieces against independent references."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from fedrage_flwr.availability.poisson_binomial import binomial_pmf, expect_outside, gauss_panels, probability_any


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 100, 100_000])
@pytest.mark.parametrize("p", [0.0, 1e-300, 1e-9, 1e-3, 0.3, 0.5, 0.9, 1.0])
def test_binomial_pmf(n: int, p: float) -> None:
    """scipy (Boost) is good to about 1e-12 here."""
    length = min(n, 300) + 3
    pmf = binomial_pmf(np.array([n]), np.array([p]), np.array([1 - p]), length)[:, 0]
    np.testing.assert_allclose(pmf, stats.binom.pmf(np.arange(length), n, p), rtol=2e-11, atol=1e-290)


def test_binomial_pmf_sums_to_one() -> None:
    pmf = binomial_pmf(np.array([2000]), np.array([0.3]), np.array([0.7]), 2001)
    assert pmf.sum() == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize("groups", [1, 2, 3, 5, 8])
def test_expect_outside_against_enumeration(groups: int) -> None:
    """Each group counts 0, 1 or 2; f(k) = 1, 10, 100, 1000 for k < 4, then 0."""
    rng = np.random.default_rng(groups)
    pmfs = rng.dirichlet([1, 1, 1], size=(2, groups)).transpose(2, 0, 1)
    function = np.array([1.0, 10.0, 100.0, 1000.0])
    got = expect_outside(pmfs, function)
    for t, g, r in product(range(2), range(groups), range(3)):
        expected = 0.0
        for counts in product(range(3), repeat=groups - 1):
            others = [j for j in range(groups) if j != g]
            total = r + sum(counts)
            weight = np.prod([pmfs[c, t, j] for c, j in zip(counts, others, strict=True)]) if others else 1.0
            expected += float(weight) * (function[total] if total < 4 else 0.0)
        assert got[r, t, g] == pytest.approx(expected, rel=1e-13)


def test_gauss_panels() -> None:
    x, w = gauss_panels(-1.0, 2.0, 0.7)
    assert len(x) == 5 * 16
    assert w @ np.exp(x) == pytest.approx(np.exp(2) - np.exp(-1), rel=1e-14)


def test_probability_any_keeps_its_digits() -> None:
    values: Any = np.array([1e-20, 2e-20])
    assert probability_any(values) == pytest.approx(3e-20, rel=1e-14)
    assert probability_any(np.array([1.0, 0.0])) == 1
