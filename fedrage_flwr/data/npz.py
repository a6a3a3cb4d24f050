"""``dataset=file``: your own examples, in the file that ``python -m fedrage_flwr.prepare`` makes of a folder or a table."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch

from fedrage_flwr.data.dataset import ClassesSettings, Dataset, Split
from fedrage_flwr.data.partition.sharing import places
from fedrage_flwr.data.private import read_private
from fedrage_flwr.settings import Ge


class NpzFile:
    """All examples are here, in one process: a simulation. Of each class every so many-th example is for testing.

    Where the file says whose the examples are, the same holds of each client's, put in the order of their classes: a client
    with that many examples has one for testing, and every client has one to train on.
    """

    @dataclass(frozen=True)
    class Settings(ClassesSettings):
        """See ``conf/dataset/file.yaml``."""

        name: Literal["file"]
        path: str
        test_every: Annotated[int, Ge(2)]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def prepare(self) -> None:
        """Say at once what is wrong with the file.

        Raises:
            UserError: it cannot be read, or is none of ours.
        """
        self._read()

    def load(self) -> Dataset:
        """Return both splits, in the order of the file.

        Raises:
            UserError: as ``prepare``.
        """
        arrays = self._read()
        labels, owners = arrays["labels"], arrays.get("owners")
        if owners is None:
            rank = places(labels, np.argsort(labels, kind="stable"))
        else:
            rank = places(owners, np.lexsort((labels, owners)))
        testing = rank % self.settings.test_every == self.settings.test_every - 1
        train, test = (
            Split(torch.from_numpy(arrays["inputs"][chosen]), torch.from_numpy(labels[chosen]))
            for chosen in (~testing, testing)
        )
        rarest = self.settings.rarest_classes
        return Dataset(
            name="file",
            train=train,
            test=test,
            num_classes=len(arrays["classes"]),
            mean=tuple(arrays["mean"].reshape(-1).tolist()),
            std=tuple(arrays["std"].reshape(-1).tolist()),
            scale=float(arrays["scale"]),
            rarest_classes=None if rarest is None else tuple(rarest),
            train_owner=None if owners is None else owners[~testing],
            test_owner=None if owners is None else owners[testing],
        )

    def _read(self) -> dict[str, np.ndarray]:
        return read_private(Path(self.settings.path), "dataset.path")
