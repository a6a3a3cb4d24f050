"""What the simulated grids share: nodes, message ids, each client's ``Context``, the exchange of one batch of messages."""

import itertools
import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

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
            config: dict[str, bool | float | int | str] = {
                "partition-id": partition,
                "num-partitions": len(self.partitions),
            }
            self.contexts[partition] = Context(RUN_ID, FIRST_NODE + partition, config, RecordDict(), {})
        return self.contexts[partition]

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


def run_client(app: ClientApp, message: Message, context: Context) -> tuple[Message, RecordDict]:
    """Run one client; return its reply and its state.

    The app works on a copy of the state, which is kept only if it does not raise.
    """
    state = RecordDict({name: record.copy() for name, record in context.state.items()})
    working = Context(context.run_id, context.node_id, context.node_config, state, context.run_config)
    try:
        return app(message, working), working.state
    except Exception as error:
        log.debug("node %d raised", context.node_id, exc_info=True)
        return error_reply(message, f"{type(error).__name__}: {error}"), context.state


def error_reply(message: Message, reason: str, code: int = CLIENT_RAISED) -> Message:
    """The reply that stands for a client that could not answer."""
    return Message(Error(code, reason), reply_to=message)
