"""``partition=local``: each node splits what it holds; nothing is shared out. For ``dataset=private`` only."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedrage_flwr.data.dataset import Dataset
from fedrage_flwr.data.partition.base import BasePartitioner, ClientIndices, Draw, Partition, PartitionSettings
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.settings import Interval

EMPTY = np.empty(0, np.int64)


class Local(BasePartitioner):
    """Random parts of what one client holds, of sizes ⌊f n⌋; on the server every client's parts are empty."""

    @dataclass(frozen=True)
    class Settings(PartitionSettings):
        """See ``conf/partition/local.yaml``."""

        name: Literal["local"]
        test_fraction: Annotated[float, Interval(ge=0, lt=1)]

    settings: Settings

    def share(self, dataset: Dataset, num_clients: int, rare_clients: int) -> Partition:
        """Return the server's view: it knows nobody's examples."""
        return Partition((ClientIndices(EMPTY, EMPTY, EMPTY),) * num_clients, ())

    def split(self, num_examples: int, client: int, num_clients: int) -> Partition:
        """Return the partition as node ``client`` sees it: its own parts, and nobody else's."""
        order = generator(self.settings.seed, Stream.PARTITION, Draw.TEST, client).permutation(num_examples)
        tests = int(self.settings.test_fraction * num_examples + 1e-9)
        held_out = tests + int(self.settings.validation_fraction * (num_examples - tests) + 1e-9)
        test, validation, train = (np.sort(part) for part in np.split(order, [tests, held_out]))
        mine, others = ClientIndices(train, validation, test), ClientIndices(EMPTY, EMPTY, EMPTY)
        return Partition(tuple(mine if i == client else others for i in range(num_clients)), ())
