"""Theorems 1 and 2 of the FedeRage paper on a convex problem: the error of the averaged checkpoints falls like κ/√T.

The error is f_{α,γ}(θ̄, β̄) less the optimum that HiGHS finds. Thousands of rounds are run by the paper's listing written in
numpy, 32 replicas at once, which the first test holds to the real engine; the slow test runs the engine itself as far.
"""

import numpy as np
import pytest

from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.reference import least_absolute_deviation, objective
from fedrage_flwr.training import draw_batches

STEPS = 2  # H
METHODS = {"fedavg": (1.0, 0.0), "federage": (0.1, 0.5), "mild": (0.5, 0.5), "tail": (0.25, 1.0)}  # α, γ
HORIZONS = (100, 316, 1000, 3162, 10_000)


def kappa_of(alpha, gamma):
    return (1 - gamma) + gamma / alpha


def step_size(rounds, alpha, gamma, c=1.0):
    return c / (kappa_of(alpha, gamma) * np.sqrt(rounds * STEPS))


def errors(lad, averages, alpha, gamma):
    """Of each replica, (R,)."""
    optimum = least_absolute_deviation(lad.inputs, lad.targets, lad.batches, alpha, gamma)
    q = lad.batches.probabilities
    values = [objective(lad.losses(t), q, alpha, gamma, b) for t, b in zip(averages.theta, averages.beta, strict=True)]
    return np.array(values) - optimum.value


@pytest.mark.parametrize(("word", "alpha", "gamma"), [("fedavg", 1.0, 0.0), ("federage", 0.1, 0.5)])
def test_the_listing_in_numpy_is_the_engine(lad, by_numpy, by_engine, law_of, word, alpha, gamma):
    """Same participants, same mini-batches, same numbers but for float32."""
    rounds, seed, lr = 80, 5, 0.05
    law = law_of(seed)
    members = np.zeros((rounds, 1, 4), bool)
    positions = np.zeros((rounds, STEPS, 1, 4), int)
    for t in range(rounds):
        members[t, 0, law.sample(t + 1)] = True
        for client in range(4):
            rng = generator(seed, Stream.BATCHES, t + 1, client)
            positions[t, :, 0, client] = draw_batches(rng, 8, 1, STEPS)[:, 0]
    expected = by_numpy(rounds, STEPS, lr, alpha, gamma, members=members, positions=positions)
    changes = {} if word == "fedavg" else {"alpha": alpha, "gamma": gamma}
    found = by_engine(word, rounds, STEPS, lr, seed=seed, **changes)
    np.testing.assert_allclose(found.theta, expected.theta, atol=1e-4)
    np.testing.assert_allclose(found.beta, expected.beta, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_error_falls_with_the_root_of_t(lad, by_numpy, method):
    """Log-log slope of the mean error over T = 10² … 10⁴ with η = 1/(κ√(TH)) is at most −0.45; and the bound (22) of the
    proof, with the constants of the problem, holds at each T: its right-hand side is (constant)·κ/√T."""
    alpha, gamma = METHODS[method]
    kappa = kappa_of(alpha, gamma)
    mean = np.array([
        errors(lad, by_numpy(t, STEPS, step_size(t, alpha, gamma), alpha, gamma), alpha, gamma).mean() for t in HORIZONS
    ])  # fmt: skip
    assert (mean > 0).all()
    slope = np.polyfit(np.log(HORIZONS), np.log(mean), 1)[0]
    assert slope <= -0.45, (slope, mean)
    scaled = mean * np.sqrt(HORIZONS) / kappa
    assert scaled.max() <= constant(lad, alpha, gamma), scaled


def constant(lad, alpha, gamma):
    """Bound (22) with η = 1/(κ√(TH)), times √T/κ: D²/(2√H) + (σ² + G²)/(κ²√H) + 4 ℓ G √H/κ².

    Step (iii) of the proof: |∂θ g| ≤ κ‖x‖ and |∂β g| ≤ κ bound the Lipschitz constant and both moments.
    """
    optimum = least_absolute_deviation(lad.inputs, lad.targets, lad.batches, alpha, gamma)
    distance = optimum.theta @ optimum.theta + (optimum.beta**2 if gamma else 0)  # from θ = 0, β = 0
    steepest = (np.linalg.norm(lad.inputs, axis=1) ** 2).max() + (1 if gamma else 0)  # (ℓ/κ)² ≥ (G/κ)² ≥ (σ/κ)²
    assert np.linalg.norm(optimum.theta) < 10  # inside C: the projection leaves the optimum as it is
    root = np.sqrt(STEPS)
    return distance / (2 * root) + 2 * steepest / root + 4 * steepest * root


def test_a_fixed_step_does_not_get_there(lad, by_numpy):
    """The counter-check: with η that does not fall with T the error stops falling."""
    mean = [errors(lad, by_numpy(t, STEPS, 0.3), 1.0, 0.0).mean() for t in (1000, 10_000)]
    assert np.log10(mean[1] / mean[0]) > -0.2


def test_without_the_rare_clients_weight_it_is_another_problem(lad, by_numpy):
    """FedAvg nears the optimum of Σ p_i f_i, not that of the plain mean Σ f_i/N: the second is farther from θ̄."""
    theta = by_numpy(10_000, STEPS, step_size(10_000, 1, 0)).theta.mean(0)
    target = least_absolute_deviation(lad.inputs, lad.targets, lad.batches).theta
    q = np.full(len(lad.targets), 1 / len(lad.targets))
    plain = least_absolute_deviation(lad.inputs, lad.targets, type(lad.batches)(lad.batches.members, q)).theta
    assert np.linalg.norm(theta - target) < 0.2 * np.linalg.norm(theta - plain)


@pytest.mark.slow
@pytest.mark.parametrize(("word", "alpha", "gamma"), [("fedavg", 1.0, 0.0), ("federage", 0.1, 0.5)])
def test_error_falls_with_the_root_of_t_in_the_engine(lad, by_engine, word, alpha, gamma):
    changes = {} if word == "fedavg" else {"alpha": alpha, "gamma": gamma}
    mean = np.array([
        errors(lad, by_engine(word, t, STEPS, step_size(t, alpha, gamma), **changes), alpha, gamma)[0] for t in HORIZONS
    ])  # fmt: skip
    assert np.polyfit(np.log(HORIZONS), np.log(mean), 1)[0] <= -0.45
    assert (mean * np.sqrt(HORIZONS) / kappa_of(alpha, gamma)).max() <= constant(lad, alpha, gamma)
