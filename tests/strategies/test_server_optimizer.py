"""The server's step by hand (Reddi et al., Algorithm 2), under every kind of averaging, and against Flower's own."""

from math import sqrt

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.grids.base import SimulatedGrid
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.rounds import Update
from fedrage_flwr.settings import lookup
from strategies import STRATEGIES
from strategies.base import StrategySettings
from strategies.fedavg import FedAvg
from strategies.rounds import run_rounds
from strategies.server_optimizer import ServerOptimizer


def settings(rule, lr=1.0, beta1=0.5, beta2=0.75, tau=1.0):
    return StrategySettings("test", rule, lr, beta1, beta2, tau)


def path(options, changes, start=1.0):
    """θ̂ after each of the steps with Δ as given."""
    optimizer, memory, theta, thetas = ServerOptimizer(options), {}, np.array([start]), []
    for change in changes:
        theta = optimizer.step({"w": theta}, {"w": theta + change}, memory)["w"]
        thetas.append(theta.item())
    return thetas


def test_sgd():
    assert path(settings("sgd", lr=0.5), [2.0, -4.0]) == [2.0, 0.0]


def test_sgd_with_rate_one_returns_the_mean_itself():
    """0.4 + (0.1 − 0.4) is not 0.1 in floating point; the mean is."""
    mean = {"w": np.array([0.1])}
    assert 0.4 + (0.1 - 0.4) != 0.1
    assert ServerOptimizer(settings("sgd")).step({"w": np.array([0.4])}, mean, {})["w"] == [0.1]


def test_momentum():
    """m = 2, then ½·2 − 4 = −3, then ½·(−3) + 0 = −1.5; half of each is added."""
    assert path(settings("momentum", lr=0.5), [2.0, -4.0, 0.0]) == [2.0, 0.5, -0.25]


def test_adam():
    """v₀ = τ² = 1. Δ = 2: m = 1, v = ¾ + ¼·4 = 1.75. Δ = 1: m = 1, v = ¾·1.75 + ¼ = 1.5625 = 1.25². No bias correction."""
    first = 1 + 1 / (sqrt(1.75) + 1)
    assert path(settings("adam"), [2.0, 1.0]) == pytest.approx([first, first + 1 / 2.25], rel=1e-12)


def test_yogi():
    """v₀ = 1. Δ = 2: v = 1 + ¼·4 = 2 since 1 < 4. Δ = 1: v = 2 − ¼·1 = 1.75 since 2 > 1; m = 1 both times."""
    first = 1 + 1 / (sqrt(2) + 1)
    assert path(settings("yogi"), [2.0, 1.0]) == pytest.approx([first, first + 1 / (sqrt(1.75) + 1)], rel=1e-12)


def test_yogi_where_both_are_equal():
    """v = Δ² = 1 stays: m = ½, the step is ½/(1 + 1)."""
    assert path(settings("yogi"), [1.0]) == [1.25]


def test_m_and_v_are_in_the_memory_in_float64_and_theta_in_its_own_dtype():
    memory = {}
    before = {"w": np.ones(2, np.float32), "not stepped": np.ones(1)}
    after = ServerOptimizer(settings("adam")).step(before, {"w": np.zeros(2, np.float32)}, memory)
    assert {name: {k: (a.dtype, a.shape) for k, a in arrays.items()} for name, arrays in memory.items()} == {
        "first_moment": {"w": (np.float64, (2,))},
        "second_moment": {"w": (np.float64, (2,))},
    }
    assert list(after) == ["w"]
    assert after["w"].dtype == np.float32


def test_a_round_without_a_usable_reply_leaves_the_memory(federation, settings_of, train_config):
    """Momentum goes on from where it was, it does not push the model on."""
    world, chosen = federation([[1.0]], [1e38]), settings_of("fedavg", lr=0.1, server_optimizer="momentum")
    server = FedAvg(*chosen, 1)
    result = server.start(world.grid, world.start, 2, train_config=train_config(chosen[1]))
    assert server.memory == {}
    assert (world.theta(result.arrays) == world.theta(world.start)).all()


@pytest.mark.parametrize("rule", ["momentum", "adam", "yogi"])
@pytest.mark.parametrize("word", ["fedavg", "weighted_fedavg", "fedprox", "federage", "fedavg_ema"])
def test_every_averaging_strategy_takes_it(federation, train_config, word, rule):
    """In round 1 the pseudo-gradient is what sgd with η_g = 1 would have added; β is averaged, not stepped."""

    def one_round(*overrides):
        config = validate(compose_config([f"strategy={word}", *overrides]))
        world = federation([[0.0, 1.0], [4.0, 3.0]], start=[1.0, -1.0])
        server = lookup(STRATEGIES, word)(config.strategy, config.client, 2)
        result = server.start(world.grid, world.start, 1, train_config=train_config(config.client))
        return world.theta(result.arrays), server

    mean, plain = one_round()
    change = mean.astype(float) - [1.0, -1.0]
    moved, server = one_round(f"strategy.server_optimizer={rule}", "strategy.server_lr=0.2", "strategy.server_tau=0.1")
    m = change if rule == "momentum" else 0.1 * change  # β₁ = 0.9
    v = {
        "momentum": 0,
        "adam": 0.99 * 0.01 + 0.01 * change**2,
        "yogi": 0.01 - 0.01 * change**2 * np.sign(0.01 - change**2),
    }
    step = m if rule == "momentum" else m / (np.sqrt(v[rule]) + 0.1)
    np.testing.assert_allclose(moved, [1.0, -1.0] + 0.2 * step, rtol=1e-6)
    assert {n: to_arrays(r) for n, r in server.records.items()} == {n: to_arrays(r) for n, r in plain.records.items()}


def test_buffers_are_averaged_and_counters_kept(settings_of):
    """Three arrays of mean 3 from 1 under η_g = ½: the parameter goes half the way, the others are the mean and the maximum."""

    def record(value):
        arrays = {
            "weight": np.array(value, np.float32),
            "running": np.array(value, np.float32),
            "count": np.array(value),
        }
        return to_record(arrays)

    server = FedAvg(*settings_of("fedavg", server_lr=0.5), 2)
    server.untrained, server.broadcast = frozenset({"running", "count"}), {"arrays": record(1)}
    after = to_arrays(server.reduce([Update(0, {"arrays": record(2)}, {}), Update(1, {"arrays": record(4)}, {})]))
    assert {name: array.item() for name, array in after.items()} == {"weight": 2, "running": 3, "count": 4}
    assert after["count"].dtype == np.int64


# --- Flower's own: every client has one example here, so that weights by examples are uniform ----------------------------

ROUNDS = 6
CENTRES = np.array([[0.0, 1.0], [4.0, 3.0], [-1.0, 0.5]])
FLOWER = {"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1}


class OneStep(SimulatedGrid):
    """Clients that go a tenth of the way to their centres."""

    def run_clients(self, messages):
        return [self.answer(CENTRES[i], message) for i, message in messages]

    def answer(self, centre, message):
        theta = message.content["arrays"]["theta"].numpy()
        arrays = to_record({"theta": (theta - 0.1 * (theta - centre)).astype(theta.dtype)})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


def play(strategy, rounds=ROUNDS, dtype=np.float64):
    start = to_record({"theta": np.array([2.0, -1.0], dtype)})
    return to_arrays(run_rounds(strategy, OneStep(3), start, rounds).arrays)["theta"]


def test_momentum_is_flowers_fedavgm():
    theirs = play(flower.FedAvgM(server_learning_rate=0.7, server_momentum=0.6, **FLOWER))
    np.testing.assert_allclose(play(FedAvg(settings("momentum", lr=0.7, beta1=0.6), None, 3)), theirs, rtol=1e-10)


@pytest.mark.parametrize(("tau", "same"), [(1e-6, True), (0.3, False)])
def test_yogi_is_flowers_but_for_the_start_of_v(tau, same):
    """v = τ² against 0: the same in the limit of small τ only."""
    theirs = play(flower.FedYogi(eta=0.05, beta_1=0.6, beta_2=0.8, tau=tau, **FLOWER))
    found = play(FedAvg(settings("yogi", lr=0.05, beta1=0.6, beta2=0.8, tau=tau), None, 3))
    assert np.allclose(found, theirs, rtol=1e-5) == same


@pytest.mark.parametrize(("tau", "same"), [(1e-6, True), (0.3, False)])
def test_adam_is_flowers_but_for_the_start_of_v_and_a_rate_that_changes(tau, same):
    """FedAdam's rate in round t is η√(1 − β₂^(t+1))/(1 − β₁^(t+1)), as if a round had gone before the first."""
    theirs = play(flower.FedAdam(eta=0.05, beta_1=0.6, beta_2=0.8, tau=tau, **FLOWER))
    memory, theta = {}, np.array([2.0, -1.0])
    for t in range(1, ROUNDS + 1):
        rate = 0.05 * sqrt(1 - 0.8 ** (t + 1)) / (1 - 0.6 ** (t + 1))
        mean = theta - 0.1 * (theta - CENTRES.mean(0))
        optimizer = ServerOptimizer(settings("adam", rate, beta1=0.6, beta2=0.8, tau=tau))
        theta = optimizer.step({"theta": theta}, {"theta": mean}, memory)["theta"]
    assert np.allclose(theta, theirs, rtol=1e-5) == same
    constant = play(FedAvg(settings("adam", lr=0.05, beta1=0.6, beta2=0.8, tau=tau), None, 3))
    assert not np.allclose(constant, theirs, rtol=1e-3)


def test_flowers_adam_returns_float64_for_float32_and_ours_does_not():
    """With numpy 2, where a float64 number makes a float32 array double; before that it did not."""
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        assert play(flower.FedAdam(**FLOWER), rounds=1, dtype=np.float32).dtype == np.float64
    assert play(FedAvg(settings("adam"), None, 3), dtype=np.float32).dtype == np.float32
