"""What every server half needs once: messages, judging replies, the mean over the round's participants.

A strategy declares the records it exchanges beside the model (``initial_records``) and, where the plain mean is not what it
wants, how updates are reduced (``reduce``). It never sees a participation probability.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.typing import MetricRecordValues
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.exchange import in_partition_order, partitions_of
from fedrage_flwr.outlook import Explanation, Outlook
from fedrage_flwr.records import array_record, mismatch, non_finite, oversize, to_arrays, to_record, weighted_mean
from fedrage_flwr.rounds import Callback, Outcome, Update
from fedrage_flwr.settings import Gt, Interval
from strategies.rounds import run_rounds
from strategies.server_optimizer import ServerOptimizer

EXPIRED = (3, 4)  # flwr.common.constant.ErrorCode: the message, or the reply to it, outlived its time to live

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StrategySettings:
    """The settings every strategy has: what the server does with the mean (see ``strategies.server_optimizer``)."""

    name: str
    server_optimizer: Literal["sgd", "momentum", "adam", "yogi"]
    server_lr: Annotated[float, Gt(0)]  # η_g
    server_momentum: Annotated[float, Interval(ge=0, lt=1)]  # β₁
    server_beta2: Annotated[float, Interval(ge=0, lt=1)]
    server_tau: Annotated[float, Gt(0)]

    def refuse_server_optimizer(self, step_size: bool) -> None:
        """Refuse, rather than ignore, the optimiser's settings: for methods that prescribe the server's step themselves.

        Args:
            step_size: the method has an η_g, so that ``server_lr`` is left alone.

        Raises:
            ValueError: ``server_optimizer`` is not sgd, or ``server_lr`` is not 1 where there is no η_g.
        """
        if self.server_optimizer != "sgd":
            raise ValueError(
                f"strategy.server_optimizer={self.server_optimizer}: {self.name} has its own server step; allowed: sgd"
            )
        if not step_size and self.server_lr != 1:
            raise ValueError(f"strategy.server_lr={self.server_lr:g}: {self.name} has its own server step; allowed: 1")


class BaseStrategy(Strategy):
    """Asks every node it sees and averages what comes back, in partition order.

    Args:
        settings: values of the ``strategy`` section.
        client: values of the ``client`` section.
        num_clients: N.

    Attributes:
        records: the strategy's named records beside the model, as broadcast next.
        memory: what the server keeps to itself between rounds, named arrays by name; part of a checkpoint.
        broadcast: what was sent last: ``arrays`` and the records.
        round: number of the round in hand.
        asks_clients: clients evaluate the model on their test parts, because they have models or data that the server has not.
        untrained: names of the floating arrays that no gradient moves (buffers, frozen parameters); the run says which.
        outcomes, updates: of the last round, in partition order.
    """

    Settings: ClassVar[type[Any]] = StrategySettings
    columns: ClassVar[tuple[str, ...]] = ()
    """Client metrics of this algorithm that belong in the tables."""
    progress: ClassVar[tuple[str, ...]] = ()
    """Those of them shown while it runs."""
    personal: ClassVar[bool] = False
    """Clients predict with models of their own: they are asked to evaluate on their test parts."""
    plain_mean: ClassVar[bool] = False
    """All it makes of the replies is ``mean`` with equal weights, so that a private mean makes it private."""
    told_marginals: ClassVar[bool] = False
    """The constructor takes ``marginals``, the hidden p: an oracle, and labelled as one."""

    def __init__(self, settings: Any, client: Any, num_clients: int) -> None:
        self.settings = settings
        self.client = client
        self.num_clients = num_clients
        self.records: dict[str, ArrayRecord] = {}
        self.memory: dict[str, dict[str, np.ndarray]] = {}
        self.broadcast: dict[str, ArrayRecord] = {}
        self.round = 0
        self.asks_clients = self.personal
        self.untrained: frozenset[str] = frozenset()
        self.outcomes: list[Outcome] = []
        self.updates: list[Update] = []
        self._optimizer = ServerOptimizer(settings)
        self._asked: list[Message] = []
        self._partitions: Mapping[int, int] = {}

    @classmethod
    def explain(cls, settings: Any, client: Any, outlook: Outlook) -> Explanation:
        """What this algorithm can do under a law, for the person who reads about a run: no run calls it, no instance sees it."""
        return Explanation()

    def warnings(self) -> list[str]:
        """Lines for the person who starts a run with these settings."""
        return []

    def advice(self) -> str:
        """What to try when a run diverges."""
        return f"the steps are too large: try client.lr={self.client.lr / 10:.2g}, a tenth of what it is"

    def summary_entries(self) -> dict[str, Any]:
        """What the strategy has to add to the summary of a finished run."""
        return {}

    def client_columns(self) -> tuple[str, ...]:
        """Metrics of an evaluation by clients that belong in clients.csv; a list ``x`` fills ``x_0``, ``x_1``, …"""
        return ()

    def assignment_columns(self) -> tuple[str, ...]:
        """Those of ``client_columns`` that say how much a client belongs to each cluster, for methods that look for groups."""
        return ()

    def initial_arrays(self, make_model: Callable[[int], ArrayRecord]) -> ArrayRecord:
        """Return what is broadcast as ``arrays`` in round 1. ``make_model(k)`` gives the k-th of different random models."""
        return make_model(0)

    def initial_records(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """Return the records that travel beside the model, before round 1."""
        return {}

    def weights(self, updates: Sequence[Update]) -> list[float] | None:
        """Return one weight per update; None weighs all alike."""
        return None

    def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
        """Return θ̂ and set ``records``: the mean over S^t of everything the clients sent."""
        weights = self.weights(updates)
        arrays = self.server_step(self.mean(updates, "arrays", weights))
        self.records = {name: to_record(self.mean(updates, name, weights)) for name in self.records}
        return arrays

    def mean(
        self, updates: Sequence[Update], record: str, weights: Sequence[float] | None = None
    ) -> dict[str, np.ndarray]:
        """Average one record over the updates, in partition order and float64."""
        return weighted_mean([to_arrays(update.records[record]) for update in updates], weights)

    def mean_with_broadcast(
        self, updates: Sequence[Update], weights: Sequence[float], stay: float
    ) -> dict[str, np.ndarray]:
        """Average the models over the updates and θ̂ itself, which weighs ``stay`` (0: the weighted mean, to the bit).

        That is θ̂ + Σ_i w_i(θ_i − θ̂)/(stay + Σ_i w_i); the sum below must be positive, ``stay`` alone need not be. What is
        no parameter becomes the plain mean over the updates: a running statistic must not be extrapolated.
        """
        models = [self.broadcast["arrays"], *(update.records["arrays"] for update in updates)]
        mean = weighted_mean([to_arrays(model) for model in models], [stay, *weights])
        others = mean.keys() - set(self.parameter_names(mean))
        plain = self.mean(updates, "arrays") if others else {}
        return {name: plain[name] if name in others else array for name, array in mean.items()}

    def server_step(self, mean: dict[str, np.ndarray]) -> ArrayRecord:
        """Move the parameters towards the clients' mean as the server optimiser says; what is no parameter becomes the mean."""
        trained = {name: mean[name] for name in self.parameter_names(mean)}
        before = to_arrays(self.broadcast["arrays"])
        return to_record({**mean, **self._optimizer.step(before, trained, self.memory)})

    def parameter_names(self, arrays: Mapping[str, np.ndarray]) -> list[str]:
        """Names of the arrays that local training moves by gradients."""
        return [name for name, array in arrays.items() if array.dtype.kind == "f" and name not in self.untrained]

    def reported(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return the model that is evaluated and saved when ``arrays`` is broadcast next: the same one."""
        return arrays

    def sends(self) -> Mapping[str, ArrayRecord]:
        """What a reply must hold: record names, each with an example of the names, shapes and dtypes."""
        return self.broadcast

    def start(  # type: ignore[override]  # Flower's, plus who decides on the participants and who watches
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = 3600,
        train_config: ConfigRecord | None = None,
        *,
        manager: RandomAccessClientManager | None = None,
        callbacks: Sequence[Callback] = (),
        first_round: int = 1,
    ) -> Result:
        """Run all rounds; see ``strategies.rounds.run_rounds``. With ``first_round`` above 1, ``load_state_dict`` comes first."""
        if first_round == 1:
            self.records = self.initial_records(initial_arrays)
        return run_rounds(
            self,
            grid,
            initial_arrays,
            num_rounds,
            manager=manager,
            train_config=train_config,
            timeout=timeout,
            callbacks=callbacks,
            first_round=first_round,
        )

    def state_dict(self) -> dict[str, Any]:
        """What the next round needs besides the model (see ``fedrage_flwr.checkpoint.Stateful``)."""
        return {"records": {name: to_arrays(record) for name, record in self.records.items()}, "memory": self.memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to that."""
        self.records = {name: to_record(arrays) for name, arrays in state["records"].items()}
        self.memory.clear()
        self.memory.update(state["memory"])

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Address the model and the other records to every node on the grid."""
        self.broadcast = {"arrays": arrays, **self.records}
        self.round = server_round
        self._partitions = dict(partitions_of(grid))
        content = self._content(server_round, config)
        self._asked = [Message(content, node, "train", group_id=str(server_round)) for node in grid.get_node_ids()]
        return self._asked

    def _content(self, server_round: int, config: ConfigRecord) -> RecordDict:
        return RecordDict({**self.broadcast, "config": self._message_config(server_round, config)})

    def _message_config(self, server_round: int, config: ConfigRecord) -> ConfigRecord:
        record = config.copy()  # not built anew: Flower checks the type of every value it is given
        record.update({"server-round": server_round, **self.message_config(server_round)})
        return record

    def message_config(self, server_round: int) -> dict[str, Any]:
        """Further keys of the ``config`` record of this round's messages."""
        return {}

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Judge every reply and reduce the usable ones; with none of them the model stays as it is."""
        pairs = in_partition_order(self._asked, replies, self._partitions)
        self.updates, self.outcomes = [], []
        for client, reply in pairs:
            self._judge(server_round, client, reply)
        answered = {client for client, _ in pairs}
        silent = [self._partitions[message.metadata.dst_node_id] for message in self._asked]
        self.outcomes += [Outcome(client, "late", "no reply in time") for client in silent if client not in answered]
        self.outcomes.sort(key=lambda outcome: outcome.client)
        if not self.updates:
            log.warning("round %d: no usable reply, the model stays as it is", server_round)
            return None, None
        return self._reduce_usable(server_round)

    def _reduce_usable(self, server_round: int) -> tuple[ArrayRecord | None, MetricRecord | None]:
        try:
            arrays = self.reduce(self.updates)
        except ValueError as error:  # such as weights that sum to zero
            log.warning("round %d: %s; the model stays as it is", server_round, error)
            self.outcomes = [
                Outcome(o.client, "rejected", str(error)) if o.outcome == "averaged" else o for o in self.outcomes
            ]
            self.updates = []
            return None, None
        common = [name for name in self.updates[0].metrics if all(name in update.metrics for update in self.updates)]
        means: dict[str, MetricRecordValues] = {
            name: sum(u.metrics[name] for u in self.updates) / len(self.updates) for name in common
        }
        return arrays, MetricRecord(means)

    def _judge(self, server_round: int, client: int, reply: Message) -> None:
        problem: str | None
        if reply.has_error():
            outcome = "late" if reply.error.code in EXPIRED else "failed"
            problem = str(reply.error.reason or f"error {reply.error.code}")
        else:
            outcome, problem = "rejected", self.problem(reply.content)
        if problem is not None:
            log.warning("round %d: client %d %s: %s", server_round, client, outcome, problem)
            self.outcomes.append(Outcome(client, outcome, problem))
            return
        records = {name: cast(ArrayRecord, reply.content[name]) for name in self.sends()}
        self.updates.append(Update(client, records, _numbers(reply.content)))
        self.outcomes.append(Outcome(client, "averaged"))

    def problem(self, content: RecordDict) -> str | None:
        """Say what makes a reply unusable; None if nothing does."""
        too_large = oversize(content, self.sends().values())
        if too_large:
            return too_large
        for name, expected in self.sends().items():
            record = array_record(content, name)
            if record is None:
                return f"record {name} is missing"
            try:
                found = mismatch(record, expected) or non_finite(to_arrays(record))
            except Exception as error:  # bytes that are no array: whatever numpy says about them
                found = f"cannot be read ({type(error).__name__}: {error})"
            if found:
                return f"record {name}: {found}"
        bad = [name for name, value in _numbers(content).items() if not isfinite(value)]
        return f"metrics not finite: {', '.join(bad)}" if bad else None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every client if ``asks_clients``; else the server evaluates the global model itself."""
        if not self.asks_clients:
            return []
        content = RecordDict({"arrays": arrays, **self.records})
        content["config"] = self._message_config(server_round, config)
        return [Message(content, node, "evaluate", group_id=str(server_round)) for node in grid.get_node_ids()]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing to keep: callbacks read the replies."""
        return None

    def summary(self) -> None:
        """Log the settings."""
        log.info("%s with %s", self.settings, self.client)


def _numbers(content: RecordDict) -> dict[str, float]:
    metrics = content.get("metrics")
    if not isinstance(metrics, MetricRecord):
        return {}
    return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
