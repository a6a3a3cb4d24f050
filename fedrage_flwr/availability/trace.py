"""Trace: who was available in a recorded trace, replayed. One realisation: its averages are estimates, flagged as such.

Two forms of file. ``.npz``/``.npy``: an availability matrix (rounds × clients), 1 yes, 0 no, −1 unknown (npz: the array
``available``, else the first). ``.csv``: intervals ``client,from,to`` in seconds, [from, to), off outside them; round r
looks at the instant r·slot_s after the earliest ``from``. The trace wraps round: round r replays row r mod (number of
rows).
"""

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrage_flwr.availability.base import Floats, Ids, Law, Probabilities, refused
from fedrage_flwr.errors import UserError
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.settings import Ge, Gt

Booleans = NDArray[np.bool_]


class Trace(Law):
    """The clients that were available, or M of them drawn uniformly."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["trace"]
        path: str  # .npz, .npy or .csv
        slot_s: Annotated[float, Gt(0)] | None  # seconds per round; csv only
        unknown: Literal["off", "on"]  # what −1 counts as
        clients_per_round: Annotated[int, Ge(1)] | None  # M of those available (all, if fewer); null: all of them
        clients: Literal["first", "most_available"]  # which N of the trace's clients become partitions 0..N−1

    def __init__(self, settings: Any, num_clients: int, rare_clients: int, seed: int) -> None:
        super().__init__(settings, num_clients, rare_clients, seed)
        if (settings.clients_per_round or 0) > num_clients:
            raise refused("clients_per_round", settings.clients_per_round, f"must be at most num_clients={num_clients}")
        matrix = read_trace(settings.path, settings.slot_s, settings.unknown)
        if matrix.shape[1] < num_clients:
            raise UserError(
                f"num_clients={num_clients} must be at most {matrix.shape[1]}, the clients of ram.path={settings.path}"
            )
        order = np.arange(matrix.shape[1])
        if settings.clients == "most_available":  # most available first: the last ids are the rarest of those chosen
            order = np.argsort(-np.count_nonzero(matrix, axis=0), kind="stable")
        self.available = matrix[:, order[:num_clients]]
        if not self.available.any():
            raise refused("path", settings.path, f"has no round in which one of the {num_clients} clients is available")

    def sample(self, round: int) -> Ids:
        """Return who is available in row ``round`` mod the number of rows, or M of them; empty when nobody is."""
        ids = np.flatnonzero(self.available[round % len(self.available)])
        size = self.settings.clients_per_round
        if size is None or len(ids) <= size:
            return ids
        return np.sort(generator(self.seed, Stream.AVAILABILITY, round).choice(ids, size, replace=False, shuffle=False))

    def inclusion(self) -> Probabilities:
        """Return the mean over one pass of P(i ∈ S | who is available); empty rounds count as zero."""
        present = self._present()
        size = self.settings.clients_per_round or self.num_clients
        return Probabilities((self.available * np.minimum(1, size / present)[:, None]).mean(axis=0), exact=False)

    def marginals(self) -> Probabilities:
        """Return the mean over the non-empty rounds of one pass of 1{i available}/#available, the same for every M."""
        nonempty = self.available.any(axis=1)
        return Probabilities((self.available / self._present()[:, None])[nonempty].mean(axis=0), exact=False)

    def _present(self) -> Floats:
        """Return the number of clients available in each row, at least 1 (a divisor)."""
        return np.asarray(np.maximum(np.count_nonzero(self.available, axis=1), 1), dtype=np.float64)


def read_trace(path: str, slot_s: float | None, unknown: str) -> Booleans:
    """Return the trace as booleans (rounds, clients).

    Raises:
        UserError: no such file, a form it does not know, or a value that does not belong.
    """
    file = Path(path)
    if not file.is_file():
        raise refused("path", path, "is not a file")
    if file.suffix not in (".npz", ".npy", ".csv"):
        raise refused("path", path, "must end in .npz, .npy or .csv")
    if file.suffix == ".csv":
        if slot_s is None:
            raise refused("slot_s", None, "must be the seconds per round when ram.path is a csv file")
        return _on_at_slots(file, slot_s)
    matrix = _read_matrix(file)
    if matrix.ndim != 2 or not matrix.size:
        raise refused("path", path, f"holds an array of shape {matrix.shape}, must be (rounds, clients)")
    if matrix.dtype.kind not in "biuf" or not np.isin(matrix, (-1, 0, 1)).all():
        raise refused("path", path, "holds other values than 1 (available), 0 (not) and -1 (unknown)")
    return np.asarray(matrix == 1 if unknown == "off" else matrix != 0)


def _read_matrix(file: Path) -> NDArray[Any]:
    try:
        loaded = np.load(file, allow_pickle=False)
        if file.suffix == ".npy":
            return np.asarray(loaded)
        with loaded:
            return np.asarray(loaded["available" if "available" in loaded else loaded.files[0]])
    except (ValueError, OSError, EOFError, IndexError, AttributeError) as error:
        raise refused("path", str(file), f"cannot be read as {file.suffix} without pickle: {error}") from error


def _on_at_slots(file: Path, slot_s: float) -> Booleans:
    """Return for each slot start and client whether one of the client's intervals covers it."""
    clients, begins, ends = _read_intervals(file)
    first = np.ceil((begins - begins.min()) / slot_s).astype(np.int64)
    last = np.ceil((ends - begins.min()) / slot_s).astype(np.int64)  # exclusive
    matrix = np.zeros((int(last.max()), int(clients.max()) + 1), dtype=np.bool_)
    for client, start, stop in zip(clients, first, last, strict=True):
        matrix[start:stop, client] = True
    return matrix


def _read_intervals(file: Path) -> tuple[Ids, Floats, Floats]:
    """Return column, from and to of each interval; clients are numbered by their first line in the file."""
    columns: dict[str, int] = {}
    rows: list[tuple[int, float, float]] = []
    with file.open(newline="", encoding="utf-8-sig") as handle:
        reader = csv.DictReader(handle)
        if not {"client", "from", "to"} <= set(reader.fieldnames or []):
            raise refused("path", str(file), f"has the columns {reader.fieldnames}, must have client, from, to")
        for row in reader:
            begin, end = _seconds(row["from"]), _seconds(row["to"])
            if not (math.isfinite(begin) and math.isfinite(end) and begin < end):
                raise refused(
                    "path", str(file), f"line {reader.line_num} must have two numbers of seconds with from < to"
                )
            rows.append((columns.setdefault(row["client"], len(columns)), begin, end))
    if not rows:
        raise refused("path", str(file), "holds no interval")
    table = np.array(rows, dtype=np.float64)
    return table[:, 0].astype(np.int64), table[:, 1], table[:, 2]


def _seconds(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
