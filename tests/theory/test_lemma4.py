"""Lemma 4 of the FedeRage paper: E‖θ̂ − θ*‖² ≤ Σ p_i ‖θ_i − θ*‖² with p_i = E[1{i∈S}/|S|], for subsets of any size."""

import itertools

import numpy as np
import pytest

from fedrage_flwr.availability.bernoulli import Bernoulli
from fedrage_flwr.availability.subsets import Subsets
from fedrage_flwr.records import weighted_mean

N = 5
SUBSETS = [s for size in range(1, N + 1) for s in itertools.combinations(range(N), size)]


def subsets_law(rng):
    """Ten random subsets with random probabilities."""
    chosen = [SUBSETS[k] for k in rng.choice(len(SUBSETS), 10, replace=False)]
    table = dict(zip(chosen, rng.dirichlet(np.ones(10)), strict=True))
    settings = Subsets.Settings("subsets", [list(s) for s in table], list(table.values()))
    return Subsets(settings, N, 0, 0), table


def bernoulli_law(rng):
    """Every client on its own, given that somebody comes."""
    q = rng.uniform(0.02, 0.98, N)
    table = {s: np.prod([q[i] if i in s else 1 - q[i] for i in range(N)]) for s in SUBSETS}
    total = sum(table.values())
    settings = Bernoulli.Settings("bernoulli", 0.5, None, q.tolist())
    return Bernoulli(settings, N, 0, 0), {s: r / total for s, r in table.items()}


def both_sides(table, p, theta, star):
    """The expectation over S^t, subset by subset with the server's own mean; and the bound."""
    mean = {s: weighted_mean([{"theta": theta[i]} for i in s], None)["theta"] for s in table}
    expected = sum(r * np.sum((mean[s] - star) ** 2) for s, r in table.items())
    return expected, p @ np.sum((theta - star) ** 2, axis=1)


@pytest.mark.parametrize("make", [subsets_law, bernoulli_law])
def test_the_inequality_on_random_draws(make):
    """Random laws, models and targets, the expectation exact. Draws range from models nearly alike to far apart."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        law, table = make(rng)
        theta = rng.standard_normal(3) + rng.choice([0.01, 1, 100]) * rng.standard_normal((N, 3))
        left, right = both_sides(table, law.marginals().values, theta, rng.standard_normal(3))
        assert left <= right * (1 + 1e-12)


def test_equality_where_nothing_is_averaged():
    """One client a round: both sides are Σ p_i‖θ_i − θ*‖², so no smaller p would do."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(N))
    settings = Subsets.Settings("subsets", [[i] for i in range(N)], p.tolist())
    table = {(i,): p[i] for i in range(N)}
    left, right = both_sides(table, Subsets(settings, N, 0, 0).marginals().values, rng.standard_normal((N, 3)), 0)
    assert left == pytest.approx(right, rel=1e-12)


def test_inclusion_probabilities_scaled_to_one_would_not_do():
    """R({0}) = R({1,2}) = ½: p = (½, ¼, ¼) but every inclusion is ½. With θ = (1, 0, 0), θ* = 0 the left side is ½: more
    than ⅓, and exactly Σ p_i‖θ_i‖²."""
    law = Subsets(Subsets.Settings("subsets", [[0], [1, 2]], [0.5, 0.5]), 3, 0, 0)
    theta = np.array([[1.0], [0.0], [0.0]])
    left, right = both_sides({(0,): 0.5, (1, 2): 0.5}, law.marginals().values, theta, 0)
    assert left == right == 0.5
    inclusion = law.inclusion().values
    assert left > (inclusion / inclusion.sum())[0]
