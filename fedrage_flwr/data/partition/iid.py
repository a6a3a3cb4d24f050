"""``partition=iid``: every client a random sample of the whole, sizes equal to within one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from fedrage_flwr.data.partition.base import Draw, Partitioner, PartitionSettings, Task
from fedrage_flwr.data.partition.sharing import Indices


class Iid(Partitioner):
    """Shuffle, then cut. The shuffle matters: official files may be sorted by label."""

    @dataclass(frozen=True)
    class Settings(PartitionSettings):
        """No keys of its own."""

        name: Literal["iid"]

    test_by_class: ClassVar[bool] = False

    def assign(self, task: Task) -> tuple[Indices, Sequence[str]]:
        """See the base class."""
        return self.settings.generator(Draw.TRAIN).permutation(len(task.labels)) % task.num_clients, ()
