"""The RandomAccessClientManager: the only holder of the participation law.

It knows which node is which partition, waits until all N nodes are there, and then lets exactly the drawn ones through.
Strategies see its decision (a grid with this round's survivors), never the law (FedeRage paper, Section II-B).
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedrage_flwr.availability.base import Law
from fedrage_flwr.errors import UserError

POLL_SECONDS = 0.1

log = logging.getLogger(__name__)


class RoundView(Grid):
    """A grid on which only this round's survivors exist.

    Args:
        grid: the real grid.
        nodes: node id → partition id of the survivors, in partition order.
    """

    def __init__(self, grid: Grid, nodes: Mapping[int, int]) -> None:
        self._grid = grid
        self._nodes = dict(nodes)

    @property
    def partitions(self) -> Mapping[int, int]:
        """Node id → partition id of the survivors, in partition order."""
        return self._nodes

    def get_node_ids(self) -> Iterable[int]:
        """The survivors' node ids, in partition order."""
        return list(self._nodes)

    def set_run(self, run: Run) -> None:
        """See ``Grid``."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """See ``Grid``."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """See ``Grid``."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send to survivors; a message to anybody else is an error of the caller."""
        return self._grid.push_messages(self._only_survivors(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """See ``Grid``."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send to survivors and wait for their replies."""
        return self._grid.send_and_receive(self._only_survivors(messages), timeout=timeout)

    def _only_survivors(self, messages: Iterable[Message]) -> list[Message]:
        messages = list(messages)
        for message in messages:
            if message.metadata.dst_node_id not in self._nodes:
                raise ValueError(f"node {message.metadata.dst_node_id} did not reach the server in this round")
        return messages


class RandomAccessClientManager:
    """Draws who reaches the server and knows under which node id each partition answers.

    Args:
        law: the Random Access Model.
        num_clients: N.
        node_wait_s: how long to wait for all N nodes, in seconds.
    """

    def __init__(self, law: Law, num_clients: int, node_wait_s: float) -> None:
        self.law = law
        self.num_clients = num_clients
        self.node_wait_s = node_wait_s
        self._node_of: dict[int, int] = {}  # partition id → node id

    def connect(self, grid: Grid) -> None:
        """Wait until all N partitions have a node; ask every node once which partition it holds.

        Raises:
            UserError: not all are there in time, or two nodes hold the same partition.
        """
        deadline = time.monotonic() + self.node_wait_s
        while True:
            self._identify(grid)
            missing = [i for i in range(self.num_clients) if i not in self._node_of]
            if not missing:
                return
            if time.monotonic() >= deadline:
                raise UserError(
                    f"node_wait_s={self.node_wait_s:g}: {self.num_clients - len(missing)} of {self.num_clients} clients"
                    f" have connected; missing partitions {_shorten(missing)}"
                )
            time.sleep(POLL_SECONDS)

    def admit(self, grid: Grid, round: int) -> RoundView:
        """Return the grid of this round's survivors; it may be empty."""
        drawn = self.law.sample(round).tolist()
        return RoundView(grid, {self._node_of[i]: i for i in drawn})

    def _identify(self, grid: Grid) -> None:
        known = getattr(grid, "partitions", None)  # grids that made the nodes themselves need not ask
        if known is None:
            fresh = sorted(set(grid.get_node_ids()) - set(self._node_of.values()))
            known = _ask(grid, fresh)
        for node, partition in known.items():
            other = self._node_of.setdefault(partition, node)
            if other != node:
                raise UserError(f"two nodes say they hold partition-id={partition}: give each its own in --node-config")


def _ask(grid: Grid, nodes: Sequence[int]) -> dict[int, int]:
    replies = grid.send_and_receive([Message(RecordDict(), node, "query.hello") for node in nodes], timeout=30.0)
    known: dict[int, int] = {}
    for reply in replies:
        if reply.has_error():
            log.warning("a node did not say which partition it holds: %s", reply.error.reason)
        else:
            known[reply.metadata.src_node_id] = int(reply.content.metric_records["identity"]["partition-id"])  # type: ignore[arg-type]
    return known


def _shorten(ids: Sequence[int], most: int = 10) -> str:
    return ", ".join(map(str, ids[:most])) + (f" and {len(ids) - most} more" if len(ids) > most else "")
