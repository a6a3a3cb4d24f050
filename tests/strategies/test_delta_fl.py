"""Δ-FL: who is in the tail, and what that aims at."""

import dataclasses

import numpy as np
import pytest

from fedrage_flwr.rounds import Update
from strategies.delta_fl import DeltaFL


@pytest.fixture
def kept(settings_of):
    """Positions of the losses in the tail."""
    strategy, client = settings_of("delta_fl")

    def kept(losses, tail):
        server = DeltaFL(dataclasses.replace(strategy, tail=tail), client, len(losses))
        weights = server.weights([Update(i, {}, {"initial-loss": float(loss)}) for i, loss in enumerate(losses)])
        assert set(weights) <= {0.0, 1.0}
        return [i for i, weight in enumerate(weights) if weight]

    return kept


@pytest.mark.parametrize(
    ("losses", "tail", "expected"),
    [
        ([1, 2, 3], 1.0, [0, 1, 2]),
        ([1, 2, 3], 0.5, [1, 2]),  # ⌈3·½⌉ = 2: Q is the second smallest
        ([1, 2, 3], 0.3, [2]),  # ⌈3·0.7⌉ = 3
        ([3, 1, 2, 4], 0.5, [0, 2, 3]),  # ⌈4·½⌉ = 2: Q = 2, and the client on the quantile counts
        ([2, 2, 2], 0.1, [0, 1, 2]),  # ties: nobody is strictly above
        ([5], 0.01, [0]),
        (range(10), 0.7, [2, 3, 4, 5, 6, 7, 8, 9]),  # 10·0.3 = 3: rank 3, not 4
        (range(10), 0.1, [8, 9]),
    ],
)
def test_the_tail(kept, losses, tail, expected):
    assert kept(losses, tail) == expected


def test_o08_a_larger_loss_never_lowers_the_influence(kept):
    rng = np.random.default_rng(3)
    counted = 0
    for _ in range(200):
        losses, tail = rng.random(5), float(rng.uniform(0.05, 1))
        raised = losses + np.array([0, 0, rng.random(), 0, 0])
        if 2 in kept(losses, tail):
            counted += 1
            assert 2 in kept(raised, tail)
    assert counted > 50


def test_one_round(federation, play):
    """θ = 2: F = (2, ½, ⅛), client 0 alone is in the tail of 0.3: w = 1.8."""
    three = federation([[0.0], [1.0], [1.5]], start=[2.0])
    _, path = play(three, "delta_fl", [(0, 1, 2)], tail=0.3, lr=0.1, local_steps=1)
    np.testing.assert_allclose(path, [[1.8]], rtol=1e-6)


def test_tail_one_is_fedavg_bit_for_bit(assert_fedavg):
    assert_fedavg("strategy=delta_fl", "strategy.tail=1")


def test_aims_at_the_superquantile(federation, play):
    """θ = 0.4 of two clients is the worse of them: f_1 = 2θ² and f_2 = ½(θ − 1)² meet at 1/3 (FedAvg: 1/5). The iterates stay
    within a step of 0.02·4·(1/3) of it."""
    two = federation([[0.0], [1.0]], curvatures=[4.0, 1.0])
    _, path = play(two, "delta_fl", [(0, 1)] * 200, tail=0.4, lr=0.02, local_steps=1)
    assert np.abs(path[100:] - 1 / 3).max() < 0.02 * 4 / 3 + 1e-6
