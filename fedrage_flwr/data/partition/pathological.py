"""``partition=pathological``: a few classes per client (after McMahan et al., AISTATS 2017, "pathological non-IID").

The original cuts data sorted by label into shards; shards of unequal classes straddle labels. Here slots are classes,
so that every client holds exactly ``classes_per_client`` of them and no example is lost when the numbers do not divide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedrage_flwr.data.partition.base import Draw, Partitioner, PartitionSettings, Task
from fedrage_flwr.data.partition.sharing import Indices, deal
from fedrage_flwr.data.partition.slots import draw_slots
from fedrage_flwr.settings import Ge


class Pathological(Partitioner):
    """Slots balanced over the classes; the examples of a class dealt out equally among its holders."""

    @dataclass(frozen=True)
    class Settings(PartitionSettings):
        """See ``conf/partition/pathological.yaml``."""

        name: Literal["pathological"]
        classes_per_client: Annotated[int, Ge(1)]

    settings: Settings

    def assign(self, task: Task) -> tuple[Indices, Sequence[str]]:
        """See the base class."""
        holds = draw_slots(
            classes=np.arange(task.num_classes),
            class_sizes=task.class_sizes,
            num_clients=task.num_clients,
            per_client=self.settings.classes_per_client,
            rng=self.settings.generator(Draw.SLOTS),
            whom=f"{task.num_clients} clients",
        )
        return deal(task.labels, holds, self.settings.generator(Draw.TRAIN)), ()
