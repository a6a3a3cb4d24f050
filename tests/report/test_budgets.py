"""Budgets, areas and times to a target, by hand."""

import math

import numpy as np
import pytest

from fedrage_flwr.report.budgets import area, common_target, label, spent, trials, unequal, views
from fedrage_flwr.report.cells import make_cells


def test_what_a_run_has_spent(make_run):
    run = make_run(
        "fedavg", 0, [0.1] * 4, {"tuned.note": "trial 3 of 24 + 2, validation accuracy 0.8 over all clients"}
    )
    assert spent(run) == {
        "rounds": 4, "gradient steps": 4 * 3 * 5, "bytes up": 400, "bytes down": 400, "client compute": 4 * 3 * 5 * 32,
        "tuning trials": 26,
    }  # fmt: skip
    assert trials(make_run("fedavg", 0, [0.1], {"tuned.note": "the method's defaults"})) == 0


def test_a_client_that_trains_several_models_takes_more_steps(make_run):
    focus = make_run("focus", 0, [0.1], {"client.name": "focus", "strategy.num_clusters": 3})
    ditto = make_run("ditto", 0, [0.1], {"client.name": "ditto"})
    assert (spent(focus)["gradient steps"], spent(ditto)["gradient steps"]) == (3 * 3 * 5, 2 * 3 * 5)


def test_not_equal_above_five_per_cent(make_run):
    def column(rounds, **facts):
        return make_cells([make_run("a", 0, [0.5] * 100), make_run("b", 0, [0.5] * rounds, **facts)])

    assert unequal(column(105)) == {}
    assert label(unequal(column(105))) == "equal budgets"
    assert unequal(column(106))["rounds"] == pytest.approx(1.06)
    assert label(unequal(column(100, bytes_up_per_round=200.0))) == "not equal: bytes up 2×"
    tuned = [make_run("a", 0, [0.5]), make_run("b", 0, [0.5], {"tuned.note": "trial 1 of 24 + 0"})]
    assert label(unequal(make_cells(tuned))) == "not equal: tuning trials 0 to some"


def test_area_under_a_bent_line():
    x, y = np.array([0.0, 2.0, 4.0]), np.array([0.0, 1.0, 1.0])
    assert area(x, y, 0, 4) == pytest.approx(0.75)  # a triangle of 1 and a rectangle of 2, over 4
    assert area(x, y, 1, 3) == pytest.approx((0.75 + 1) / 2)
    assert math.isnan(area(x, y, 2, 2))


def test_twice_the_bytes_are_half_the_rounds(make_run):
    rising = [k / 10 for k in range(1, 9)]  # 0.1, …, 0.8
    cells = make_cells([
        make_run("lean", 0, rising), make_run("lean", 1, [0.0] * 8), make_run("heavy", 0, rising, bytes_up_per_round=200.0),
    ])  # fmt: skip
    lean, heavy = views(cells, "bytes up", 0.3)
    assert lean.budget == heavy.budget == 800  # bytes: eight rounds of the one, four of the other
    assert heavy.accuracy == pytest.approx((0.1 + 0.2 + 0.3 + 0.4) / 4)
    assert lean.accuracy == pytest.approx((0.45 + 0) / 2)
    assert (heavy.to_target, heavy.reached) == (600, 1)
    assert (lean.to_target, lean.reached) == (300, 1)  # the other seed never gets there
    assert heavy.area == pytest.approx(0.25)  # from 200 to 800 bytes: 0.1 to 0.4
    assert lean.area == pytest.approx((0.2 + 0.8) / 2 / 2)  # from 200 to 800 bytes: 0.2 to 0.8, and the seed at 0
    same = views(cells, "rounds", 0.75)
    assert [view.reached for view in same] == [1, 1]
    assert [view.to_target for view in same] == [8, 8]
    out_of_budget = views(cells, "bytes up", 0.75)[1]
    assert (out_of_budget.reached, math.isnan(out_of_budget.to_target)) == (0, True)


def test_the_target_is_what_all_reach(make_run):
    cells = make_cells([make_run("a", 0, [0.79] * 10), make_run("b", 0, [0.9] * 10)])
    assert common_target(cells) == pytest.approx(0.75)
