"""AFL: the projection, the weights of those present and absent, and the saddle point."""

import numpy as np
import pytest

from fedrage_flwr.rounds import Update
from strategies.afl import AFL, project_simplex


@pytest.mark.parametrize(
    ("weights", "step", "losses", "expected"),
    [
        ([1 / 3, 1 / 3, 1 / 3], 0.1, [1, 2, 3], [0.7 / 3, 1 / 3, 1.3 / 3]),
        ([0.5, 0.5, 0.0], 1.0, [3, 1, 1], [1, 0, 0]),
        ([1.0, 0.0, 0.0], 1.0, [1, 1, 5], [0, 0, 1]),  # a zero weight recovers
    ],
)
def test_o10_ascent_and_projection(weights, step, losses, expected):
    found = project_simplex(np.array(weights) + step * np.array(losses, float))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_projection_is_the_nearest_point(scale):
    """v is the projection of x onto {v ≥ 0, Σ v = s} if and only if x − v is one number τ where v > 0 and at most τ where
    v = 0 (the KKT conditions)."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        n, total = int(rng.integers(1, 12)), float(rng.uniform(0.01, 2))
        x = scale * rng.standard_normal(n)
        v = project_simplex(x, total)
        assert (v >= 0).all()
        assert v.sum() == pytest.approx(total, abs=1e-9)
        gap = x - v
        support = v > 0
        assert np.ptp(gap[support]) <= 1e-9 * max(1, scale)
        assert (gap <= gap[support].max() + 1e-9 * max(1, scale)).all()


def test_projection_onto_nothing():
    assert project_simplex(np.array([3.0, 5.0]), 0.0).tolist() == [0, 0]


def make_server(settings_of, weights, lr_lambda=0.1):
    server = AFL(*settings_of("afl", lr_lambda=lr_lambda), len(weights))
    server.memory["lambda"] = {"weights": np.array(weights, float)}
    return server


def test_a_round_averages_with_the_weights_of_before(federation, play):
    """N = 2, w = 2: F = (2, ½), w_k = (1.8, 1.9), λ = ½ each: w = 1.85. λ_1 gains ½·0.1·(2 − ½) = 0.075.
    Then F = ½(1.85², 0.85²), w_k = (1.665, 1.765): w = 0.575·1.665 + 0.425·1.765."""
    server, path = play(
        federation([[0.0], [1.0]], start=[2.0]), "afl", [(0, 1)] * 2, lr_lambda=0.1, lr=0.1, local_steps=1
    )
    np.testing.assert_allclose(path[:, 0], [1.85, 0.575 * 1.665 + 0.425 * 1.765], rtol=1e-6)
    gain = 0.05 * 0.5 * (1.85**2 - 0.85**2)
    np.testing.assert_allclose(server.memory["lambda"]["weights"], [0.575 + gain, 0.425 - gain], rtol=1e-5)


def test_o10_absent_clients_keep_their_weight(federation, play):
    """Two of five, F = (2, ½): they share the 0.4 they had, the three others stay at exactly 0.2 although their loss is
    unknown (as zeros they would lose)."""
    five = federation([[0.0], [1.0], [9.0], [9.0], [9.0]], start=[2.0])
    server, _ = play(five, "afl", [(0, 1)], lr_lambda=0.1)
    np.testing.assert_allclose(server.memory["lambda"]["weights"], [0.275, 0.125, 0.2, 0.2, 0.2], rtol=1e-6)
    assert (server.memory["lambda"]["weights"][2:] == 1 / 5).all()


def test_o10_weights_stay_on_the_simplex(federation, play):
    """100 rounds of any participants and large steps; empty rounds among them."""
    rng = np.random.default_rng(2)
    subsets = [np.flatnonzero(rng.random(6) < 0.4).tolist() for _ in range(100)]
    six = federation([[float(i * i)] for i in range(6)])
    server, path = play(six, "afl", subsets, lr_lambda=1.0, lr=0.1)
    weights = server.memory["lambda"]["weights"]
    assert (weights >= 0).all()
    assert weights.min() == 0  # so the case is met
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    assert np.isfinite(path).all()


def test_one_participant_a_round_leaves_the_weights_alone(federation, play):
    server, _ = play(federation([[0.0], [1.0]]), "afl", [(0,), (1,), (1,)], lr_lambda=1.0)
    assert server.memory["lambda"]["weights"].tolist() == [0.5, 0.5]


def test_participants_without_any_weight_are_averaged_plainly(settings_of):
    server = make_server(settings_of, [0.0, 0.0, 1.0])
    updates = [Update(i, {}, {"initial-loss": 1.0}) for i in range(3)]
    assert server.weights(updates[:2]) is None
    assert server.weights(updates) == [0.0, 0.0, 1.0]


def test_o02_a_rejected_reply_leaves_the_weights_alone(federation, play):
    server, _ = play(federation([[0.0], [np.nan]]), "afl", [(0, 1)] * 3, lr_lambda=1.0)
    assert server.memory["lambda"]["weights"].tolist() == [0.5, 0.5]


def test_equal_weights_are_fedavg_bit_for_bit(assert_fedavg):
    assert_fedavg("strategy=afl", "strategy.lr_lambda=0")


def test_aims_at_the_worst_client(federation, play):
    """f_1 = 2θ², f_2 = ½(θ − 1)²: max is least where they are equal, 2θ = 1 − θ, θ = 1/3; there λ_1·4θ = λ_2(1 − θ), so
    λ = (1/3, 2/3). The averages go there, the iterates circle round it. FedAvg would stop at 1/5."""
    two = federation([[0.0], [1.0]], curvatures=[4.0, 1.0])
    _, path = play(two, "afl", [(0, 1)] * 500, lr_lambda=0.1, lr=0.1, local_steps=1)
    assert path.mean() == pytest.approx(1 / 3, abs=0.01)
