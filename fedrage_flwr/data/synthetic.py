"""``dataset=synthetic``: any number of clients, none of which exists before it is asked for.

A client's examples are drawn from its id, ``SeedSequence(dataset.seed, (DATASET, kind, client))``, whenever it trains: memory and
start-up do not grow with N. Each class has a *prototype*, an image of uniform random bytes; an example is its class's prototype
plus ``noise`` · N(0, 1) a pixel, rounded and cut to 0..255. A client holds ``classes_per_client`` classes, drawn uniformly, and
its labels are drawn uniformly from them. The test set is common, ``test_examples`` images with all classes alike; a client's
test part is a draw from those of its classes, so parts of different clients overlap.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch

from fedrage_flwr.data.dataset import Dataset, DatasetSettings, Split
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.settings import Ge

CLASSES, TRAIN, TEST, PROTOTYPES, TEST_SET = range(5)  # keys of the draws; never renumber
BYTES = 255.0


class Synthetic:
    """Prototypes and noise; nothing is stored."""

    @dataclass(frozen=True)
    class Settings(DatasetSettings):
        """See ``conf/dataset/synthetic.yaml``."""

        name: Literal["synthetic"]
        classes: Annotated[int, Ge(2)]
        shape: list[Annotated[int, Ge(1)]]
        examples_per_client: Annotated[int, Ge(1)]
        test_examples_per_client: Annotated[int, Ge(0)]
        classes_per_client: Annotated[int, Ge(1)]
        test_examples: Annotated[int, Ge(1)]
        noise: Annotated[float, Ge(0)]
        seed: Annotated[int, Ge(0)]

        def __post_init__(self) -> None:
            if not self.shape:
                raise ValueError("dataset.shape=[]: give the shape of one example, such as [1,8,8]")
            if self.classes_per_client > self.classes:
                raise ValueError(
                    f"dataset.classes_per_client={self.classes_per_client}: there are dataset.classes={self.classes};"
                    f" give 1 to {self.classes}"
                )
            if self.test_examples < self.classes:
                raise ValueError(
                    f"dataset.test_examples={self.test_examples}: every class needs one; give {self.classes} or more"
                )

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def prepare(self) -> None:
        """Nothing to do."""

    def load(self) -> Dataset:
        """Return the data set: a test split, and no training split but what ``source`` makes."""
        source = SyntheticClients(self.settings)
        labels = source.test_labels
        test = source.images(labels, generator(self.settings.seed, Stream.DATASET, TEST_SET))
        pixels = source.prototypes / BYTES
        return Dataset(
            name="synthetic",
            train=Split(test[:0], torch.empty(0, dtype=torch.int64)),
            test=Split(test, torch.from_numpy(labels)),
            num_classes=self.settings.classes,
            mean=(float(pixels.mean()),),
            std=(float(np.hypot(pixels.std(), self.settings.noise / BYTES)) or 1.0,),
            scale=BYTES,
            source=source,
        )


@dataclass(frozen=True)
class SyntheticClients:
    """Makes clients of their ids (see ``fedrage_flwr.data.dataset.ClientSource``)."""

    settings: Synthetic.Settings

    @property
    def examples(self) -> int:
        """Training and validation examples of each client."""
        return self.settings.examples_per_client

    @cached_property
    def prototypes(self) -> npt.NDArray[np.float32]:
        """One image per class, (classes, *shape)."""
        rng = generator(self.settings.seed, Stream.DATASET, PROTOTYPES)
        return rng.integers(0, 256, (self.settings.classes, *self.settings.shape)).astype(np.float32)

    @cached_property
    def test_labels(self) -> npt.NDArray[np.int64]:
        """Labels of the common test set: 0, 1, …, 0, 1, …, (test_examples,)."""
        return np.arange(self.settings.test_examples) % self.settings.classes

    def images(self, labels: npt.NDArray[np.int64], rng: np.random.Generator) -> torch.Tensor:
        """Draw one uint8 image for each label, (n, *shape)."""
        pixels = rng.standard_normal((len(labels), *self.settings.shape), dtype=np.float32)
        pixels *= np.float32(self.settings.noise)
        pixels += self.prototypes[labels]
        return torch.from_numpy(np.rint(pixels, out=pixels).clip(0, BYTES, out=pixels).astype(np.uint8))

    def classes(self, client: int) -> npt.NDArray[np.int64]:
        """The classes a client holds."""
        rng = generator(self.settings.seed, Stream.DATASET, CLASSES, client)
        return rng.choice(self.settings.classes, self.settings.classes_per_client, replace=False, shuffle=False)

    def train(self, client: int) -> Split:
        """A client's training and validation examples."""
        rng = generator(self.settings.seed, Stream.DATASET, TRAIN, client)
        labels = rng.choice(self.classes(client), self.examples)
        return Split(self.images(labels, rng), torch.from_numpy(labels))

    def test(self, client: int) -> npt.NDArray[np.int64]:
        """Sorted positions of a client's test part in the common test set."""
        classes, wanted = self.classes(client), self.settings.test_examples_per_client
        rounds = -(-len(self.test_labels) // self.settings.classes)  # of the labels 0, 1, …, the last perhaps cut
        candidates = (np.arange(rounds)[:, None] * self.settings.classes + classes).ravel()
        candidates = candidates[candidates < len(self.test_labels)]
        rng = generator(self.settings.seed, Stream.DATASET, TEST, client)
        return np.sort(rng.choice(candidates, min(wanted, len(candidates)), replace=False, shuffle=False))
