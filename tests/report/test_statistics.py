"""Hand arithmetic, tables of the t distribution, and simulated rates with their error."""

import math

import numpy as np
import pytest

from fedrage_flwr.report.statistics import (
    detectable,
    halves,
    holm,
    own_false_positives,
    paired_t,
    same_against_same,
    spread,
    z_false_positives,
    z_test,
)


def test_three_spreads_by_hand():
    cell = spread([np.array([1.0, 3.0]), np.array([5.0, 7.0])])  # means 2 and 6; variance 1 in each run
    assert (cell.mean, cell.num_seeds, cell.num_rounds) == (4, 2, 2)
    assert cell.std_seeds == pytest.approx(math.sqrt(8))  # (4 + 4)/1
    assert cell.std_rounds == pytest.approx(1)
    assert cell.std_pooled == pytest.approx(math.sqrt((9 + 1 + 1 + 9) / 4))
    assert cell.std_pooled**2 == pytest.approx(cell.std_rounds**2 + cell.std_seeds**2 / 2)
    assert cell.half_width == pytest.approx(12.706 * math.sqrt(8) / math.sqrt(2), rel=1e-4)  # t(0.975; 1) = 12.706


def test_one_seed_has_no_interval():
    cell = spread([np.array([1.0, 3.0])])
    assert math.isnan(cell.std_seeds)
    assert math.isnan(cell.half_width)
    assert (cell.std_rounds, cell.std_pooled) == (1, 1)


def test_z_by_hand():
    first, second = [np.array([0.0, 2.0]), np.array([0.0, 2.0])], [np.array([3.0, 5.0]), np.array([3.0, 5.0])]
    z = 3 / math.sqrt(2 * (4 / 3) / 4)  # s² = 4/3, four samples each
    assert z_test(first, second) == pytest.approx(math.erfc(z / math.sqrt(2)))
    assert math.isnan(z_test([np.ones(3)], [np.ones(3)]))


def test_paired_t_by_hand():
    # differences 1, 2, 3: mean 2, deviation 1, t = 2√3 = 3.4641 with 2 degrees of freedom: p = 1 − t/√(2 + t²)
    found = paired_t({0: 0.0, 1: 0.0, 2: 0.0, 9: 5.0}, {0: 1.0, 1: 2.0, 2: 3.0})
    assert (found.difference, found.num_seeds) == (2, 3)
    t = 2 * math.sqrt(3)
    assert found.p == pytest.approx(1 - t / math.sqrt(2 + t * t))
    assert found.half_width == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)  # t(0.975; 2) = 4.3027
    assert paired_t({0: 1.0}, {1: 1.0}) is None
    assert math.isnan(paired_t({0: 1.0}, {0: 2.0}).p)
    assert math.isnan(paired_t({0: 1.0, 1: 2.0}, {0: 2.0, 1: 3.0}).p)  # the same difference twice
    assert math.isnan(paired_t({0: 0.5, 1: 0.1}, {0: 0.6, 1: 0.2}).p)  # and in floats: 0.6 − 0.5 is not 0.2 − 0.1


def test_holm_by_hand():
    # sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.04 → none below the one before it
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    adjusted = holm([0.02, float("nan"), 0.5])
    assert adjusted[0] == pytest.approx(0.04)
    assert math.isnan(adjusted[1])
    assert holm([]) == []


def test_holm_keeps_the_rate_of_any_false_alarm():
    # 4,000 families of six true hypotheses, independent: 1 − (1 − 0.05/6)⁶ = 4.9 %; four standard errors are 1.4 points
    p = np.random.default_rng(1).random((4000, 6))
    rate = np.mean([min(holm(family)) < 0.05 for family in p.tolist()])
    assert rate == pytest.approx(1 - (1 - 0.05 / 6) ** 6, abs=0.014)


def test_differences_that_five_and_ten_seeds_detect():
    assert detectable(5) == pytest.approx(1.7, abs=0.05)  # the figures of ALGORITHMS.md
    assert detectable(10) == pytest.approx(1.0, abs=0.05)
    # and as a frequency: 1,500 samples with that mean and deviation 1; three standard errors are 3.1 points
    rng, effect = np.random.default_rng(2), detectable(5)
    fired = [
        paired_t(dict.fromkeys(range(5), 0.0), dict(enumerate(rng.normal(effect, 1, 5)))).p < 0.05 for _ in range(1500)
    ]
    assert np.mean(fired) == pytest.approx(0.8, abs=0.031)


@pytest.mark.parametrize(("ratio", "rate"), [(0.0, 0.05), (0.5, 0.26), (1.0, 0.44)])
def test_false_positives_of_the_papers_mark(ratio, rate):
    # five seeds, ten rounds; 20,000 pairs: a standard error of 0.35 points at most, and ALGORITHMS.md rounds to a point
    assert z_false_positives(5, 10, ratio, 1.0) == pytest.approx(rate, abs=0.015)


def test_a_cells_own_rate_takes_the_rounds_out_of_the_seeds():
    rng = np.random.default_rng(3)
    many = spread(list(rng.normal(size=(2000, 10)) + 0.5 * rng.normal(size=(2000, 1))))
    five = type(many)(**{**vars(many), "num_seeds": 5})
    assert own_false_positives(five) == pytest.approx(0.26, abs=0.03)  # the ratio is known to 3 % from 2,000 seeds
    assert math.isnan(own_false_positives(spread([np.array([1.0, 2.0])])))


@pytest.mark.parametrize(("n", "pairs"), [(4, 3), (5, 15), (6, 10), (10, 126)])
def test_all_pairs_of_halves(n, pairs):
    found = list(halves(range(n)))
    assert len({frozenset(map(frozenset, pair)) for pair in found}) == len(found) == pairs
    assert all(len(first) == len(second) == n // 2 and not {*first} & {*second} for first, second in found)


def test_same_against_same_by_hand():
    # means 0, 0, 10, 10, hardly any spread in a run: of the three pairs, z fires where {0, 0} meets {10, 10} alone
    wobble = np.array([-0.001, 0.001] * 5)
    rates = same_against_same({0: wobble, 1: wobble, 2: 10 + wobble, 3: 10 + wobble})
    assert (rates.num_pairs, rates.num_seeds) == (3, 4)
    assert rates.z == pytest.approx(1 / 3)
    assert rates.paired_t == 0  # the differences are constant, or 10 and −10 or alike


def test_same_against_same_keeps_the_rates_of_its_tests():
    # 150 cells of four seeds, no variance between seeds: z at 5.5 % (52 pooled samples behave like normal ones), t at 5 %.
    # The three pairs of a cell are dependent: at worst 150 independent ones, four standard errors 7 points
    rng = np.random.default_rng(4)
    rates = [same_against_same(dict(enumerate(rng.normal(size=(4, 10))))) for _ in range(150)]
    assert np.mean([rate.z for rate in rates]) == pytest.approx(0.055, abs=0.07)
    assert np.mean([rate.paired_t for rate in rates]) == pytest.approx(0.05, abs=0.07)
    uneven = [
        same_against_same(dict(enumerate(rng.normal(size=(4, 10)) + rng.normal(size=(4, 1))))) for _ in range(150)
    ]
    assert np.mean([rate.z for rate in uneven]) > 0.25  # with as much between seeds as within
