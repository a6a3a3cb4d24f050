"""An explicit table: equation 8 by hand."""

from typing import Any

import numpy as np


def test_equation_8_by_hand(make_law: Any, check_exact: Any) -> None:
    """R({0,1}) = ½, R({2}) = ¼, R({0,1,2}) = ¼: p₀ = ½·½ + ¼·⅓ = ⅓, p₂ = ¼ + ¼·⅓ = ⅓."""
    law = make_law("subsets", 4, subsets=[[1, 0], [2], [0, 1, 2]], probabilities=[0.5, 0.25, 0.25])
    np.testing.assert_allclose(law.inclusion().values, [0.75, 0.75, 0.5, 0], rtol=1e-15)
    np.testing.assert_allclose(law.marginals().values, [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-15)
    check_exact(law, {frozenset({0, 1}): 0.5, frozenset({2}): 0.25, frozenset({0, 1, 2}): 0.25})


def test_draws(make_law: Any, check_draws: Any, draw_many: Any) -> None:
    law = make_law("subsets", 4, subsets=[[3], [1, 0], [2], [0, 1, 2]], probabilities=[0, 0.5, 0.001, 0.499])
    table = {frozenset({0, 1}): 0.5, frozenset({2}): 0.001, frozenset({0, 1, 2}): 0.499}
    check_draws(draw_many(law), table, 4)


def test_a_draw_is_sorted_and_not_the_table_itself(make_law: Any) -> None:
    law = make_law("subsets", 3, subsets=[[2, 0]], probabilities=[1])
    ids = law.sample(0)
    assert ids.tolist() == [0, 2]
    ids[:] = 1
    assert law.sample(1).tolist() == [0, 2]
