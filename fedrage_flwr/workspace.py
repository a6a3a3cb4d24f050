"""What one process needs to act as any of its clients: data in memory, who holds what, one model.

Data sits as one tensor per split on the device, as stored; a client is a vector of positions in it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from torch import Tensor

from fedrage_flwr.data import Dataset, Partition, Split
from fedrage_flwr.data.dataset import ClientSource
from fedrage_flwr.losses import Loss, correct
from fedrage_flwr.memory import keep_freed_memory
from fedrage_flwr.records import to_record
from fedrage_flwr.stacked import StackedModel, empty_stack
from fedrage_flwr.training import LocalModel, Tensors, as_tensor

ToFloat = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class CohortRule:
    """Which clients train as one batched computation.

    Attributes:
        size: so many at once.
        same_bits: only where that changes no bit of what each gives alone, so that any grid may group clients as it likes.
        stack: trainings of several models on the same mini-batches run as one stack too (FOCUS).
    """

    size: int = 1
    same_bits: bool = False
    stack: bool = True


@dataclass(frozen=True, eq=False)
class SplitTensors:
    """One split as stored, on the device: inputs (n, …) and targets (n,)."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's data.

    Attributes:
        partition: the client's id.
        train, test: the splits shared by all clients of the process.
        indices, test_indices: positions of this client's examples in them, on the CPU.
        to_float: makes model inputs of stored ones.
        loss: loss of each example.
    """

    partition: int
    train: SplitTensors
    test: SplitTensors
    indices: Tensor
    test_indices: Tensor
    to_float: ToFloat
    loss: Loss

    @property
    def num_examples(self) -> int:
        """n_i, training examples."""
        return len(self.indices)

    @property
    def num_test(self) -> int:
        """Test examples."""
        return len(self.test_indices)

    def take(self, positions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Gather training examples by position in this client's data; any shape of positions, kept in front."""
        return self.gather(self.locate(positions))

    def locate(self, positions: np.ndarray) -> Tensor:
        """Where these of the client's examples stand in the training split; the same shape, on the CPU."""
        return self.indices[torch.from_numpy(positions)]

    def gather(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Gather examples of the training split, whoever holds them; any shape of positions, kept in front."""
        return self._gather(self.train, chosen)

    def all(self) -> tuple[Tensor, Tensor]:
        """The whole local training set: inputs (n_i, …) and targets (n_i,)."""
        return self._gather(self.train, self.indices)

    def in_passes(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The same in order, at most ``size`` examples at a time."""
        return (self._gather(self.train, chosen) for chosen in torch.split(self.indices, size))

    def test_inputs(self) -> Tensor:
        """Model inputs of the test part."""
        return self._gather(self.test, self.test_indices)[0]

    def measure(self, outputs: Tensor) -> dict[str, float]:
        """Accuracy and mean loss of outputs (n_test, …) on the test part; NaN where there is none."""
        targets = self.test.targets[self.test_indices.to(self.test.targets.device)]
        return {
            "accuracy": float(correct(outputs, targets).double().mean()),
            "loss": float(self.loss(outputs, targets).double().mean()),
        }

    def _gather(self, split: SplitTensors, chosen: Tensor) -> tuple[Tensor, Tensor]:
        chosen = chosen.to(split.inputs.device, non_blocking=True)
        flat = chosen.flatten()  # index_select copies whole examples, plain indexing number by number
        inputs = split.inputs.index_select(0, flat).view(*chosen.shape, *split.inputs.shape[1:])
        return self.to_float(inputs), split.targets.index_select(0, flat).view(chosen.shape)


class Workspace:
    """Data and model of one process.

    Args:
        model: overwritten by every message.
        train: the training split, on the device of ``model``.
        indices: per client, int64 positions in it; a client's are looked up when it is asked for, not before.
        to_float: stored inputs → float32 model inputs.
        test, test_indices: the same for testing; without them clients cannot be asked to evaluate.
        cohort: how many clients are trained at once, and when.
        source: makes a client's training split, in which ``indices`` are then positions; ``train`` is empty.
    """

    def __init__(
        self,
        model: LocalModel,
        train: SplitTensors,
        indices: Sequence[np.ndarray],
        to_float: ToFloat,
        test: SplitTensors | None = None,
        test_indices: Sequence[np.ndarray] | None = None,
        cohort: CohortRule | None = None,
        source: ClientSource | None = None,
    ) -> None:
        self._source = source
        self.cohort = cohort or CohortRule()
        self.last_read: tuple[RecordDict, Mapping[str, Mapping[str, np.ndarray]]] | None = None
        """The content last checked, and what was read from it (see ``clients.base``)."""
        self.model = model
        self.template: ArrayRecord = to_record(model.arrays())
        self._train, self._test = train, test or SplitTensors(train.inputs[:0], train.targets[:0])
        self._indices, self._test_indices, self._to_float = indices, test_indices, to_float
        self._received: tuple[Mapping[str, np.ndarray], Tensors] | None = None
        self._stacked: dict[int, StackedModel] = {}
        self._capacity, self._memory = 0, empty_stack(model, 0)

    def client(self, partition: int) -> ClientData:
        """Return one client's data.

        Raises:
            ValueError: no such client, or it holds no training data.
        """
        if not 0 <= partition < len(self._indices):
            raise ValueError(f"partition-id={partition} is outside 0..{len(self._indices) - 1}")
        own = self._indices[partition]
        if not len(own):
            raise ValueError(f"client {partition} holds no training data")
        tests = np.empty(0, np.int64) if self._test_indices is None else self._test_indices[partition]
        return ClientData(
            partition,
            self._train if self._source is None else self._tensors(self._source.train(partition)),
            self._test,
            as_tensor(own),
            as_tensor(tests),
            self._to_float,
            self.model.example_loss,
        )

    def parameters_of(self, arrays: Mapping[str, np.ndarray]) -> Tensors:
        """The trainable parameters of a model received, on the device: the same tensors for all clients that received it."""
        if self._received is None or self._received[0] is not arrays:
            names = self.model.parameter_names
            tensors = tuple(as_tensor(arrays[name]).to(self.model.device, non_blocking=True) for name in names)
            self._received = arrays, tensors
        return self._received[1]

    def _tensors(self, split: Split) -> SplitTensors:
        return SplitTensors(split.inputs.to(self.model.device), split.labels.to(self.model.device))

    def stacked(self, models: int) -> StackedModel:
        """Return M models to train at once; all numbers of models share the memory of the largest."""
        if models > self._capacity:
            self._capacity, self._memory = models, empty_stack(self.model, models)
            self._stacked.clear()
        if models not in self._stacked:
            self._stacked[models] = StackedModel(self.model, models, self._memory)
        return self._stacked[models]


def build_workspace(
    dataset: Dataset, partition: Partition, model: LocalModel, cohort: CohortRule | None = None
) -> Workspace:
    """Return the workspace of a process that can act as any client of ``partition``, its data on the device of ``model``."""
    keep_freed_memory()
    device = model.device
    return Workspace(
        model=model,
        train=SplitTensors(dataset.train.inputs.to(device), dataset.train.labels.to(device)),
        indices=partition.train,
        to_float=dataset.to_float,
        test=SplitTensors(dataset.test.inputs.to(device), dataset.test.labels.to(device)),
        test_indices=partition.test,
        cohort=cohort,
        source=dataset.source,
    )
