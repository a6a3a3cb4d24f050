"""``dataset=cifar10``: 50,000 + 10,000 colour images of 32×32 pixels in ten classes (Krizhevsky 2009).

Files in ``<root>/cifar-10-batches-py``: pickled dictionaries of ``data`` (10000, 3072) uint8 and ``labels``, see
https://www.cs.toronto.edu/~kriz/cifar.html.
"""

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from fedrage_flwr.data.dataset import Dataset, Split
from fedrage_flwr.data.files import FilesDataset, FilesSettings

# MD5 sums as published with torchvision. They are checked before a file is opened: these are pickles.
MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


class Cifar10(FilesDataset):
    """CIFAR-10 in torchvision's layout."""

    @dataclass(frozen=True)
    class Settings(FilesSettings):
        """See ``conf/dataset/cifar10.yaml``."""

        name: Literal["cifar10"]

    word: ClassVar[str] = "cifar10"
    folder: ClassVar[str] = "cifar-10-batches-py"

    def flaw(self) -> str | None:
        """Compare the checksums (a third of a second for the whole set)."""
        for name, md5 in MD5.items():
            path = self.root / self.folder / name
            if not path.is_file():
                return f"{self.folder}/{name} is missing"
            if _md5(path) != md5:
                return f"{self.folder}/{name} is damaged"
        return None

    def fetch(self) -> None:
        """Unpack the archive again, downloading it if it is absent or its checksum is wrong."""
        from torchvision.datasets import CIFAR10

        CIFAR10(str(self.root), download=True)

    def read(self) -> Dataset:
        """Return the data set: inputs uint8 (n, 3, 32, 32)."""
        rarest = self.settings.rarest_classes
        names = sorted(MD5)
        return Dataset(
            name=self.word,
            train=self._split([name for name in names if name != "test_batch"]),
            test=self._split(["test_batch"]),
            num_classes=10,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
            scale=255.0,
            rarest_classes=None if rarest is None else tuple(rarest),
        )

    def _split(self, names: Sequence[str]) -> Split:
        inputs, labels = [], []
        for name in names:
            with (self.root / self.folder / name).open("rb") as file:
                batch = pickle.load(file, encoding="latin1")
            inputs.append(batch["data"])
            labels.append(np.asarray(batch["labels"], dtype=np.int64))
        return Split(
            torch.from_numpy(np.concatenate(inputs).reshape(-1, 3, 32, 32)), torch.from_numpy(np.concatenate(labels))
        )


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
