"""Measures by hand."""

import numpy as np
import pytest

from fedrage_flwr.metrics import client_measures, cvar, jain_index, value_at_risk


def test_o26_spread_and_worst_by_hand():
    """Accuracies 0.9, 0.8, 0.7, 0.1: mean 0.625, population deviation 0.3112475, Jain 2.5² / (4·1.95)."""
    measures = client_measures(np.array([0.9, 0.8, 0.7, 0.1]), np.array([False, False, True, True]))
    assert measures["client_accuracy_mean"] == pytest.approx(0.625)
    assert measures["client_accuracy_std"] == pytest.approx(0.3112475, abs=5e-8)
    assert measures["client_accuracy_min"] == 0.1
    assert measures["client_accuracy_worst10pct"] == 0.1
    assert measures["client_accuracy_jain"] == pytest.approx(6.25 / 7.8)
    assert measures["rare_client_accuracy"] == pytest.approx(0.4)


@pytest.mark.parametrize(("n", "worst"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_the_worst_tenth_is_rounded_up(n, worst):
    accuracy = np.arange(1, n + 1) / n
    assert client_measures(accuracy, np.zeros(n, bool))["client_accuracy_worst10pct"] == pytest.approx(
        accuracy[:worst].mean()
    )


def test_o26_a_client_without_test_data_is_left_out_not_zero():
    measures = client_measures(np.array([0.5, np.nan, 1.0]), np.array([False, True, False]))
    assert (measures["client_accuracy_min"], measures["client_accuracy_mean"]) == (0.5, 0.75)
    assert measures["rare_client_accuracy"] is None


def test_nobody_has_test_data():
    assert set(client_measures(np.array([np.nan]), np.array([True])).values()) == {None}


def test_jain_of_zeros_is_undefined():
    assert jain_index(np.zeros(3)) is None
    assert jain_index(np.ones(3)) == 1
    assert jain_index(np.array([1.0, 0, 0])) == pytest.approx(1 / 3)


def minimum(losses, alpha, probabilities=None):
    """The defining minimum of β + E(loss − β)₊/α, attained at one of the losses: piecewise linear and convex in β."""
    values = np.asarray(losses, float)
    mass = np.full(len(values), 1 / len(values)) if probabilities is None else probabilities
    return min(beta + mass @ np.maximum(values - beta, 0) / alpha for beta in values)


@pytest.mark.parametrize(
    ("losses", "alpha", "expected"),
    [
        (range(10), 0.1, 9.0),  # O08 a: the tail is the worst value, not nothing
        (range(10), 0.05, 9.0),
        ([1, 2, 3, 10], 1.0, 4.0),  # O08 b: all of it is the mean
        (range(5), 0.25, 3.8),  # O09 a: 4 with 0.2 and a quarter of 3's 0.2
        ([1, 1, 1, 5], 0.5, 3.0),  # O09 b: ties
        ([2, 2, 2, 2], 0.3, 2.0),  # O09 c
        ([7.0], 0.4, 7.0),
    ],
)
def test_o08_o09_cvar(losses, alpha, expected):
    assert cvar(np.array(losses), alpha) == pytest.approx(expected, abs=1e-12)
    assert minimum(losses, alpha) == pytest.approx(expected, abs=1e-12)
    assert cvar(np.array(losses)[::-1], alpha) == pytest.approx(expected, abs=1e-12)


def test_o08_whole_tails_are_exact():
    """0.1 + 0.1 + 0.1 > 0.3 in floats; the tail of ten values at 0.3 is three of them all the same."""
    assert value_at_risk(np.arange(10.0), 0.3) == 6
    assert cvar(np.arange(10.0), 0.1) == 9.0


@pytest.mark.parametrize("alpha", [0, -0.1, 1.5, float("nan")])
def test_o08_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(ValueError, match=r"alpha=.* must be a number in \(0, 1\]"):
        cvar(np.ones(3), alpha)


@pytest.mark.parametrize("losses", [[], [1.0, np.nan], [np.inf]])
def test_cvar_needs_finite_losses(losses):
    with pytest.raises(ValueError, match="at least one loss"):
        cvar(np.array(losses), 0.5)


@pytest.mark.parametrize("probabilities", [[0.5, 0.6], [1.0], [1.5, -0.5]])
def test_cvar_needs_probabilities(probabilities):
    with pytest.raises(ValueError, match="one probability per loss"):
        cvar(np.ones(2), 0.5, np.array(probabilities))


def test_o09_cvar_is_the_minimum_for_any_weights_and_ties():
    """Random losses with ties and random probabilities; and the quantile is the smallest loss with no more than α above."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        losses, mass = rng.integers(5, size=8).astype(float), rng.dirichlet(np.ones(8))
        alpha = rng.uniform(0.01, 1)
        assert cvar(losses, alpha, mass) == pytest.approx(minimum(losses, alpha, mass), abs=1e-12)
        quantile = min(beta for beta in losses if mass[losses > beta].sum() <= alpha)
        assert value_at_risk(losses, alpha, mass) == quantile


def test_o08_a_larger_loss_never_lowers_its_own_influence():
    """Influence of loss 0: by how much CVaR moves when it grows by 0.1."""
    rest = np.array([1.0, 2.0, 2.0, 4.0])
    path = [cvar(np.append(rest, value), 0.35) for value in np.arange(0, 6, 0.1)]
    influence = np.diff(path)
    assert (np.diff(influence) >= -1e-12).all()
    assert influence[0] == 0
    assert influence[-1] == pytest.approx(0.1 * 0.2 / 0.35)
