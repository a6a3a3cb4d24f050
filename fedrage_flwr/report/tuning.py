"""The audit of a tuning: what was tried and chosen, edges, result against trials spent, and rank correlations.

Reads the tables that ``python -m fedrage_flwr.tune`` leaves in ``results/tuning/``, one for each method, data set, model and law,
finished or not, and never writes to them.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError, one_line
from fedrage_flwr.report.cells import REGIMES, Cell
from fedrage_flwr.search import NAMED, Point, Space, read_budget, read_space
from fedrage_flwr.words import choices

MODES = ("all", "participants")
COUNTS = (1, 2, 4, 8, 16, 24)
SAME_NUMBER = 1e-9


@dataclass(frozen=True)
class Tuning:
    """One cell's table of trials.

    Attributes:
        path: the file.
        dataset, model, ram, strategy: words.
        trials: its rows, as ``fedrage_flwr.tune.Trial`` names them.
    """

    path: Path
    dataset: str
    model: str
    ram: str
    strategy: str
    trials: pd.DataFrame

    @property
    def column(self) -> str:
        """Where the methods are compared."""
        return f"{self.dataset}, {self.model}, {REGIMES.get(self.ram, self.ram)}"

    @property
    def first(self) -> pd.DataFrame:
        """The first rung, by trial."""
        return self.trials[self.trials["rung"] == 1].set_index("trial").sort_index()

    @property
    def begun(self) -> pd.DataFrame:
        """Each trial where it began, by trial: what was added beyond the best of a later rung begins there."""
        return self.trials.drop_duplicates("trial").set_index("trial").sort_index()

    def finals(self, mode: str) -> pd.DataFrame:
        """The finalists of a mode, a row for each and the mean scores over the seeds; empty until all have run on all seeds.

        As ``fedrage_flwr.tune`` finds them: the best of those that ran to the end on the first seed, the earlier where equal,
        and whatever was added beyond one of them.
        """
        budget, score = read_budget(), f"score_{mode}"
        ended = self.trials[self.trials["rounds"] == self.trials["rounds"].max()]
        first = ended[ended["seed"] == budget.seeds[0]].sort_values([score, "trial"], ascending=[False, True])
        added = [trial for trial in first["trial"] if self.begun.loc[trial, "rung"] == 3]
        finalists = [trial for trial in first["trial"] if trial not in added][: budget.finalists]
        rows = ended[ended["trial"].isin([*finalists, *added]) & ended["seed"].isin(budget.seeds)]
        seeds = rows.groupby("trial")["seed"].nunique()
        whole = len(seeds) > 0 and bool((seeds == len(budget.seeds)).all())
        means: pd.DataFrame = rows.groupby("trial")[["score_all", "score_participants"]].mean()
        return means.loc[[trial for trial in first["trial"] if trial in means.index]] if whole else means.head(0)

    def chosen(self, mode: str) -> int | None:
        """The finalist of the highest mean score; None before the tuning has come to its end."""
        finals = self.finals(mode)
        return cast(int, finals[f"score_{mode}"].idxmax()) if len(finals) else None


def read_tunings(folder: Path) -> list[Tuning]:
    """Return the tables of a folder, in the order of their names.

    Raises:
        UserError: there are none, or one is no table of trials.
    """
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        raise UserError(f"{folder}: no table of trials there (python -m fedrage_flwr.tune writes them)")
    return [_read(path) for path in paths]


def _read(path: Path) -> Tuning:
    text = path.read_text(encoding="utf-8")
    try:
        trials = pd.read_csv(io.StringIO(text[: text.rfind("\n") + 1]))  # a row may be half written
        trials[
            [
                "trial",
                "origin",
                "rung",
                "seed",
                "rounds",
                "settings",
                "score_all",
                "score_participants",
                "test_accuracy",
            ]
        ]
    except (ValueError, KeyError) as error:
        raise UserError(f"{path}: no table of trials ({one_line(error)})") from error
    rest, found = path.stem, []
    for group in reversed(NAMED[1:]):
        found.append(_ending(rest, group, path))
        rest = rest.removesuffix(f"_{found[-1]}")
    strategy, ram, model = found
    return Tuning(path, rest, model, ram, strategy, trials)


def _ending(stem: str, group: str, path: Path) -> str:
    found = [word for word in choices(group) if stem.endswith(f"_{word}")]
    if not found:
        raise UserError(f"{path}: the name must be DATASET_MODEL_RAM_STRATEGY.csv, and ends in no {group}")
    return max(found, key=len)


def points(tuning: Tuning, space: Space) -> dict[int, Point]:
    """The point of every planned trial, by its number, and of those that were added, by their settings.

    Raises:
        UserError: a trial has settings that the space does not give.
    """
    planned = space.trials()
    found = dict(enumerate(planned))  # all of them: a tuning that is under way has the same edges
    for trial, settings in sorted(dict(zip(tuning.trials["trial"], tuning.trials["settings"], strict=True)).items()):
        known = list(found.values())
        words = tuple(settings.split(" ")[: len(space.settings)])  # what else was typed follows
        candidates = (
            [planned[trial]] if trial < len(planned) else [far for point in known for far in space.beyond(point, known)]
        )
        point = next((point for point in candidates if space.overrides(point) == words), None)
        if point is None:
            file = f"conf/experiment/tuning/{tuning.strategy}.yaml"
            raise UserError(f"{tuning.path}: trial {trial}, {settings}, is not of {file}")
        found[trial] = point
    return found


def edges(tuning: Tuning, trial: int) -> list[str]:
    """The axes at an edge of which a trial lies with an allowed value beyond: ``lr = 0.005 (lower)``."""
    space = read_space(tuning.strategy)
    every = points(tuning, space)
    found = []
    for further in space.beyond(every[trial], list(every.values())):
        (axis,) = [name for name in further if further[name] != every[trial][name]]
        if _allowed(tuning, space.overrides(further)):
            side = "lower" if further[axis] < every[trial][axis] else "upper"
            found.append(f"{axis} = {every[trial][axis]:g} ({side})")
    return found


def _allowed(tuning: Tuning, words: Iterable[str]) -> bool:
    cell = [f"{group}={getattr(tuning, group)}" for group in NAMED]
    try:
        validate(compose_config(["experiment=table1", "experiment/tuned=none", *cell, *words]))
    except UserError:
        return False
    return True


def expected_best(scores: Sequence[float], count: int) -> float:
    """The expected highest of ``count`` scores drawn without replacement: Σ s₍ᵢ₎ C(i−1, k−1)/C(n, k), rising.

    What a smaller budget would have given, whatever the order in which the trials were run.
    """
    ordered, n = sorted(scores), len(scores)
    return sum(score * comb(i, count - 1) for i, score in enumerate(ordered)) / comb(n, count)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's ρ; NaN for fewer than three pairs, or where one side does not vary."""
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    if len(first) < 3 or np.ptp(first) < SAME_NUMBER or np.ptp(second) < SAME_NUMBER:
        return float("nan")
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def audit(tunings: Sequence[Tuning], cells: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """The tables of the audit, by the name of their files.

    Args:
        cells: of the reporting runs; none leaves their columns empty.
    """
    tables = {
        "tuning_chosen": chosen_table(tunings),
        "tuning_trials": trials_table(tunings),
        "tuning_ranks": ranks_table(tunings),
        "tuning_reporting": reporting_table(tunings, cells),
    }
    return {name: table for name, table in tables.items() if len(table)}


def chosen_table(tunings: Sequence[Tuning]) -> pd.DataFrame:
    """For each cell and mode: how much was tried, what was chosen, and whether it lies at an edge."""
    rows = []
    for tuning in tunings:
        for mode in MODES:
            trial, begun = tuning.chosen(mode), tuning.begun
            leader = cast(int, tuning.first[f"score_{mode}"].idxmax()) if trial is None else trial
            settings = str(begun.loc[leader, "settings"])
            rows.append({
                "column": tuning.column, "method": tuning.strategy, "mode": mode,
                "planned": int((begun["origin"] == "plan").sum()), "added": int((begun["origin"] == "edge").sum()),
                "diverged": int((begun["status"] == "diverged").sum()),
                "stage": "running" if trial is None else "chosen", "trial": leader, "settings": settings,
                "score %": round(100 * _score(tuning, leader, mode, trial is None), 2),
                "edge": ", ".join(edges(tuning, leader)) or "no",
            })  # fmt: skip
    notes = [
        "Validation accuracy in the last ten rounds. all: mean over all clients; participants: each client weighed by how often"
        " it took part, which is all that a server can see. A cell that is still running shows the best of its first rung. edge:"
        " the axes at whose edge the trial lies with an allowed value beyond that was not tried.",
    ]
    return _titled(rows, "Tuning: what was tried and chosen", notes)


def _score(tuning: Tuning, trial: int, mode: str, first: bool) -> float:
    rows = tuning.first if first else tuning.finals(mode)
    return float(rows.loc[trial, f"score_{mode}"])  # type: ignore[arg-type]


def trials_table(tunings: Sequence[Tuning]) -> pd.DataFrame:
    """The expected best score of the first rung against the number of trials spent."""
    rows = []
    for tuning in tunings:
        planned = tuning.first[tuning.first["origin"] == "plan"]
        for mode in MODES:
            scores = [100 * float(score) for score in planned[f"score_{mode}"]]
            best = {f"{k}": round(expected_best(scores, k), 2) if k <= len(scores) else float("nan") for k in COUNTS}
            rows.append(
                {"column": tuning.column, "method": tuning.strategy, "mode": mode, "trials": len(scores), **best}
            )
    notes = [
        "Expected highest validation accuracy (%) of the first rung among so many of the planned trials, drawn at random without"
        " replacement: what a smaller budget would have given. A method that rises late needs its tuning most.",
    ]
    return _titled(rows, "Tuning: result against trials spent", notes)


def ranks_table(tunings: Sequence[Tuning]) -> pd.DataFrame:
    """Rank correlations between modes, with the test accuracy, between rungs and between tuning seeds."""
    rows = []
    for tuning in tunings:
        first, second = tuning.first, tuning.trials[tuning.trials["rung"] == 2].set_index("trial").sort_index()
        tested = first.dropna(subset=["test_accuracy"])
        both = first.index.intersection(second.index)
        for mode in MODES:
            score = f"score_{mode}"
            one, others = _seeds(tuning, second, score)
            rows.append({
                "column": tuning.column, "method": tuning.strategy, "mode": mode, "trials": len(first),
                "with the other mode": _correlation(first["score_all"], first["score_participants"]),
                "with test accuracy": _correlation(tested[score], tested["test_accuracy"]),
                "rung 1 and 2": _correlation(first.loc[both, score], second.loc[both, score]), "trials in rung 2": len(both),
                "first and further seeds": _correlation(one, others), "trials on further seeds": len(one),
            })  # fmt: skip
    notes = [
        "Spearman's ρ over trials, first rung unless said otherwise; — for fewer than three trials. with test accuracy: of the"
        " last model of the same run; it is looked at here alone, never in choosing. first and further seeds: scores after the"
        " second rung against the mean over the further seeds.",
    ]
    return _titled(rows, "Tuning: rank correlations", notes)


def _seeds(tuning: Tuning, second: pd.DataFrame, score: str) -> tuple[pd.Series, pd.Series]:
    further = tuning.trials[tuning.trials["rung"] == 3].groupby("trial")[score].mean()
    both = further.index.intersection(second.index)
    return second.loc[both, score], further.loc[both]


def _correlation(first: pd.Series, second: pd.Series) -> float:
    return round(rank_correlation(first.tolist(), second.tolist()), 3)


def reporting_table(tunings: Sequence[Tuning], cells: Sequence[Cell]) -> pd.DataFrame:
    """Between tuning and reporting seeds: do the methods of a column rank alike?"""
    rows = []
    for column in dict.fromkeys(tuning.column for tuning in tunings):
        for mode in MODES:
            pairs = _tuned_and_reported([t for t in tunings if t.column == column], cells, mode)
            if pairs:
                tuned, reported = zip(*pairs.values(), strict=True)
                rows.append({
                    "column": column, "mode": mode, "methods": ", ".join(pairs), "rank correlation":
                    round(rank_correlation(tuned, reported), 3),
                    "tuned %": ", ".join(f"{100 * value:.2f}" for value in tuned),
                    "reported %": ", ".join(f"{100 * value:.2f}" for value in reported),
                })  # fmt: skip
    notes = [
        "Over the methods of a column: the chosen trial's mean validation accuracy on the tuning seeds against the mean test"
        " accuracy of the reporting runs with the settings of that mode, on their own seeds. Spearman's ρ; — for fewer than three"
        " methods.",
    ]
    return _titled(rows, "Tuning: tuning and reporting seeds", notes)


def _tuned_and_reported(
    tunings: Sequence[Tuning], cells: Sequence[Cell], mode: str
) -> Mapping[str, tuple[float, float]]:
    found = {}
    for tuning in tunings:
        trial = tuning.chosen(mode)
        reported = [value for cell in cells if _is_of(cell, tuning, mode) for value in cell.reported().values()]
        if trial is not None and reported:
            found[tuning.strategy] = (_score(tuning, trial, mode, False), float(np.mean(reported)))
    return found


def _is_of(cell: Cell, tuning: Tuning, mode: str) -> bool:
    """Whether a cell ran with the settings that a mode chose: the note of the tuning says which mode it was."""
    words, note = cell.runs[0].words, str(cell.runs[0].config.get("tuned.note"))
    same = all(words[group] == getattr(tuning, group) for group in NAMED)
    return same and ("participants only" if mode == "participants" else "all clients") in note


def _titled(rows: Sequence[Mapping[str, object]], title: str, notes: Sequence[str]) -> pd.DataFrame:
    table = pd.DataFrame(list(rows))
    table.attrs = {"title": title, "notes": list(notes)}
    return table
