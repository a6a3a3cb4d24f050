"""What each method aims at, on f_i(θ) = ½ h_i ‖θ − a_i‖² (agnostic FedAvg: FedeRage paper, eqs. 2 and 8; FedeRage: eq. 13).

One round of FedAvg from θ over the subset S gives mean_S[(1−ρ_i)θ + ρ_i a_i], ρ_i = 1 − (1 − ηh_i)^H. Weighted by the law's
probabilities that is (1 − Σp_iρ_i)θ + Σp_iρ_i a_i, so the mean of the iterates converges to Σp_iρ_i a_i / Σp_iρ_i.
"""

import itertools

import numpy as np
import pytest

from fedrage_flwr.availability.subsets import Subsets
from fedrage_flwr.callbacks import PolyakAverage
from fedrage_flwr.client_manager import RandomAccessClientManager, RoundView
from fedrage_flwr.records import to_arrays, to_record
from strategies.base import StrategySettings
from strategies.fedavg import FedAvg
from strategies.federage import FedeRage

CENTRES = [[0.0, 3.0], [1.0, -1.0], [10.0, 4.0]]
LAW = {(0,): 0.3, (1,): 0.1, (0, 1): 0.25, (1, 2): 0.05, (0, 1, 2): 0.3}  # sizes vary on purpose


def marginals():
    """p_i = E[1{i∈S}/|S|], eq. 8, straight from the table."""
    return np.array([sum(p / len(s) for s, p in LAW.items() if i in s) for i in range(3)])


def one_round(federation, settings, train_config, subset, start):
    server = FedAvg(StrategySettings("fedavg", "sgd", 1.0, 0.9, 0.99, 1e-3), settings, 3)
    view = RoundView(federation.grid, {n: i for n, i in federation.grid.partitions.items() if i in subset})
    record = to_record({"theta": np.array(start, np.float32)})
    arrays, _ = server.aggregate_train(
        1, view.send_and_receive(server.configure_train(1, record, train_config(settings), view))
    )
    return to_arrays(arrays)["theta"].astype(float)


@pytest.mark.parametrize("local_steps", [1, 5])
@pytest.mark.parametrize("curvatures", [[1.0, 1.0, 1.0], [0.5, 1.0, 4.0]])
def test_expected_round_of_fedavg(federation, fedavg_settings, train_config, local_steps, curvatures):
    """Averaged over all subsets with their probabilities, one round from the fixed point stays there, and from elsewhere
    contracts towards it by exactly 1 − Σp_iρ_i."""
    lr = 0.1
    three, settings = federation(CENTRES, curvatures), fedavg_settings(lr=lr, local_steps=local_steps)
    rho = 1 - (1 - lr * np.array(curvatures)) ** local_steps
    p = marginals()
    fixed = (p * rho) @ np.array(CENTRES) / (p @ rho)
    if len(set(curvatures)) == 1:
        np.testing.assert_allclose(fixed, p @ np.array(CENTRES))  # equal curvature: the p-mean
    for start in (fixed, fixed + np.array([2.0, -5.0])):
        expected = sum(q * one_round(three, settings, train_config, s, start) for s, q in LAW.items())
        np.testing.assert_allclose(expected - fixed, (1 - p @ rho) * (start - fixed), atol=2e-5)


def run_long(federation, strategy, settings, train_config, law, rounds, seed=0):
    table = Subsets.Settings(name="subsets", subsets=[list(s) for s in law], probabilities=list(law.values()))
    n = len(federation.grid.partitions)
    manager = RandomAccessClientManager(Subsets(table, n, 0, seed), n, 1.0)
    path = []
    polyak = PolyakAverage(rounds)
    watcher = type(
        "Watcher", (), {"after_round": lambda self, round: path.append(to_arrays(round.arrays)["theta"].copy())}
    )()
    strategy.start(
        federation.grid, federation.start, rounds, train_config=train_config(settings), manager=manager,
        callbacks=[polyak, watcher],
    )  # fmt: skip
    return np.array(path, float), to_arrays(polyak.records()["arrays"])["theta"]


def test_running_average_of_fedavg_reaches_the_p_mean(federation, fedavg_settings, train_config):
    """3,000 rounds: the running average is within four standard errors (batch means over 30 blocks; two-sided error rate of
    a t with 29 degrees of freedom beyond 4: 4·10⁻⁴ a coordinate) while the last iterates keep a variance."""
    settings = fedavg_settings(lr=0.1)
    path, average = run_long(
        federation(CENTRES),
        FedAvg(StrategySettings("fedavg", "sgd", 1.0, 0.9, 0.99, 1e-3), settings, 3),
        settings,
        train_config,
        LAW,
        3000,
    )
    np.testing.assert_allclose(average, path.mean(0), rtol=1e-5)
    burnt = path[300:]
    blocks = burnt[: len(burnt) // 30 * 30].reshape(30, -1, 2).mean(1)
    error = np.abs(burnt.mean(0) - marginals() @ np.array(CENTRES))
    assert (error < 4 * blocks.std(0, ddof=1) / np.sqrt(30)).all()
    assert (burnt.std(0) > 0.1).all()


@pytest.mark.parametrize(("gamma", "optimum"), [(0.0, 0.2), (0.2, 0.36), (1.0, 0.5)])
def test_federage_reaches_the_mean_cvar_optimum(federation, federage_settings, train_config, gamma, optimum):
    """Two clients, a = 0 with p = 0.8 and a = 1 with p = 0.2; α = 0.2. Below θ = ½ the worst 20 % of the mass are client 1,
    so the objective is (1−γ)·E f + γ·f_1 with derivative (1−γ)(θ − 0.2) + γ(θ − 1), zero at θ = 0.2 + 0.8γ; that is below ½
    for γ < 3/8. Above ½ the worst are client 0's and the derivative is positive, so for larger γ the optimum is the kink ½.
    """
    settings = federage_settings(lr=0.01, alpha=0.2, gamma=gamma, lr_beta=0.004)
    server = FedeRage(StrategySettings("federage", "sgd", 1.0, 0.9, 0.99, 1e-3), settings, 3)
    path, _ = run_long(
        federation([[0.0], [1.0]], start=[0.2]), server, settings, train_config, {(0,): 0.8, (1,): 0.2}, 6000
    )
    assert path[2000:].mean() == pytest.approx(optimum, abs=0.03)


def test_the_table_is_a_law():
    assert sum(LAW.values()) == pytest.approx(1)
    assert marginals().sum() == pytest.approx(1)
    assert set(itertools.chain(*LAW)) == {0, 1, 2}
