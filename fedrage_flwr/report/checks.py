"""The checks behind the page of verdicts: each takes the recorded runs and says what it found; the last few need none.

The rules are those of ``fedrage_flwr.report.claims``.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrage_flwr.errors import UserError
from fedrage_flwr.report import settled
from fedrage_flwr.report.budgets import area
from fedrage_flwr.report.cells import Cell, make_cells
from fedrage_flwr.report.finding import AGREES, DIFFERS, MISSING, NOT_RUN, NOT_TESTABLE, UNDECIDED, Finding
from fedrage_flwr.report.runs import RunData, load
from fedrage_flwr.report.statistics import LEVEL, Paired, paired_t, spread
from fedrage_flwr.report.tables import published

RATES, ERRORS = "slopes.csv", "errors.csv"  # of python -m fedrage_flwr.report.rates


class Results:
    """The runs of ``results/``, read where they are asked for.

    Args:
        root: the folder with a sub-folder for each experiment.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._runs: dict[str, list[RunData]] = {}

    @cached_property
    def experiments(self) -> list[str]:
        """Names of the sub-folders that hold recorded runs."""
        return sorted(folder.name for folder in self.root.iterdir() if folder.is_dir() and list(folder.glob("*.json")))

    def runs(self, experiment: str) -> list[RunData]:
        """The runs of an experiment; none if it has not been run."""
        if experiment not in self._runs:
            self._runs[experiment] = load([self.root / experiment])[0] if experiment in self.experiments else []
        return self._runs[experiment]

    def cells(self, experiments: Sequence[str]) -> list[Cell]:
        """The cells of these experiments."""
        return [cell for name in experiments for cell in make_cells(self.runs(name))]

    def cell(self, experiments: Sequence[str], where: Mapping[str, Any]) -> Cell | None:
        """The one cell whose words and settings are these; None if there is none.

        Raises:
            UserError: several are.
        """
        found = [cell for cell in self.cells(experiments) if _matches(cell.runs[0], where)]
        if len(found) > 1:
            wanted = ", ".join(f"{key}={value}" for key, value in where.items())
            raise UserError(f"{self.root}: {len(found)} cells have {wanted}; name more settings in claims.yaml")
        return found[0] if found else None


def _matches(run: RunData, where: Mapping[str, Any]) -> bool:
    return all(
        run.words[key] == value if key in run.words else run.config.get(key) == value for key, value in where.items()
    )


def accuracy(results: Results, runs_of: Sequence[str], where: Mapping[str, Any], rounds: int = 0) -> Finding:
    """A number of Table I: is the paper's mean inside our interval?

    Args:
        rounds: of the paper; runs that are shorter do not test its number.
    """
    mean, std = published()[where["dataset"]][where["ram"]][where["strategy"]]
    paper = f"{mean:.2f} ± {std:.2f}"
    cell = results.cell(runs_of, where)
    if cell is None or not cell.reported():
        return Finding("—", NOT_RUN, "", paper)
    one = spread(cell.last())
    ours = f"{100 * one.mean:.2f}"
    if np.isnan(one.half_width):
        return Finding(f"{ours} (1 seed)", NOT_TESTABLE, "one seed has no interval", paper)
    half = 100 * one.half_width
    if cell.runs[0].num_rounds < rounds:
        return Finding(f"{ours} ± {half:.2f} ({_n(cell)})", NOT_TESTABLE, _shorter(rounds), paper)
    away = 100 * one.mean - mean
    inside = abs(away) <= half
    reason = (
        f"the paper's mean is {'inside' if inside else 'outside'} our interval; ours is {away:+.2f} points from it,"
        f" {'within' if abs(away) <= std else 'beyond'} the paper's own ±"
    )
    return Finding(f"{ours} ± {half:.2f} ({_n(cell)})", AGREES if inside else DIFFERS, reason, paper)


def _n(cell: Cell) -> str:
    return f"{len(cell.runs)} seeds, {cell.runs[0].num_rounds:,} rounds"


def _shorter(rounds: int) -> str:
    return f"the paper's runs are of {rounds:,} rounds"


def order(
    results: Results, runs_of: Sequence[str], better: Mapping[str, Any], worse: Mapping[str, Any],
    measure: str = "accuracy", smaller: bool = False, margin: float = 0.0, where: Mapping[str, Any] | None = None,
    rounds: int = 0,
) -> Finding:  # fmt: skip
    """One method better than another, by a paired t over shared seeds.

    Args:
        better, worse: what tells the two cells from others.
        measure: a column of the runs' CSVs, or ``area``: of the accuracy over rounds.
        smaller: smaller is better.
        margin: what still counts as not worse: a claim of "not lower" has one above 0.
        where: what both have.
        rounds: of the paper; runs that are shorter do not test its claim.
    """
    first, second = (results.cell(runs_of, {**(where or {}), **own}) for own in (worse, better))
    if first is None or second is None:
        return MISSING
    pair = paired_t(_values(first, measure), _values(second, measure))
    if pair is None:
        return Finding("—", NOT_TESTABLE, f"no shared seed with {measure}")
    scale, unit = (100.0, " points") if "accuracy" in measure or measure == "area" else (1.0, "")
    ours = f"{scale * pair.difference:+.4g}"
    if np.isnan(pair.half_width):
        return Finding(f"{ours}{unit} (1 seed)", NOT_TESTABLE, "one seed has no interval")
    ours += f" ± {scale * pair.half_width:.3g}{unit} ({pair.num_seeds} seeds"
    done = first.runs[0].num_rounds
    if done < rounds:
        return Finding(f"{ours}, {done:,} rounds)", NOT_TESTABLE, _shorter(rounds))
    return Finding(f"{ours})", *_side(pair, smaller, margin))


def _values(cell: Cell, measure: str) -> dict[int, float]:
    return (
        {run.seed: _area(run) for run in cell.runs if len(run.last())} if measure == "area" else cell.reported(measure)
    )


def _area(run: RunData) -> float:
    rows = run.rounds.dropna(subset=["accuracy"])
    rounds = rows["round"].to_numpy(float)
    return area(rounds, rows["accuracy"].to_numpy(float), rounds[0], rounds[-1])


def _side(pair: Paired, smaller: bool, margin: float) -> tuple[str, str]:
    gain = (-pair.difference if smaller else pair.difference) + margin
    allowed = f", {margin:g} allowed" if margin else ""
    if gain > pair.half_width:
        return AGREES, f"the interval of the paired difference is on the claimed side{allowed}"
    if gain < -pair.half_width:
        return DIFFERS, f"the interval of the paired difference is on the other side{allowed}"
    edge = f"{margin if smaller else -margin:g}" if margin else "zero"
    return UNDECIDED, f"the interval of the paired difference holds {edge}"


def dispersion(
    results: Results, runs_of: Sequence[str], larger: Mapping[str, Any], smaller: Mapping[str, Any],
    where: Mapping[str, Any],
) -> Finding:  # fmt: skip
    """One method's seeds spread more than another's: the 95 % F-interval of the ratio of their standard deviations against 1."""
    from scipy.stats import f  # type: ignore[import-untyped]

    first, second = (results.cell(runs_of, {**where, **own}) for own in (larger, smaller))
    if first is None or second is None:
        return MISSING
    one, other = (np.array(list(cell.reported().values())) for cell in (first, second))
    if min(len(one), len(other)) < 2 or not other.std() > 0:
        return Finding("—", NOT_TESTABLE, "a spread needs two seeds that differ")
    ratio = one.var(ddof=1) / other.var(ddof=1)
    tails = f.ppf([(1 + LEVEL) / 2, (1 - LEVEL) / 2], len(one) - 1, len(other) - 1)
    low, high = np.sqrt(ratio / tails)
    verdict = AGREES if low > 1 else DIFFERS if high < 1 else UNDECIDED
    ours = f"std_seeds {np.sqrt(ratio):.2f}× ({low:.2f} to {high:.2f}; {len(one)} and {len(other)} seeds)"
    return Finding(ours, verdict, "95 % F-interval of the ratio, against 1")


def traffic(results: Results, runs_of: Sequence[str], strategy: str, base: str, factor: float) -> Finding:
    """Bytes a round of one method over another's, as sent; the paper's factor within 5 %."""
    ratios = {way: [a / b for a, b in _bytes(results, runs_of, strategy, base, way)] for way in ("up", "down")}
    if not ratios["up"]:
        return MISSING
    means = {way: float(np.mean(values)) for way, values in ratios.items()}
    verdict = AGREES if all(abs(ratio / factor - 1) < 1 - LEVEL for ratio in means.values()) else DIFFERS
    return Finding(
        ", ".join(f"{mean:.4g}× {way}" for way, mean in means.items()), verdict, f"{factor:g}× within 5 %, or not"
    )


def extra_bytes(results: Results, runs_of: Sequence[str], strategy: str, base: str, at_most: float) -> Finding:
    """Bytes that one method sends beyond another's, for each participant and round; up and down."""
    extra = {way: [a - b for a, b in _bytes(results, runs_of, strategy, base, way)] for way in ("up", "down")}
    if not extra["up"]:
        return MISSING
    verdict = AGREES if max(map(max, extra.values())) <= at_most + 1e-6 else DIFFERS
    return Finding(
        ", ".join(f"{max(v):+.4g} bytes {way}" for way, v in extra.items()),
        verdict,
        f"{at_most:g} bytes at most, or not",
    )


def _bytes(results: Results, runs_of: Sequence[str], strategy: str, base: str, way: str) -> list[tuple[float, float]]:
    """For each column that has both methods: bytes for a participant and round, one way."""
    cells = results.cells(runs_of)
    return [
        (_for_one(one.runs[0], way), _for_one(other.runs[0], way))
        for one, other in product(cells, cells)
        if (one.runs[0].words["strategy"], other.runs[0].words["strategy"], one.column)
        == (strategy, base, other.column)
    ]


def _for_one(run: RunData, way: str) -> float:
    a_round = float(run.summary[f"bytes_{way}_per_round"])
    return a_round * float(run.summary["rounds_done"]) / sum(run.participations.values())


def reached(
    results: Results, runs_of: Sequence[str], where: Mapping[str, Any], measure: str, at_least: float
) -> Finding:
    """A measure of the summary reaches a value in every run."""
    cell = results.cell(runs_of, where)
    values = [run.summary.get(measure) for run in cell.runs] if cell else []
    known = [float(value) for value in values if value is not None]
    if not known:
        return MISSING if cell is None else Finding("—", NOT_TESTABLE, f"the runs have no {measure}")
    ours = f"{measure} {min(known):.4g} to {max(known):.4g} ({len(known)} seeds)"
    return Finding(ours, AGREES if min(known) >= at_least else DIFFERS, f"all runs at {at_least:g} or above, or not")


def rates(results: Results, slope: float) -> Finding:
    """Slopes of log error over log T at the largest T: their interval's upper end not above the theorem's rate."""
    path = results.root / "rates" / RATES
    if not path.is_file():
        return MISSING
    table = pd.read_csv(path)
    good = table["late_high"] <= slope
    most = table["late_slope"].max()
    ours = f"{int(good.sum())} of {len(table)} slopes with an interval at or below {slope:g}; {most:.2f} at most"
    return Finding(
        ours, AGREES if good.all() else DIFFERS if not good.any() else UNDECIDED, "over all α, γ and step sizes c"
    )


def bounded(results: Results) -> Finding:
    """Error · √T/κ does not grow without bound: nowhere is its mean over seeds largest at the largest T."""
    path = results.root / "rates" / ERRORS
    if not path.is_file():
        return MISSING
    table = pd.read_csv(path)
    scaled = table.assign(scaled=table["error"] * np.sqrt(table["rounds"]) / table["kappa"])
    by_rounds = scaled.groupby(["label", "c", "rounds"])["scaled"].mean().unstack()
    last = by_rounds.iloc[:, -1] / by_rounds.max(axis=1)
    good = by_rounds.to_numpy().argmax(axis=1) < by_rounds.shape[1] - 1
    ours = (
        f"{int(good.sum())} of {len(good)} settings have their largest value before T = {by_rounds.columns[-1]:,}; there it is"
        f" {last.min():.3f} to {last.max():.2f} of it"
    )
    return Finding(ours, AGREES if good.all() else DIFFERS, "over all α, γ and step sizes c, or not")


def shown(results: Results, runs_of: Sequence[str]) -> Finding:
    """Nothing to compare with: the paper prints a figure without numbers."""
    count = sum(len(cell.runs) for cell in results.cells(runs_of))
    return (
        Finding(f"{count} runs, see the tables", NOT_TESTABLE, "the paper gives no number for it") if count else MISSING
    )


CHECKS: Mapping[str, Callable[..., Finding]] = {
    check.__name__: check
    for check in (
        accuracy, order, dispersion, traffic, extra_bytes, reached, rates, bounded, shown, settled.majority, settled.convergence,
        settled.outlier, settled.outlier_mended, settled.scaffold,
    )
}  # fmt: skip
