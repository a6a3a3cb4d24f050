"""A data set in memory: one tensor per split, images kept as uint8 until a batch is used."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Protocol

import numpy as np
import torch

from fedrage_flwr.settings import Ge


@dataclass(frozen=True)
class DatasetSettings:
    """What every data set is told. ``name`` is the word typed after ``dataset=``."""

    name: str


@dataclass(frozen=True)
class ClassesSettings(DatasetSettings):
    """``rarest_classes``: what ``partition=rare_classes`` gives to rare clients; None: it draws them."""

    rarest_classes: list[Annotated[int, Ge(0)]] | None


@dataclass(frozen=True, eq=False)
class Split:
    """Examples of one official split.

    Attributes:
        inputs: uint8, (n, C, H, W) for images; float32, (n, d) for vectors.
        labels: int64, (n,), values 0..num_classes-1; float32, (n,), in regression.
    """

    inputs: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)


class ClientSource(Protocol):
    """Makes a client's data of its id when it is asked for; picklable. Equal ids give equal data."""

    @property
    def examples(self) -> int:
        """Training and validation examples of each client, in random order."""

    def train(self, client: int) -> Split:
        """Make these examples."""

    def test(self, client: int) -> np.ndarray:
        """Return the client's test part: sorted positions in the test split, int64."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Both official splits and how to turn their bytes into what a model sees.

    Attributes:
        num_classes: outputs of the model; 1 in regression.
        mean, std: per channel, of ``inputs / scale`` over the training split.
        scale: the largest value a byte takes (255, or 16 for the digits). Mean 0, std 1 and scale 1 leave inputs as they are.
        rarest_classes: the classes ``partition=rare_classes`` gives to rare clients unless told otherwise;
            ``None``: it draws them.
        loss: a name in ``fedrage_flwr.losses.LOSSES``.
        train_owner, test_owner: where examples come with their clients (``partition=natural``): the agent each belongs to,
            int64 (n,), 0..E-1.
        groups: the true group of each of those agents, int64 (E,). For scoring only: no algorithm sees it.
        source: where clients are made on demand (``partition=natural``): ``train`` is then empty, its shape right.
    """

    name: str
    train: Split
    test: Split
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float
    rarest_classes: tuple[int, ...] | None = None
    loss: str = "cross_entropy"
    train_owner: np.ndarray | None = None
    test_owner: np.ndarray | None = None
    groups: np.ndarray | None = None
    source: ClientSource | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example, (C, H, W) for images."""
        return tuple(self.train.inputs.shape[1:])

    def to_float(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return ``(inputs / scale - mean) / std`` in float32 on the device of ``inputs``, which stay as they are.

        Args:
            inputs: (..., C, H, W) with any number of leading dimensions.
        """
        if (self.mean, self.std, self.scale) == ((0.0,), (1.0,), 1.0):
            return inputs.to(torch.float32)
        mean, std = _per_channel(self.mean, self.std, len(self.input_shape), inputs.device)
        return (inputs.to(torch.float32) / self.scale).sub_(mean).div_(std)


@lru_cache(maxsize=32)
def _per_channel(
    mean: tuple[float, ...], std: tuple[float, ...], dims: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """The constants shaped (C, 1, ...), copied to a device once rather than for each batch."""
    shape = (-1,) + (1,) * (dims - 1)
    return tuple(torch.tensor(v, dtype=torch.float32, device=device).view(shape) for v in (mean, std))  # type: ignore[return-value]
