"""What the simulated grids share: nodes, message ids, each client's ``Context``, the exchange of one batch of messages."""

import itertools
import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.workspace import Workspace

CLIENT_RAISED = 2  # flwr.common.constant.ErrorCode.CLIENT_APP_RAISED_EXCEPTION
SERVER_NODE = 1  # flwr.common.constant.SUPERLINK_NODE_ID
RUN_ID = 1
FIRST_NODE = 1_000_000

log = logging.getLogger(__name__)


class WorkspaceFactory(Protocol):
    """Makes what a process needs to act as clients; picklable."""

    def __call__(self, device: torch.device) -> Workspace:
        """Make it, with its arithmetic on ``device``."""


class SimulatedGrid(Grid):
    """N virtual nodes with stable ids, executed by ``run_clients``.

    Args:
        num_clients: N; partition i answers as one node.
    """

    def __init__(self, num_clients: int) -> None:
        self.partitions: Mapping[int, int] = {FIRST_NODE + i: i for i in range(num_clients)}
        self.contexts: dict[int, Context] = {}  # partition id → context, made at the first message
        self._replies: dict[str, Message] = {}
        self._ids = itertools.count(1)
        self._run = Run.create_empty(RUN_ID)
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN_ID, SERVER_NODE

    @abstractmethod
    def run_clients(self, messages: Sequence[tuple[int, Message]]) -> list[Message]:
        """Execute messages, given with their partition ids; return one reply each, errors included, in the same order."""

    def close(self) -> None:
        """Give back what the grid holds; it cannot be used afterwards."""

    def context(self, partition: int) -> Context:
        """Return the context of one client."""
        if partition not in self.contexts:
            self.contexts[partition] = new_context(partition, len(self.partitions))
        return self.contexts[partition]

    def client_states(self) -> dict[int, RecordDict]:
        """What each client keeps between messages, by partition id; clients that keep nothing are left out."""
        return {partition: context.state for partition, context in self.contexts.items() if context.state}

    def restore_client_states(self, states: Mapping[int, RecordDict]) -> None:
        """Give these clients the states they had, as ``client_states`` returned them; all others keep nothing."""
        self.contexts.clear()
        for partition, state in states.items():
            self.context(partition).state = state

    def state_dict(self) -> dict[str, Any]:
        """The state of every client that has one (see ``checkpoint.Stateful``).

        Raises:
            TypeError: a client keeps something else than arrays.
        """
        states = {}
        for partition, records in self.client_states().items():
            for name, record in records.items():
                if not isinstance(record, ArrayRecord):
                    raise TypeError(f"client {partition} keeps {name}, which is no record of arrays")
            states[str(partition)] = {name: to_arrays(r) for name, r in records.array_records.items()}
        return states

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give every client its state back."""
        self.restore_client_states(
            {int(p): RecordDict({name: to_record(a) for name, a in records.items()}) for p, records in state.items()}
        )

    def set_run(self, run: Run) -> None:
        """See ``Grid``."""
        self._run = run

    @property
    def run(self) -> Run:
        """See ``Grid``."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """See ``Grid``."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All N nodes, in partition order."""
        return list(self.partitions)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Execute the messages at once; the replies wait until they are pulled. Unknown nodes give no reply, as in Flower."""
        messages = list(messages)
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(next(self._ids))
        known = [m for m in messages if m.metadata.dst_node_id in self.partitions]
        replies = self.run_clients([(self.partitions[m.metadata.dst_node_id], m) for m in known])
        for message, reply in zip(known, replies, strict=True):
            self._replies[message.metadata.message_id] = reply
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to these messages, in their order, each once."""
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push, then pull: simulated clients always answer, so ``timeout`` is not needed."""
        return self.pull_messages(self.push_messages(messages))


def new_context(partition: int, num_clients: int) -> Context:
    """Return the context of a client that keeps nothing yet."""
    config: dict[str, bool | float | int | str] = {"partition-id": partition, "num-partitions": num_clients}
    return Context(RUN_ID, FIRST_NODE + partition, config, RecordDict(), {})


def run_client(app: ClientApp, message: Message, context: Context) -> tuple[Message, RecordDict]:
    """Run one client; return its reply and its state.

    The app works on a copy of the state, which is kept only if it does not raise.
    """
    working = working_copy(context)
    try:
        return app(message, working), working.state
    except Exception as error:
        return raised(message, context, error), context.state


def working_copy(context: Context) -> Context:
    """A context whose state can be changed without touching the original."""
    state = RecordDict({name: record.copy() for name, record in context.state.items()})
    return Context(context.run_id, context.node_id, context.node_config, state, context.run_config)


def raised(message: Message, context: Context, error: Exception) -> Message:
    """The reply of a client that raised."""
    log.debug("node %d raised", context.node_id, exc_info=error)
    return error_reply(message, f"{type(error).__name__}: {error}")


def error_reply(message: Message, reason: str, code: int = CLIENT_RAISED) -> Message:
    """The reply that stands for a client that could not answer."""
    return Message(Error(code, reason), reply_to=message)
