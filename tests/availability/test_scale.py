"""The laws at N = 100,000: closed forms hold there too, within stated bounds."""

import numpy as np
import pytest

from fedrage_flwr.availability import LAWS
from fedrage_flwr.settings import lookup

N, M = 100_000, 10


def law(name, rare_clients=0, **settings):
    chosen = lookup(LAWS, name)
    return chosen(chosen.Settings(name=name, **settings), N, rare_clients, seed=0)


@pytest.mark.slow
def test_weighted_with_n_different_weights_and_one_place_is_proportional_to_them():
    """M = 1: P(i ∈ S) = q_i/Σq. The quadrature meets it with a relative error below 1e-11: N·ε is 2e-11."""
    weights = np.random.default_rng(0).uniform(0.01, 1, N)
    made = law("weighted", weights=weights.tolist(), clients_per_round=1)
    np.testing.assert_allclose(made.inclusion().values, weights / weights.sum(), rtol=1e-11)


def sizes(name):
    rng = np.random.default_rng(1)
    pi = rng.uniform(0.1, 1.9, N)
    return {
        "rare": (N // 10, {"epsilon": 0.05, "clients_per_round": M}),
        "exponential": (0, {"tau": N / 10, "clients_per_round": M}),
        "inclusion": (
            0,
            {"probabilities": (pi / pi.sum() * M).tolist(), "rare_probability": None, "clients_per_round": M},
        ),
    }[name]


@pytest.mark.parametrize(
    "name",
    ["rare", pytest.param("exponential", marks=pytest.mark.slow), pytest.param("inclusion", marks=pytest.mark.slow)],
)
def test_the_inclusion_of_a_fixed_size_law_sums_to_m(name):
    """Σ P(i ∈ S) = E|S| = M: within 1e-11 M."""
    rare_clients, settings = sizes(name)
    made = law(name, rare_clients, **settings)
    assert made.inclusion().exact
    assert made.inclusion().values.sum() == pytest.approx(M, rel=1e-11)
    assert made.marginals().values.sum() == pytest.approx(1, rel=1e-11)
    assert all(len(np.unique(made.sample(round))) == M for round in range(1, 20))


def test_two_kinds_of_clients_are_met_as_often_as_their_inclusion_says():
    """Rare clients hold a share s of all places; with R rounds of M places the share met has a standard deviation of at most
    √(s(1 − s)/(RM)) (places of a round are negatively correlated). Five of them: wrong by chance with probability below 1e-6."""
    made, rounds = law("rare", N // 2, epsilon=0.1, clients_per_round=M), 300
    share = made.inclusion().values[N // 2 :].sum() / M
    assert share == pytest.approx(0.1 / 1.1, rel=1e-3)  # M ≪ N: hardly any weight is used up within a round
    met = np.mean([np.mean(made.sample(round) >= N // 2) for round in range(1, rounds + 1)])
    assert abs(met - share) < 5 * np.sqrt(share * (1 - share) / (rounds * M))


def test_bernoulli_with_equal_probabilities_shares_equally():
    made = law("bernoulli", probability=1e-4, rare_probability=None, probabilities=None)
    np.testing.assert_allclose(made.marginals().values, 1 / N, rtol=1e-11)
    # P(K > 0) = 1 − (1 − 1e-4)^100000
    np.testing.assert_allclose(made.inclusion().values, 1e-4 / -np.expm1(N * np.log1p(-1e-4)), rtol=1e-11)
