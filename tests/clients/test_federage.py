"""FedeRage's local step by hand (Algorithm 2, lines 10-13), on f(θ) = ½ (θ − a)²."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedrage_flwr.records import to_record


def ask(federation, settings, train_config, beta):
    content = RecordDict({"arrays": federation.start, "beta": to_record({"value": np.array(beta, np.float32)})})
    content["config"] = ConfigRecord({**train_config(settings), "server-round": 1})
    (reply,) = federation.grid.send_and_receive([Message(content, next(iter(federation.grid.get_node_ids())), "train")])
    assert not reply.has_error(), reply.error
    theta = float(federation.theta(reply.content["arrays"])[0])
    return theta, float(reply.content["beta"]["value"].numpy()), dict(reply.content["metrics"])


def test_three_steps(federation, federage_settings, train_config):
    """α = γ = ½: w is 1.5 in the tail and 0.5 outside; η_θ = 0.1, η_β = 1, from θ = 2, β = 1.

    | f     | tail | w   | θ                        | β                 |
    | 2     | yes  | 1.5 | 2 − 0.15·2 = 1.7         | 1 + 0.5 = 1.5     |
    | 1.445 | no   | 0.5 | 1.7 − 0.05·1.7 = 1.615   | 1.5 − 0.5 = 1     |
    | 1.304 | yes  | 1.5 | 1.615 − 0.15·1.615       | 1.5               |
    """
    theta, beta, metrics = ask(
        federation([[0.0]], start=[2.0]), federage_settings(local_steps=3), train_config, beta=1.0
    )
    assert theta == pytest.approx(1.615 * 0.85, rel=1e-6)
    assert beta == pytest.approx(1.5, rel=1e-6)
    assert metrics["tail_share"] == pytest.approx(2 / 3)
    assert metrics["step_weight_mean"] == pytest.approx((1.5 + 0.5 + 1.5) / 3)
    assert metrics["train-loss"] == pytest.approx((2 + 1.445 + 0.5 * 1.615**2) / 3, rel=1e-6)


def test_a_tie_counts_as_tail(federation, federage_settings, train_config):
    """f = 2 = β: the step has weight 1.5, θ = 2 − 0.15·2."""
    theta, _, metrics = ask(federation([[0.0]], start=[2.0]), federage_settings(), train_config, beta=2.0)
    assert theta == pytest.approx(1.7)
    assert metrics["tail_share"] == 1


@pytest.mark.parametrize(("beta", "expected"), [(0.2, 0.0), (1.0, 1.2)])
def test_beta_stays_in_its_interval(federation, federage_settings, train_config, beta, expected):
    """At the optimum f = 0 < 0.2: β would go to −0.3, B stops it at 0. In the tail it would go to 1.5, B stops it at 1.2."""
    start = [0.0] if beta < 1 else [2.0]
    settings = federage_settings(beta_range=[0.0, 1.2])
    assert ask(federation([[0.0]], start=start), settings, train_config, beta)[1] == pytest.approx(expected)


def test_o08_threshold_above_every_loss(federation, federage_settings, train_config):
    """γ = 1, β = 5 above the loss, η_β = 0.1: w = 0, the model stands still and β goes to 4.9."""
    settings = federage_settings(gamma=1.0, alpha=0.5, lr_beta=0.1)
    theta, beta, _ = ask(federation([[0.0]], start=[2.0]), settings, train_config, beta=5.0)
    assert theta == 2.0
    assert beta == pytest.approx(4.9)


def test_kappa_is_the_largest_weight(federage_settings):
    assert federage_settings(alpha=0.1, gamma=0.5).kappa == pytest.approx(5.5)
    assert federage_settings(alpha=0.01, gamma=0.0).kappa == 1


@pytest.mark.parametrize("gamma", [0.1, 0.3, 0.7, 1.0])
def test_alpha_one_weighs_exactly_one(federage_settings, gamma):
    assert federage_settings(alpha=1.0, gamma=gamma).kappa == 1.0  # exact: bit equality with FedAvg rests on it


def test_beta_must_start_inside_its_interval(federage_settings):
    with pytest.raises(ValueError, match=r"must be \[lower, upper\] and contain client.beta_init=3"):
        federage_settings(beta_init=3.0, beta_range=[0.0, 2.0])
