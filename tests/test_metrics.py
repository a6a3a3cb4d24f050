"""Measures by hand."""

import numpy as np
import pytest

from fedrage_flwr.metrics import client_measures, jain_index


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
