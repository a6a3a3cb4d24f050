"""FedAWE: echoes and gossip by hand, and what they aim at."""

import numpy as np
import pytest

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError


def test_echo_and_gossip(federation, play):
    """η = 0.1, a = (0, 1), x⁰ = 2.
    Round 1, client 0: 2 − 1·0.2 = 1.8.
    Round 2, both: 1.8 − 0.18 = 1.62; client 1 from x⁰, for two rounds: 2 − 2·0.1 = 1.8; mean 1.71, now the model of both.
    Round 3, nobody. Round 4, client 1 for two rounds: 1.71 − 2·0.071 = 1.568.
    Round 5, client 0 from its own 1.71, not from 1.568, for three rounds: 1.71 − 3·0.171 = 1.197."""
    two = federation([[0.0], [1.0]], start=[2.0])
    server, path = play(two, "fedawe", [(0,), (0, 1), (), (1,), (0,)], lr=0.1, local_steps=1)
    np.testing.assert_allclose(path[:, 0], [1.8, 1.71, 1.71, 1.568, 1.197], rtol=1e-6)
    np.testing.assert_allclose([server.model_of(i)["theta"][0] for i in range(2)], [1.197, 1.568], rtol=1e-6)
    assert server.memory["last"]["round"].tolist() == [5, 4]


def test_server_step_scales_the_echo(federation, play):
    two = federation([[0.0], [1.0]], start=[2.0])
    _, path = play(two, "fedawe", [(), (0,)], lr=0.1, local_steps=1, server_lr=0.5)
    np.testing.assert_allclose(path[:, 0], [2, 2 - 0.5 * 2 * 0.2], rtol=1e-6)


def test_o02_a_rejected_reply_is_an_absence(federation, play):
    """Client 1's model and last round stay; client 0 is unaffected."""
    server, path = play(federation([[0.0], [np.nan]], start=[2.0]), "fedawe", [(0, 1)] * 2, lr=0.1, local_steps=1)
    np.testing.assert_allclose(path[:, 0], [1.8, 1.62], rtol=1e-6)
    assert server.memory["last"]["round"].tolist() == [2, 0]
    assert server.model_of(1)["theta"].tolist() == [2]


def test_full_participation_is_fedavg_bit_for_bit(assert_fedavg):
    assert_fedavg("strategy=fedawe", job=["ram=full", "num_clients=10"])


def test_aims_at_the_plain_mean(federation, play):
    """Attendance 0.8, 0.4 and 0.2, a = 0, 1, 5, equal curvature. Summed over clients, the x_i change in a round by
    −ηΣ_{i∈S}(t − τ_i)(x_i − a_i), and t − τ_i has the mean 1/π_i and is independent of x_i, which is the mean model of i's last
    participation. So, for any step, E[mean model | i took part], averaged over i, is the plain mean, 2. Within four standard
    errors (batch means over 20 blocks, t beyond 4 with 19 degrees of freedom: error rate 8·10⁻⁴), themselves at most 0.3.
    The mean model over all rounds is there up to a bias of the order of the step; FedAvg's aim is 0.81."""
    attendance, centres = np.array([0.8, 0.4, 0.2]), np.array([0.0, 1.0, 5.0])
    draws = np.random.default_rng(8).random((1300, 3)) < attendance
    subsets = [np.flatnonzero(draw).tolist() for draw in draws]
    _, path = play(federation([[a] for a in centres]), "fedawe", subsets, lr=0.05, local_steps=1)

    def estimate(rounds):
        return np.mean([path[rounds][draws[rounds, i], 0].mean() for i in range(3)])

    blocks = np.array([estimate(rounds) for rounds in np.split(np.arange(300, 1300), 20)])
    error = 4 * blocks.std(ddof=1) / np.sqrt(20)
    assert error < 0.3
    assert abs(estimate(np.arange(300, 1300)) - 2) < error
    assert path[300:].mean() == pytest.approx(2, abs=0.3)


def test_server_optimizer_is_refused():
    with pytest.raises(
        UserError, match=r"strategy.server_optimizer=yogi: fedawe has its own server step; allowed: sgd"
    ):
        validate(compose_config(["strategy=fedawe", "strategy.server_optimizer=yogi"]))
