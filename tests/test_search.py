"""What is tried when a method is tuned: counted, in range, and one step beyond an edge."""

import math

import pytest

from fedrage_flwr.errors import UserError
from fedrage_flwr.search import Budget, Range, Space, parse_space, read_budget, read_space


@pytest.mark.parametrize("strategy", ["fedavg", "fedprox", "scaffold", "federage"])
def test_every_method_has_the_same_number_of_different_trials(strategy):
    space = read_space(strategy)
    words = {space.overrides(point) for point in space.trials()}
    assert len(space.trials()) == len(words) == 24


def test_a_grid_is_every_combination():
    lr = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    expected = {(f"client.lr={a!r}", f"strategy.server_lr={b!r}") for a in lr for b in (0.5, 1.0, 1.5)}
    for strategy in ("fedavg", "scaffold"):
        space = read_space(strategy)
        assert {space.overrides(point) for point in space.trials()} == expected
    space = read_space("fedprox")
    expected = {(f"client.lr={a!r}", f"client.mu={b!r}") for a in lr[:6] for b in (0.001, 0.01, 0.1, 1.0)}
    assert {space.overrides(point) for point in space.trials()} == expected


def test_the_points_of_federage_lie_in_their_ranges_and_spread():
    points = read_space("federage").trials()
    ranges = {"largest_step": (0.02, 0.5), "kappa": (2, 50), "lr_beta": (0.001, 0.03)}
    for name, (low, high) in ranges.items():
        shares = [math.log(point[name] / low) / math.log(high / low) for point in points]
        assert all(0 <= share <= 1 for share in shares)
        # Sobol: the first 16 points of the sequence, the one at 0 among them, stand on different sixteenths of each axis
        assert sorted(round(share * 16) for share in shares[:15]) == list(range(1, 16))
    assert {point["gamma"] for point in points} == {0.1, 0.25, 0.5, 1.0}


def test_alpha_and_the_step_give_back_kappa_and_the_largest_step():
    """κ = (1-γ) + γ/α, and κη is what was asked for."""
    space = read_space("federage")
    for point in space.trials():
        values = {key: float(value) for key, _, value in (word.partition("=") for word in space.overrides(point))}
        gamma, alpha = values["client.gamma"], values["client.alpha"]
        assert 0 < alpha <= 1
        kappa = (1 - gamma) + gamma / alpha
        assert kappa == pytest.approx(point["kappa"], rel=1e-5)
        assert kappa * values["client.lr"] == pytest.approx(point["largest_step"], rel=1e-5)


GRID = Space({"a": (1.0, 2.0, 6.0), "b": (0.5, 1.0)}, {}, None)


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ({"a": 2.0, "b": 1.0}, [{"a": 2.0, "b": 2.0}]),  # b: 1 · 1/0.5
        ({"a": 6.0, "b": 0.5}, [{"a": 18.0, "b": 0.5}, {"a": 6.0, "b": 0.25}]),  # a: 6 · 6/2
        ({"a": 1.0, "b": 1.0}, [{"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 2.0}]),  # a: 1 / (2/1)
    ],
)
def test_a_step_beyond_a_grid_keeps_the_ratio_of_the_outermost_values(best, expected):
    assert GRID.beyond(best, GRID.trials()) == expected


def test_an_inner_point_has_nothing_beyond_nor_has_what_was_tried():
    space = Space({"a": (1.0, 2.0, 6.0)}, {}, None)
    assert space.beyond({"a": 2.0}, space.trials()) == []
    tried = [*space.trials(), {"a": 18.0}]
    assert space.beyond({"a": 6.0}, tried) == []  # 6 is no edge any more
    assert space.beyond({"a": 18.0}, tried) == [{"a": 54.0}]


@pytest.mark.parametrize(("value", "expected"), [(1.9, [0.19]), (2.1, []), (1900.0, []), (2100.0, [21000.0])])
def test_the_outer_eighths_of_a_range_are_its_edges(value, expected):
    """Four powers of ten: an eighth is a factor √10, a step beyond (a quarter) a factor 10; edges to 1.976 and from 1976."""
    space = Space({"x": Range(0.625, 6250.0)}, {}, 24)
    found = [point["x"] for point in space.beyond({"x": value}, [{"x": value}])]
    assert found == expected


def test_a_range_needs_points_and_points_a_range(tmp_path):
    with pytest.raises(UserError, match="need"):
        parse_space({"axes": {"x": {"low": 1, "high": 2}}, "settings": {}}, tmp_path)
    with pytest.raises(UserError, match="need"):
        parse_space({"axes": {"x": [1, 2]}, "settings": {}, "points": 3}, tmp_path)


def test_a_method_without_a_space_is_named():
    with pytest.raises(UserError, match=r"strategy=qffl.*fedavg, federage, fedprox, scaffold"):
        read_space("qffl")


def test_no_trial_is_dropped_before_the_rarest_client_came_fifteen_times():
    budget = read_budget()
    assert budget.first_rounds(10000, 0.005) == 3000  # 15/0.005, and 0.3 · 10000
    assert budget.first_rounds(10000, 0.1) == 3000
    assert budget.first_rounds(10000, 0.003) == 5000
    assert budget.first_rounds(10000, 0.0003) == 10000  # 50,000 rounds are never reached: nothing is dropped
    assert budget.first_rounds(10000, 0.0) == 10000
    assert Budget(0.3, 15, 6, 2, [0], 8).first_rounds(101, 1.0) == 31
