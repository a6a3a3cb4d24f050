"""Clipping and noise by hand, their limits, and ε against the closed form of composed Gaussians."""

from math import erf, exp, sqrt

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from fedrage_flwr.config import PrivacySettings, compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.records import to_record
from fedrage_flwr.rounds import Update
from strategies.fedavg import FedAvg
from strategies.federage import FedeRage
from strategies.private import clip, gaussian_epsilon, private
from strategies.scaffold import Scaffold

SMALL = ("num_clients=6", "rare_clients=1", "partition=iid", "model=softmax", "num_rounds=6", "eval_every=6")
OFF = ("privacy.clip=1e30", "privacy.clip_others=1e30")


def settings(**changes):
    return PrivacySettings(**{"clip": 1.0, "clip_others": 0.1, "noise_multiplier": 0.0, "delta": 1e-5, **changes})


@pytest.fixture
def server(settings_of):
    def make(chosen, word, seed=0, **changes):
        made = private(chosen, settings(**changes), seed)(*settings_of(word), 10)
        made.round = 1
        return made

    return make


def updates(*vectors, **others):
    return [
        Update(i, {"arrays": to_record({"w": np.array(v, np.float32)}), **{k: r[i] for k, r in others.items()}}, {})
        for i, v in enumerate(vectors)
    ]


def test_a_change_is_cut_to_the_bound_and_a_smaller_one_is_left_alone():
    """(3, 4) has norm 5; with C = 1 it becomes (0.6, 0.8), from the centre (1, 1)."""
    centre = {"w": np.ones(2, np.float32)}
    far, near = {"w": np.array([4, 5], np.float32)}, {"w": np.array([1.6, 1.8], np.float32)}
    np.testing.assert_allclose(clip(far, centre, 1.0)["w"], [1.6, 1.8], rtol=1e-6)
    np.testing.assert_array_equal(clip(near, centre, 1.01)["w"], near["w"])


def test_the_norm_is_that_of_all_arrays_together():
    """(3), (4): norm 5 again."""
    zero = {"a": np.zeros(1, np.float32), "b": np.zeros(1, np.float32)}
    cut = clip({"a": np.array([3], np.float32), "b": np.array([4], np.float32)}, zero, 1.0)
    assert [float(cut["a"][0]), float(cut["b"][0])] == pytest.approx([0.6, 0.8])


def test_the_mean_of_clipped_changes(server):
    """Changes (3, 4) → (0.6, 0.8) and (0, 0.5): mean (0.3, 0.65). β moves by 1 and 0.05, cut to 0.1 and 0.05: 0.075."""
    made = server(FedeRage, "federage")
    made.broadcast = {
        "arrays": to_record({"w": np.zeros(2, np.float32)}),
        "beta": to_record({"value": np.float32([0])}),
    }
    made.records = {"beta": made.broadcast["beta"]}
    betas = [to_record({"value": np.float32([value])}) for value in (1.0, 0.05)]
    sent = updates([3, 4], [0, 0.5], beta=betas)
    np.testing.assert_allclose(made.mean(sent, "arrays")["w"], [0.3, 0.65], rtol=1e-6)
    np.testing.assert_allclose(made.mean(sent, "beta")["value"], [0.075], rtol=1e-6)


def test_noise_has_the_deviation_zC_over_S_and_can_be_drawn_again(server):
    """10⁴ numbers: the sample's deviation is within 4 standard errors, 4/√(2·10⁴) = 2.8 % (error rate 6·10⁻⁵)."""
    d = 10_000

    def noise(seed=0, round=1):
        made = server(FedAvg, "fedavg", seed, clip=3.0, noise_multiplier=2.0)
        made.round = round
        made.broadcast = {"arrays": to_record({"w": np.zeros(d, np.float64)})}
        same = {"arrays": to_record({"w": np.zeros(d)})}
        return made.mean([Update(i, same, {}) for i in range(4)], "arrays")["w"]

    first = noise()
    assert first.std() == pytest.approx(2.0 * 3.0 / 4, rel=0.028)
    assert abs(first.mean()) < 4 * 1.5 / sqrt(d)
    np.testing.assert_array_equal(first, noise())
    for other in (noise(round=2), noise(seed=1)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 4 / sqrt(d)


@pytest.mark.parametrize("word", ["fedavg", "federage"])
def test_no_noise_and_a_bound_that_nobody_reaches_change_no_bit(simulate, word):
    plain, _ = simulate(*SMALL, f"strategy={word}")
    other, summary = simulate(*SMALL, *OFF, f"strategy={word}")
    assert (plain / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert summary["epsilon"] is None


def test_federage_with_gamma_0_is_fedavg_under_the_same_noise(simulate):
    job = (*SMALL, "privacy.clip=0.1", "privacy.noise_multiplier=0.5", "client.lr=0.1")
    fedavg, one = simulate(*job, "strategy=fedavg")
    federage, both = simulate(*job, "strategy=federage", "client.gamma=0")
    expected, found = load_file(fedavg / "model.safetensors"), load_file(federage / "model.safetensors")
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    releases = int(pd.read_csv(fedavg / "participation.csv")["client"].value_counts().max())
    assert one["privacy_releases"] == both["privacy_releases"] == releases
    assert one["epsilon"] == pytest.approx(gaussian_epsilon(0.5, releases, 1e-5, 6))
    assert both["epsilon"] == pytest.approx(gaussian_epsilon(0.5 / sqrt(2), releases, 1e-5, 6))  # θ and β


@pytest.mark.parametrize(("z", "releases"), [(1.0, 1), (5.0, 100), (10.0, 300), (2.0, 10)])
def test_epsilon_bounds_the_exact_one_of_composed_gaussians(z, releases):
    """k releases with z are one with σ = z/√k, for which δ(ε) = Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ) (Balle & Wang, ICML 2018)."""

    def phi(x):
        return (1 + erf(x / sqrt(2))) / 2

    def delta(epsilon):
        return phi(0.5 / sigma - epsilon * sigma) - exp(epsilon) * phi(-0.5 / sigma - epsilon * sigma)

    sigma, low, high = z / sqrt(releases), 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > 1e-5 else (low, middle)
    assert high <= gaussian_epsilon(z, releases, 1e-5, 30) <= 1.1 * high


def test_what_cannot_be_made_private_is_refused():
    with pytest.raises(UserError, match=r"privacy.clip=1: Scaffold makes more of the replies than their plain mean"):
        private(Scaffold, settings(), 0)
    with pytest.raises(UserError, match=r"needs privacy\.clip"):
        validate(compose_config(["privacy.noise_multiplier=1"]))


def test_a_model_with_buffers_is_refused(server):
    made = server(FedAvg, "fedavg")
    made.untrained = frozenset({"running_mean"})
    arrays = to_record({"w": np.zeros(2, np.float32), "running_mean": np.zeros(2, np.float32)})
    with pytest.raises(UserError, match="running_mean of the model is no parameter"):
        made.initial_records(arrays)
