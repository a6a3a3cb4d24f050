"""Everything a run needs to go on after a stop, in one file: ``checkpoint/round-0000050.safetensors``.

Arrays are tensors of the file; all else is strict JSON in its header, which refers to them by name. A file is written beside
the others and renamed when it is whole; the one before stays until the next. Nothing in it is ever executed.
"""

import hashlib
import json
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

import numpy as np
from filelock import FileLock, Timeout
from flwr.app import ArrayRecord
from safetensors import SafetensorError, safe_open

from fedrage_flwr.config import Config
from fedrage_flwr.errors import UserError, one_line
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.results import save_tensors, versions
from fedrage_flwr.rounds import Round

FOLDER = "checkpoint"  # in the folder of the run
KEPT = 2  # the newest, and the one before in case the newest cannot be read

log = logging.getLogger(__name__)


class Stateful(Protocol):
    """A part of a run that has to remember."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return what to remember: plain values, arrays, lists and dictionaries of them."""

    def load_state_dict(self, state: Any) -> None:
        """Take up what ``state_dict`` returned."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint read back.

    Attributes:
        path: the file.
        round: the last round it holds; 0 before the first.
        config: plain values, as ``dataclasses.asdict`` made them of ``Config``.
        versions: of what wrote it.
        seconds: wall time of the run up to here.
        arrays: θ̂.
        parts: states by part of the run.
    """

    path: Path
    round: int
    config: dict[str, Any]
    versions: dict[str, str]
    seconds: float
    arrays: dict[str, np.ndarray]
    parts: dict[str, Any]


class StopRequest:
    """As a context manager in the main thread it catches SIGTERM and SIGINT; a second signal ends the process at once.

    Attributes:
        asked: the first signal that came.
    """

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python refuses handlers
            self._handlers = {
                number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)
            }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None:
            raise SystemExit(128 + number)
        self.asked = signal.Signals(number)


class Checkpoints:
    """Writes a checkpoint before the first round, every so many rounds, after the last one, and when asked to end: then the
    round in hand is finished, its checkpoint written and the run ended.

    Args:
        folder: of the run; the checkpoints have one of their own in it.
        config: stored with every checkpoint.
        parts: what is remembered.
        device: type of the device that does the arithmetic.
        stop: says when to end.

    Attributes:
        seconds_before: wall time spent by earlier sittings of the run.
        stopped_by: the signal that ended the run.
    """

    def __init__(
        self, folder: Path, config: Config, parts: Mapping[str, Stateful], device: str, stop: StopRequest | None = None
    ) -> None:
        self._stop = stop or StopRequest()
        self._folder, self._config, self._parts = folder / FOLDER, config, parts
        self._versions = {**versions(), "device": device}
        self._started = time.perf_counter()
        self.seconds_before = 0.0
        self.stopped_by: signal.Signals | None = None
        for rest in self._folder.glob("*.partial"):
            rest.unlink()

    def begin(self, make_arrays: Callable[[], ArrayRecord], checkpoint: Checkpoint | None) -> tuple[ArrayRecord, int]:
        """Start anew, or put every part back to where it was; return θ̂ and the first round to run."""
        if checkpoint is None:
            arrays = make_arrays()
            self.save(0, arrays)
            return arrays, 1
        for path in files(self._folder):  # those behind it could not be read
            if path.name > checkpoint.path.name:
                path.unlink()
        for name, part in self._parts.items():
            part.load_state_dict(checkpoint.parts[name])
        self.seconds_before = checkpoint.seconds
        for name, version in checkpoint.versions.items():
            if self._versions.get(name) != version:
                log.warning(
                    "the run was begun with %s %s, now %s: digits may differ", name, version, self._versions.get(name)
                )
        return to_record(checkpoint.arrays), checkpoint.round + 1

    def after_round(self, round: Round) -> None:
        """Write if it is this round's turn or somebody asked."""
        every, last = self._config.checkpoint_every, self._config.num_rounds
        if self._stop.asked is not None and round.stop is None and round.number < last:
            self.stopped_by = self._stop.asked
            round.stop = f"stopped by {self._stop.asked.name}"
        if self.stopped_by is not None or round.number == last or round.number % every == 0:
            self.save(round.number, round.arrays)

    def save(self, round: int, arrays: ArrayRecord) -> None:
        """Write the state after ``round``."""
        config = asdict(self._config)
        state = {
            "round": round,
            "config": config,
            "config_hash": config_hash(config),
            "versions": self._versions,
            "seconds": self.seconds_before + time.perf_counter() - self._started,
            "arrays": to_arrays(arrays),
            "parts": {name: part.state_dict() for name, part in self._parts.items()},
        }
        tree, tensors = pack(state)
        text = json.dumps(tree, allow_nan=False)
        save_tensors(self._folder / f"round-{round:07d}.safetensors", tensors, {"state": text})
        for path in files(self._folder)[:-KEPT]:
            path.unlink()


def lock(folder: Path) -> FileLock:
    """Let no other process work on the run in ``folder`` until the lock is released, or this process ends.

    Raises:
        UserError: another one does.
    """
    (folder / FOLDER).mkdir(exist_ok=True)
    held = FileLock(folder / FOLDER / ".lock")
    try:
        held.acquire(timeout=0)
    except Timeout as error:
        raise UserError(f"{folder}: another process is at work on this run") from error
    return held


def files(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(folder.glob("round-*.safetensors"))


def read_newest(folder: Path) -> tuple[Checkpoint, dict[Path, str]]:
    """Return the newest checkpoint that can be read, and what is wrong with the newer ones.

    Raises:
        UserError: none can be read.
    """
    problems: dict[Path, str] = {}
    for path in reversed(files(folder)):
        try:
            return read(path), problems
        except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
            problems[path] = f"{path.name} cannot be read ({one_line(error)})"
    raise UserError(f"{folder} holds no checkpoint that can be read: {'; '.join(problems.values()) or 'it is empty'}")


def read(path: Path) -> Checkpoint:
    """Read one checkpoint.

    Raises:
        SafetensorError, ValueError, KeyError, TypeError: it is damaged, or no checkpoint.
    """
    with safe_open(path, "numpy") as file:
        header = json.loads((file.metadata() or {})["state"])
        state = unpack(header, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 (no mapping)
    if state.pop("config_hash") != config_hash(state["config"]):
        raise ValueError("its configuration is not the one that was written")
    return Checkpoint(path=path, **state)


def config_hash(config: Mapping[str, Any]) -> str:
    """SHA-256 of plain values, whatever the order of the keys."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def pack(state: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Split nested plain values and arrays into what JSON can hold and tensors; an array met twice is stored once."""
    tensors: dict[str, np.ndarray] = {}
    names: dict[int, str] = {}

    def walk(value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            return {key: walk(entry, f"{path}/{key}" if path else key) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [walk(entry, f"{path}/{i}") for i, entry in enumerate(value)]
        if isinstance(value, np.ndarray):
            if id(value) not in names:
                names[id(value)] = path if path not in tensors else f"{path}#{len(tensors)}"
                tensors[names[id(value)]] = value
            return {"$tensor": names[id(value)]}
        value = value.item() if isinstance(value, np.generic) else value
        return {"$float": str(value)} if isinstance(value, float) and not math.isfinite(value) else value

    return walk(state, ""), tensors


def unpack(tree: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    """The inverse of ``pack``; tuples come back as lists."""
    if isinstance(tree, list):
        return [unpack(entry, tensors) for entry in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.keys() == {"$tensor"}:
        return tensors[tree["$tensor"]]
    if tree.keys() == {"$float"}:
        return float(tree["$float"])
    return {key: unpack(entry, tensors) for key, entry in tree.items()}
