"""What one process needs to act as any of its clients: data in memory, who holds what, one model.

Data sits as one uint8 tensor per split on the device; a client is a vector of positions in it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import Tensor

from fedrage_flwr.records import to_record
from fedrage_flwr.training import LocalModel


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's training data.

    Attributes:
        partition: the client's id.
        inputs, targets: the split shared by all clients of the process, on its device.
        indices: positions of this client's examples, shape (n_i,), on the CPU.
        to_float: makes model inputs of stored ones.
    """

    partition: int
    inputs: Tensor
    targets: Tensor
    indices: Tensor
    to_float: Callable[[Tensor], Tensor]

    @property
    def num_examples(self) -> int:
        """n_i."""
        return len(self.indices)

    def take(self, positions: np.ndarray) -> tuple[Tensor, Tensor]:
        """Gather examples by their position in this client's data; any shape of positions, kept in front."""
        chosen = self.indices[torch.from_numpy(positions)].to(self.inputs.device, non_blocking=True)
        return self.to_float(self.inputs[chosen]), self.targets[chosen]


class Workspace:
    """Data and model of one process.

    Args:
        inputs, targets: the training split, on the device of ``model``.
        indices: per client, int64 positions in the split.
        to_float: stored inputs → float32 model inputs.
        model: overwritten by every message.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        indices: tuple[np.ndarray, ...],
        to_float: Callable[[Tensor], Tensor],
        model: LocalModel,
    ) -> None:
        self.model = model
        self.template: ArrayRecord = to_record(model.arrays())
        self._clients = [
            ClientData(i, inputs, targets, torch.from_numpy(own), to_float) for i, own in enumerate(indices)
        ]

    def client(self, partition: int) -> ClientData:
        """Return one client's data.

        Raises:
            ValueError: no such client, or it holds no training data.
        """
        if not 0 <= partition < len(self._clients):
            raise ValueError(f"partition-id={partition} is outside 0..{len(self._clients) - 1}")
        data = self._clients[partition]
        if not data.num_examples:
            raise ValueError(f"client {partition} holds no training data")
        return data
