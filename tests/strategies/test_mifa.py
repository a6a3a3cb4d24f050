"""MIFA: what is remembered, by hand; and that it reaches the plain mean exactly."""

import logging

import numpy as np
import pytest

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError


def test_old_updates_are_averaged_again(federation, play):
    """N = 2, η = 0.1, a = (0, 1), θ = 2. Round 1, client 0: G = (−0.2, 0), θ = 1.9. Round 2, client 1: G = (−0.2, −0.09),
    θ = 1.755. Round 3, client 1: G = (−0.2, −0.0755), θ = 1.61725."""
    two = federation([[0.0], [1.0]], start=[2.0])
    server, path = play(two, "mifa", [(0,), (1,), (1,)], lr=0.1, local_steps=1)
    np.testing.assert_allclose(path[:, 0], [1.9, 1.755, 1.61725], rtol=1e-6)
    np.testing.assert_allclose(server.memory["update0"]["theta"], [-0.2], rtol=1e-6)
    np.testing.assert_allclose(server.memory["sum"]["theta"], [-0.2755], rtol=1e-6)


def test_wait_stays_until_everybody_was_seen(federation, play):
    """Client 0 comes twice, an empty round passes, then client 1: θ stays at 2 and the first step is FedAvg's with both."""
    two = federation([[0.0], [1.0]], start=[2.0])
    _, path = play(two, "mifa", [(0,), (0,), (), (1,), (0,)], initial="wait", lr=0.1, local_steps=1)
    third = 1.85 + 0.5 * (-0.185 - 0.1)
    np.testing.assert_allclose(path[:, 0], [2, 2, 2, 1.85, third], rtol=1e-6)


def test_the_sum_is_the_sum_of_what_is_remembered(federation, play):
    rng = np.random.default_rng(6)
    subsets = [np.flatnonzero(rng.random(5) < 0.3).tolist() for _ in range(100)]
    server, _ = play(federation([[float(i), -1.0] for i in range(5)]), "mifa", subsets, lr=0.1, server_lr=0.5)
    total = sum(server.memory[f"update{i}"]["theta"].astype(float) for i in range(5))
    np.testing.assert_allclose(server.memory["sum"]["theta"], total, atol=1e-12)
    assert server.remembered() == 5


def test_o02_a_rejected_reply_leaves_the_memory_alone(federation, play):
    server, path = play(federation([[0.0], [np.nan]], start=[2.0]), "mifa", [(0, 1)], lr=0.1, local_steps=1)
    np.testing.assert_allclose(path, [[1.9]], rtol=1e-6)
    assert set(server.memory) == {"sum", "update0"}


def test_full_participation_is_fedavg_to_rounding(assert_fedavg):
    """Not to the bit: what is remembered is θ_i − θ̂ in float32. Neighbouring float32 numbers near 0.1 are 10⁻⁸ apart and every
    step of every round may carry a difference on: 10⁻⁵ leaves room for that; one update weighed wrongly moves 10⁻³."""
    assert_fedavg("strategy=mifa", job=["ram=full", "num_clients=10"], atol=1e-5)


@pytest.mark.parametrize(
    ("initial", "curvatures"), [("no_wait", [1.0, 1.0, 1.0]), ("wait", [1.0, 1.0, 1.0]), ("no_wait", [0.5, 1.0, 2.0])]
)
def test_aims_at_the_plain_mean_whatever_the_ram(federation, play, initial, curvatures):
    """Attendance 0.8, 0.3 and 0.15: the iterates themselves converge, to Σρ_i a_i/Σρ_i with ρ_i = 1 − (1 − ηh_i)^H and no p
    in it. Equal curvature: the plain mean, 2."""
    draws = np.random.default_rng(7).random((350, 3)) < np.array([0.8, 0.3, 0.15])
    subsets = [np.flatnonzero(draw).tolist() for draw in draws]
    centres = np.array([0.0, 1.0, 5.0])
    three = federation([[a] for a in centres], curvatures)
    _, path = play(three, "mifa", subsets, initial=initial, lr=0.04, local_steps=2)
    rho = 1 - (1 - 0.04 * np.array(curvatures)) ** 2
    assert path[-1, 0] == pytest.approx(rho @ centres / rho.sum(), abs=1e-4)


def test_the_cost_is_said(federation, play, caplog):
    with caplog.at_level(logging.INFO, "strategies.mifa"):
        play(federation([[0.0, 0.0], [1.0, 1.0]]), "mifa", [(0,)])
    assert "up to 2 × 8 = 16 bytes" in caplog.text


def test_server_optimizer_is_refused_and_server_lr_is_not():
    with pytest.raises(UserError, match=r"strategy.server_optimizer=adam: mifa has its own server step; allowed: sgd"):
        validate(compose_config(["strategy=mifa", "strategy.server_optimizer=adam"]))
    assert validate(compose_config(["strategy=mifa", "strategy.server_lr=0.5"])).strategy.server_lr == 0.5
