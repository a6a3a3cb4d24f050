"""``dataset=digits``: 1,797 handwritten digits of 8×8 pixels (UCI), bundled with scikit-learn: no download."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from fedrage_flwr.data.dataset import ClassesSettings, Dataset, Split

TEST_EVERY = 4  # within each class, in file order, examples 3, 7, 11, ... are for testing


class Digits:
    """The digits with one fixed stratified split: of each class every fourth example is for testing.

    A rule rather than a draw, so the split depends on no generator and no library version.
    """

    @dataclass(frozen=True)
    class Settings(ClassesSettings):
        """``rarest_classes``: see ``conf/dataset/digits.yaml``."""

        name: Literal["digits"]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def prepare(self) -> None:
        """Nothing to do: the file comes with scikit-learn."""

    def load(self) -> Dataset:
        """Return the data set: inputs uint8 0..16 of shape (n, 1, 8, 8)."""
        table = _table()
        labels = table[:, -1].astype(np.int64)
        rank = np.empty_like(labels)  # position of an example among those of its class
        for label in range(10):
            where = np.flatnonzero(labels == label)
            rank[where] = np.arange(len(where))
        testing = rank % TEST_EVERY == TEST_EVERY - 1
        rarest = self.settings.rarest_classes
        return Dataset(
            name="digits",
            train=_split(table[~testing], labels[~testing]),
            test=_split(table[testing], labels[testing]),
            num_classes=10,
            mean=(0.3049,),
            std=(0.3758,),
            scale=16.0,
            rarest_classes=None if rarest is None else tuple(rarest),
        )


def _split(rows: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> Split:
    return Split(torch.from_numpy(rows[:, :-1].reshape(-1, 1, 8, 8).copy()), torch.from_numpy(labels))


def _table() -> npt.NDArray[np.uint8]:
    """Return (1797, 65) uint8: 64 pixels and the label.

    The bundled file is read directly where it is found: importing ``sklearn.datasets`` takes two seconds, the file ten
    milliseconds. A test holds the two ways together.
    """
    spec = find_spec("sklearn")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return np.loadtxt(path, delimiter=",", dtype=np.uint8)
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target]).astype(np.uint8)
