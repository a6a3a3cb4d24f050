"""FedProx: what it is at μ = 0, what it aims at, and that μ gets where it is needed."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from clients.base import write_settings
from clients.fedprox import FedProxSettings
from fedrage_flwr.client_manager import RoundView
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.schema import build
from strategies.fedprox import FedProx

CENTRES = [[0.0, 3.0], [1.0, -1.0], [10.0, 4.0]]
LAW = {(0,): 0.3, (1,): 0.1, (0, 1): 0.25, (1, 2): 0.05, (0, 1, 2): 0.3}


@pytest.mark.parametrize("more", [(), ("client.theta_radius=3",), ("strategy.server_optimizer=momentum",)])
def test_o07_mu_zero_is_fedavg_bit_for_bit(simulate, more):
    job = ("num_rounds=12", "client.lr=0.05", *more)
    fedavg, _ = simulate("strategy=fedavg", *job)
    fedprox, _ = simulate("strategy=fedprox", "client.mu=0", *job)
    for name in ("model.safetensors", "polyak.safetensors"):
        expected, found = load_file(fedavg / name), load_file(fedprox / name)
        assert {key: a.tobytes() for key, a in expected.items()} == {key: a.tobytes() for key, a in found.items()}


def test_mu_reaches_the_clients(simulate):
    """The clients stay nearer to the start, the more the larger μ is."""
    job = ("num_rounds=1", "client.local_steps=20", "client.lr=0.05", "model=softmax")  # softmax starts at zero
    moved = [
        np.linalg.norm(load_file(simulate("strategy=fedprox", f"client.mu={mu}", *job)[0] / "model.safetensors")["1.weight"])
        for mu in (0, 1, 10)
    ]  # fmt: skip
    assert moved[0] > 1.2 * moved[1] > 1.2 * 1.2 * moved[2]


def one_round(federation, settings, train_config, subset, start):
    server = FedProx(*settings, 3)
    view = RoundView(federation.grid, {n: i for n, i in federation.grid.partitions.items() if i in subset})
    record = to_record({"theta": np.array(start, np.float32)})
    messages = server.configure_train(1, record, train_config(settings[1]), view)
    return to_arrays(server.aggregate_train(1, view.send_and_receive(messages))[0])["theta"].astype(float)


@pytest.mark.parametrize(("mu", "curvatures"), [(1e-6, [1.0] * 3), (0.5, [1.0] * 3), (2.0, [0.5, 1.0, 4.0])])
def test_expected_round(federation, settings_of, train_config, mu, curvatures):
    """Local steps go towards (h a + μθ̂)/(h + μ), each by 1 − η(h + μ): θ_i = (1 − ρ_i)θ̂ + ρ_i a_i with
    ρ_i = h/(h + μ)·(1 − (1 − η(h + μ))^H). The expected round rests at Σp_iρ_i a_i/Σp_iρ_i: for equal h the p-mean,
    whatever μ."""
    settings, h = settings_of("fedprox", mu=mu, lr=0.1, local_steps=5), np.array(curvatures)
    rho = h / (h + mu) * (1 - (1 - 0.1 * (h + mu)) ** 5)
    p = np.array([sum(q / len(s) for s, q in LAW.items() if i in s) for i in range(3)])
    fixed = (p * rho) @ np.array(CENTRES) / (p @ rho)
    start = fixed + np.array([2.0, -5.0])
    three = federation(CENTRES, curvatures)
    expected = sum(q * one_round(three, settings, train_config, s, start) for s, q in LAW.items())
    np.testing.assert_allclose(expected - fixed, (1 - p @ rho) * (start - fixed), atol=2e-5)


def test_o07_the_mu_of_a_run_is_in_its_configuration_and_its_messages():
    cfg = compose_config(["strategy=fedprox"])
    assert cfg.client.mu > 0  # visible: what is saved with the run
    assert write_settings(validate(cfg).client)["client.mu"] == cfg.client.mu
    assert write_settings(validate(compose_config(["strategy=fedprox", "client.mu=0.25"])).client)["client.mu"] == 0.25
    with pytest.raises(UserError, match=r"client\.mu is missing"):
        build(FedProxSettings, {k: v for k, v in cfg.client.items() if k != "mu"}, "client")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["client.mu_prox=0.1"], r"client\.mu_prox=0\.1: no such key; did you mean client\.mu\?"),
        (["+client.mu_prox=0.1"], r"client\.mu_prox: no such key"),
        (["client.mu=-1"], r"client\.mu=-1 is not allowed: must be a number in \[0, ∞\)"),
    ],
)
def test_o07_mistakes_are_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        validate(compose_config(["strategy=fedprox", *overrides]))
