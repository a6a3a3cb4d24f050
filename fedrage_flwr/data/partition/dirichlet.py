"""``partition=dirichlet``: label skew of any strength (per-class scheme of Yurochkin et al., ICML 2019).

For each class k a vector p_k ~ Dirichlet(alpha · 1_N) says which share of the class each of the N clients gets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedrage_flwr.data.partition.base import Draw, Partitioner, PartitionSettings, Task
from fedrage_flwr.data.partition.minimum import refuse_too_few, with_minimum
from fedrage_flwr.data.partition.sharing import Indices, sizes_from
from fedrage_flwr.settings import Ge, Interval


class Dirichlet(Partitioner):
    """Small ``alpha``: few clients per class; large: near iid. Sizes vary as well, down to ``min_examples``."""

    @dataclass(frozen=True)
    class Settings(PartitionSettings):
        """See ``conf/partition/dirichlet.yaml``."""

        name: Literal["dirichlet"]
        alpha: Annotated[float, Interval(gt=0, le=1e6)]
        min_examples: Annotated[int, Ge(1)]

    settings: Settings

    def assign(self, task: Task) -> tuple[Indices, Sequence[str]]:
        """See the base class."""
        refuse_too_few(task, self.settings.min_examples)
        proportions = self.settings.generator(Draw.PROPORTIONS)
        examples = self.settings.generator(Draw.TRAIN)
        owner = np.empty(len(task.labels), dtype=np.int64)
        for label in range(task.num_classes):
            where = examples.permutation(np.flatnonzero(task.labels == label))
            shares = proportions.dirichlet(np.full(task.num_clients, self.settings.alpha))
            owner[where] = np.repeat(np.arange(task.num_clients), sizes_from(shares, len(where)))
        return with_minimum(owner, task, self.settings.min_examples, self.settings)
