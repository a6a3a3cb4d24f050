"""``partition=quantity``: random samples of the whole, but of very different sizes (Li et al., ICDE 2022).

Sizes are proportional to one draw q ~ Dirichlet(alpha · 1_N).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from fedrage_flwr.data.partition.base import Draw, Partitioner, PartitionSettings, Task
from fedrage_flwr.data.partition.minimum import refuse_too_few, with_minimum
from fedrage_flwr.data.partition.sharing import Indices, sizes_from
from fedrage_flwr.settings import Ge, Interval


class Quantity(Partitioner):
    """Skew of sizes without skew of labels: tells the two apart."""

    @dataclass(frozen=True)
    class Settings(PartitionSettings):
        """See ``conf/partition/quantity.yaml``."""

        name: Literal["quantity"]
        alpha: Annotated[float, Interval(gt=0, le=1e6)]
        min_examples: Annotated[int, Ge(1)]

    settings: Settings
    test_by_class: ClassVar[bool] = False

    def assign(self, task: Task) -> tuple[Indices, Sequence[str]]:
        """See the base class."""
        refuse_too_few(task, self.settings.min_examples)
        shares = self.settings.generator(Draw.PROPORTIONS).dirichlet(np.full(task.num_clients, self.settings.alpha))
        owner = np.empty(len(task.labels), dtype=np.int64)
        where = self.settings.generator(Draw.TRAIN).permutation(len(task.labels))
        owner[where] = np.repeat(np.arange(task.num_clients), sizes_from(shares, len(where)))
        return with_minimum(owner, task, self.settings.min_examples, self.settings)
