"""Judging and averaging replies: by hand on vectors of one or two numbers."""

import itertools

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedrage_flwr.grids.base import SimulatedGrid
from fedrage_flwr.records import LazyArray, to_arrays, to_record
from fedrage_flwr.rounds import Outcome
from strategies.base import BaseStrategy, StrategySettings
from strategies.fedavg import FedAvg
from strategies.weighted_fedavg import WeightedFedAvg


class Scripted(SimulatedGrid):
    """Clients that answer what the test says: a list, an exception or a RecordDict."""

    def __init__(self, answers, examples=None, order=None):
        super().__init__(len(answers))
        self.answers, self.examples, self.order = answers, examples or [1] * len(answers), order

    def run_clients(self, messages):
        return [self.answer(partition, message) for partition, message in messages]

    def answer(self, partition, message):
        answer = self.answers[partition]
        if isinstance(answer, Error):
            return Message(answer, reply_to=message)
        if isinstance(answer, Exception):
            return Message(Error(2, f"{type(answer).__name__}: {answer}"), reply_to=message)
        if not isinstance(answer, RecordDict):
            metrics = MetricRecord({"num-examples": self.examples[partition], "train-loss": 0.5})
            answer = RecordDict({"arrays": to_record({"w": np.array(answer, np.float32)}), "metrics": metrics})
        return Message(answer, reply_to=message)

    def send_and_receive(self, messages, *, timeout=None):
        replies = list(super().send_and_receive(messages))
        return [replies[i] for i in self.order or range(len(replies))]


def one_round(answers, strategy=FedAvg, start=(7.0,), **options) -> tuple[np.ndarray, BaseStrategy]:
    grid = Scripted(answers, **options)
    server = strategy(StrategySettings("test", "sgd", 1.0, 0.9, 0.99, 1e-3), None, 3)
    result = server.start(
        grid, to_record({"w": np.array(start, np.float32)}), num_rounds=1, train_config=ConfigRecord()
    )
    return to_arrays(result.arrays)["w"], server


def outcomes(server):
    return [(o.client, o.outcome) for o in server.outcomes]


def test_uniform_mean_ignores_examples():
    assert one_round([[1.0], [4.0]], examples=[1, 99])[0] == [2.5]


def test_weighted_mean_counts_examples():
    assert one_round([[1.0], [4.0]], strategy=WeightedFedAvg, examples=[1, 3])[0] == [3.25]


def test_o01_all_weights_zero_keeps_the_model():
    w, server = one_round([[1.0], [3.0]], strategy=WeightedFedAvg, examples=[0, 0])
    assert w == [7.0]
    assert outcomes(server) == [(0, "rejected"), (1, "rejected")]
    assert "sum to zero" in server.outcomes[0].reason


def test_o01_a_client_of_weight_zero_takes_no_part():
    assert one_round([[9.0], [3.0]], strategy=WeightedFedAvg, examples=[0, 10])[0] == [3.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_o02_a_client_that_is_not_finite_is_rejected_by_partition(bad):
    w, server = one_round([[1.0], [3.0], [bad]])
    assert w == [2.0]
    assert outcomes(server) == [(0, "averaged"), (1, "averaged"), (2, "rejected")]
    assert server.outcomes[2].reason == "record arrays: w is not finite"


def test_o02_nobody_usable_keeps_the_model():
    w, server = one_round([[np.nan]] * 3)
    assert w == [7.0]
    assert server.updates == []


def test_o02_a_metric_that_is_not_finite():
    bad = RecordDict(
        {"arrays": to_record({"w": np.ones(1, np.float32)}), "metrics": MetricRecord({"train-loss": np.nan})}
    )
    w, server = one_round([[3.0], bad])
    assert w == [3.0]
    assert server.outcomes[1].reason == "metrics not finite: train-loss"


def test_o03_integer_counters_stay_integers():
    """The largest counter is kept; floating statistics are averaged."""

    def reply(mean, count):
        arrays = {"mean": np.array(mean, np.float32), "count": np.array(count, np.int64)}
        return RecordDict({"arrays": to_record(arrays), "metrics": MetricRecord({})})

    server = FedAvg(StrategySettings("test", "sgd", 1.0, 0.9, 0.99, 1e-3), None, 3)
    start = to_record({"mean": np.zeros(2, np.float32), "count": np.array(0, np.int64)})
    grid = Scripted([reply([0, 0], 3), reply([2, 4], 4)])
    arrays = to_arrays(server.start(grid, start, num_rounds=1).arrays)
    assert arrays["mean"].tolist() == [1, 2]
    assert (arrays["count"], arrays["count"].dtype, arrays["count"].shape) == (4, np.int64, ())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_o05_dtypes_come_back_as_they_were_sent(dtype):
    server = FedAvg(StrategySettings("test", "sgd", 1.0, 0.9, 0.99, 1e-3), None, 3)
    replies = [
        RecordDict({"arrays": to_record({"w": np.array([v], dtype)}), "metrics": MetricRecord({})}) for v in (1, 2)
    ]
    w = to_arrays(server.start(Scripted(replies), to_record({"w": np.zeros(1, dtype)}), num_rounds=1).arrays)["w"]
    assert w.dtype == dtype
    assert w == [1.5]


def test_o19_a_client_that_raises_is_named_and_left_out():
    w, server = one_round([[0.0], RuntimeError("disk on fire"), [2.0], [3.0]])
    np.testing.assert_allclose(w, [5 / 3], rtol=1e-6)
    assert outcomes(server) == [(0, "averaged"), (1, "failed"), (2, "averaged"), (3, "averaged")]
    assert server.outcomes[1].reason == "RuntimeError: disk on fire"


def test_o19_a_wrong_shape_is_rejected_not_broadcast():
    w, server = one_round([[1.0, 2.0], [3.0], [3.0, 4.0]], start=(0.0, 0.0))
    assert w.tolist() == [2.0, 3.0]
    assert server.outcomes[1].reason == "record arrays: w has shape (1,), expected (2,)"


def test_o19_metrics_that_not_all_return_are_left_out():
    other = RecordDict(
        {"arrays": to_record({"w": np.ones(1, np.float32)}), "metrics": MetricRecord({"train-loss": 1.5, "auc": 1.0})}
    )
    grid = Scripted([[3.0], other])
    server = FedAvg(StrategySettings("test", "sgd", 1.0, 0.9, 0.99, 1e-3), None, 3)
    result = server.start(grid, to_record({"w": np.zeros(1, np.float32)}), num_rounds=1)
    assert dict(result.train_metrics_clientapp[1]) == {"train-loss": 1.0}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (RecordDict({"metrics": MetricRecord({})}), "record arrays is missing"),
        (
            RecordDict({"arrays": to_record({"v": np.ones(1, np.float32)})}),
            "record arrays: missing ['w']; unexpected ['v']",
        ),
        (
            RecordDict({"arrays": to_record({"w": np.ones(1, np.float64)})}),
            "record arrays: w has dtype float64, expected float32",
        ),
    ],
)
def test_replies_that_do_not_match_are_rejected(content, reason):
    w, server = one_round([[3.0], content])
    assert w == [3.0]
    assert server.outcomes[1].reason == reason


def test_bytes_that_are_no_array_are_rejected():
    from flwr.app import Array

    record = ArrayRecord({"w": Array("float32", (1,), "numpy.ndarray", b"rubbish")})
    w, server = one_round([[3.0], RecordDict({"arrays": record, "metrics": MetricRecord({})})])
    assert w == [3.0]
    assert "cannot be read" in server.outcomes[1].reason


def test_all_reply_orders_give_the_same_bits():
    """0.1 + 0.2 + 0.3 depends on the order; the mean must not."""
    rng = np.random.default_rng(0)
    answers = (rng.standard_normal((3, 50)) * 10.0 ** rng.integers(-6, 6, (3, 50))).tolist()
    models = {
        one_round(answers, start=[0.0] * 50, order=list(order))[0].tobytes()
        for order in itertools.permutations(range(3))
    }
    assert len(models) == 1


def test_a_client_that_does_not_answer_is_late():
    w, server = one_round([[1.0], [3.0], [5.0]], order=[0, 2])
    assert w == [3.0]
    assert outcomes(server) == [(0, "averaged"), (1, "late"), (2, "averaged")]


@pytest.mark.parametrize(("code", "outcome"), [(3, "late"), (4, "late"), (5, "failed"), (2, "failed")])
def test_a_message_that_expired_is_late_and_other_errors_are_failures(code, outcome):
    """At a deadline the SuperLink may answer for a silent node before we stop waiting: that is no failure of the client."""
    w, server = one_round([[1.0], Error(code, "gone"), [5.0]])
    assert w == [3.0]
    assert server.outcomes[1] == Outcome(1, outcome, "gone")


def test_o04_the_replies_are_left_as_they_were():
    answers = [
        RecordDict({"arrays": to_record({"w": np.array([v], np.float32)}), "metrics": MetricRecord({})})
        for v in (2, 3, 0)
    ]
    w, _ = one_round(answers)
    np.testing.assert_allclose(w, [5 / 3], rtol=1e-6)
    assert [to_arrays(a["arrays"])["w"].item() for a in answers] == [2, 3, 0]
    assert isinstance(answers[0]["arrays"]["w"], LazyArray)


def test_o12_only_this_rounds_clients_count():
    """Client 2 sent +9 last round; now only 0 and 1 arrive, with 1.2 and 1.4."""
    from fedrage_flwr.client_manager import RoundView

    server = FedAvg(StrategySettings("test", "sgd", 1.0, 0.9, 0.99, 1e-3), None, 3)
    grid = Scripted([[1.2], [1.4], [10.0], [1.0]])
    start = to_record({"w": np.ones(1, np.float32)})
    for number, clients in ((1, (2,)), (2, (0, 1))):
        view = RoundView(grid, {node: i for node, i in grid.partitions.items() if i in clients})
        replies = view.send_and_receive(server.configure_train(number, start, ConfigRecord(), view))
        arrays, _ = server.aggregate_train(number, replies)
    np.testing.assert_allclose(to_arrays(arrays)["w"], [1.3], rtol=1e-6)
    assert outcomes(server) == [(0, "averaged"), (1, "averaged")]
