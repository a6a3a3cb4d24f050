"""Local trainings, one client at a time or many clients as one batched computation.

A client's work is a generator: it yields the local trainings it needs (``Training``), gets back what came out (``Trained``) and
returns its result. So the same algorithm runs alone (``run_alone``) or in a cohort (``run_together``): trainings of the same
shape that several clients wait for are stacked and trained at once. Clients with fewer examples than a batch have batches of
their own size and are stacked with each other.
"""

import copy
import logging
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedrage_flwr.training import Hooks, LocalModel, local_sgd
from fedrage_flwr.workspace import ClientData, CohortRule, Workspace

Arrays = Mapping[str, np.ndarray]
Result = TypeVar("Result")

AUTO = {
    ("cpu", "by hand"): CohortRule(64, same_bits=True),
    ("cpu", "autograd"): CohortRule(1, stack=False),
    ("cuda", "by hand"): CohortRule(64),
    ("cuda", "autograd"): CohortRule(64),
}
"""``engine.cohort=auto``, by device type and by how the model is differentiated: what ``python -m benchmarks`` finds
(docs/performance.md). On a CPU grouped convolutions are slower than one model after another."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """A local SGD that a client asks for.

    Attributes:
        starts: the models to start from; several share the mini-batches.
        data: the client's.
        batches: where the examples of the H mini-batches stand in the training split, (H, b), see ``ClientData.locate``.
        hooks: the algorithm, see ``fedrage_flwr.training``.
        lr, radius: η_θ and Π_C.
    """

    starts: Sequence[Arrays]
    data: ClientData
    batches: Tensor
    hooks: Hooks
    lr: float
    radius: float | None

    @property
    def kind(self) -> Hashable:
        """Trainings of one kind can be stacked."""
        return len(self.starts), self.batches.shape, type(self.hooks), self.lr, self.radius


@dataclass(frozen=True)
class Trained:
    """What came out of a ``Training``: one model per start, and the mini-batch losses, (H,) or (H, models)."""

    models: Sequence[dict[str, np.ndarray]]
    losses: Tensor


Process = Generator[Training, Trained, Result]


def cohort_rule(setting: Literal["auto", "off"] | int, model: LocalModel) -> CohortRule:
    """Return which clients to train at once: from ``engine.cohort``, a static table, and what the model allows."""
    auto = AUTO.get((model.device.type, "by hand" if model.by_hand else "autograd"), CohortRule(1, stack=False))
    if setting == "off":
        return CohortRule(1, stack=auto.stack)
    rule = auto if setting == "auto" else CohortRule(setting)
    if rule.size > 1 and next(model.module.buffers(), None) is not None:
        log.info(
            "engine.cohort=%s: the model has buffers, which cannot be stacked; clients train one after another", setting
        )
        return CohortRule(1, stack=False)
    return rule


def run_alone(process: Process[Result], workspace: Workspace) -> Result:
    """Run one client's work to its end."""
    try:
        training = next(process)
        while True:
            training = process.send(train_one(training, workspace))
    except StopIteration as end:
        result: Result = end.value
        return result


def run_together(processes: Sequence[Process[Result]], workspace: Workspace) -> list[Result | Exception]:
    """Run several clients' work, stacking trainings of the same kind as ``workspace.cohort`` says.

    Returns:
        Results in the order given; an exception in the place of a client that raised.
    """
    size = workspace.cohort.size
    results: dict[int, Result | Exception] = {}
    waiting: dict[int, Training] = {}

    def advance(i: int, trained: Trained | None) -> None:
        waiting.pop(i, None)
        try:
            waiting[i] = next(processes[i]) if trained is None else processes[i].send(trained)
        except StopIteration as end:
            results[i] = end.value
        except Exception as error:
            results[i] = error

    for start in range(0, len(processes), size):
        for i in range(start, min(start + size, len(processes))):
            advance(i, None)
        while waiting:
            kinds: dict[Hashable, list[int]] = {}
            for i, training in waiting.items():
                kinds.setdefault(training.kind, []).append(i)
            for group in kinds.values():
                for i, trained in zip(group, train_group([waiting[i] for i in group], workspace), strict=True):
                    advance(i, trained)
    return [results[i] for i in range(len(processes))]


def train_group(trainings: Sequence[Training], workspace: Workspace) -> list[Trained]:
    """Run trainings of one kind: at once, unless there is one only, or ``workspace.cohort`` minds its bits."""
    if len(trainings) == 1 or (workspace.cohort.same_bits and not _same_bits(trainings[0], workspace)):
        return [train_one(training, workspace) for training in trainings]
    per_client = len(trainings[0].starts)
    model = workspace.stacked(per_client * len(trainings))
    model.load([start for training in trainings for start in training.starts])
    inputs, targets = _gather(trainings)
    if per_client > 1:
        inputs, targets = (tensor.repeat_interleave(per_client, 1) for tensor in (inputs, targets))
    hooks = stack_hooks([training.hooks for training in trainings])
    losses = local_sgd(model, inputs, targets, hooks, trainings[0].lr, trainings[0].radius)
    unstack_hooks(hooks, [training.hooks for training in trainings])
    models = model.arrays()
    spans = [slice(k * per_client, (k + 1) * per_client) for k in range(len(trainings))]
    return [Trained(models[span], losses[:, span] if per_client > 1 else losses[:, span.start]) for span in spans]


def train_one(training: Training, workspace: Workspace) -> Trained:
    """Run one training: one model by itself; several, on the same mini-batches, as a stack or one after another."""
    inputs, targets = training.data.gather(training.batches)
    if len(training.starts) > 1 and workspace.cohort.stack:
        stacked = workspace.stacked(len(training.starts))
        stacked.load(training.starts)
        losses = local_sgd(stacked, inputs, targets, training.hooks, training.lr, training.radius)
        return Trained(stacked.arrays(), losses)
    models, columns = [], []
    for start in training.starts:
        workspace.model.load(start)
        columns.append(local_sgd(workspace.model, inputs, targets, training.hooks, training.lr, training.radius))
        models.append(workspace.model.arrays())
    return Trained(models, torch.stack(columns, 1) if len(columns) > 1 else columns[0])


def _gather(trainings: Sequence[Training]) -> tuple[Tensor, Tensor]:
    """The mini-batches of all: inputs (H, clients, b, …) and targets (H, clients, b)."""
    first = trainings[0].data
    if all(training.data.train is first.train for training in trainings):
        return first.gather(torch.stack([training.batches for training in trainings], 1))
    pairs = [training.data.gather(training.batches) for training in trainings]  # data made for each client
    inputs, targets = zip(*pairs, strict=True)
    return torch.stack(inputs, 1), torch.stack(targets, 1)


def _same_bits(training: Training, workspace: Workspace) -> bool:
    return training.radius is None and workspace.model.same_bits_stacked(training.batches.shape[1])


def stack_hooks(hooks: Sequence[Hooks]) -> Hooks:
    """Return hooks whose state has a leading axis of clients.

    A class names the state that differs between clients: ``cohort_state`` (tensors, or tuples of one per parameter),
    ``cohort_logs`` (lists with one entry a step) and ``cohort_counts`` (numbers that move alike); and what is the same object
    for the clients of one broadcast, but not for those of several replicas: ``cohort_shared``. The rest follows from settings.
    """
    stacked = copy.copy(hooks[0])
    for name in _names(stacked, "cohort_state"):
        setattr(stacked, name, _stack([getattr(own, name) for own in hooks]))
    for name in _names(stacked, "cohort_shared"):
        values = [getattr(own, name) for own in hooks]
        if any(value is not values[0] for value in values):
            setattr(stacked, name, _stack(values))
    for name in _names(stacked, "cohort_logs"):
        setattr(stacked, name, [])
    return stacked


def unstack_hooks(stacked: Hooks, hooks: Sequence[Hooks]) -> None:
    """Give every client its part of the state that ``stack_hooks`` put together."""
    for k, own in enumerate(hooks):
        for name in _names(stacked, "cohort_state"):
            setattr(own, name, _part(getattr(stacked, name), k))
        for name in _names(stacked, "cohort_logs"):
            setattr(own, name, [entry[k] for entry in getattr(stacked, name)])
        for name in _names(stacked, "cohort_counts"):
            setattr(own, name, getattr(stacked, name))


def _names(hooks: Hooks, kind: str) -> tuple[str, ...]:
    return tuple(getattr(hooks, kind, ()))


def _stack(values: Sequence[Any]) -> Any:
    if values[0] is None:
        return None
    if isinstance(values[0], Tensor):
        return torch.stack(list(values))
    return tuple(torch.stack(parts) for parts in zip(*values, strict=True))


def _part(value: Any, k: int) -> Any:
    return None if value is None else value[k] if isinstance(value, Tensor) else tuple(part[k] for part in value)
