"""Local SGD by hand, on f(θ) = ½ h (θ − a)²."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict


def ask(federation, settings, train_config, client=0, **records):
    content = RecordDict({"arrays": federation.start, **records})
    content["config"] = ConfigRecord({**train_config(settings), "server-round": 1})
    node = list(federation.grid.get_node_ids())[client]
    (reply,) = federation.grid.send_and_receive([Message(content, node, "train")])
    return reply


def test_three_steps(federation, fedavg_settings, train_config):
    """θ ← θ − 0.1·2·(θ − 1) from 0: 0.2, 0.36, 0.488; the losses before the steps are 1, 0.64, 0.4096."""
    one = federation([[1.0]], curvatures=[2.0])
    reply = ask(one, fedavg_settings(local_steps=3), train_config)
    np.testing.assert_allclose(one.theta(reply.content["arrays"]), [0.488], rtol=1e-6)
    metrics = reply.content["metrics"]
    assert metrics["train-loss"] == pytest.approx((1 + 0.64 + 0.4096) / 3, rel=1e-6)
    assert metrics["num-examples"] == 1


def test_projection_keeps_all_parameters_in_the_ball(federation, fedavg_settings, train_config):
    """One step of size 1 lands on the centre (3, 4) of norm 5; the ball of radius 2 scales it to (1.2, 1.6)."""
    one = federation([[3.0, 4.0]])
    reply = ask(one, fedavg_settings(lr=1.0, theta_radius=2.0), train_config)
    np.testing.assert_allclose(one.theta(reply.content["arrays"]), [1.2, 1.6], rtol=1e-6)


def test_projection_leaves_the_inside_alone(federation, fedavg_settings, train_config):
    one = federation([[3.0, 4.0]])
    free = ask(one, fedavg_settings(), train_config)
    inside = ask(one, fedavg_settings(theta_radius=10.0), train_config)
    assert (one.theta(free.content["arrays"]) == one.theta(inside.content["arrays"])).all()


def test_projection_of_the_origin_is_the_origin(federation, fedavg_settings, train_config):
    one = federation([[0.0, 0.0]])
    reply = ask(one, fedavg_settings(theta_radius=1.0), train_config)
    assert (one.theta(reply.content["arrays"]) == 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.pop("arrays"), "lacks the record arrays"),
        (lambda content: content["config"].__setitem__("client.name", "os.system"), "knows no algorithm 'os.system'"),
    ],
)
def test_a_bad_message_is_an_error_reply(federation, fedavg_settings, train_config, change, message):
    one = federation([[1.0]])
    content = RecordDict({"arrays": one.start})
    content["config"] = ConfigRecord({**train_config(fedavg_settings()), "server-round": 1})
    change(content)
    (reply,) = one.grid.send_and_receive([Message(content, next(iter(one.grid.get_node_ids())), "train")])
    assert reply.has_error()
    assert message in reply.error.reason
