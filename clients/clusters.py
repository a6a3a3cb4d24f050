"""What clients share that are sent the models of several clusters: reading them, and the local loss of each.

G, the number of clusters, is read off the record received. One model alone goes through ``workspace.model``, as in FedAvg and
to the same bits; several are one batched computation.
"""

from functools import cached_property

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import Tensor

from clients.base import ClientAlgorithm, Task
from fedrage_flwr.clusters import count, prefixed, split
from fedrage_flwr.records import mismatch
from fedrage_flwr.stacked import StackedModel


class ClusteredClient(ClientAlgorithm):
    """Receives w_0..w_{G-1}.

    Attributes:
        models: their arrays, G mappings.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.models = split(task.received["arrays"])

    @classmethod
    def misfit(cls, arrays: ArrayRecord, template: ArrayRecord) -> str | None:
        """Say what keeps ``arrays`` from being G models like the template."""
        expected = ArrayRecord()  # filled by hand: given a dictionary, it would serialise every array
        for m in range(count(arrays)):
            for name, array in template.items():
                expected[prefixed(m, name)] = array
        return mismatch(arrays, expected)

    @cached_property
    def stacked(self) -> StackedModel:
        """The G models received, to be trained at once."""
        stacked = self.task.workspace.stacked(len(self.models))
        stacked.load(self.models)
        return stacked

    @torch.no_grad()
    def losses(self) -> np.ndarray:
        """mean_{(x,y)∈D_e} ℓ(x, y; w_m) over the whole local training set, float64 (G,)."""
        data = self.task.data
        total = torch.zeros(len(self.models), dtype=torch.float64, device=self.device)
        for inputs, targets in data.in_passes(self.stacked.pass_size):
            total += self.stacked.example_losses(inputs, targets).double().sum(1)
        return (total / data.num_examples).cpu().numpy()

    def test_outputs(self) -> Tensor:
        """Outputs of the G models on this client's test part, (G, n_test, …)."""
        inputs = self.task.data.test_inputs()
        if len(self.models) > 1:
            return self.stacked.outputs(inputs)
        self.task.workspace.model.load(self.models[0])
        return self.task.workspace.model.outputs(inputs)[None]
