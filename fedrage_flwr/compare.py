"""``python -m fedrage_flwr.compare A B …``: what differs between runs, in their settings and in what came out.

Each argument is the folder of a run or one that holds runs (a sweep). Runs that differ in nothing but the seed are one column:
its means with 95 % t-intervals over the seeds. Where columns share two seeds or more, the difference to the first column is taken
seed by seed: with the same seed all methods meet the same participants, so most of the variance cancels.
(Whether two runs are the same to the bit: ``python -m fedrage_flwr.same``.)
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from fedrage_flwr.display import make_console, show_lines, show_table
from fedrage_flwr.doors import enter
from fedrage_flwr.errors import UserError

USAGE = "python -m fedrage_flwr.compare A B …, folders of runs or of sweeps"
LEVEL = 0.95
PERCENT = "accuracy"  # measures with this in their names are shares
IDENTITY = {"strategy", "dataset", "partition", "ram", "model", "backend", "seed", "num_clients", "num_rounds"}


@dataclass(frozen=True)
class Run:
    """One finished run: its folder, its settings without the seed (dotted keys), its seed and its measures."""

    folder: Path
    settings: dict[str, Any]
    seed: int
    measures: dict[str, float | None]


@dataclass(frozen=True)
class Column:
    """Runs that differ in the seed alone, in the order of seeds."""

    name: str
    runs: tuple[Run, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """Those of all its runs."""
        return self.runs[0].settings

    def values(self, measure: str) -> dict[int, float]:
        """One value for each seed that has one."""
        found = {run.seed: run.measures.get(measure) for run in self.runs}
        return {seed: value for seed, value in found.items() if value is not None}


def find_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """Return the finished runs in or below ``folder``, and a remark on each that is not finished.

    Raises:
        UserError: no such folder, or no finished run in it.
    """
    folders = [path.parent.parent for path in sorted(folder.rglob(".hydra/config.yaml"), key=str)]
    finished = [path for path in folders if (path / "summary.json").is_file()]
    remarks = [f"{path}: not finished, left out" for path in folders if path not in finished]
    if not finished:
        raise UserError(f"{folder}: {remarks[0] if remarks else 'no run there'}; usage: {USAGE}")
    return [_read(path) for path in finished], remarks


def _read(folder: Path) -> Run:
    config = OmegaConf.to_container(OmegaConf.load(folder / ".hydra" / "config.yaml"), resolve=False)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    settings = dict(_flat(config))
    settings |= {f"versions.{name}": version for name, version in summary.pop("versions", {}).items()}
    seed = int(settings.pop("seed"))
    numbers = {k: v for k, v in summary.items() if k not in IDENTITY and (v is None or isinstance(v, int | float))}
    return Run(folder, settings, seed, numbers)


def _flat(node: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def group(runs: Iterable[Run]) -> tuple[list[Column], list[str]]:
    """Put runs that differ in the seed alone together; a seed that comes twice counts once, with a remark."""
    groups: dict[str, dict[int, Run]] = {}
    remarks = []
    for run in runs:
        same = groups.setdefault(json.dumps(run.settings, sort_keys=True, default=str), {})
        if same.setdefault(run.seed, run) is not run:
            remarks.append(f"{run.folder}: same settings and seed as {same[run.seed].folder}, left out")
    columns = [
        Column(_letter(number), tuple(same[seed] for seed in sorted(same)))
        for number, same in enumerate(groups.values())
    ]
    return columns, remarks


def _letter(number: int) -> str:
    return ascii_uppercase[number] if number < len(ascii_uppercase) else f"#{number + 1}"


def differing_settings(columns: Sequence[Column]) -> list[list[str]]:
    """Return a row for each setting that is not the same in all columns: the key, then its values."""
    keys = dict.fromkeys(key for column in columns for key in column.settings)
    rows = [[key, *(_show(column.settings, key) for column in columns)] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def _show(settings: dict[str, Any], key: str) -> str:
    if key not in settings:
        return "—"
    value = settings[key]
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the half-width of its t-interval over seeds; None for a single value."""
    from scipy.stats import t  # type: ignore[import-untyped]

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return mean, None
    return mean, float(t.ppf((1 + LEVEL) / 2, count - 1) * np.std(values, ddof=1) / np.sqrt(count))


def measure_rows(columns: Sequence[Column]) -> list[list[str]]:
    """Return a row for each measure any column has: its name, then mean ± half-width."""
    names = dict.fromkeys(name for column in columns for run in column.runs for name in run.measures)
    rows = [[name, *(_cell(name, list(column.values(name).values())) for column in columns)] for name in names]
    return [row for row in rows if any(row[1:])]


def difference_rows(columns: Sequence[Column]) -> list[list[str]]:
    """Return, for each measure, the other columns less the first over the seeds they share; a bare number is one seed's."""
    rows = []
    for name, *_ in measure_rows(columns):
        base, cells = columns[0].values(name), []
        for other in columns[1:]:
            values = other.values(name)
            cells.append(_cell(name, [values[seed] - base[seed] for seed in sorted(base.keys() & values)], sign="+"))
        rows.append([name, *cells])
    return [row for row in rows if any(row[1:])]


def _cell(name: str, values: Sequence[float], sign: str = "") -> str:
    if not values:
        return ""
    mean, half = interval(values)
    scale, unit = (100.0, " pp" if sign else " %") if PERCENT in name else (1.0, "")
    digits = ".2f" if scale == 100.0 else ",.0f" if abs(mean) >= 1000 else ".4g"
    width = "" if half is None else f" ± {scale * half:{digits}}"
    return f"{scale * mean:{sign}{digits}}{width}{unit}"


def _seeds(column: Column) -> str:
    seeds = ", ".join(str(run.seed) for run in column.runs)
    more = f" and {len(column.runs) - 1} more" if len(column.runs) > 1 else ""
    return f"seed {seeds}: {column.runs[0].folder}{more}"


def _find_all(arguments: Sequence[str]) -> tuple[list[Run], list[str]]:
    """The runs of all arguments, each folder once, and the remarks."""
    runs: dict[Path, Run] = {}
    remarks: dict[str, None] = {}
    for argument in arguments:
        found, notes = find_runs(Path(argument))
        for run in found:
            runs.setdefault(run.folder.resolve(), run)
        remarks.update(dict.fromkeys(notes))
    return list(runs.values()), list(remarks)


def main(arguments: Sequence[str]) -> None:
    """Compare the runs in the folders named."""
    if not arguments or any(argument.startswith("-") for argument in arguments):
        raise UserError(f"usage: {USAGE}")
    runs, remarks = _find_all(arguments)
    columns, doubles = group(runs)
    names = [column.name for column in columns]
    console = make_console()
    show_lines(console, "Runs", [(column.name, _seeds(column)) for column in columns])
    show_lines(console, "Left out", [("", remark) for remark in [*remarks, *doubles]])
    show_table(console, "Settings that differ", ["setting", *names], differing_settings(columns))
    title = "Results (mean ± half-width of the 95 % interval over seeds; a bare number is one seed)"
    show_table(console, title, ["measure", *names], measure_rows(columns))
    pairs = [f"{name} − {names[0]}" for name in names[1:]]
    show_table(console, "Differences, seed by seed", ["measure", *pairs], difference_rows(columns))


if __name__ == "__main__":
    sys.exit(enter(main))
