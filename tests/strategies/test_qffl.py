"""q-FFL by hand, against Flower's QFedAvg, and what it aims at."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import QFedAvg

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.records import to_arrays
from strategies.qffl import QFFL


@pytest.mark.parametrize(("q", "step"), [(0.0, 0.15), (1.0, 4.5 / 30), (2.0, 8.25 / 59.5)])
def test_one_round(federation, play, q, step):
    """f_i = ½(θ − a_i)² at w = 2: F = (2, ½), w_k = (1.8, 1.9), L = 10, Δw = (2, 1).
    q = 1: Δ = (4, ½), h = (1·4 + 10·2, 1·1 + 10·½). q = 2: Δ = (8, ¼), h = (2·2·4 + 10·4, 2·½·1 + 10·¼)."""
    _, path = play(federation([[0.0], [1.0]], start=[2.0]), "qffl", [(0, 1)], q=q, lr=0.1, local_steps=1)
    np.testing.assert_allclose(path, [[2 - step]], rtol=1e-6)


def test_q_zero_is_fedavg_bit_for_bit(assert_fedavg):
    assert_fedavg("strategy=qffl", "strategy.q=0")


@pytest.mark.parametrize("q", [0.0, 0.5, 3.0])
def test_flowers_qfedavg_takes_the_same_step(federation, settings_of, train_config, q):
    """The same replies to both; Flower's gets copies, because it writes into what it is given."""
    three = federation([[0.0, 1.0], [2.0, -1.0], [5.0, 0.5]], curvatures=[1.0, 3.0, 0.5], start=[1.0, 1.0])
    settings, client = settings_of("qffl", q=q, lr=0.05, local_steps=4)
    ours = QFFL(settings, client, 3)
    messages = list(ours.configure_train(1, three.start, train_config(client), three.grid))
    replies = list(three.grid.send_and_receive(messages))
    flowers = QFedAvg(client_learning_rate=0.05, q=q, train_loss_key="initial-loss")
    flowers.current_arrays = three.start.copy()
    theirs, _ = flowers.aggregate_train(1, [copy_of(reply, three.theta(reply.content["arrays"])) for reply in replies])
    mine, _ = ours.aggregate_train(1, replies)
    np.testing.assert_allclose(three.theta(mine), to_arrays(theirs)["theta"], rtol=1e-6)


def copy_of(reply, theta):
    content = RecordDict({"arrays": ArrayRecord({"theta": Array(theta.copy())})})
    content["metrics"] = MetricRecord(dict(reply.content["metrics"]))
    asked = Message(RecordDict({"config": ConfigRecord({})}), reply.metadata.src_node_id, "train")
    return Message(content, reply_to=asked)


def test_aims_at_the_sum_of_powers(federation, play):
    """½(f_1² + f_2²) with f_1 = ½θ², f_2 = 2(θ − 1)²: ½θ³ + 8(θ − 1)³ = 0, θ = c/(1 + c), c = 16^{1/3}."""
    two = federation([[0.0], [1.0]], curvatures=[1.0, 4.0])
    _, path = play(two, "qffl", [(0, 1)] * 120, q=1.0, lr=0.2, local_steps=1)
    c = 16 ** (1 / 3)
    assert path[-1, 0] == pytest.approx(c / (1 + c), abs=1e-5)


def test_a_loss_of_zero_is_no_division_by_zero(federation, play):
    """Everybody at the optimum: the weights vanish with the loss, the step does too."""
    _, path = play(federation([[1.0], [1.0]], start=[1.0]), "qffl", [(0, 1)], q=0.5, lr=0.1)
    assert path.tolist() == [[1.0]]


def test_o02_a_reply_without_a_finite_loss_is_rejected(federation, play):
    server, path = play(federation([[0.0], [np.nan]], start=[2.0]), "qffl", [(0, 1)], q=0.0, lr=0.1, local_steps=1)
    np.testing.assert_allclose(path, [[1.8]], rtol=1e-6)
    assert [(o.client, o.outcome) for o in server.outcomes] == [(0, "averaged"), (1, "rejected")]


def test_a_client_that_does_not_send_its_loss_is_rejected(federation, settings_of, train_config):
    one = federation([[0.0]])
    server = QFFL(*settings_of("qffl"), 1)
    plain = settings_of("fedavg")[1]
    replies = one.grid.send_and_receive(server.configure_train(1, one.start, train_config(plain), one.grid))
    assert server.aggregate_train(1, replies) == (None, None)
    assert server.outcomes[0].reason == "metric initial-loss is missing"


@pytest.mark.parametrize(
    ("override", "allowed"), [("strategy.server_optimizer=adam", "sgd"), ("strategy.server_lr=0.5", "1")]
)
def test_server_optimizer_is_refused(override, allowed):
    with pytest.raises(UserError, match=rf"{override}: qffl has its own server step; allowed: {allowed}"):
        validate(compose_config(["strategy=qffl", override]))
