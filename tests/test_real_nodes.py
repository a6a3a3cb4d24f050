"""The client manager where nodes come, go, come back under another id, do not fit, or answer too late."""

import time

import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedrage_flwr.availability.full import Full
from fedrage_flwr.availability.natural import Natural
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.errors import UserError
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.node import own_partition


class Nodes(InlineGrid):
    """Nodes to be asked; ``misfits`` raise, and those in ``silent`` never answer a training message."""

    def __init__(
        self, online, misfits=(), silent=(), forgetful=(), reason="Traceback …\nValueError: scale is 1.0 in the file"
    ):
        super().__init__(None, 0)
        del self.partitions
        self.online, self.misfits, self.silent = dict(online), set(misfits), set(silent)
        self.forgetful, self.reason = set(forgetful), reason
        self.greetings, self.ttls = [], []

    def get_node_ids(self):
        return list(self.online)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            self.greetings.append(dict(message.content["config"]))
            if node in self.misfits:
                content = Error(2, self.reason)
            else:
                identity = {"partition-id": self.online[node], "forgets": int(node in self.forgetful)}
                content = RecordDict({"identity": MetricRecord(identity)})
            replies.append(Message(content, reply_to=message))
        return replies

    def push_messages(self, messages):
        self._waiting = {}
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = str(number)
            self.ttls.append(message.metadata.ttl)
            if message.metadata.dst_node_id not in self.silent:
                self._waiting[str(number)] = message
        return [str(number) for number, _ in enumerate(messages)]

    def pull_messages(self, message_ids):
        return [Message(RecordDict(), reply_to=self._waiting.pop(i)) for i in message_ids if i in self._waiting]


def natural(n, wait=0.2, **changes):
    settings = {"name": "natural", "deadline_s": 0.6, "enough": None, "min_sites": 1, "required_sites": [], **changes}
    return RandomAccessClientManager(Natural(Natural.Settings(**settings), n, 0, 0), n, wait)


def full(n):
    return RandomAccessClientManager(Full(Full.Settings(name="full"), n, 0, 0), n, 0.2)


def test_a_node_that_comes_back_under_another_id_is_found():
    grid, manager = Nodes({7: 0, 8: 1}), full(2)
    manager.connect(grid)
    grid.online = {7: 0, 99: 1}
    assert dict(manager.admit(grid, 1).partitions) == {7: 0, 99: 1}


def test_a_node_that_is_gone_is_not_asked():
    grid, manager = Nodes({7: 0, 8: 1}), full(2)
    manager.connect(grid)
    del grid.online[8]
    assert dict(manager.admit(grid, 1).partitions) == {7: 0}
    assert sorted(manager.seen) == [0, 1]


def test_a_second_node_with_the_same_partition_is_left_out_while_the_first_is_there():
    grid, manager = Nodes({7: 0, 8: 1}), full(2)
    manager.connect(grid)
    grid.online[9] = 1
    for round in (1, 2):
        assert dict(manager.admit(grid, round).partitions) == {7: 0, 8: 1}
    assert manager.problems == [
        "another node says it holds partition-id=1; it is left out while the first one is there"
    ]
    del grid.online[8]
    assert dict(manager.admit(grid, 3).partitions) == {7: 0, 9: 1}


def test_two_nodes_with_the_same_partition_at_the_start_end_the_run():
    with pytest.raises(UserError, match="two nodes say they hold partition-id=1: give each its own"):
        full(2).connect(Nodes({7: 0, 8: 1, 9: 1}))


def test_a_refused_node_that_was_away_is_asked_again():
    grid, manager = Nodes({7: 0, 8: 1}, misfits=[8]), natural(2)
    manager.connect(grid)
    del grid.online[8]
    manager.admit(grid, 1)
    grid.online[8], grid.misfits = 1, set()
    assert dict(manager.admit(grid, 2).partitions) == {7: 0, 8: 1}


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("Traceback …\n  File …\nValueError: no scale", "ValueError: no scale"),
        ("<class 'fedrage_flwr.errors.UserError'>:<'3.npz cannot be read'>", "UserError: 3.npz cannot be read"),
        ("<class 'ValueError'>:<\"it's 1.0\">", "ValueError: it's 1.0"),
    ],
)
def test_a_refusal_is_one_line_however_flower_wraps_it(reason, line):
    grid, manager = Nodes({7: 0, 8: 1}, misfits=[8], reason=reason), natural(2)
    manager.connect(grid)
    assert manager.problems == [f"a node cannot take part: {line}"]


def test_nodes_that_would_forget_are_named():
    grid, manager = Nodes({7: 0, 8: 1}, forgetful=[8]), full(2)
    manager.connect(grid)
    assert len(manager.problems) == 1
    assert manager.problems[0].startswith("no state-dir in the node config of sites 1: ")


def test_a_law_that_draws_can_have_a_deadline():
    grid = Nodes({7: 0, 8: 1}, silent=[8])
    manager = RandomAccessClientManager(Full(Full.Settings(name="full"), 2, 0, 0), 2, 0.2, deadline_s=0.3)
    manager.connect(grid)
    view = manager.admit(grid, 1)
    replies = list(view.send_and_receive([Message(RecordDict(), node, "train") for node in view.get_node_ids()]))
    assert [reply.metadata.src_node_id for reply in replies] == [7]


def test_the_greeting_is_sent_and_a_misfit_ends_a_run_that_needs_all():
    grid, manager = Nodes({7: 0, 8: 1}, misfits=[8]), full(2)
    manager.greeting = ConfigRecord({"model.name": "mlp"})
    with pytest.raises(UserError, match=r"a node cannot take part: ValueError: scale is 1.0 in the file"):
        manager.connect(grid)
    assert grid.greetings == [{"model.name": "mlp"}] * 2


def test_real_sites_begin_without_a_misfit_and_ask_it_once():
    grid, manager = Nodes({7: 0, 8: 1}, misfits=[8]), natural(2)
    manager.connect(grid)
    assert dict(manager.admit(grid, 1).partitions) == {7: 0}
    assert len(grid.greetings) == 2


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"min_sites": 2}, "ram.min_sites=2: 1 sites are connected"),
        ({"required_sites": [1]}, "site 1 is not connected"),
    ],
)
def test_real_sites_that_must_be_there_at_the_start(terms, message):
    with pytest.raises(UserError, match=message):
        natural(2, **terms).connect(Nodes({7: 0}))


@pytest.mark.parametrize(
    ("enough", "silent", "replies", "waited"), [(None, [8], 1, True), (1, [8], 1, False), (None, [], 2, False)]
)
def test_a_round_ends_at_the_deadline_or_when_enough_have_answered(enough, silent, replies, waited):
    grid, manager = Nodes({7: 0, 8: 1}, silent=silent), natural(2, enough=enough)
    manager.connect(grid)
    view = manager.admit(grid, 1)
    started = time.monotonic()
    found = list(view.send_and_receive([Message(RecordDict(), node, "train") for node in view.get_node_ids()]))
    assert len(found) == replies
    assert (time.monotonic() - started >= 0.6) == waited
    assert grid.ttls == [0.6, 0.6]  # nodes drop what nobody waits for


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({}, r"lacks the number partition-id: give flower-supernode --node-config 'partition-id=0 num-partitions=5'"),
        ({"partition-id": 1}, "lacks the number num-partitions"),
        ({"partition-id": "1", "num-partitions": 5}, "lacks the number partition-id"),
        ({"partition-id": 7, "num-partitions": 5}, r"partition-id=7 in the node config must lie in 0\.\.4"),
        (
            {"partition-id": 1, "num-partitions": 6},
            r"num-partitions=6 in the node config, but the run has num_clients=5",
        ),
    ],
)
def test_o27_a_node_that_does_not_say_whose_data_it_holds(node, says):
    with pytest.raises(ValueError, match=says):
        own_partition({"num-clients": 5}, node)


def test_o27_the_server_goes_on_without_a_misconfigured_node():
    """Under ram=natural such a node is left out and the others begin."""
    grid = Nodes({10: 0, 11: 1, 12: 2}, misfits={12})
    manager = natural(3)
    manager.connect(grid)
    assert sorted(manager.admit(grid, 1).partitions.values()) == [0, 1]
