"""What every partitioner does: the official training split becomes the clients' training and validation parts, the
official test split their test parts, all disjoint. A partitioner only says which client gets which training example.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Annotated, ClassVar, overload

import numpy as np

from fedrage_flwr.data.dataset import Dataset, Split
from fedrage_flwr.data.partition.sharing import UNUSED, Indices, Parts, examples_of, positions_within, share_alike
from fedrage_flwr.errors import UserError
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.settings import Ge, Interval


class Draw(IntEnum):
    """Keys below ``Stream.PARTITION``, so that one draw does not move another. Never renumber, only append."""

    TRAIN = 0  # which training example goes to which of a class's owners
    TEST = 1
    VALIDATION = 2
    SLOTS = 3  # who holds which classes
    PROPORTIONS = 4
    MOVES = 5  # what the largest clients hand over
    CAP = 6
    CLASSES = 7  # which classes are rare


@dataclass(frozen=True)
class PartitionSettings:
    """What every partitioner is told; see the comments in ``conf/partition/``."""

    name: str
    seed: Annotated[int, Ge(0)]
    validation_fraction: Annotated[float, Interval(ge=0, lt=1)]

    def generator(self, draw: Draw) -> np.random.Generator:
        """Return the numbers of one draw."""
        return generator(self.seed, Stream.PARTITION, draw)

    def validation_sizes(self, sizes: Indices) -> Indices:
        """Return ⌊f n⌋, how many of n examples are held out for validation, for each of ``sizes``."""
        # 0.29 * 100 is 28.999999999999996 in floats
        return np.asarray(np.floor(self.validation_fraction * sizes + 1e-9).astype(np.int64))


@dataclass(frozen=True, eq=False)
class ClientIndices:
    """Sorted int64 positions: ``train`` and ``validation`` in the official training split, ``test`` in its own."""

    train: Indices
    validation: Indices
    test: Indices


@dataclass(frozen=True, eq=False)
class Clients(Sequence[ClientIndices]):
    """The clients of a partition, each made when asked for. Attributes: per client, its ``train``, ``validation``, ``test``."""

    train: Sequence[Indices]
    validation: Sequence[Indices]
    test: Sequence[Indices]

    def __len__(self) -> int:
        return len(self.train)

    @overload
    def __getitem__(self, client: int) -> ClientIndices: ...
    @overload
    def __getitem__(self, client: slice) -> tuple[ClientIndices, ...]: ...
    def __getitem__(self, client: int | slice) -> ClientIndices | tuple[ClientIndices, ...]:
        if isinstance(client, slice):
            return tuple(self[i] for i in range(*client.indices(len(self))))
        return ClientIndices(self.train[client], self.validation[client], self.test[client])


@dataclass(frozen=True, eq=False)
class Partition:
    """Who holds what.

    Attributes:
        clients: one entry per client, in order of partition id.
        notes: remarks for the log, one line each.
        groups: true group of each client, int64 (clients,), where the data set knows; for scoring only.
    """

    clients: Sequence[ClientIndices]
    notes: tuple[str, ...]
    groups: Indices | None = None

    @property
    def train(self) -> Sequence[Indices]:
        """Each client's training examples."""
        return self.clients.train if isinstance(self.clients, Clients) else [client.train for client in self.clients]

    @property
    def test(self) -> Sequence[Indices]:
        """Each client's test examples."""
        return self.clients.test if isinstance(self.clients, Clients) else [client.test for client in self.clients]


def on_validation(dataset: Dataset, partition: Partition) -> tuple[Dataset, Partition]:
    """Put the validation parts in the place of the test parts: the same training, measured on what tuning may see.

    Raises:
        UserError: no client holds any validation example.
    """
    parts = [client.validation for client in partition.clients]
    sizes = [len(part) for part in parts]
    if not sum(sizes):
        raise UserError(
            "evaluate.split=validation: no client has validation examples; raise partition.validation_fraction"
        )
    chosen = np.concatenate(parts)
    split = Split(dataset.train.inputs[chosen], dataset.train.labels[chosen])
    places = np.split(np.arange(len(chosen), dtype=np.int64), np.cumsum(sizes)[:-1])
    clients = [
        replace(client, test=place, validation=np.empty(0, np.int64))
        for client, place in zip(partition.clients, places, strict=True)
    ]
    return replace(dataset, test=split), replace(partition, clients=clients)


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be shared out, and among how many. ``labels`` are those of the official training split, int64 (n,)."""

    labels: Indices
    num_classes: int
    num_clients: int
    rare_clients: int
    rarest_classes: tuple[int, ...] | None = None

    @property
    def class_sizes(self) -> Indices:
        """Training examples of each class, (num_classes,)."""
        return np.bincount(self.labels, minlength=self.num_classes).astype(np.int64)


class BasePartitioner(ABC):
    """Makes partitions; a subclass defines ``Settings`` and :meth:`share`."""

    Settings: ClassVar[type[PartitionSettings]]

    def __init__(self, settings: PartitionSettings) -> None:
        self.settings = settings

    @abstractmethod
    def share(self, dataset: Dataset, num_clients: int, rare_clients: int) -> Partition:
        """Return the partition; ``UserError`` if the settings do not fit the data set."""

    def parts(self, owner: Indices, test_owner: Indices, num_clients: int, notes: Sequence[str] = ()) -> Partition:
        """Make the partition of what each client owns; validation examples are drawn from its training examples."""
        train, validation = self._hold_out(owner, num_clients)
        own, held_out, test = (examples_of(who, num_clients) for who in (train, validation, test_owner))
        return Partition(Clients(own, held_out, test), (*notes, *self._remarks(held_out, test, test_owner)))

    def _hold_out(self, owner: Indices, num_clients: int) -> tuple[Indices, Indices]:
        """Split each client's n examples at random into n - ⌊f n⌋ for training and ⌊f n⌋ for validation, f < 1."""
        position = positions_within(owner, self.settings.generator(Draw.VALIDATION))
        sizes = np.bincount(owner[owner != UNUSED], minlength=num_clients)
        held_out = self.settings.validation_sizes(sizes)
        validating = (owner != UNUSED) & (position < held_out[owner])
        return np.where(validating, UNUSED, owner), np.where(validating, owner, UNUSED)

    def _remarks(self, validation: Parts, test: Parts, test_owner: Indices) -> list[str]:
        name, notes = self.settings.name, []
        if unused := int(np.count_nonzero(test_owner == UNUSED)):
            notes.append(
                f"{name}: {unused:,} of {len(test_owner):,} test examples unused: nobody trains on their class"
            )
        if empty := int(np.count_nonzero(test.sizes == 0)):
            notes.append(f"{name}: {empty:,} of {len(test):,} clients have no test examples")
        empty = int(np.count_nonzero(validation.sizes == 0))
        if empty and self.settings.validation_fraction > 0:
            notes.append(f"{name}: {empty:,} of {len(validation):,} clients have no validation examples")
        return notes


class Partitioner(BasePartitioner):
    """Shares examples out; a subclass says which client gets which training example."""

    test_by_class: ClassVar[bool] = True  # False: only the sizes of the test parts follow those of the training parts

    @abstractmethod
    def assign(self, task: Task) -> tuple[Indices, Sequence[str]]:
        """Return the client of each training example, int64 (n,), ``UNUSED`` for none; and notes."""

    def share(self, dataset: Dataset, num_clients: int, rare_clients: int) -> Partition:
        """See the base class."""
        if dataset.source is not None:
            raise UserError(
                f"partition={self.settings.name}: dataset={dataset.name} makes its clients; type partition=natural"
            )
        if dataset.train_owner is not None:
            raise UserError(
                f"partition={self.settings.name}: the examples of dataset={dataset.name} come with their clients; "
                f"type partition=natural num_clients={int(dataset.train_owner.max()) + 1}"
            )
        labels, test_labels = dataset.train.labels.numpy(), dataset.test.labels.numpy()
        if num_clients > len(labels):
            raise UserError(
                f"num_clients={num_clients}: dataset={dataset.name} has only {len(labels)} training examples; "
                f"give 1 to {len(labels)}"
            )
        task = Task(labels, dataset.num_classes, num_clients, rare_clients, dataset.rarest_classes)
        owner, notes = self.assign(task)
        return self.parts(owner, self._share_test(owner, labels, test_labels, num_clients), num_clients, notes)

    def _share_test(self, owner: Indices, labels: Indices, test_labels: Indices, num_clients: int) -> Indices:
        rng = self.settings.generator(Draw.TEST)
        if not self.test_by_class:
            labels, test_labels = np.zeros_like(labels), np.zeros_like(test_labels)
        return share_alike(owner, labels, test_labels, num_clients, rng)
