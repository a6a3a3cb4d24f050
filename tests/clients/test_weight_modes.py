"""The weight ablation, by hand: two clients with f_i(θ) = ½(θ − a_i)², one at 0 and one at 2, θ = 2, α = γ = ½.

With β = 1 and η_β = ½, client 0 (f = 2, then 1.445 at θ = 1.7) is in the tail at both of its steps (β is 1, then 1.25): its
weights are 1.5, 1.5. Client 1 sits at its optimum, f = 0: never in the tail, weights ½, ½.
"""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from fedrage_flwr.errors import UserError
from strategies.federage import FedeRage

LR = 0.1


@pytest.fixture
def one_round(federation, settings_of, train_config):
    pair = federation([[0.0], [2.0]], start=[2.0])
    values = {"lr": LR, "local_steps": 2, "alpha": 0.5, "gamma": 0.5, "lr_beta": 0.5, "beta_init": 1.0}
    strategy, plain = settings_of("federage", **values)

    def run(mode, seed=0, **changes):
        client = dataclasses.replace(plain, weight_mode=mode, **changes)
        server = FedeRage(strategy, client, 2)
        server.start(pair.grid, pair.start, num_rounds=1, train_config=train_config(client, seed))
        thetas = {u.client: float(pair.theta(u.records["arrays"])[0]) for u in server.updates}
        return thetas, {u.client: u.metrics for u in server.updates}

    return run


def after(*weights, start=2.0, centre=0.0):
    theta = start
    for w in weights:
        theta -= LR * w * (theta - centre)
    return theta


def test_the_algorithm_itself(one_round):
    thetas, metrics = one_round("loss")
    assert thetas == {0: pytest.approx(after(1.5, 1.5)), 1: 2.0}
    assert (metrics[0]["step_weight_mean"], metrics[1]["step_weight_mean"]) == (1.5, 0.5)


def test_between_keeps_the_client_mean(one_round):
    """Raising η_β to 1 makes client 0's weights 1.5, ½ (β is 1, then 1.5 > 1.445): their mean is 1 at both steps."""
    thetas, metrics = one_round("between", lr_beta=1.0)
    assert thetas[0] == pytest.approx(after(1.0, 1.0))
    assert metrics[0]["step_weight_mean"] == pytest.approx(1.0)
    assert metrics[0]["tail_share"] == 1.0  # β follows the losses really met: f(1.8) = 1.62 ≥ 1.5


def test_within_has_mean_one(one_round):
    thetas, metrics = one_round("within", lr_beta=1.0)
    assert thetas[0] == pytest.approx(after(1.5, 0.5))  # 1.5 and ½ over their mean 1
    assert thetas[1] == 2.0
    assert metrics[1]["step_weight_mean"] == pytest.approx(1.0)


def test_shuffle_round_permutes_the_clients(one_round):
    """Over seeds both permutations of two clients occur; client 0 then takes ½, ½ or 1.5, 1.5, and nothing else."""
    found = {round(one_round("shuffle_round", seed)[0][0], 5) for seed in range(12)}
    assert found == {round(after(1.5, 1.5), 5), round(after(0.5, 0.5), 5)}


def test_shuffle_round_gives_each_row_once(one_round):
    for seed in range(6):
        _, metrics = one_round("shuffle_round", seed)
        assert sorted(m["step_weight_mean"] for m in metrics.values()) == [0.5, 1.5]


def test_shuffle_time_draws_from_the_rounds_weights(one_round):
    """W holds 1.5 and ½ in equal parts: over 100 seeds the mean of client 0's weights is 1 within four standard errors (each
    step has deviation ½; two steps a run): error rate 6·10⁻⁵ each. Client 1 would never have met 1.5 by itself."""
    means = np.array(
        [[one_round("shuffle_time", seed)[1][i]["step_weight_mean"] for i in (0, 1)] for seed in range(100)]
    )
    assert (np.abs(means.mean(0) - 1.0) < 4 * 0.5 / np.sqrt(2 * 100)).all()
    assert set(means[:, 1]) == {0.5, 1.0, 1.5}


def test_participants_and_batches_stay_the_same(simulate):
    job = ("num_rounds=5", "client.lr=0.05")
    plain, _ = simulate(*job)
    for mode in ("shuffle_round", "shuffle_time", "between", "within"):
        folder, _ = simulate(*job, f"client.weight_mode={mode}")
        assert (plain / "participation.csv").read_bytes() == (folder / "participation.csv").read_bytes()
        losses = [pd.read_csv(f / "updates.csv")["train_loss"] for f in (plain, folder)]
        assert losses[0][0] != losses[0][3]
        assert not losses[0].equals(losses[1])


def test_matched_replays_the_logged_mean(simulate):
    """A FedAvg step of w̄·η: with one local step and the log of a run whose weights are all κ, it is FedAvg at κη."""
    job = ("num_rounds=4", "client.local_steps=1", "client.lr=0.01")
    log, _ = simulate(
        *job, "client.alpha=0.25", "client.gamma=1", "client.beta_range=[0,0]"
    )  # β = 0: always tail, κ = 4
    matched, _ = simulate(*job, "client.weight_mode=matched", f"strategy.weight_log={log}")
    fedavg, _ = simulate("strategy=fedavg", "num_rounds=4", "client.local_steps=1", "client.lr=0.04")
    assert (pd.read_csv(log / "rounds.csv")["step_weight_mean"] == 4).all()
    found, expected = load_file(matched / "model.safetensors"), load_file(fedavg / "model.safetensors")
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


def test_matched_needs_a_log(simulate, tmp_path):
    with pytest.raises(UserError, match=r"weight_mode=matched needs strategy.weight_log"):
        simulate("client.weight_mode=matched", "num_rounds=1")
    log, _ = simulate("num_rounds=1")
    with pytest.raises(UserError, match="has no step weight for round 2"):
        simulate("client.weight_mode=matched", "num_rounds=2", f"strategy.weight_log={log}")
