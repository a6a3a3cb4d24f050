"""The global model on the whole test set and on every client's own test part, by one pass over the test set."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from fedrage_flwr.exchange import in_partition_order, partitions_of
from fedrage_flwr.losses import correct
from fedrage_flwr.records import to_arrays
from fedrage_flwr.training import LocalModel

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One model, measured.

    Attributes:
        accuracy, loss: on the full test set.
        clients: ids of the clients measured, shape (n,).
        client_accuracy, client_loss: on each one's own test part, shape (n,); NaN where it is empty.
        client_examples: sizes of those parts, shape (n,).
        extra: further numbers of each client, by column name, shape (n,).
        tested: there was a test example at all; without one accuracy and loss are NaN.
        measures: further measures on the full test set, by column name.
    """

    accuracy: float
    loss: float
    clients: np.ndarray
    client_accuracy: np.ndarray
    client_loss: np.ndarray
    client_examples: np.ndarray
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)
    tested: bool = True
    measures: Mapping[str, float] = field(default_factory=dict)


class Measure(Protocol):
    """Measures one model after one round."""

    def __call__(self, arrays: ArrayRecord, round: int) -> Evaluation:
        """Measure."""


class ServerMeasure:
    """Evaluates the global model where the server is, on a test set held in memory.

    Args:
        model: overwritten by each model evaluated.
        inputs, targets: the test split as stored.
        to_float: makes model inputs of stored ones.
        parts: per client, positions of its test part.
        clients: ids to measure; None for all.
        metrics: further measures by name, functions of outputs (n, …) and targets (n,).
    """

    def __init__(
        self,
        model: LocalModel,
        inputs: Tensor,
        targets: Tensor,
        to_float: Callable[[Tensor], Tensor],
        parts: Sequence[np.ndarray],
        clients: np.ndarray | None = None,
        metrics: Mapping[str, Callable[[Tensor, Tensor], float]] | None = None,
    ) -> None:
        self._metrics = metrics or {}
        self.clients = np.arange(len(parts)) if clients is None else clients
        chosen = [parts[i] for i in self.clients.tolist()]
        self._examples = np.array([len(part) for part in chosen], np.int64)
        self._positions = np.concatenate(chosen) if chosen else np.empty(0, np.int64)
        self._owner = np.repeat(np.arange(len(chosen)), self._examples)
        self._model = model
        self._inputs = to_float(inputs.to(model.device))
        self._targets = targets.to(model.device)

    def __call__(self, arrays: ArrayRecord, round: int = 0) -> Evaluation:
        """Measure one model."""
        self._model.load(to_arrays(arrays))
        outputs = self._model.outputs(self._inputs)
        right, losses = self._per_example(outputs)
        with np.errstate(invalid="ignore"):  # an empty test part is 0/0: NaN, as documented
            client_accuracy, client_loss = (self._client_sums(v) / self._examples for v in (right, losses))
        return Evaluation(
            accuracy=float(right.mean()),
            loss=float(losses.mean()),
            clients=self.clients,
            client_accuracy=client_accuracy,
            client_loss=client_loss,
            client_examples=self._examples,
            extra={name: self._per_client(metric, outputs) for name, metric in self._metrics.items()},
            measures={name: float(metric(outputs, self._targets)) for name, metric in self._metrics.items()},
        )

    def _per_client(self, metric: Callable[[Tensor, Tensor], float], outputs: Tensor) -> np.ndarray:
        ends = np.cumsum(self._examples)
        parts = [torch.from_numpy(self._positions[end - n : end]) for n, end in zip(self._examples, ends, strict=True)]
        return np.array([float(metric(outputs[p], self._targets[p])) if len(p) else np.nan for p in parts])

    def _client_sums(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self._owner, weights=values[self._positions], minlength=len(self._examples))

    @torch.no_grad()
    def _per_example(self, outputs: Tensor) -> tuple[np.ndarray, np.ndarray]:
        losses = self._model.example_loss(outputs, self._targets)
        return correct(outputs, self._targets).double().cpu().numpy(), losses.double().cpu().numpy()


class ClientMeasure:
    """Asks every client to evaluate on its own test part, with the models it has of its own.

    The global accuracy and loss are then those of all test parts pooled, each example counted once, predicted by its client.

    Args:
        strategy: makes the messages.
        grid: reaches every client, not only a round's survivors.
        config: sent with every message.
        clients: ids to measure; None for all.
    """

    def __init__(self, strategy: Strategy, grid: Grid, config: ConfigRecord, clients: np.ndarray | None = None) -> None:
        self._strategy, self._grid, self._config = strategy, grid, config
        self._clients = clients

    def __call__(self, arrays: ArrayRecord, round: int) -> Evaluation:
        """Measure one model."""
        partitions = partitions_of(self._grid)
        wanted = set(partitions.values()) if self._clients is None else set(self._clients.tolist())
        messages = [
            message
            for message in self._strategy.configure_evaluate(round, arrays, self._config, self._grid)
            if partitions[message.metadata.dst_node_id] in wanted
        ]
        pairs = in_partition_order(messages, self._grid.send_and_receive(messages), partitions)
        failed = [f"client {client}: {reply.error.reason}" for client, reply in pairs if reply.has_error()]
        if failed:
            log.warning("round %d: %d clients could not evaluate; %s", round, len(failed), failed[0])
        answers = {client: _numbers(reply) for client, reply in pairs if not reply.has_error()}
        return _pool(answers)


def _numbers(reply: Message) -> dict[str, float]:
    """The metrics of a reply; a list ``x`` becomes ``x_0``, ``x_1``, …"""
    numbers: dict[str, float] = {}
    for name, value in reply.content.metric_records["metrics"].items():
        if isinstance(value, list):
            numbers.update({f"{name}_{k}": float(entry) for k, entry in enumerate(value)})
        else:
            numbers[name] = float(value)
    return numbers


def _pool(answers: Mapping[int, Mapping[str, float]]) -> Evaluation:
    def column(name: str) -> np.ndarray:
        return np.array([answer.get(name, np.nan) for answer in answers.values()])

    examples = column("num-examples").astype(np.int64)
    accuracy, loss = column("accuracy"), column("loss")
    tested = examples > 0
    total = examples[tested].sum()
    names = {name for answer in answers.values() for name in answer} - {"num-examples", "accuracy", "loss"}
    return Evaluation(
        accuracy=float(accuracy[tested] @ examples[tested] / total) if total else float("nan"),
        loss=float(loss[tested] @ examples[tested] / total) if total else float("nan"),
        clients=np.array(list(answers), np.int64),
        client_accuracy=accuracy,
        client_loss=loss,
        client_examples=examples,
        extra={name: column(name) for name in sorted(names)},
        tested=bool(total),
    )
