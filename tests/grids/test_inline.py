"""The reference grid: state, errors, ids."""

import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedrage_flwr.client_manager import RoundView
from fedrage_flwr.grids.inline import InlineGrid


@pytest.fixture
def counting():
    """Clients that count their own calls; a message with ``raise`` makes them raise after counting."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        calls = int(context.state["count"]["calls"]) + 1 if "count" in context.state else 1
        if "count" in context.state:
            context.state["count"]["calls"] = calls  # in place, on purpose
        else:
            context.state["count"] = MetricRecord({"calls": calls})
        if message.content["config"]["raise"]:
            raise RuntimeError("after counting")
        return Message(RecordDict({"metrics": MetricRecord({"calls": calls})}), reply_to=message)

    return InlineGrid(app, 4)


def send(grid, partitions, fail=False):
    nodes = {partition: node for node, partition in grid.partitions.items()}
    content = RecordDict({"config": ConfigRecord({"raise": fail})})
    view = RoundView(grid, {nodes[i]: i for i in partitions})
    return list(view.send_and_receive([Message(content, nodes[i], "train") for i in partitions]))


def test_o20_state_belongs_to_the_client_and_moves_only_when_it_takes_part(counting):
    rounds = [(0, 1), (1, 2), (1, 3), (0, 1)]
    seen = dict.fromkeys(range(4), 0)
    for participants in rounds:
        for i, reply in zip(participants, send(counting, participants), strict=True):
            seen[i] += 1
            assert reply.content["metrics"]["calls"] == seen[i]
    assert seen == {0: 2, 1: 4, 2: 1, 3: 1}


def test_a_client_that_raises_keeps_the_state_it_had(counting):
    send(counting, [0])
    (reply,) = send(counting, [0], fail=True)
    assert reply.has_error()
    assert reply.error.reason == "RuntimeError: after counting"
    assert send(counting, [0])[0].content["metrics"]["calls"] == 2


def test_a_client_that_raises_at_its_first_message_has_no_state(counting):
    send(counting, [3], fail=True)
    assert send(counting, [3])[0].content["metrics"]["calls"] == 1


def test_an_unknown_node_gives_no_reply(counting):
    assert list(counting.send_and_receive([Message(RecordDict(), 5, "train")])) == []
