"""A node's memory on its own disk: Flower keeps ``Context.state`` in RAM only, so a SuperNode that restarts would lose it.

    STATE-DIR/EXPERIMENT/PARTITION/0000012.npz        what the client kept after round 12

One file for each round it took part in, written under another name and renamed. A message of round r goes on from the newest
file before r, and files from r on are removed: so a server that resumes from a checkpoint takes its clients back with it. Older
files are kept as far back as the server may go.
"""

import logging
import os
import re
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedrage_flwr.records import to_arrays, to_record

EXPERIMENT = re.compile(r"[0-9a-f]{32}")
KEPT_CHECKPOINTS = 2  # the newest may turn out to be damaged

log = logging.getLogger(__name__)


class NodeState:
    """One client's files in one experiment.

    Args:
        folder: the node's ``state-dir``.
        message: the ``config`` record of a message: ``experiment-id``, ``checkpoint-every``, ``server-round``.
        partition: the client.

    Raises:
        ValueError: the experiment id is none that may name a folder.
    """

    def __init__(self, folder: Path, message: Mapping[str, Any], partition: int) -> None:
        experiment = str(message.get("experiment-id"))
        if not EXPERIMENT.fullmatch(experiment):
            raise ValueError(f"experiment-id={experiment!r} in a message is not 32 hexadecimal digits")
        self._folder = folder / experiment / str(partition)
        self._round = int(message["server-round"])
        self._every = int(message["checkpoint-every"])

    def before(self, round: int) -> RecordDict:
        """Return what was kept after the last participation before ``round``; empty if there was none.

        Raises:
            ValueError: the file is damaged.
        """
        files = [path for path in self._files() if _round_of(path) < round]
        return read(files[-1]) if files else RecordDict()

    def restore(self) -> RecordDict:
        """Return the state to train from in this round, and forget what the server never got to know."""
        for path in self._files():
            if _round_of(path) >= self._round:
                log.info("round %d begins again: %s is forgotten", self._round, path.name)
                path.unlink()
        return self.before(self._round)

    def commit(self, state: RecordDict) -> None:
        """Keep the state after this round, and drop files the server cannot go back to."""
        records = {name: record for name, record in state.items() if isinstance(record, ArrayRecord)}
        if records:
            write(self._folder / f"{self._round:07d}.npz", records)
        oldest = ((self._round - 1) // self._every - KEPT_CHECKPOINTS + 1) * self._every  # a checkpoint, maybe below 0
        reachable = [path for path in self._files() if _round_of(path) <= oldest]
        for path in reachable[:-1]:
            path.unlink()

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("[0-9]*.npz"))


def write(path: Path, records: Mapping[str, ArrayRecord]) -> None:
    """Write named array records; after a return they are on the disk whole.

    Raises:
        OSError: they cannot be written.
    """
    arrays = {
        (record, name): array for record, content in records.items() for name, array in to_arrays(content).items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            stored = {f"array{i}": array for i, array in enumerate(arrays.values())}
            np.savez(file, allow_pickle=False, names=np.array(list(arrays), np.str_), **stored)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path: Path) -> RecordDict:
    """Return what ``write`` wrote.

    Raises:
        ValueError: the file is damaged; a client must not go on as if it had never taken part.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for i, (record, name) in enumerate(file["names"].tolist()):
                found.setdefault(record, {})[name] = file[f"array{i}"]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"this client's state in {path} is damaged ({error}); remove the file to begin anew"
        ) from error
    return RecordDict({record: to_record(arrays) for record, arrays in found.items()})


def _round_of(path: Path) -> int:
    return int(path.stem)
