"""What arithmetic settles: each number by hand or by enumeration."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from fedrage_flwr.report.exact import (
    COUNTEREXAMPLE,
    faa_of_outlier,
    focus_rounds,
    most_in_majority,
    provable_condition,
    published_condition,
    scaffold_rounds,
)


def test_three_of_thirty_leave_five_in_the_majority_at_most():
    assert most_in_majority(3) == 5
    assert most_in_majority(1) == 1
    # and five can be: 2·5 of the 10 pairs of five clients, the third place spread over the others, gives 3/5 each at M = 3
    triples = list(combinations(range(5), 3))
    assert all(sum(i in triple for triple in triples) / len(triples) > 0.5 for i in range(5))


def test_the_counterexample():
    """FedAvg's model is (0, 2.2/3): risks 1 + 0.5378 and 1.4667²; FOCUS: 1, 1 and 0."""
    fedavg, focus = faa_of_outlier(COUNTEREXAMPLE)
    assert fedavg == pytest.approx((2 * 2.2 / 3) ** 2 - 1 - (2.2 / 3) ** 2)
    assert fedavg == pytest.approx(0.613, abs=5e-4)
    assert focus == 1
    published = published_condition(COUNTEREXAMPLE, np.zeros(2), 1.0)
    assert (published.distance, published.needed, published.holds) == (2.2, 2.0, True)
    provable = provable_condition(COUNTEREXAMPLE)
    assert provable.needed == pytest.approx(6**0.5)
    assert not provable.holds


def test_beyond_the_provable_condition_focus_is_fairer():
    agents = COUNTEREXAMPLE.copy()
    agents[2, 1] = 6**0.5 + 1e-3
    fedavg, focus = faa_of_outlier(agents)
    assert provable_condition(agents).holds
    assert fedavg > focus == 1
    agents[2, 1] = 6**0.5  # and this is where it turns, for three agents: 4R²/9 − 1 − R²/9 = R²/3 − 1
    assert faa_of_outlier(agents)[0] == pytest.approx(1)


def test_focus_on_two_numbers_by_hand():
    """Agents 1 and −1, models 2 and −2, η = ¼, K = 1: losses 1 and 9, so π = 1/(1 + e⁻⁸) for the near one.

    A step halves the distance: from 2 to 1.5 for the agent at 1, to 0.5 for the other; their mean weighted by π is the model.
    """
    (found,) = focus_rounds(np.array([[1.0], [-1.0]]), np.array([[2.0], [-2.0]]), 0.25, 1, 1)
    near = 1 / (1 + np.exp(-8.0))
    np.testing.assert_allclose(found.pi, [[near, 1 - near], [1 - near, near]])
    np.testing.assert_allclose(found.models[0], near * 1.5 + (1 - near) * 0.5)
    np.testing.assert_allclose(found.models[1], -found.models[0])


def test_scaffolds_second_vector_says_nothing_new():
    rng = np.random.default_rng(0)
    participants = [sorted(rng.choice(5, rng.integers(1, 6), replace=False).tolist()) for _ in range(12)]
    curvatures = [Fraction(k, 3) for k in (1, 2, 3, 5, 7)]
    rounds = scaffold_rounds(curvatures, [Fraction(k) for k in (0, 1, -2, 5, 9)], participants, 3, Fraction(1, 10))
    assert all(found.second == found.worked_out for found in rounds)
    assert all(found.control == found.control_worked_out for found in rounds)
    assert rounds[-1].control != 0


def test_scaffold_in_one_step_by_hand():
    (found,) = scaffold_rounds([Fraction(1)], [Fraction(4)], [[0]], 1, Fraction(1, 2))
    assert found.second == (Fraction(-4),)  # the gradient at 0
    assert found.control == -4
