"""Jobs of a sweep that run beside each other, in processes Hydra's launchers start.

What a job brings home is the value its task returns: a number to tune on, or a ``Failure``. Hydra's sweepers keep these values to
themselves, so a failure notes itself in the process it arrives in. The data set is decoded once and mapped by all jobs of the
machine: the first to need it writes it to a folder of this sweep, and the pages are the same for everybody.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from safetensors import safe_open
from safetensors.torch import save_file

from fedrage_flwr.data.dataset import Dataset, DatasetSettings, Split
from fedrage_flwr.errors import UserError

BESIDE_EACH_OTHER = ("joblib", "ray")  # launchers whose jobs share this machine, or this Ray cluster
FOLDER = "FEDRAGE_SWEEP_DATA"  # environment variable: where the jobs of a sweep find and leave data sets
SPLITS = ("train", "test")

failures: dict[str, str] = {}
"""Folder and reason of every failure made or received by this process."""


class Failure:
    """What a job that failed returns. It has no value, so that a tuner takes it for a failed trial.

    Args:
        folder: of the job.
        reason: one line.
    """

    def __init__(self, folder: str, reason: str) -> None:
        self.folder, self.reason = folder, reason
        failures[folder] = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return Failure, (self.folder, self.reason)  # made anew where it is received


def goal(summary: Mapping[str, Any]) -> float | None:
    """What a tuner looks at: ``accuracy_mean_last10``, to be maximised; with real targets the ``loss``, to be minimised."""
    value = summary.get("accuracy_mean_last10")
    return summary.get("loss") if value is None else value


def refuse_ray_in_ray(launcher: str, backend: str) -> None:
    """Raise ``UserError`` where every job of a sweep would start Ray actors on the cores the other jobs are on."""
    if backend == "ray" and launcher in BESIDE_EACH_OTHER:
        raise UserError(
            f"backend=ray with hydra/launcher={launcher}: the jobs take all cores already; give backend=inline,"
            " or leave hydra/launcher out to run one job after another"
        )


@contextmanager
def shared_data() -> Iterator[None]:
    """Let all jobs started meanwhile share what ``load_shared`` loads; the files are deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="fedrage-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]


def load_shared(settings: DatasetSettings, load: Callable[[DatasetSettings], Dataset]) -> Dataset:
    """Return ``load(settings)``, in a sweep of parallel jobs from the mapped file that the first of them wrote."""
    folder = Path(os.environ.get(FOLDER, ""))
    if FOLDER not in os.environ or not folder.is_dir():
        return load(settings)
    name = hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode()).hexdigest()[:20]
    path = folder / f"{name}.safetensors"
    with FileLock(folder / f"{name}.lock"):
        if not path.exists():
            dataset = load(settings)
            if dataset.source is not None:  # nothing to share
                return dataset
            partial = path.with_suffix(".partial")
            _write(dataset, partial)
            partial.rename(path)
    return _read(path)


def _write(dataset: Dataset, path: Path) -> None:
    rest = {field.name: getattr(dataset, field.name) for field in fields(dataset) if field.name not in SPLITS}
    tensors = {f"{split}.inputs": getattr(dataset, split).inputs for split in SPLITS}
    tensors |= {f"{split}.labels": getattr(dataset, split).labels for split in SPLITS}
    tensors |= {key: torch.from_numpy(rest.pop(key)) for key in list(rest) if isinstance(rest[key], np.ndarray)}
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path, {"rest": json.dumps(rest)})


def _read(path: Path) -> Dataset:
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
        rest = json.loads(file.metadata()["rest"])
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in rest.items()}
    for split in SPLITS:
        values[split] = Split(tensors.pop(f"{split}.inputs"), tensors.pop(f"{split}.labels"))
    return Dataset(**values, **{key: tensor.numpy() for key, tensor in tensors.items()})
