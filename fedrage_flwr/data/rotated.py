"""``dataset=rotated_mnist``, ``rotated_fashion_mnist`` and ``rotated_cifar10``: agents in groups, each group sees the images
turned by an angle of its own (Ghosh et al., NeurIPS 2020; here in unequal groups).

Right angles only: they are exact permutations of the pixels. Any other angle would interpolate and cut corners, and so
change more than the direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch

from fedrage_flwr.data.cifar import Cifar10
from fedrage_flwr.data.dataset import Dataset, DatasetSettings, Split
from fedrage_flwr.data.files import FilesDataset
from fedrage_flwr.data.mnist import FashionMnist, Mnist
from fedrage_flwr.data.owners import deal_iid, group_of_agents
from fedrage_flwr.data.partition.sharing import UNUSED, cap
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.settings import Ge


@dataclass(frozen=True)
class RotatedSettings(DatasetSettings):
    """See ``conf/dataset/rotated_mnist.yaml``."""

    root: str
    groups: list[Annotated[int, Ge(1)]]
    angles: list[Literal[0, 90, 180, 270]]
    seed: Annotated[int, Ge(0)]
    max_examples: Annotated[int, Ge(1)] | None = None

    def __post_init__(self) -> None:
        if len(self.groups) != len(self.angles) or not self.groups:
            raise ValueError(
                f"dataset.angles={list(self.angles)}: give one angle for each of dataset.groups={list(self.groups)}"
            )
        if len(set(self.angles)) != len(self.angles):
            raise ValueError(f"dataset.angles={list(self.angles)}: two groups of one angle are one group")


class Rotated:
    """The examples of a plain data set dealt iid to the agents, then turned."""

    word: ClassVar[str]  # what is typed after dataset=
    plain: ClassVar[type[FilesDataset]]
    plain_word: ClassVar[str]

    def __init__(self, settings: RotatedSettings) -> None:
        self.settings = settings
        of_plain: Any = self.plain
        self._files: FilesDataset = of_plain(of_plain.Settings(self.plain_word, None, settings.root))

    def prepare(self) -> None:
        """Make sure the files of the plain data set are there."""
        self._files.prepare()

    def load(self) -> Dataset:
        """Return the data set: inputs uint8, each turned as its agent's group is."""
        dataset, settings = self._files.load(), self.settings
        groups = group_of_agents(settings.groups)
        agents = np.arange(len(groups))
        owners = [
            deal_iid(len(split), agents, generator(settings.seed, Stream.DATASET, draw))
            for draw, split in enumerate((dataset.train, dataset.test))
        ]
        if settings.max_examples is not None:
            capped = cap(owners[0], settings.max_examples, generator(settings.seed, Stream.DATASET, len(owners)))
            kept, whole = torch.from_numpy(np.flatnonzero(capped != UNUSED)), dataset.train
            dataset = replace(dataset, train=Split(whole.inputs[kept], whole.labels[kept]))
            owners[0] = owners[0][kept]
        train, test = (
            Split(turn(split.inputs, groups[owner], settings.angles), split.labels)
            for split, owner in zip((dataset.train, dataset.test), owners, strict=True)
        )
        return replace(
            dataset,
            name=self.word,
            train=train,
            test=test,
            train_owner=owners[0],
            test_owner=owners[1],
            groups=groups,
        )


def turn(inputs: torch.Tensor, group: np.ndarray, angles: Sequence[int]) -> torch.Tensor:
    """Return square images (n, C, H, H), each turned counter-clockwise by the angle of its group.

    Args:
        group: (n,), positions in ``angles``.
        angles: multiples of 90 degrees.
    """
    turned = inputs.clone()
    for number, angle in enumerate(angles):
        if angle:
            where = torch.from_numpy(np.flatnonzero(group == number))
            turned[where] = torch.rot90(inputs[where], angle // 90, dims=(2, 3))
    return turned


class RotatedMnist(Rotated):
    """MNIST."""

    @dataclass(frozen=True)
    class Settings(RotatedSettings):
        """See ``conf/dataset/rotated_mnist.yaml``."""

        name: Literal["rotated_mnist"]

    word = "rotated_mnist"
    plain = Mnist
    plain_word = "mnist"


class RotatedFashionMnist(Rotated):
    """FashionMNIST."""

    @dataclass(frozen=True)
    class Settings(RotatedSettings):
        """See ``conf/dataset/rotated_fashion_mnist.yaml``."""

        name: Literal["rotated_fashion_mnist"]

    word = "rotated_fashion_mnist"
    plain = FashionMnist
    plain_word = "fashion_mnist"


class RotatedCifar10(Rotated):
    """CIFAR-10."""

    @dataclass(frozen=True)
    class Settings(RotatedSettings):
        """See ``conf/dataset/rotated_cifar10.yaml``."""

        name: Literal["rotated_cifar10"]

    word = "rotated_cifar10"
    plain = Cifar10
    plain_word = "cifar10"
