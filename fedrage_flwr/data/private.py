"""``dataset=private``: data that stays with the nodes. The server knows the classes, the shape and the normalisation only.

A node's file is an ``.npz`` without pickle: ``inputs`` (n, …) uint8 or float32, ``labels`` (n,) int64, ``classes`` (texts),
``mean``, ``std`` (per channel or feature, or one number) and ``scale``. ``python -m fedrage_flwr.prepare`` makes one. Where the
examples come with their clients (``--client``), ``owners`` is the client of each, (n,) int64, an index into ``clients`` (texts).
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch

from fedrage_flwr.data.dataset import Dataset, DatasetSettings, Split
from fedrage_flwr.errors import UserError, one_line
from fedrage_flwr.settings import Ge, Gt

ARRAYS = ("inputs", "labels", "classes", "mean", "std", "scale")
OF_CLIENTS = ("owners", "clients")


class Private:
    """What the server says about data it does not have."""

    @dataclass(frozen=True)
    class Settings(DatasetSettings):
        """See ``conf/dataset/private.yaml``."""

        name: Literal["private"]
        classes: list[str]
        input_shape: list[Annotated[int, Ge(1)]]
        mean: list[float]
        std: list[Annotated[float, Gt(0)]]
        scale: Annotated[float, Gt(0)]

        def __post_init__(self) -> None:
            if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
                raise ValueError(f"dataset.classes={list(self.classes)}: give two or more different names")
            if not self.input_shape:
                raise ValueError("dataset.input_shape=[]: give the shape of one example, such as [1,28,28] or [20]")
            for key in ("mean", "std"):
                if len(getattr(self, key)) not in (1, self.input_shape[0]):
                    raise ValueError(
                        f"dataset.{key} has {len(getattr(self, key))} numbers; allowed: 1 or {self.input_shape[0]}"
                    )

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def prepare(self) -> None:
        """Nothing to do: the nodes have the data."""

    def load(self) -> Dataset:
        """Return the data set as the server sees it: without a single example."""
        inputs, labels = torch.empty(0, *self.settings.input_shape), torch.empty(0, dtype=torch.int64)
        return self._dataset(inputs, labels)

    def load_file(self, path: Path) -> Dataset:
        """Return a node's own data; all of it as the training split.

        Raises:
            UserError: the file cannot be read, or is not what the server says.
        """
        arrays = read_private(path)
        problem = self.misfit(arrays)
        if problem:
            raise UserError(f"data-path={path}: {problem}")
        return self._dataset(torch.from_numpy(arrays["inputs"]), torch.from_numpy(arrays["labels"]))

    def misfit(self, arrays: dict[str, np.ndarray]) -> str | None:
        """Say how a node's file departs from what the server says; None if it does not."""
        said, found = self.settings, {name: arrays[name].tolist() for name in ("classes", "mean", "std", "scale")}
        found["input_shape"] = list(arrays["inputs"].shape[1:])
        for name in ("classes", "input_shape", "mean", "std", "scale"):
            expected: Any = getattr(said, name)
            expected = list(expected) if isinstance(expected, list | tuple) else expected
            same = found[name] == expected if name in ("classes", "input_shape") else np.array_equal(
                np.float32(found[name]), np.float32(expected)
            )  # fmt: skip
            if not same:
                return f"{name} is {found[name]} in the file, but the run has dataset.{name}={expected}"
        return None

    def _dataset(self, inputs: torch.Tensor, labels: torch.Tensor) -> Dataset:
        said = self.settings
        split = Split(inputs, labels)
        return Dataset(
            name="private",
            train=split,
            test=split,
            num_classes=len(said.classes),
            mean=tuple(said.mean),
            std=tuple(said.std),
            scale=said.scale,
        )


def read_private(path: Path, typed: str = "data-path") -> dict[str, np.ndarray]:
    """Return the arrays of a file; ``typed`` is the key that named it.

    Raises:
        UserError: it is absent, damaged, lacks an array, or holds values that cannot be trained on.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            owned = OF_CLIENTS if "owners" in file.files else ()
            arrays = {name: file[name] for name in (*ARRAYS, *owned)}
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{typed}={path} cannot be read ({type(error).__name__}: {one_line(error)[:120]});"
            " make it with python -m fedrage_flwr.prepare"
        ) from error
    problem = _flaw(arrays)
    if problem:
        raise UserError(f"{typed}={path}: {problem}")
    return arrays


def _flaw(arrays: dict[str, np.ndarray]) -> str | None:
    inputs, labels = arrays["inputs"], arrays["labels"]
    if inputs.dtype not in (np.uint8, np.float32) or inputs.ndim < 2:
        return f"inputs are {inputs.dtype} of {inputs.ndim} dimensions; must be uint8 or float32, (n, …)"
    if labels.dtype != np.int64 or labels.shape != inputs.shape[:1]:
        return f"labels are {labels.dtype} {labels.shape}; must be int64 ({len(inputs)},)"
    if not len(labels):
        return "holds no example"
    if labels.min() < 0 or labels.max() >= len(arrays["classes"]):
        return f"labels go from {labels.min()} to {labels.max()}; there are {len(arrays['classes'])} classes"
    if inputs.dtype == np.float32 and not np.isfinite(inputs).all():
        return "inputs hold NaN or infinity"
    if "owners" in arrays:
        owners, clients = arrays["owners"], arrays["clients"]
        if owners.dtype != np.int64 or owners.shape != labels.shape:
            return f"owners are {owners.dtype} {owners.shape}; must be int64 ({len(labels)},)"
        if not np.array_equal(np.unique(owners), np.arange(len(clients))):
            return f"owners must be 0 to {len(clients) - 1}, each at least once: one for each of the clients"
    return None
