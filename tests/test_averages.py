"""The averages of the rounds' models, by hand: 1, 2, 4, 8, 16 after rounds 1 to 5."""

import numpy as np
import pytest

from fedrage_flwr.callbacks import PolyakAverage
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.rounds import Round

MODELS = {1: 1.0, 2: 2.0, 3: 4.0, 4: 8.0, 5: 16.0}


def see(polyak: PolyakAverage, rounds: range) -> None:
    for number in rounds:
        arrays = {"w": np.full(2, MODELS[number], np.float32), "seen": np.array([number])}
        beta = {"beta": to_record({"value": np.array(-MODELS[number], np.float32)})}
        polyak.after_round(Round(number, to_record(arrays), beta, [], [], {}, 0, 0, 0.0))


def value(records) -> float:
    """Of ``w``; beta is its negative, and the integers are the last ones."""
    arrays = to_arrays(records["arrays"])
    assert arrays["w"].dtype == np.float32
    assert arrays["w"][0] == arrays["w"][1] == -to_arrays(records["beta"])["value"]
    assert arrays["seen"].dtype.kind == "i"
    return float(arrays["w"][0])


@pytest.mark.parametrize(("num_rounds", "whole", "half"), [(1, 1, 1), (2, 1.5, 2), (4, 3.75, 6), (5, 6.2, 28 / 3)])
def test_averages_of_all_rounds_and_of_the_second_half(num_rounds, whole, half):
    polyak = PolyakAverage(num_rounds)
    see(polyak, range(1, num_rounds + 1))
    assert value(polyak.records()) == pytest.approx(whole)
    assert value(polyak.second_half()) == pytest.approx(half)


@pytest.mark.parametrize("stopped", [1, 2, 3, 4])
def test_averages_go_on_after_a_stop(stopped):
    before, after = PolyakAverage(5), PolyakAverage(5)
    see(before, range(1, stopped + 1))
    after.load_state_dict(before.state_dict())
    see(after, range(stopped + 1, 6))
    assert value(after.second_half()) == pytest.approx(28 / 3)


def test_the_second_half_of_a_run_that_went_on_beyond_its_first_end():
    """From 1 round to 4 the half is still to come, from 2 it is now; from 3 to 5 it is passed: nothing was kept at ⌊5/2⌋."""
    for first, second, expected in ((1, 4, 6.0), (2, 4, 6.0), (3, 5, None)):
        short, longer = PolyakAverage(first), PolyakAverage(second)
        see(short, range(1, first + 1))
        longer.load_state_dict(short.state_dict())
        see(longer, range(first + 1, second + 1))
        found = longer.second_half()
        assert (found if found is None else value(found)) == expected
