"""FedeRage's server half, and the identities that tie it to agnostic FedAvg."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedrage_flwr.records import to_arrays
from strategies.base import StrategySettings
from strategies.federage import FedeRage


def test_theta_and_beta_are_plain_means(federation, federage_settings, train_config):
    """f_i = ½(θ − a_i)² at θ = 2, β₀ = 1, one step: client 0 (a = 0) has f = 2, in the tail, w = 1.5:
    θ = 2 − 0.1·1.5·2 = 1.7, β = 1.5. Client 1 (a = 1) has f = ½, w = ½: θ = 2 − 0.1·½·1 = 1.95, β = 0.5."""
    two = federation([[0.0], [1.0]], start=[2.0])
    settings = federage_settings(beta_init=1.0)
    server = FedeRage(StrategySettings("federage", "sgd", 1.0, 0.9, 0.99, 1e-3), settings, 3)
    result = server.start(two.grid, two.start, num_rounds=1, train_config=train_config(settings))
    np.testing.assert_allclose(two.theta(result.arrays), [1.825], rtol=1e-6)
    assert to_arrays(server.records["beta"])["value"] == pytest.approx(1.0)
    assert {u.client: u.metrics["tail_share"] for u in server.updates} == {0: 1.0, 1: 0.0}


def test_one_scalar_more_than_fedavg(federation, federage_settings, train_config):
    two = federation([[0.0], [1.0]])
    settings = federage_settings()
    rounds = []
    watcher = type("Watcher", (), {"after_round": lambda self, round: rounds.append(round)})()
    FedeRage(StrategySettings("federage", "sgd", 1.0, 0.9, 0.99, 1e-3), settings, 3).start(
        two.grid, two.start, num_rounds=1, train_config=train_config(settings), callbacks=[watcher]
    )
    assert (rounds[0].bytes_up, rounds[0].bytes_down) == (2 * (4 + 4), 2 * (4 + 4))  # θ and β, float32, two clients


@pytest.mark.parametrize("identity", [("client.gamma=0",), ("client.alpha=1", "client.gamma=0.3")])
@pytest.mark.parametrize("projection", [(), ("client.theta_radius=3",)])
def test_identities_hold_bit_for_bit(simulate, identity, projection):
    """γ = 0, and α = 1 with β₀ = 0 and losses ≥ 0, are agnostic FedAvg."""
    job = ("num_rounds=12", "client.lr=0.05", *projection)
    fedavg, _ = simulate("strategy=fedavg", *job)
    federage, _ = simulate("strategy=federage", *job, *identity)
    for name in ("model.safetensors", "polyak.safetensors"):
        expected, found = load_file(fedavg / name), load_file(federage / name)
        found.pop("beta")
        assert expected.keys() == found.keys()
        assert all((expected[key] == found[key]).all() for key in expected)


def test_alpha_one_below_beta_is_not_fedavg(simulate):
    """The condition matters: with β₀ above the losses w = 1−γ, and β falls."""
    job = ("num_rounds=3", "client.lr=0.05")
    fedavg, _ = simulate("strategy=fedavg", *job)
    federage, _ = simulate("strategy=federage", "client.alpha=1", "client.gamma=0.3", "client.beta_init=50", *job)
    assert not (
        load_file(fedavg / "model.safetensors")["1.weight"] == load_file(federage / "model.safetensors")["1.weight"]
    ).all()
