"""On/off chains: stationary from the first round, the right transitions, and a state that can be left and taken up."""

from itertools import product
from math import prod
from typing import Any

import numpy as np
from scipy import stats  # type: ignore[import-untyped]


def chains(make_law: Any, seed: int = 0) -> Any:
    return make_law("markov", 3, seed=seed, on_rate=[0.2, 0.5, 1.0], off_rate=[0.6, 0.5, 0.25])


PI = [0.25, 0.5, 0.8]


def stationary_law() -> dict[frozenset[int], float]:
    return {
        frozenset(np.flatnonzero(on).tolist()): prod(p if came else 1 - p for p, came in zip(PI, on, strict=True))
        for on in product([False, True], repeat=3)
    }


def test_exact_against_enumeration(make_law: Any, check_exact: Any) -> None:
    check_exact(chains(make_law), stationary_law())


def test_one_number_serves_all(make_law: Any) -> None:
    law = make_law("markov", 4, on_rate=0.1, off_rate=0.3)
    np.testing.assert_allclose(law.inclusion().values, 0.25, rtol=1e-15)
    np.testing.assert_allclose(law.marginals().values, 0.25, rtol=1e-15)


def test_stationary_in_every_round(make_law: Any, check_draws: Any) -> None:
    """Rounds 0 and 2 over independent seeds (within one run they are correlated)."""
    for round_ in (0, 2):
        check_draws([chains(make_law, seed).sample(round_) for seed in range(10_000)], stationary_law(), 3)


def test_transitions(make_law: Any) -> None:
    """(on before, on after) of client 0 over independent seeds, four cells, χ²₃; error rate 1e-4."""
    cells = np.zeros((2, 2))
    for seed in range(10_000):
        law = chains(make_law, seed)
        cells[int(0 in law.sample(4)), int(0 in law.sample(5))] += 1
    expected = 10_000 * np.array([[0.75 * 0.8, 0.75 * 0.2], [0.25 * 0.6, 0.25 * 0.4]])
    assert stats.chi2.sf(((cells - expected) ** 2 / expected).sum(), 3) > 1e-4


def test_empty_rounds_are_empty(make_law: Any) -> None:
    law = make_law("markov", 2, on_rate=0.01, off_rate=0.9)
    ids = law.sample(0)
    assert ids.shape == (0,)
    assert ids.dtype == np.int64


def test_order_of_asking_does_not_matter(make_law: Any) -> None:
    in_order = [chains(make_law).sample(0)] + [chains(make_law).sample(r) for r in range(1, 30)]
    law = chains(make_law)
    for round_ in (29, 3, 3, 17, 18, 0, 5):
        assert law.sample(round_).tolist() == in_order[round_].tolist()


def test_state_is_saved_and_restored(make_law: Any) -> None:
    law = chains(make_law)
    law.sample(9)
    state = law.state_dict()
    expected = [law.sample(r).tolist() for r in range(10, 40)]
    resumed = chains(make_law)
    resumed.load_state_dict(state)
    assert int(state["round"]) == 9
    assert [resumed.sample(r).tolist() for r in range(10, 40)] == expected
    moved = {"round": np.array(9), "on": ~state["on"]}  # the state is used, not only replayed
    resumed.load_state_dict(moved)
    assert resumed.sample(9).tolist() == np.flatnonzero(~state["on"]).tolist()


def test_a_fresh_state_is_restored_as_fresh(make_law: Any) -> None:
    law = chains(make_law)
    law.load_state_dict(chains(make_law).state_dict())
    assert law.sample(6).tolist() == chains(make_law).sample(6).tolist()
