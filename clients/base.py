"""What every client does with a message: check it, work on its own data, reply.

A client algorithm is a subclass of ``ClientAlgorithm``: the hooks of ``fedrage_flwr.training`` and, where a client does more
than one local SGD, ``train``. It is built anew for every message. What must outlive a round is returned as ``memory`` and kept
in ``Context.state``; it is committed by the last statement before the reply, so a client that raises keeps what it had.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from torch import Tensor

from fedrage_flwr.cohort import Process, Training
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.records import array_record, mismatch, non_finite, oversize, to_arrays, to_record
from fedrage_flwr.settings import Ge, Gt
from fedrage_flwr.training import Hooks, Tensors, draw_batches
from fedrage_flwr.workspace import ClientData, Workspace

Arrays = Mapping[str, np.ndarray]
Records = Mapping[str, Arrays]
"""Named records, each of named arrays."""


@dataclass(frozen=True)
class ClientSettings:
    """The settings every client algorithm has (ALGORITHMS.md §1)."""

    name: str
    lr: Annotated[float, Gt(0)]  # η_θ
    local_steps: Annotated[int, Ge(1)]  # H
    batch_size: Annotated[int, Ge(1)]  # b
    theta_radius: Annotated[float, Gt(0)] | None  # Π_C; None leaves the projection out


@dataclass(frozen=True)
class Task:
    """What one client has in hand for one message.

    Attributes:
        settings: values of the ``client`` section.
        received: the records of the message, ``arrays`` (the model) among them.
        memory: the records this client kept from its last participation; empty at its first.
        data: its own examples.
        workspace: models to work with.
        seed, round: keys of every draw.
        config: the whole ``config`` record, for algorithms that send more in it.
    """

    settings: Any
    received: Records
    memory: Records
    data: ClientData
    workspace: Workspace
    seed: int
    round: int
    config: Mapping[str, Any]

    def batches(self, stream: Stream = Stream.BATCHES) -> Tensor:
        """Draw H mini-batches, the same ones for every algorithm of the stream: where they stand in the split, (H, b)."""
        rng = generator(self.seed, stream, self.round, self.data.partition)
        drawn = draw_batches(rng, self.data.num_examples, self.settings.batch_size, self.settings.local_steps)
        return self.data.locate(drawn)


@dataclass(frozen=True)
class Work:
    """What a client has made of a message.

    Attributes:
        records: sent to the server.
        metrics: sent to the server; ``train-loss`` is the mean of the mini-batch data losses met.
        memory: kept by the client; None leaves what it had.
    """

    records: Records
    metrics: Mapping[str, float] = field(default_factory=dict)
    memory: Records | None = None


class ClientAlgorithm:
    """Plain local SGD. Subclasses override what differs."""

    Settings: ClassVar[type[Any]] = ClientSettings
    keeps_state: ClassVar[bool] = False
    """The client remembers something from one participation to the next: ``Work.memory``."""
    cohort_state: ClassVar[tuple[str, ...]] = ()
    cohort_logs: ClassVar[tuple[str, ...]] = ()
    cohort_counts: ClassVar[tuple[str, ...]] = ()
    cohort_shared: ClassVar[tuple[str, ...]] = ()
    """Names of the hooks' own state, see ``fedrage_flwr.cohort.stack_hooks``."""
    trainings: ClassVar[int | str] = 1
    """How many models take H local steps for one reply: a number, or the setting that says it. Reports count budgets by it."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.settings = task.settings
        self.device: torch.device = task.workspace.model.device

    def train(self) -> Process[Work]:
        """Run H local steps from the model received and send the result."""
        trained = yield self.local_training([self.task.received["arrays"]])
        records, metrics = self.reply()
        return Work({"arrays": trained.models[0], **records}, {"train-loss": float(trained.losses.mean()), **metrics})

    def local_training(
        self, starts: Sequence[Arrays], stream: Stream = Stream.BATCHES, hooks: Hooks | None = None
    ) -> Training:
        """Ask for H steps from some models on fresh mini-batches; the result is what ``yield`` gives back."""
        batches = self.task.batches(stream)
        return Training(starts, self.task.data, batches, hooks or self, self.settings.lr, self.settings.theta_radius)

    def evaluate(self) -> Mapping[str, float | list[float]]:
        """Measure on this client's own test part (only asked of algorithms whose clients have models of their own)."""
        model = self.task.workspace.model
        model.load(self.task.received["arrays"])
        return self.task.data.measure(model.outputs(self.task.data.test_inputs()))

    def step_weight(self, loss: Tensor) -> Tensor | None:
        """w of this step; None is 1."""
        return None

    def direction(self, parameters: Tensors) -> Tensors | None:
        """What is added to the gradient: nothing."""
        return None

    def update_state(self, weight: Tensor | None) -> None:
        """Nothing to move."""

    def reply(self) -> tuple[Records, dict[str, float]]:
        """Return further records and the algorithm's own metrics."""
        return {}, {}

    @classmethod
    def receives(cls, parameters: ArrayRecord) -> Mapping[str, ArrayRecord]:
        """Records that must come beside ``arrays``, each with an example of its names, shapes and dtypes.

        Args:
            parameters: the trainable arrays of one model.
        """
        return {}

    @classmethod
    def misfit(cls, arrays: ArrayRecord, template: ArrayRecord) -> str | None:
        """Say what keeps ``arrays`` from being what this algorithm receives, given one model's names, shapes and dtypes."""
        return mismatch(arrays, template)


def train(
    algorithm: type[ClientAlgorithm], message: Message, context: Context, workspace: Workspace
) -> Process[Message]:
    """Answer one training message; the local trainings it takes are yielded (see ``fedrage_flwr.cohort``).

    Raises:
        ValueError: the message does not fit this client's model, or a setting is missing.
    """
    task = _task(algorithm, message, context, workspace)
    work = yield from algorithm(task).train()
    content = RecordDict({name: to_record(arrays) for name, arrays in work.records.items()})
    content["metrics"] = MetricRecord({"num-examples": task.data.num_examples, **work.metrics})
    reply = Message(content, reply_to=message)
    for name, arrays in (work.memory or {}).items():
        context.state[name] = to_record(arrays)
    return reply


def evaluate(algorithm: type[ClientAlgorithm], message: Message, context: Context, workspace: Workspace) -> Message:
    """Answer one evaluation message; nothing is remembered.

    Raises:
        ValueError: as ``train``.
    """
    task = _task(algorithm, message, context, workspace)
    metrics: dict[str, Any] = {"num-examples": task.data.num_test, **algorithm(task).evaluate()}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


def _task(algorithm: type[ClientAlgorithm], message: Message, context: Context, workspace: Workspace) -> Task:
    config = cast(ConfigRecord, message.content["config"])
    return Task(
        settings=read_settings(algorithm, config),
        received=_read(message.content, algorithm, workspace),
        memory={n: to_arrays(record) for n, record in context.state.items() if isinstance(record, ArrayRecord)},
        data=workspace.client(int(context.node_config["partition-id"])),
        workspace=workspace,
        seed=int(cast(int, config["seed"])),
        round=int(cast(int, config["server-round"])),
        config=config,
    )


def _read(content: RecordDict, algorithm: type[ClientAlgorithm], workspace: Workspace) -> Records:
    """Check and decode the records; once where several clients of a process are sent the same content."""
    if workspace.last_read is None or workspace.last_read[0] is not content:
        workspace.last_read = content, _check_and_decode(content, algorithm, workspace)
    return workspace.last_read[1]


def _check_and_decode(content: RecordDict, algorithm: type[ClientAlgorithm], workspace: Workspace) -> Records:
    model = _record(content, "arrays")
    problem = algorithm.misfit(model, workspace.template)
    if problem:
        raise ValueError(f"the model received does not fit this client's: {problem}")
    parameters = ArrayRecord()  # filled by hand: given a dictionary, it would serialise every array
    for name in workspace.model.parameter_names:
        parameters[name] = workspace.template[name]
    expected = algorithm.receives(parameters)
    found = {"arrays": model, **{name: _record(content, name) for name in expected}}
    for name, example in expected.items():
        problem = mismatch(found[name], example)
        if problem:
            raise ValueError(f"record {name}: {problem}")
    problem = oversize(content, found.values())
    if problem:
        raise ValueError(f"the message is too large: {problem}")
    received = {name: to_arrays(record) for name, record in found.items()}
    for name, arrays in received.items():
        problem = non_finite(arrays)
        if problem:
            raise ValueError(f"record {name}: {problem}")
    return received


def _record(content: RecordDict, name: str) -> ArrayRecord:
    record = array_record(content, name)
    if record is None:
        raise ValueError(f"the message lacks the record {name}")
    return record


def read_settings(algorithm: type[ClientAlgorithm], config: ConfigRecord) -> Any:
    """Build the algorithm's settings from the ``client.*`` keys of a message; an absent key is None."""
    fields = algorithm.Settings.__dataclass_fields__
    return algorithm.Settings(**{name: config.get(f"client.{name}") for name in fields})


def write_settings(settings: Any) -> dict[str, Any]:
    """The ``client.*`` keys of a message: the inverse of ``read_settings`` (Flower's records know no None)."""
    values = {f"client.{name}": getattr(settings, name) for name in settings.__dataclass_fields__}
    return {key: value for key, value in values.items() if value is not None}


def scalar(value: Tensor) -> dict[str, np.ndarray]:
    """A record holding one float32 scalar."""
    return {"value": value.detach().to("cpu", torch.float32).numpy()}
