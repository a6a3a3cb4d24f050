"""TERM: weights that are stable, and what they aim at."""

import numpy as np
import pytest

from fedrage_flwr.rounds import Update
from strategies.term import TERM


@pytest.mark.parametrize(
    ("tilt", "losses", "expected"),
    [
        (0.0, [1, 5], [0.5, 0.5]),
        (1.0, [2, 1], [0.7310586, 0.2689414]),
        (-1.0, [2, 1], [0.2689414, 0.7310586]),
        (1.0, [800, 801], [0.2689414, 0.7310586]),  # e^800 is beyond float64
        (1000.0, [0.3, 5000], [0, 1]),
        (-1000.0, [0.3, 5000], [1, 0]),
    ],
)
def test_weights(settings_of, tilt, losses, expected):
    server = TERM(*settings_of("term", tilt=tilt), 2)
    weights = np.array(server.weights([Update(i, {}, {"initial-loss": float(f)}) for i, f in enumerate(losses)]))
    np.testing.assert_allclose(weights / weights.sum(), expected, atol=1e-7)


def test_one_round(federation, play):
    """θ = 2: F = (2, ½), w_k = (1.8, 1.9): client 0 weighs 1/(1 + e^{−1.5})."""
    _, path = play(federation([[0.0], [1.0]], start=[2.0]), "term", [(0, 1)], tilt=1.0, lr=0.1, local_steps=1)
    np.testing.assert_allclose(path, [[1.9 - 0.1 / (1 + np.exp(-1.5))]], rtol=1e-6)


def test_tilt_zero_is_fedavg_bit_for_bit(assert_fedavg):
    assert_fedavg("strategy=term", "strategy.tilt=0")


@pytest.mark.parametrize("tilt", [-1.0, 0.0, 2.0, 20.0])
def test_aims_at_the_tilted_loss(federation, play, tilt):
    """f_1 = 2θ², f_2 = ½(θ − 1)²: the least of (1/t) log ½(e^{t f_1} + e^{t f_2}) on a grid; for t = 0 the mean's, 1/5."""
    grid = np.linspace(0, 1, 100_001)
    f1, f2 = 2 * grid**2, 0.5 * (grid - 1) ** 2
    tilted = (f1 + f2) / 2 if tilt == 0 else np.logaddexp(tilt * f1, tilt * f2) / tilt
    two = federation([[0.0], [1.0]], curvatures=[4.0, 1.0])
    _, path = play(two, "term", [(0, 1)] * 120, tilt=tilt, lr=0.1, local_steps=1)
    assert path[-1, 0] == pytest.approx(grid[tilted.argmin()], abs=1e-3)
