"""The RandomAccessClientManager: the only holder of the participation law.

It knows which node is which partition, waits until all N nodes are there, and then lets exactly the drawn ones through.
Strategies see its decision (a grid with this round's survivors), never the law (FedeRage paper, Section II-B).
"""

import logging
import re
import time
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import cast

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedrage_flwr.availability.base import Law
from fedrage_flwr.errors import UserError

POLL_SECONDS = 0.1
NODE_POLL_SECONDS = 0.5  # between two looks for replies over the network
WRAPPED = re.compile(r"<class '(?:\w+\.)*(\w+)'>:<['\"](.*)['\"]>")  # how Flower's nodes report an exception
CLIENT_RAISED = 2  # flwr.common.constant.ErrorCode.CLIENT_APP_RAISED_EXCEPTION

log = logging.getLogger(__name__)


class RoundView(Grid):
    """A grid on which only this round's survivors exist.

    Args:
        grid: the real grid.
        nodes: node id → partition id of the survivors, in partition order.
        deadline_s: seconds to wait for replies, whatever a caller says; None leaves it to the caller.
        enough: so many usable replies end the wait.
    """

    def __init__(
        self, grid: Grid, nodes: Mapping[int, int], deadline_s: float | None = None, enough: int | None = None
    ) -> None:
        self._grid = grid
        self._nodes = dict(nodes)
        self._deadline_s, self._enough = deadline_s, enough

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
        """Send to survivors and wait for their replies; what comes after the deadline is never looked at."""
        if self._deadline_s is None:
            return self._grid.send_and_receive(self._only_survivors(messages), timeout=timeout)
        return self._collect(self._only_survivors(messages), self._deadline_s)

    def _collect(self, messages: list[Message], deadline_s: float) -> list[Message]:
        until = time.monotonic() + deadline_s
        for message in messages:
            message.metadata.ttl = deadline_s  # a node that is behind drops what nobody waits for any more
        waiting = {message_id for message_id in self._grid.push_messages(messages) if message_id}
        enough = min(self._enough or len(messages), len(messages))
        replies: list[Message] = []
        while waiting and sum(not reply.has_error() for reply in replies) < enough:
            fresh = list(self._grid.pull_messages(waiting))
            replies += fresh
            waiting -= {reply.metadata.reply_to_message_id for reply in fresh}
            if time.monotonic() >= until:
                break
            if not fresh:
                time.sleep(min(NODE_POLL_SECONDS, max(until - time.monotonic(), 0)))
        return replies

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
        deadline_s: ends the rounds of a law that has no terms of its own; None waits for everybody asked.
    """

    def __init__(self, law: Law, num_clients: int, node_wait_s: float, deadline_s: float | None = None) -> None:
        self.law = law
        self.num_clients = num_clients
        self.node_wait_s = node_wait_s
        self.deadline_s = law.terms.deadline_s if law.terms else deadline_s
        self.greeting = ConfigRecord()  # sent to each node when it is asked which partition it holds
        self.problems: list[str] = []  # what was wrong with nodes since the server started, one line each
        self._node_of: dict[int, int] = {}  # partition id → node id
        self._refused: dict[int, str] = {}  # node id → why it cannot take part
        self._doubles: dict[int, int] = {}  # node id → partition id that another node holds

    def connect(self, grid: Grid) -> None:
        """Wait until all N partitions have a node; ask every node once which partition it holds.

        Raises:
            UserError: not all are there in time, a node does not fit, or two nodes hold the same partition.
        """
        deadline = time.monotonic() + self.node_wait_s
        while True:
            self._identify(grid)
            if self._doubles:
                raise UserError(
                    f"two nodes say they hold partition-id={next(iter(self._doubles.values()))}: give each its own in"
                    " --node-config"
                )
            missing = [i for i in range(self.num_clients) if i not in self._node_of]
            if not missing:
                return
            if self._refused and self.law.terms is None:
                raise UserError(f"a node cannot take part: {next(iter(self._refused.values()))}")
            if time.monotonic() >= deadline:
                if self._good_enough(missing):
                    return
                raise UserError(
                    f"node_wait_s={self.node_wait_s:g}: {self.num_clients - len(missing)} of {self.num_clients} clients"
                    f" have connected; missing partitions {_shorten(missing)}"
                )
            time.sleep(POLL_SECONDS)

    def admit(self, grid: Grid, round: int) -> RoundView:
        """Return the grid of this round's survivors; it may be empty. A node that came back under a new id is found."""
        online = self._identify(grid)
        drawn = {self._node_of[i]: i for i in self.law.sample(round).tolist() if i in self._node_of}
        gone = [i for node, i in drawn.items() if node not in online]
        if gone:
            log.warning("round %d: drawn, but not connected: clients %s", round, _shorten(gone))
        nodes = {node: i for node, i in drawn.items() if node in online}
        return RoundView(grid, nodes, self.deadline_s, self.law.terms.enough if self.law.terms else None)

    def everyone(self, grid: Grid) -> RoundView:
        """Return the grid of all clients, those held out included: for evaluation by clients."""
        online = self._identify(grid)
        nodes = {node: i for i, node in sorted(self._node_of.items()) if node in online}
        return RoundView(grid, nodes, self.deadline_s)

    @property
    def seen(self) -> Collection[int]:
        """Partitions that have ever been connected."""
        return self._node_of.keys()

    def _good_enough(self, missing: Sequence[int]) -> bool:
        """Whether a run of real sites can begin without these.

        Raises:
            UserError: a required one is among them, or too few are left.
        """
        terms = self.law.terms
        if terms is None:
            return False
        why = "".join(f"; a node was refused: {reason}" for reason in self._refused.values())
        lacking = [site for site in terms.required_sites if site in missing]
        if lacking:
            raise UserError(f"ram.required_sites: site {lacking[0]} is not connected after {self.node_wait_s:g} s{why}")
        there = self.num_clients - len(missing)
        if there < terms.min_sites:
            raise UserError(
                f"ram.min_sites={terms.min_sites}: {there} sites are connected after {self.node_wait_s:g} s{why}"
            )
        log.warning("the run begins without sites %s%s", _shorten(missing), why)
        return True

    def _identify(self, grid: Grid) -> Container[int]:
        """Learn which partition each new node holds; return the nodes that are connected."""
        known = getattr(grid, "partitions", None)  # grids that made the nodes themselves need not ask
        if known is not None:
            self._node_of = self._node_of or {partition: node for node, partition in known.items()}
            return cast(Container[int], known)
        online = set(grid.get_node_ids())
        self._refused = {node: why for node, why in self._refused.items() if node in online}
        known_nodes = {*self._node_of.values(), *self._refused, *self._doubles}
        doubles, self._doubles = self._doubles, {}
        for node, partition in [*doubles.items(), *self._ask(grid, sorted(online - known_nodes))]:
            if node not in online:
                continue
            other = self._node_of.get(partition, node)
            if other == node or other not in online:
                self._node_of[partition] = node
                continue
            self._doubles[node] = partition
            if node not in doubles:
                self._report(
                    f"another node says it holds partition-id={partition}; it is left out while the first one is there"
                )
        return online

    def _ask(self, grid: Grid, nodes: Sequence[int]) -> list[tuple[int, int]]:
        if not nodes:
            return []
        content = RecordDict({"config": self.greeting})
        known, forgetful = [], []
        asked = [Message(content, node, "query.hello") for node in nodes]
        for reply in grid.send_and_receive(asked, timeout=self.node_wait_s):
            if not reply.has_error():
                identity = reply.content.metric_records["identity"]
                partition = int(identity["partition-id"])  # type: ignore[arg-type]
                known.append((reply.metadata.src_node_id, partition))
                if identity.get("forgets"):
                    forgetful.append(partition)
                continue
            reason = _last_line(reply.error.reason or "it did not say why")
            self._report(f"a node cannot take part: {reason}")
            if reply.error.code == CLIENT_RAISED:
                self._refused[reply.metadata.src_node_id] = reason
        if forgetful:
            self._report(
                f"no state-dir in the node config of sites {_shorten(sorted(forgetful))}: what this algorithm's clients keep"
                " between rounds is lost when such a node restarts, or the run is resumed"
            )
        return known

    def _report(self, problem: str) -> None:
        log.warning("%s", problem)
        self.problems.append(problem)


def _last_line(text: str) -> str:
    """Flower's simulation sends whole tracebacks, of which the last line says why; its nodes wrap that in the error's class."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else text
    wrapped = WRAPPED.fullmatch(last)
    return f"{wrapped[1]}: {wrapped[2]}" if wrapped else last


def _shorten(ids: Sequence[int], most: int = 10) -> str:
    return ", ".join(map(str, ids[:most])) + (f" and {len(ids) - most} more" if len(ids) > most else "")
