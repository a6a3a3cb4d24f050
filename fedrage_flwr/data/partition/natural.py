"""``partition=natural``: examples come with their clients, as the data set says."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import numpy as np

from fedrage_flwr.data.dataset import ClientSource, Dataset
from fedrage_flwr.data.partition.base import BasePartitioner, Clients, Partition, PartitionSettings
from fedrage_flwr.data.partition.sharing import Drawn, Indices
from fedrage_flwr.errors import UserError
from fedrage_flwr.settings import Ge


class Natural(BasePartitioner):
    """Client i is agent ``order[i]``; without an order agent i."""

    @dataclass(frozen=True)
    class Settings(PartitionSettings):
        """See ``conf/partition/natural.yaml``."""

        name: Literal["natural"]
        order: list[Annotated[int, Ge(0)]] | None

    settings: Settings

    def share(self, dataset: Dataset, num_clients: int, rare_clients: int) -> Partition:
        """See the base class; there must be as many clients, those held out included, as agents."""
        if dataset.source is not None:
            return self._made(dataset.source, num_clients)
        if dataset.train_owner is None or dataset.test_owner is None:
            raise UserError(
                f"partition=natural: the examples of dataset={dataset.name} belong to nobody; choose another partition"
            )
        agents = int(dataset.train_owner.max()) + 1
        if num_clients != agents:
            raise UserError(
                f"num_clients + held_out_clients is {num_clients}, but dataset={dataset.name} has {agents} agents: give "
                f"num_clients={agents} held_out_clients=0, or hold some of the {agents} out"
            )
        agent_of = self._order(agents)
        client_of = np.argsort(agent_of)
        shared = self.parts(client_of[dataset.train_owner], client_of[dataset.test_owner], agents)
        return shared if dataset.groups is None else replace(shared, groups=dataset.groups[agent_of])

    def _made(self, source: ClientSource, num_clients: int) -> Partition:
        """Clients made on demand: positions are in what the source makes of each; the last ones are for validation."""
        if self.settings.order is not None:
            raise UserError("partition.order: clients are made of their ids here; give null")
        everything = np.arange(source.examples)
        train = len(everything) - int(self.settings.validation_sizes(np.array(len(everything))))
        parts = [everything[:train], everything[train:]]
        own, held_out = (Drawn(num_clients, partial(_constant, part)) for part in parts)
        return Partition(Clients(own, held_out, Drawn(num_clients, source.test)), ())

    def _order(self, agents: int) -> Indices:
        order = self.settings.order
        if order is None:
            return np.arange(agents)
        if sorted(order) != list(range(agents)):
            raise UserError(f"partition.order={order}: name each of the agents 0 to {agents - 1} once, or null")
        return np.array(order, dtype=np.int64)


def _constant(part: Indices, client: int) -> Indices:
    return part
