"""What runs in a Ray actor: it acts as the clients it is given messages for."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from flwr.app import Message, RecordDict

from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.grids.base import WorkspaceFactory, new_context
from fedrage_flwr.grids.executor import Executor
from fedrage_flwr.training import as_tensor

GROUP = 8
"""Client states in one object of the store. Each object costs about 2 ms, so one for every state is slow; one for all of a round
is wasteful: it stays until the last of its states is replaced, and is read whole (docs/scale.md)."""

T = TypeVar("T")


def grouped(items: Sequence[T]) -> list[Sequence[T]]:
    """Cut into groups of ``GROUP``."""
    return [items[k : k + GROUP] for k in range(0, len(items), GROUP)]


@dataclass(frozen=True)
class Job:
    """One message on its way to an actor: which of the shared contents it carries, whose it is, which group has its state."""

    content: int
    metadata: Any
    partition: int
    group: int | None


class Actor:
    """Acts as clients.

    Args:
        make_workspace: from the object store; its data is shared with the other actors of the node.
        device: type of the device to compute on; Ray shows an actor its own CUDA device only.
        num_clients: N.
    """

    def __init__(self, make_workspace: WorkspaceFactory, device: str, num_clients: int) -> None:
        workspace = make_workspace(torch.device(device))
        self._executor = Executor(make_client_app(workspace), workspace)
        self._num_clients = num_clients

    def run(self, shared: list[RecordDict], jobs: list[Job], *groups: Mapping[int, RecordDict]) -> tuple[Any, ...]:
        """Run messages.

        Args:
            shared: the contents.
            jobs: the messages.
            groups: states by partition id, those of the clients among others.

        Returns:
            First a list with each reply and whether the client's state moved; then for each group of the jobs the states that
            moved, by partition id. The groups are objects of their own, so that they can stay in the store of this node.
        """
        pairs = []
        for job in jobs:
            state = None if job.group is None else groups[job.group][job.partition]
            message = Message(shared[job.content], metadata=job.metadata)  # type: ignore[call-overload]
            context = new_context(job.partition, self._num_clients)
            context.state = state if state is not None else RecordDict()
            pairs.append((message, context))
        results = self._executor.run(pairs)
        moved = [not _same(context.state, state) for (_, context), (_, state) in zip(pairs, results, strict=True)]
        replies = [(reply, changed) for (reply, _), changed in zip(results, moved, strict=True)]
        states = [
            (job.partition, state) for job, (_, state), changed in zip(jobs, results, moved, strict=True) if changed
        ]
        return (replies, *_by_group(jobs, dict(states)))


def _by_group(jobs: Sequence[Job], states: Mapping[int, RecordDict]) -> list[dict[int, RecordDict]]:
    return [
        {job.partition: states[job.partition] for job in group if job.partition in states} for group in grouped(jobs)
    ]


def _same(before: RecordDict, after: RecordDict) -> bool:
    """Whether nothing was replaced. In place only lists could change (arrays are read-only): with one, it counts as moved."""
    return before.keys() == after.keys() and all(_same_record(before[name], after[name]) for name in before)


def _same_record(before: Any, after: Any) -> bool:
    return before.keys() == after.keys() and all(
        before[key] is after[key] and not isinstance(after[key], list) for key in before
    )


@contextmanager
def tensors_as_arrays(ray: Any) -> Iterator[None]:
    """Let Ray store CPU tensors as ndarrays: actors then map one copy instead of making their own."""
    ray.util.register_serializer(torch.Tensor, serializer=torch.Tensor.numpy, deserializer=as_tensor)
    try:
        yield
    finally:
        ray.util.deregister_serializer(torch.Tensor)
