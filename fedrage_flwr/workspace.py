"""What one process needs to act as any of its clients: data in memory, who holds what, one model.

Data sits as one tensor per split on the device, as stored; a client is a vector of positions in it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from torch import Tensor

from fedrage_flwr.data import Dataset, Partition, Split
from fedrage_flwr.data.dataset import ClientSource
from fedrage_flwr.losses import Loss, correct
from fedrage_flwr.records import to_record
from fedrage_flwr.stacked import StackedModel
from fedrage_flwr.training import LocalModel, as_tensor

ToFloat = Callable[[Tensor], Tensor]


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
        return self._gather(self.train, self.indices[torch.from_numpy(positions)])

    def all(self) -> tuple[Tensor, Tensor]:
        """The whole local training set: inputs (n_i, …) and targets (n_i,)."""
        return self._gather(self.train, self.indices)

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
        return self.to_float(split.inputs[chosen]), split.targets[chosen]


class Workspace:
    """Data and model of one process.

    Args:
        model: overwritten by every message.
        train: the training split, on the device of ``model``.
        indices: per client, int64 positions in it; a client's are looked up when it is asked for, not before.
        to_float: stored inputs → float32 model inputs.
        test, test_indices: the same for testing; without them clients cannot be asked to evaluate.
        cohort: how many clients are trained at once.
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
        cohort: int = 1,
        source: ClientSource | None = None,
    ) -> None:
        self._source = source
        self.cohort = cohort
        self.last_read: tuple[RecordDict, Mapping[str, Mapping[str, np.ndarray]]] | None = None
        """The content last checked, and what was read from it (see ``clients.base``)."""
        self.model = model
        self.template: ArrayRecord = to_record(model.arrays())
        self._train, self._test = train, test or SplitTensors(train.inputs[:0], train.targets[:0])
        self._indices, self._test_indices, self._to_float = indices, test_indices, to_float
        self._stacked: dict[int, StackedModel] = {}

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

    def _tensors(self, split: Split) -> SplitTensors:
        return SplitTensors(split.inputs.to(self.model.device), split.labels.to(self.model.device))

    def stacked(self, models: int) -> StackedModel:
        """Return M models to train at once; the same object at every call."""
        if models not in self._stacked:
            self._stacked[models] = StackedModel(self.model, models)
        return self._stacked[models]


def build_workspace(dataset: Dataset, partition: Partition, model: LocalModel, cohort: int = 1) -> Workspace:
    """Return the workspace of a process that can act as any client of ``partition``, its data on the device of ``model``."""
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
