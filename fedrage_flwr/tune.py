"""``python -m fedrage_flwr.tune strategy=… dataset=… ram=… model=…``: choose the settings of a method for a cell of Table I.

Every method has the same budget (``conf/experiment/tuning/_budget.yaml``): its trials run on one seed for a first rung, the best
go on to the end, and the best of those run on two seeds more. Nothing is dropped before the rarest client is expected to have
taken part 15 times: hedging pays late. Where the best trial of any rung lies at an edge of the grid, trials beyond it are added.

Two modes of selection, side by side: ``all`` takes the mean accuracy over all N clients' validation parts; ``participants``
weighs each client by how often it took part, which is all that a server can see. Both are means over the last ten rounds. Test
data are never used; the test accuracy of the last model stands in the table beside, for the audit.

Each trial is a row of ``results/tuning/<dataset>_<model>_<ram>_<strategy>.csv``, and is not run again while the row is there; one
that was cut goes on from its checkpoint below ``outputs/tuning/``. The settings chosen are written to ``conf/experiment/tuned/``.
"""

import csv
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from omegaconf import OmegaConf
from safetensors.numpy import load_file

from fedrage_flwr.callbacks import LAST_ROUNDS
from fedrage_flwr.checkpoint import FOLDER
from fedrage_flwr.config import Config, compose_config, validate
from fedrage_flwr.doors import enter, set_switches
from fedrage_flwr.errors import Diverged, UserError
from fedrage_flwr.evaluation import ServerMeasure
from fedrage_flwr.experiment import NO_MATTER, guarded
from fedrage_flwr.parts import Prepared, make_local_model, prepare_run
from fedrage_flwr.records import to_record
from fedrage_flwr.search import NAMED, Budget, Point, Space, read_budget, read_space
from fedrage_flwr.words import conf_dir

USAGE = "python -m fedrage_flwr.tune strategy=… dataset=… ram=… [model=…] [KEY=VALUE …]"
NOT_IN_ROWS = {*NAMED, "experiment", "num_rounds", "device", "checkpoint_every", *NO_MATTER}
"""Keys that need not stand in a row: it or its table has them already, or they change no result."""
Mode = Literal["all", "participants"]
MODES: tuple[Mode, ...] = ("all", "participants")


@dataclass(frozen=True)
class Trial:
    """One row of the table.

    Attributes:
        trial: number of the point, from 0.
        origin: plan, or edge where the point was added beyond one.
        rung: 1, 2, or 3 for the further seeds.
        settings: the overrides of the point, then what else was typed.
        score_all, score_participants: mean validation accuracy, see the head of this file; 0 where the run diverged.
        test_accuracy: of the last model on the whole test set; never looked at here.
        seconds: of computing, that of the rung before included where the run went on from it.
        status: ok or diverged.
    """

    trial: int
    origin: str
    rung: int
    seed: int
    rounds: int
    settings: str
    score_all: float
    score_participants: float
    test_accuracy: float | None
    seconds: float
    status: str

    def score(self, mode: Mode) -> float:
        """The score of a mode of selection."""
        return self.score_all if mode == "all" else self.score_participants


class Trials:
    """The table of trials in a CSV file: a row is appended as a trial ends, and found again when asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: dict[tuple[int, int, int], Trial] = {}
        if path.exists():
            text = path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]  # a process killed while writing leaves half a line
            if whole != text:
                path.write_text(whole, encoding="utf-8")
            for row in csv.DictReader(whole.splitlines()):
                self._keep(_read_row(row))

    def find(self, trial: int, seed: int, rounds: int, settings: str) -> Trial | None:
        """The row, or None.

        Raises:
            UserError: it was made with other settings.
        """
        row = self.rows.get((trial, seed, rounds))
        if row is not None and row.settings != settings:
            raise UserError(f"{self._path}: trial {trial} had {row.settings}, now it is {settings}; move the file away")
        return row

    def add(self, trial: Trial) -> None:
        """Append a row; it is on the disk when this returns."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = not self._path.exists() or not self._path.stat().st_size
        with self._path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow([field.name for field in fields(Trial)])
            writer.writerow(["" if value is None else value for value in asdict(trial).values()])
            file.flush()
            os.fsync(file.fileno())
        self._keep(trial)

    def _keep(self, trial: Trial) -> None:
        self.rows[trial.trial, trial.seed, trial.rounds] = trial


def _read_row(row: Mapping[str, str]) -> Trial:
    values: dict[str, Any] = dict(row)
    values |= {name: int(row[name]) for name in ("trial", "rung", "seed", "rounds")}
    values |= {name: float(row[name]) for name in ("score_all", "score_participants", "seconds")}
    values["test_accuracy"] = float(row["test_accuracy"]) if row["test_accuracy"] else None
    return Trial(**values)


class Cell:
    """One method, data set, model and law: its trials, run as they are asked for.

    Args:
        overrides: what was typed; names the cell and may change anything else, the experiment too (table1_cifar10). What it
            changes beyond the names and the rounds stands in every row, so that no row is taken for one of another setting.
    """

    def __init__(self, overrides: Sequence[str]) -> None:
        self.typed = list(overrides)
        setting = [] if any(word.startswith("experiment=") for word in overrides) else ["experiment=table1"]
        self._base = [*setting, "experiment/tuned=none", "eval_every=500", *overrides]
        self.config: Config = validate(compose_config(self._base))
        self.name = "_".join(getattr(self.config, group).name for group in NAMED)
        self._further = tuple(sorted(word for word in overrides if word.partition("=")[0] not in NOT_IN_ROWS))
        self._test: Prepared = prepare_run(self.config)
        self.rarest = float(self._test.manager.law.inclusion().values.min())
        self.space: Space = read_space(self.config.strategy.name)
        self.points: list[Point] = self.space.trials()
        self.planned = len(self.points)
        self.trials = Trials(Path("results") / "tuning" / f"{self.name}.csv")
        self.folder = Path("outputs") / "tuning" / self.name

    def run(self, trial: int, rung: int, seed: int, rounds: int) -> Trial:
        """Return the row of a trial, running it if there is none yet."""
        words = self.space.overrides(self.points[trial])
        settings = " ".join([*words, *self._further])
        known = self.trials.find(trial, seed, rounds, settings)
        if known is not None:
            return known
        folder = self.folder / f"trial={trial}_seed={seed}"
        overrides = [*self._base, *words, f"seed={seed}", f"num_rounds={rounds}", "evaluate.split=validation"]
        origin = "plan" if trial < self.planned else "edge"
        row = Trial(trial, origin, rung, seed, rounds, settings, 0.0, 0.0, None, 0.0, "diverged")
        try:
            summary = guarded(overrides, folder)
        except Diverged:
            pass
        else:
            everyone, participants = scores(folder, self.config.num_clients, rounds)
            row = replace(
                row, score_all=everyone, score_participants=participants, test_accuracy=self._tested(folder),
                seconds=round(summary["wall_seconds"], 1), status="ok",
            )  # fmt: skip
        self.trials.add(row)
        print(f"{self.name} trial {trial} seed {seed} round {rounds}: {row.score_all:.4f} over all clients,"
              f" {row.score_participants:.4f} over participants ({row.status}; {row.settings})", flush=True)  # fmt: skip
        return row

    def _tested(self, folder: Path) -> float | None:
        data = self._test.dataset
        model = make_local_model(self.config, data, self._test.device)
        stored = load_file(folder / "model.safetensors")
        arrays = {name: stored[name] for name in model.arrays() if name in stored}
        if arrays.keys() != model.arrays().keys():
            return None  # several models: there is no single one to test
        measure = ServerMeasure(model, data.test.inputs, data.test.labels, data.to_float, [])
        return round(measure(to_record(arrays)).accuracy, 5)

    def allowed(self, point: Point) -> bool:
        """Whether the settings of a point are."""
        try:
            validate(compose_config([*self._base, *self.space.overrides(point)]))
        except UserError:
            return False
        return True


def scores(folder: Path, num_clients: int, rounds: int) -> tuple[float, float]:
    """Mean accuracy over the last ten rounds, over all clients and with each weighed by how often it took part."""
    import pandas as pd

    clients = pd.read_csv(folder / "clients.csv")
    last = clients[(clients["round"] > rounds - LAST_ROUNDS) & (clients["client"] < num_clients)]
    accuracy = last.groupby("client")["accuracy"].mean().dropna()
    took_part = pd.read_csv(folder / "participation.csv")["client"].value_counts()
    weights = took_part.reindex(accuracy.index, fill_value=0)
    return round(float(accuracy.mean()), 6), round(float(np.average(accuracy, weights=weights)), 6)


def best(rows: Iterable[Trial], mode: Mode, count: int) -> list[int]:
    """Numbers of the ``count`` trials of highest score, best first; the earlier one where scores are equal."""
    return [row.trial for row in sorted(rows, key=lambda row: (-row.score(mode), row.trial))[:count]]


def tune(cell: Cell, budget: Budget) -> dict[Mode, int]:
    """Run the rungs; return the trial chosen by each mode."""
    seed, total = budget.seeds[0], cell.config.num_rounds
    most = cell.planned + budget.extra_trials

    def climb(number: int, trials: Iterable[int], rounds: int) -> dict[int, Trial]:
        rung = {trial: cell.run(trial, number, seed, rounds) for trial in trials}
        for trial in _beyond(cell, most, lambda: [best(rung.values(), mode, 1)[0] for mode in MODES]):
            rung[trial] = cell.run(trial, number, seed, rounds)
        return rung

    rung = climb(1, range(cell.planned), budget.first_rounds(total, cell.rarest))
    rung = climb(2, sorted({trial for mode in MODES for trial in best(rung.values(), mode, budget.kept)}), total)
    finalists = {mode: best(rung.values(), mode, budget.finalists) for mode in MODES}

    def mean(trial: int, mode: Mode) -> float:
        return float(np.mean([cell.run(trial, 3, other, total).score(mode) for other in budget.seeds]))

    def chosen() -> dict[Mode, int]:
        return {mode: max(trials, key=lambda trial: mean(trial, mode)) for mode, trials in finalists.items()}

    for trial in _beyond(cell, most, lambda: chosen().values()):
        for trials in finalists.values():
            trials.append(trial)
    return chosen()


def _beyond(cell: Cell, most: int, leaders: Callable[[], Iterable[int]]) -> Iterator[int]:
    """Add points beyond the edges at which the leaders lie, one at a time, until none does or there are ``most``."""
    refused: list[Point] = []
    while len(cell.points) < most:
        best_points = [cell.points[leader] for leader in dict.fromkeys(leaders())]
        further = [point for leader in best_points for point in cell.space.beyond(leader, cell.points)]
        point = next((point for point in further if point not in refused), None)
        if point is None:
            return
        if not cell.allowed(point):
            refused.append(point)
            continue
        cell.points.append(point)
        yield len(cell.points) - 1


def write_choice(cell: Cell, mode: Mode, trial: int, budget: Budget, folder: Path) -> Path:
    """Write the settings of a trial where ``experiment=table1`` looks for them; return the file."""
    rows = [cell.trials.rows[trial, seed, cell.config.num_rounds] for seed in budget.seeds]
    score = float(np.mean([row.score(mode) for row in rows]))
    whose = "all clients" if mode == "all" else "participants only"
    note = (f"trial {trial} of {cell.planned} + {len(cell.points) - cell.planned}, validation accuracy {score:.4f} over {whose},"
            f" {len(rows)} seeds, {cell.config.num_rounds} rounds")  # fmt: skip
    content = OmegaConf.create({"tuned": {"note": note}})
    for word in cell.space.overrides(cell.points[trial]):
        key, _, value = word.partition("=")
        OmegaConf.update(content, key, float(value))
    path = folder / ("" if mode == "all" else mode) / f"{cell.name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"# @package _global_\n# Chosen by python -m fedrage_flwr.tune {' '.join(cell.typed)}\n"
    path.write_text(head + OmegaConf.to_yaml(content), encoding="utf-8")
    return path


def main(arguments: Sequence[str]) -> None:
    """Tune one cell."""
    if not arguments or any(argument.startswith("-") or "=" not in argument for argument in arguments):
        raise UserError(f"usage: {USAGE}")
    cell, budget = Cell(arguments), read_budget()
    for mode, trial in tune(cell, budget).items():
        print(write_choice(cell, mode, trial, budget, conf_dir() / "experiment" / "tuned"))
    for checkpoints in cell.folder.glob(f"*/{FOLDER}"):  # nothing goes on from here
        shutil.rmtree(checkpoints)


if __name__ == "__main__":
    set_switches()
    sys.exit(enter(main))
