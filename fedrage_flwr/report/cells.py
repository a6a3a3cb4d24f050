"""Cells of a table: runs that differ in the seed alone, and where each stands.

The column of a cell says what the methods meet (data set, availability law, and what else differs between columns), its row the
method and its settings as far as they differ.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrage_flwr.report.runs import RunData

SURROUNDINGS = (
    "dataset.",
    "ram.",
    "partition.",
    "model.",
    "evaluate.",
    "num_clients",
    "rare_clients",
    "held_out_clients",
)
"""Beginnings of the settings that belong to a column; the others belong to the method."""
REGIMES = {"uniform": "uniform", "inclusion": "skewed"}
"""The papers' words for two laws of participation."""


@dataclass(frozen=True)
class Cell:
    """Runs that differ in the seed alone, in the order of seeds.

    Attributes:
        column: what is met: data set and regime, and settings that tell columns of the same words apart.
        row: the method, and settings that tell its cells in one column apart.
    """

    column: str
    row: str
    runs: tuple[RunData, ...]

    @property
    def seeds(self) -> list[int]:
        """In rising order."""
        return [run.seed for run in self.runs]

    def reported(self, measure: str = "accuracy") -> dict[int, float]:
        """The reported value of each seed that has one (see ``RunData.reported``)."""
        values = {run.seed: run.reported(measure) for run in self.runs}
        return {seed: value for seed, value in values.items() if not np.isnan(value)}

    def last(self, measure: str = "accuracy") -> list[np.ndarray]:
        """The last ten rounds of each seed."""
        found = [run.last(measure) for run in self.runs]
        return [values for values in found if len(values)]


def make_cells(runs: Iterable[RunData]) -> list[Cell]:
    """Put runs together that differ in the seed alone; columns and rows keep the order in which they were met."""
    groups: dict[str, list[RunData]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.setting, sort_keys=True), []).append(run)
    members = [tuple(sorted(group, key=lambda run: run.seed)) for group in groups.values()]
    columns = _told_apart([_place(group[0]) for group in members], members, surroundings=True)
    methods = [f"{column}\n{group[0].words['strategy']}" for column, group in zip(columns, members, strict=True)]
    rows = [label.partition("\n")[2] for label in _told_apart(methods, members, surroundings=False)]
    return [Cell(column, row, group) for column, row, group in zip(columns, rows, members, strict=True)]


def _told_apart(names: Sequence[str], members: Sequence[tuple[RunData, ...]], surroundings: bool) -> list[str]:
    """Add to names that are the same the settings of one kind that are not."""
    settings = [
        {k: v for k, v in group[0].setting.items() if k.startswith(SURROUNDINGS) is surroundings} for group in members
    ]
    labels = []
    for name, own in zip(names, settings, strict=True):
        others = [other for same, other in zip(names, settings, strict=True) if same == name]
        keys = [key for key in own if any(other.get(key) != own[key] for other in others)]
        labels.append(" ".join([name, *(f"{key}={_show(own[key])}" for key in keys)]))
    return labels


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value) if value is None else str(value)


def by_column(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """The cells of each column."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.column, []).append(cell)
    return found


def _place(run: RunData) -> str:
    return f"{run.words['dataset']}, {REGIMES.get(run.words['ram'], run.words['ram'])}"
