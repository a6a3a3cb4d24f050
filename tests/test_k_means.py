"""Choosing models far from each other."""

import numpy as np
import pytest

from fedrage_flwr.k_means import k_means_plus_plus, spread_out, squared_distances


def models(*values):
    return [{"w": np.array(v, np.float32), "count": np.array(i)} for i, v in enumerate(values)]


def test_squared_distances():
    """Over all arrays but integer ones; exactly 0 between equal models, however far from the origin."""
    three = [{**m, "b": np.array([1000.0, i == 2], np.float32)} for i, m in enumerate(models([0, 0], [0, 0], [3, 4]))]
    assert squared_distances(three).tolist() == [[0, 0, 26], [0, 0, 26], [26, 26, 0]]


def test_equal_models_have_distance_zero_whatever_the_rounding():
    """‖a‖² + ‖b‖² − 2 a·b of equal vectors is seldom 0 in floats: the sums run in another order."""
    rng = np.random.default_rng(0)
    different = rng.normal(size=(9, 1003))
    distances = squared_distances(models(*different, *different[:4], *different[:4]))
    which = np.array([*range(9), *range(4), *range(4)])
    same = np.equal.outer(which, which)
    assert (distances[same] == 0).all()
    assert (distances[~same] > 0).all()


def test_one_far_model_among_many_near_ones_is_always_chosen():
    """Five models about 0, three about 10 and one at 20; a single seeding misses a group now and then, the best of 100 never:
    with spreads of at most 1 its potential is at most 7, and at least 81 if a group is left out."""
    values = [[0, 0], [1, 0], [0, 1], [0.5, 0.5], [0, 0.5], [10, 0], [10, 1], [10.5, 0.5], [20, 0]]
    groups = np.array([0] * 5 + [1] * 3 + [2])
    distances = squared_distances(models(*values))
    found = [
        [set(groups[f(distances, 3, np.random.default_rng(s))]) for s in range(50)]
        for f in (k_means_plus_plus, spread_out)
    ]
    assert {0, 1, 2} in found[0]
    assert found[1] == [{0, 1, 2}] * 50


def test_the_draw_is_in_proportion_to_the_squared_distance():
    """Models 0, 1 and 3; from 0, the chance of 3 is 9/10: within four standard errors in 2,000 draws (error rate 6·10⁻⁵)."""
    distances = squared_distances(models([0], [1], [3]))
    rng = np.random.default_rng(0)
    second = [chosen[1] for chosen in (k_means_plus_plus(distances, 2, rng) for _ in range(6000)) if chosen[0] == 0]
    error = np.sqrt(0.09 / len(second))
    assert np.mean(np.array(second) == 2) == pytest.approx(0.9, abs=4 * error)


@pytest.mark.parametrize(("values", "expected"), [(([1], [1], [1]), 1), (([1], [1], [2]), 2), (([7],), 1)])
def test_equal_models_are_not_chosen_twice(values, expected):
    assert len(spread_out(squared_distances(models(*values)), 3, np.random.default_rng(0))) == expected
