"""``dataset=mnist`` and ``dataset=fashion_mnist``: 60,000 + 10,000 grey images of 28×28 pixels in ten classes.

MNIST: LeCun et al. 1998. FashionMNIST: Xiao, Rasul and Vollgraf 2017. Unpacked files in ``<root>/MNIST/raw``, in idx
format (http://yann.lecun.com/exdb/mnist/): magic number, sizes as big-endian 32-bit integers, bytes.
"""

from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch

from fedrage_flwr.data.dataset import Dataset, Split
from fedrage_flwr.data.files import FilesDataset, FilesSettings

IDX_UINT8 = 0x08  # the magic number is 0, 0, type of the values, number of dimensions


class Mnist(FilesDataset):
    """MNIST in torchvision's layout."""

    @dataclass(frozen=True)
    class Settings(FilesSettings):
        """See ``conf/dataset/mnist.yaml``."""

        name: Literal["mnist"]

    word: ClassVar[str] = "mnist"
    folder: ClassVar[str] = "MNIST"  # also the name of torchvision's class
    mean: ClassVar[float] = 0.1307
    std: ClassVar[float] = 0.3081

    @property
    def raw(self) -> Path:
        """The folder of the unpacked files."""
        return self.root / self.folder / "raw"

    def flaw(self) -> str | None:
        """Compare each file's length with its header: torchvision takes any file of that name for whole."""
        for path, dims in self._files():
            if not path.is_file():
                return f"{self.folder}/raw/{path.name} is missing"
            if not _is_whole(path, dims):
                return f"{self.folder}/raw/{path.name} is damaged"
        return None

    def fetch(self) -> None:
        """Unpack the archives again, downloading those that are absent or whose checksum is wrong."""
        from torchvision import datasets

        for path, dims in self._files():  # torchvision does nothing where files of these names exist
            if path.is_file() and not _is_whole(path, dims):
                path.unlink()
        try:
            getattr(datasets, self.folder)(str(self.root), download=True)
        finally:
            for empty in (self.raw, self.raw.parent):
                with suppress(OSError):
                    empty.rmdir()

    def read(self) -> Dataset:
        """Return the data set: inputs uint8 (n, 1, 28, 28)."""
        rarest = self.settings.rarest_classes
        return Dataset(
            name=self.word,
            train=self._split("train"),
            test=self._split("t10k"),
            num_classes=10,
            mean=(self.mean,),
            std=(self.std,),
            scale=255.0,
            rarest_classes=None if rarest is None else tuple(rarest),
        )

    def _files(self) -> list[tuple[Path, int]]:
        kinds = (("images", 3), ("labels", 1))
        return [(self.raw / _file_name(split, kind), dims) for split in ("train", "t10k") for kind, dims in kinds]

    def _split(self, split: str) -> Split:
        images = read_idx(self.raw / _file_name(split, "images"))
        labels = read_idx(self.raw / _file_name(split, "labels"))
        return Split(torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels.astype(np.int64)))


class FashionMnist(Mnist):
    """FashionMNIST in torchvision's layout."""

    @dataclass(frozen=True)
    class Settings(FilesSettings):
        """See ``conf/dataset/fashion_mnist.yaml``."""

        name: Literal["fashion_mnist"]

    word: ClassVar[str] = "fashion_mnist"
    folder: ClassVar[str] = "FashionMNIST"
    mean: ClassVar[float] = 0.2860
    std: ClassVar[float] = 0.3530


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Return the array in an idx file of bytes; the array is writable."""
    with path.open("rb") as file:
        shape = _header(file.read(16), path)
    return np.fromfile(path, dtype=np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def _header(start: bytes, path: Path) -> tuple[int, ...]:
    dims = start[3] if len(start) > 3 and start[:3] == bytes([0, 0, IDX_UINT8]) else 0
    if not 1 <= dims <= 3 or len(start) < 4 + 4 * dims:
        raise ValueError(f"{path} is not an idx file of bytes")
    return tuple(int.from_bytes(start[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims))


def _is_whole(path: Path, dims: int) -> bool:
    with path.open("rb") as file:
        start = file.read(16)
    try:
        shape = _header(start, path)
    except ValueError:
        return False
    return len(shape) == dims and path.stat().st_size == 4 + 4 * dims + prod(shape)


def _file_name(split: str, kind: str) -> str:
    return f"{split}-{kind}-idx{3 if kind == 'images' else 1}-ubyte"
