"""What runs in a Ray actor: it acts as the clients it is given messages for."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Message, RecordDict

from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.grids.base import WorkspaceFactory, new_context
from fedrage_flwr.grids.executor import Executor
from fedrage_flwr.training import as_tensor


@dataclass(frozen=True)
class Job:
    """One message on its way to an actor: which of the shared contents it carries, and whose it is."""

    content: int
    metadata: Any
    partition: int


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

    def run(self, shared: list[RecordDict], jobs: list[Job], *states: RecordDict | None) -> tuple[Any, ...]:
        """Run messages.

        Args:
            shared: the contents.
            jobs: the messages.
            states: of their clients; None where there is none yet.

        Returns:
            First a list with each reply and whether the client's state moved; then each of the states that moved, None in
            the place of the others. Every state is an object of its own, so that it can stay in the store of this node.
        """
        pairs = []
        for job, state in zip(jobs, states, strict=True):
            message = Message(shared[job.content], metadata=job.metadata)  # type: ignore[call-overload]
            context = new_context(job.partition, self._num_clients)
            context.state = state if state is not None else RecordDict()
            pairs.append((message, context))
        results = self._executor.run(pairs)
        moved = [not _same(context.state, state) for (_, context), (_, state) in zip(pairs, results, strict=True)]
        replies = [(reply, changed) for (reply, _), changed in zip(results, moved, strict=True)]
        return (replies, *(state if changed else None for (_, state), changed in zip(results, moved, strict=True)))


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
