"""The files of a run: tables that grow by a row as things happen, two models and a summary at the end."""

import csv
import errno
import json
import logging
import math
import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import IO, Any

import numpy as np
from flwr.app import ArrayRecord
from safetensors import SafetensorError
from safetensors.numpy import save_file

from fedrage_flwr.errors import UserError
from fedrage_flwr.evaluation import Evaluation
from fedrage_flwr.records import to_arrays
from fedrage_flwr.rounds import Round

ROUND_COLUMNS = (
    "round", "participants", "rejected", "train_loss", "beta", "step_weight_mean", "tail_share", "bytes_up", "bytes_down",
    "round_seconds", "accuracy", "loss", "client_accuracy_mean", "client_accuracy_min", "client_accuracy_worst10pct",
    "rare_client_accuracy",
)  # fmt: skip
CLIENT_COLUMNS = ("round", "client", "accuracy", "loss", "examples", "rare")
PARTICIPATION_COLUMNS = ("round", "client", "outcome", "reason")
TABLES = ("rounds", "clients", "participation", "updates")
UPDATE_COLUMNS = ("round", "client", "train_loss", "beta", "step_weight_mean", "tail_share")


class Table:
    """A CSV file that is complete after every flush.

    Args:
        path: a new file; after a stop, the one that is there.
        columns: declared up front; a row may leave any of them out.
        resumed: go on with a file that is there, once ``cut`` has said from where.

    Raises:
        UserError: the file that is there has other columns.
    """

    def __init__(self, path: Path, columns: Sequence[str], resumed: bool = False) -> None:
        self.columns = tuple(columns)
        self._path = path
        self._file: IO[str] = path.open("r+" if resumed else "x", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file, lineterminator="\n")
        if not resumed:
            self._writer.writerow(self.columns)
            self.flush()
        elif self._file.readline().rstrip("\n").split(",") != list(self.columns):
            raise UserError(f"{path} has other columns than this configuration gives: {', '.join(self.columns)}")

    def position(self) -> int:
        """Bytes written so far, all of them on the disk."""
        self.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def cut(self, position: int) -> None:
        """Forget what stands behind ``position``.

        Raises:
            UserError: the file is shorter.
        """
        size = self._path.stat().st_size
        if size < position:
            raise UserError(f"{self._path} has {size} bytes where the checkpoint counts {position}: rows are missing")
        self._file.seek(position)
        self._file.truncate()

    def add(self, row: Mapping[str, Any]) -> None:
        """Append one row; None and NaN become empty cells."""
        self._writer.writerow([_cell(row.get(column)) for column in self.columns])

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


class CsvLogger:
    """Writes rounds.csv, clients.csv, participation.csv and updates.csv as rounds finish.

    Args:
        folder: the run's folder.
        rare: bool (N,); clients beyond N are not rare.
        columns: further metrics of the algorithm, in rounds.csv and updates.csv.
        measures: further measures, in rounds.csv.
        client_columns: further numbers of each client, in clients.csv.
        resumed: the tables are there, and ``load_state_dict`` will say how much of them counts.
    """

    def __init__(
        self,
        folder: Path,
        rare: np.ndarray,
        columns: Sequence[str] = (),
        measures: Sequence[str] = (),
        client_columns: Sequence[str] = (),
        resumed: bool = False,
    ) -> None:
        more = [column for column in columns if column not in ROUND_COLUMNS]
        self._rare = rare
        self.rounds = Table(folder / "rounds.csv", [*ROUND_COLUMNS, *more, *measures], resumed)
        self.clients = Table(folder / "clients.csv", [*CLIENT_COLUMNS, *client_columns], resumed)
        self.participation = Table(folder / "participation.csv", PARTICIPATION_COLUMNS, resumed)
        self.updates = Table(folder / "updates.csv", [*UPDATE_COLUMNS, *more], resumed)

    def after_round(self, round: Round) -> None:
        """Append the rows of one round."""
        self.rounds.add({**row_of(round), "round_seconds": f"{round.seconds:.6f}"})
        for outcome in round.outcomes:
            self.participation.add({"round": round.number, **vars(outcome)})
        for update in round.updates:
            self.updates.add({"round": round.number, "client": update.client, **_named(update.metrics)})
        for table in (self.participation, self.updates, self.rounds):  # the round's own row last: it says all is there
            table.flush()

    def add_clients(self, round: int, evaluation: Evaluation) -> None:
        """Append one row per client measured."""
        rare = np.isin(evaluation.clients, np.flatnonzero(self._rare)).astype(int)
        columns = {
            "client": evaluation.clients,
            "accuracy": evaluation.client_accuracy,
            "loss": evaluation.client_loss,
            "examples": evaluation.client_examples,
            "rare": rare,
            **evaluation.extra,
        }
        for row in zip(*(column.tolist() for column in columns.values()), strict=True):
            self.clients.add({"round": round, **dict(zip(columns, row, strict=True))})
        self.clients.flush()

    def state_dict(self) -> dict[str, int]:
        """How far each table has come, in bytes (see ``checkpoint.Stateful``)."""
        return {name: getattr(self, name).position() for name in TABLES}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Cut the tables back to there, so that each round stands once."""
        for name in TABLES:
            getattr(self, name).cut(state[name])

    def close(self) -> None:
        """Close all tables, also where one of them cannot be written."""
        with ExitStack() as closing:
            for table in (self.rounds, self.clients, self.participation, self.updates):
                closing.callback(table.close)


def row_of(round: Round) -> dict[str, Any]:
    """What rounds.csv says of a round, and every logger, under the names of its columns."""
    return {
        **_named(round.metrics),
        **round.evaluation,
        "round": round.number,
        "participants": len(round.outcomes),
        "rejected": sum(outcome.outcome != "averaged" for outcome in round.outcomes),
        "bytes_up": round.bytes_up,
        "bytes_down": round.bytes_down,
        "round_seconds": round.seconds,
    }


def log_file(path: Path) -> logging.FileHandler:
    """Return a handler that writes ``run.log`` as Hydra's does (conf/config.yaml)."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler


def save_model(path: Path, arrays: ArrayRecord, records: Mapping[str, ArrayRecord]) -> None:
    """Write a model and the records beside it: ``<parameter>``, ``<record>`` for a single value, else ``<record>.<name>``."""
    tensors = to_arrays(arrays)
    for record, content in records.items():
        for name, array in to_arrays(content).items():
            tensors[record if name == "value" else f"{record}.{name}"] = array
    save_tensors(path, tensors)


def save_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file that is either whole or not there.

    Raises:
        OSError: the disk is full, or cannot be written to.
    """
    try:
        with _whole(path) as partial:
            save_file({name: np.asarray(array, order="C") for name, array in tensors.items()}, partial, metadata)
    except (SafetensorError, OSError) as error:
        why = " ".join((getattr(error, "strerror", None) or str(error)).split())
        raise OSError(getattr(error, "errno", errno.EIO), why, str(path)) from error


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Give a file to write, which gets the name ``path`` once its bytes are on the disk; after an error it is deleted."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()  # on a full disk, room for the last lines of the log
        raise


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Write strict JSON: what is not finite becomes null. The file is there only when it is whole: it says the run is done."""
    text = json.dumps(_finite(summary), indent=2, allow_nan=False)
    with _whole(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def versions() -> dict[str, str]:
    """Versions of everything that can change a digit."""
    found = {"python": python_version()}
    for name in ("fedrage-flwr", "flwr", "ray", "torch", "torchvision", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def peak_rss_mb() -> float:
    """Largest resident set of this process so far, in MB."""
    status = Path("/proc/self/status")  # getrusage would count what a process was forked from
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1]) / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _named(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name.replace("-", "_"): value for name, value in metrics.items()}


def _cell(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
