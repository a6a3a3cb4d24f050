"""What every client does with a training message: check it, train locally, reply.

A client algorithm is a subclass of ``ClientAlgorithm``: the hooks of ``fedrage_flwr.training`` plus the named records it
exchanges beside the model. It is built anew for every message; what must outlive a round goes through ``Context.state``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from torch import Tensor

from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.records import array_record, mismatch, non_finite, to_arrays, to_record
from fedrage_flwr.settings import Ge, Gt
from fedrage_flwr.training import Tensors, draw_batches, local_sgd
from fedrage_flwr.workspace import ClientData, Workspace

Records = Mapping[str, Mapping[str, np.ndarray]]
"""Named records, each of named arrays: what travels beside the model."""


@dataclass(frozen=True)
class ClientSettings:
    """The settings every client algorithm has (ALGORITHMS.md §1)."""

    name: str
    lr: Annotated[float, Gt(0)]  # η_θ
    local_steps: Annotated[int, Ge(1)]  # H
    batch_size: Annotated[int, Ge(1)]  # b
    theta_radius: Annotated[float, Gt(0)] | None  # Π_C; None leaves the projection out


class ClientAlgorithm:
    """Plain local SGD. Subclasses override what differs.

    Args:
        settings: values of the ``client`` section.
        received: the extra records of the message.
        device: where tensors of the algorithm live.
    """

    Settings: ClassVar[type[Any]] = ClientSettings
    exchanges: ClassVar[tuple[str, ...]] = ()
    """Names of the records that travel both ways beside ``arrays``."""

    def __init__(self, settings: Any, received: Records, device: torch.device) -> None:
        self.settings = settings

    def step_weight(self, loss: Tensor) -> Tensor | None:
        """w of this step; None is 1."""
        return None

    def direction(self, gradients: Tensors, parameters: Tensors) -> Tensors:
        """The descent direction: the weighted gradient itself."""
        return gradients

    def update_state(self, weight: Tensor | None) -> None:
        """Nothing to move."""

    def reply(self) -> tuple[Records, dict[str, float]]:
        """Return the extra records and the algorithm's own metrics."""
        return {}, {}


def train(algorithm: type[ClientAlgorithm], message: Message, context: Context, workspace: Workspace) -> Message:
    """Answer one training message.

    Raises:
        ValueError: the message does not fit this client's model, or a setting is missing.
    """
    config = cast(ConfigRecord, message.content["config"])
    received = _read(message.content, ("arrays", *algorithm.exchanges), workspace.template)
    model, data = workspace.model, workspace.client(int(context.node_config["partition-id"]))
    settings = read_settings(algorithm, config)
    model.load(received["arrays"])
    hooks = algorithm(settings, received, model.device)
    inputs, targets = _batches(data, settings, config)
    losses = local_sgd(model, inputs, targets, hooks, settings.lr, settings.theta_radius)

    records, metrics = hooks.reply()
    content = RecordDict({name: to_record(arrays) for name, arrays in {"arrays": model.arrays(), **records}.items()})
    content["metrics"] = MetricRecord(
        {"num-examples": data.num_examples, "train-loss": float(losses.mean()), **metrics}
    )
    return Message(content, reply_to=message)


def _read(content: RecordDict, names: Sequence[str], model: ArrayRecord) -> dict[str, dict[str, np.ndarray]]:
    received = {}
    for name in names:
        record = array_record(content, name)
        if record is None:
            raise ValueError(f"the message lacks the record {name}")
        problem = mismatch(record, model) if name == "arrays" else None
        if problem:
            raise ValueError(f"the model received does not fit this client's: {problem}")
        received[name] = to_arrays(record)
        problem = non_finite(received[name])
        if problem:
            raise ValueError(f"record {name}: {problem}")
    return received


def _batches(data: ClientData, settings: ClientSettings, config: ConfigRecord) -> tuple[Tensor, Tensor]:
    seed, round_ = int(config["seed"]), int(config["server-round"])  # type: ignore[arg-type]
    rng = generator(seed, Stream.BATCHES, round_, data.partition)
    return data.take(draw_batches(rng, data.num_examples, settings.batch_size, settings.local_steps))


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
