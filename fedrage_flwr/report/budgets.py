"""What each cell of a table has spent, and the comparison at equal budgets.

More rounds, longer rounds, twice the bytes or more tuning all buy accuracy. A cell's curve over rounds is therefore re-indexed by
each budget in turn, and the cells of a column are compared up to the largest amount that all of them have spent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clients import CLIENTS
from fedrage_flwr.callbacks import LAST_ROUNDS
from fedrage_flwr.report.cells import Cell
from fedrage_flwr.report.runs import RunData
from fedrage_flwr.settings import lookup

AXES = ("rounds", "gradient steps", "bytes up", "bytes down", "client compute")
"""Budgets that grow round by round; client compute counts examples whose gradient was taken in local steps."""
BUDGETS = (*AXES, "tuning trials")
TOLERANCE = 0.05  # budgets that differ by more are not equal
TARGET_STEP = 0.05
TRIALS = re.compile(r"trial \d+ of (\d+) \+ (\d+)")


def trials(run: RunData) -> int:
    """How many trials its settings were chosen from, by the note that ``python -m fedrage_flwr.tune`` leaves; 0 untuned."""
    found = TRIALS.search(str(run.config.get("tuned.note") or ""))
    return int(found[1]) + int(found[2]) if found else 0


def spent(run: RunData) -> dict[str, float]:
    """The budgets a run has spent.

    Gradient steps are ``client.local_steps`` for each reply and each model that the client trains for it; client compute is those
    times ``client.batch_size``. Full gradients that a method takes besides are not counted.
    """
    trainings = lookup(CLIENTS, str(run.config["client.name"])).trainings
    models = float(run.config[trainings] if isinstance(trainings, str) else trainings)
    rounds, steps = float(run.summary["rounds_done"]), models * float(run.config["client.local_steps"])
    replies = float(sum(run.participations.values()))
    return {
        "rounds": rounds,
        "gradient steps": replies * steps,
        "bytes up": rounds * float(run.summary["bytes_up_per_round"]),
        "bytes down": rounds * float(run.summary["bytes_down_per_round"]),
        "client compute": replies * steps * float(run.config["client.batch_size"]),
        "tuning trials": float(trials(run)),
    }


def mean_spent(cell: Cell) -> dict[str, float]:
    """The mean over seeds of what was spent."""
    every = [spent(run) for run in cell.runs]
    return {budget: float(np.mean([one[budget] for one in every])) for budget in BUDGETS}


def unequal(cells: Sequence[Cell]) -> dict[str, float]:
    """The budgets that differ by more than 5 % among the cells of a column, each with largest/smallest (∞ beside a zero)."""
    every = [mean_spent(cell) for cell in cells]
    found = {}
    for budget in BUDGETS:
        low, high = min(one[budget] for one in every), max(one[budget] for one in every)
        if high > low * (1 + TOLERANCE):
            found[budget] = high / low if low else float("inf")
    return found


@dataclass(frozen=True)
class View:
    """A cell on one axis, up to the common budget of its column.

    Attributes:
        budget: the smallest of what the column's cells have spent.
        accuracy: mean over seeds of the last ten evaluations within the budget.
        area: mean over seeds of the area under the curve from the first evaluation (of the cell that is evaluated last) to the
            budget, divided by that length.
        to_target: what the seeds that reach the target had spent at their first evaluation at or above it, mean; NaN for none.
        reached: seeds that reach it within the budget.
    """

    axis: str
    budget: float
    accuracy: float
    area: float
    to_target: float
    reached: int


@dataclass(frozen=True)
class _Curve:
    spent: np.ndarray
    values: np.ndarray


def views(cells: Sequence[Cell], axis: str, target: float, measure: str = "accuracy") -> list[View]:
    """Compare the cells of a column on one axis.

    Args:
        cells: those with the measure.
        target: in the unit of the measure.
    """
    curves = [[_curve(run, axis, measure) for run in cell.runs if len(run.last(measure))] for cell in cells]
    budget = min(curve.spent[-1] for own in curves for curve in own)
    start = max(curve.spent[0] for own in curves for curve in own)
    return [_view(own, axis, start, budget, target) for own in curves]


def _curve(run: RunData, axis: str, measure: str) -> _Curve:
    rows = run.rounds.dropna(subset=[measure])
    per_round = spent(run)[axis] / spent(run)["rounds"]
    return _Curve(rows["round"].to_numpy(float) * per_round, rows[measure].to_numpy(float))


def _view(curves: Sequence[_Curve], axis: str, start: float, budget: float, target: float) -> View:
    within = [curve.values[curve.spent <= budget * (1 + 1e-9)] for curve in curves]
    arrivals = [_arrival(curve, target) for curve in curves]
    arrived = [x for x in arrivals if x <= budget * (1 + 1e-9)]
    return View(
        axis=axis,
        budget=float(budget),
        accuracy=float(np.mean([values[-LAST_ROUNDS:].mean() if len(values) else np.nan for values in within])),
        area=float(np.mean([area(curve.spent, curve.values, start, budget) for curve in curves])),
        to_target=float(np.mean(arrived)) if arrived else float("nan"),
        reached=len(arrived),
    )


def _arrival(curve: _Curve, target: float) -> float:
    reached = curve.values >= target
    return float(curve.spent[np.argmax(reached)]) if reached.any() else float("inf")


def area(x: np.ndarray, y: np.ndarray, start: float, end: float) -> float:
    """The mean height of the piecewise linear curve through the points between ``start`` and ``end``; NaN if they are one.

    Args:
        x: shape (n,), rising.
        y: shape (n,).
        start, end: within x.
    """
    from scipy.integrate import trapezoid  # type: ignore[import-untyped]

    if end <= start:
        return float("nan")
    inside = x[(x > start) & (x < end)]
    at = np.concatenate([[start], inside, [end]])
    return float(trapezoid(np.interp(at, x, y), at) / (end - start))


def common_target(cells: Sequence[Cell], measure: str = "accuracy") -> float:
    """The largest multiple of 5 % that the reported value of every cell reaches: a target all can be timed to."""
    lowest = min(float(np.mean(list(cell.reported(measure).values()))) for cell in cells)
    return float(np.floor(lowest / TARGET_STEP + 1e-9) * TARGET_STEP)


def label(differing: Mapping[str, float]) -> str:
    """``equal budgets``, or ``not equal: …`` with what differs and by how much."""
    if not differing:
        return "equal budgets"
    parts = [f"{budget} {'0 to some' if np.isinf(ratio) else f'{ratio:.3g}×'}" for budget, ratio in differing.items()]
    return f"not equal: {', '.join(parts)}"
