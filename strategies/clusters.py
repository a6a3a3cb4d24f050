"""What servers share that hold the models of several clusters: how they begin, and one mean for each.

    w_m ← Σ_{e∈S} s_em θ_em / Σ_{e∈S} s_em        s_em: how much client e belongs to cluster m

Identical starts would never separate, so none is ever broadcast. ``initialisation``:

- ``distinct``: G random models. Refused for a model that always starts alike (``model=softmax`` starts at zero).
- ``spread``: k-means++ (Arthur and Vassilvitskii, SODA 2007; the best of many seedings) over the clients' one-round models.
  Until G clients with different models have arrived, every round broadcasts the common start alone, trains it and keeps the
  results; then G of them become the clusters. That takes one round where M ≥ G, several where M < G.
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from fedrage_flwr.clusters import count, join
from fedrage_flwr.errors import UserError
from fedrage_flwr.k_means import spread_out, squared_distances
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.records import to_arrays, to_record, weighted_mean
from fedrage_flwr.rounds import Update
from fedrage_flwr.settings import Ge
from strategies.base import BaseStrategy, StrategySettings

Arrays = Mapping[str, np.ndarray]
NOBODY = 1e-30  # a cluster whose shares sum to less keeps its model
ONE_ROUND = "one_round."  # names of the clients' models in memory, until the clusters are chosen, begin so

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClusterSettings(StrategySettings):
    """Settings of the clustering strategies."""

    num_clusters: Annotated[int, Ge(1)]  # G
    initialisation: Literal["distinct", "spread"]


class ClusteredStrategy(BaseStrategy):
    """Broadcasts G models and averages each over the clients that belong to it. Subclasses say who does."""

    Settings = ClusterSettings
    personal = True

    def __init__(self, settings: Any, client: Any, num_clients: int) -> None:
        super().__init__(settings, client, num_clients)
        if settings.initialisation == "spread" and settings.num_clusters > num_clients:
            raise UserError(
                f"strategy.num_clusters={settings.num_clusters}: strategy.initialisation=spread chooses among the clients'"
                f" models, so at most num_clients={num_clients}"
            )
        self._seed = 0

    @abstractmethod
    def shares(self, update: Update) -> np.ndarray:
        """Return s_e, non-negative (G,)."""

    @abstractmethod
    def model_of(self, update: Update, cluster: int) -> Arrays:
        """Return θ_em."""

    def assignment_columns(self) -> tuple[str, ...]:
        """``pi_0``, ``pi_1``, …: how much a client belongs to each cluster."""
        return tuple(f"pi_{m}" for m in range(self.settings.num_clusters))

    def client_columns(self) -> tuple[str, ...]:
        """The assignment."""
        return self.assignment_columns()

    def initial_arrays(self, make_model: Callable[[int], ArrayRecord]) -> ArrayRecord:
        """Return G different models, or the common start alone (``spread``).

        Raises:
            UserError: the models are not different.
        """
        number = 1 if self.settings.initialisation == "spread" else self.settings.num_clusters
        models = [to_arrays(make_model(m)) for m in range(number)]
        if np.count_nonzero(squared_distances(models) == 0) > number:  # more zeros than the diagonal
            raise UserError(
                "strategy.initialisation=distinct: this model has no random start, so the clusters would start alike and"
                " never separate; use strategy.initialisation=spread, or another model"
            )
        return to_record(join(enumerate(models)))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Sequence[Message]:
        """See the base class; the seed is that of the run."""
        self._seed = int(config.get("seed", 0))  # type: ignore[arg-type]  # an integer, as every client reads it
        return list(super().configure_train(server_round, arrays, config, grid))

    def parameter_names(self, arrays: Arrays) -> list[str]:
        """As the base class, under the clusters' names."""
        parameters = [name for name in arrays if name.partition(".")[2] not in self.untrained]
        return super().parameter_names({name: arrays[name] for name in parameters})

    def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
        """Return the cluster models after the round; before there are G, choose them."""
        if count(self.broadcast["arrays"]) < self.settings.num_clusters:
            return self._choose_clusters(updates)
        shares = np.stack([self.shares(update) for update in updates])
        occupied = [m for m, total in enumerate(shares.sum(0)) if total >= NOBODY]
        for m in sorted(set(range(self.settings.num_clusters)).difference(occupied)):
            log.info("cluster %d keeps its model: nobody in this round belongs to it", m)
        means = [(m, weighted_mean([self.model_of(u, m) for u in updates], shares[:, m].tolist())) for m in occupied]
        moved = to_arrays(self.server_step(join(means)))
        return to_record({**to_arrays(self.broadcast["arrays"]), **moved})

    def _choose_clusters(self, updates: Sequence[Update]) -> ArrayRecord:
        wanted = self.settings.num_clusters
        for update in updates:
            self.memory[f"{ONE_ROUND}{update.client}"] = dict(self.model_of(update, 0))
        seen = sorted(int(name.removeprefix(ONE_ROUND)) for name in self.memory if name.startswith(ONE_ROUND))
        models = [self.memory[f"{ONE_ROUND}{client}"] for client in seen]
        chosen = spread_out(squared_distances(models), wanted, generator(self._seed, Stream.CLUSTERS))
        if len(chosen) < wanted:
            log.info("clusters: %d of %d different models so far (clients seen: %d)", len(chosen), wanted, len(models))
            return self.broadcast["arrays"]
        log.info("clusters start at the models of clients %s", [seen[i] for i in chosen])
        for client in seen:
            del self.memory[f"{ONE_ROUND}{client}"]
        return to_record(join(enumerate(models[i] for i in chosen)))
