"""A convex problem small enough for a solver, and the paper's Algorithm 2 on it, written down a second time in numpy."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord
from torch import nn

from clients.base import write_settings
from fedrage_flwr.availability.subsets import Subsets
from fedrage_flwr.callbacks import PolyakAverage
from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.data.linear_gaussian import draw
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.losses import LOSSES
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.reference import batches
from fedrage_flwr.settings import lookup
from fedrage_flwr.training import LocalModel
from fedrage_flwr.workspace import SplitTensors, Workspace
from strategies import STRATEGIES


@dataclass
class LadProblem:
    """Least absolute deviation: four clients of eight examples each, in two dimensions. The last one differs and is rare.

    The start θ = 0 is about 5 from any optimum: in bound (22) its distance leads.

    Attributes:
        law: subsets of clients (of different sizes) and their probabilities.
        p: E[1{i∈S}/|S|] by hand.
    """

    inputs: np.ndarray
    targets: np.ndarray
    owner: np.ndarray
    law: dict[tuple[int, ...], float]
    p: np.ndarray

    @property
    def batches(self):
        """Q^b for mini-batches of one example."""
        return batches(self.owner, self.p, 1)

    def losses(self, theta):
        return np.abs(self.inputs @ theta - self.targets)


@pytest.fixture(scope="session")
def lad():
    weights = np.array([4.0, -3.0]) + np.array([[0.0, 1.0], [0.5, 1.0], [0.0, 0.5], [3.0, -1.0]])
    data = draw(weights, np.arange(4), 0.3, 1.0, 8, 1, "absolute_error", seed=3)
    law = {(0,): 0.25, (1,): 0.15, (0, 1): 0.2, (1, 2): 0.2, (0, 1, 2): 0.12, (2, 3): 0.08}
    # client 0: 0.25 + 0.1 + 0.04; 1: 0.15 + 0.1 + 0.1 + 0.04; 2: 0.1 + 0.04 + 0.04; 3: 0.04
    p = np.array([0.39, 0.39, 0.18, 0.04])
    return LadProblem(
        data.train.inputs.double().numpy(), data.train.labels.double().numpy(), data.train_owner, law, p
    )  # fmt: skip


@dataclass
class Averages:
    """θ̄ (R, d) and β̄ (R,), means of the T checkpoints."""

    theta: np.ndarray
    beta: np.ndarray


def algorithm(problem, members, positions, lr, alpha, gamma, radius, beta_range):
    """FedeRage paper, Algorithm 2 with η_θ = η_β, R replicas at once; γ = 0 is Algorithm 1.

    All clients work and those outside S^t weigh nothing: what they have is overwritten by the broadcast.

    Args:
        members: bool (T, R, N), S^t of each replica.
        positions: (T, H, R, N), which of its examples a client draws.
    """
    num_rounds, replicas, n = members.shape
    d = problem.inputs.shape[1]
    x, y = (a.reshape(n, -1, *a.shape[1:]) for a in (problem.inputs, problem.targets))
    client = np.arange(n)
    theta, beta = np.zeros((replicas, d)), np.zeros(replicas)
    sums = np.zeros((replicas, d)), np.zeros(replicas)
    for chosen, steps in zip(members, positions, strict=True):
        theta_i, beta_i = np.repeat(theta[:, None], n, 1), np.repeat(beta[:, None], n, 1)
        for step in steps:
            xi = x[client, step]
            residual = (xi * theta_i).sum(2) - y[client, step]
            w = (1 - gamma) + gamma / alpha * (np.abs(residual) >= beta_i)
            theta_i = theta_i - lr * (w * np.sign(residual))[..., None] * xi
            theta_i *= np.minimum(1, radius / np.maximum(np.linalg.norm(theta_i, axis=2, keepdims=True), radius))
            beta_i = np.clip(beta_i - lr * (1 - w), *beta_range)
        share = chosen / chosen.sum(1, keepdims=True)
        theta, beta = (share[..., None] * theta_i).sum(1), (share * beta_i).sum(1)
        sums = sums[0] + theta, sums[1] + beta
    return Averages(sums[0] / num_rounds, sums[1] / num_rounds)


@pytest.fixture
def by_numpy(lad):
    """Algorithm 2 in numpy, with its own draws unless they are given."""

    def run(num_rounds, local_steps, lr, alpha=1.0, gamma=0.0, replicas=32, members=None, positions=None, seed=0):
        rng = np.random.default_rng([seed, num_rounds])
        if members is None:
            table = np.array([[i in subset for i in range(4)] for subset in lad.law])
            members = table[rng.choice(len(table), (num_rounds, replicas), p=list(lad.law.values()))]
            positions = rng.integers(8, size=(num_rounds, local_steps, replicas, 4))
        return algorithm(lad, members, positions, lr, alpha, gamma, RADIUS, BETA_RANGE)

    return run


@pytest.fixture
def by_engine(lad, settings_of):
    """The real thing: strategy, clients, manager and grid, one replica."""

    def run(word, num_rounds, local_steps, lr, seed=0, start=(0.0, 0.0), **changes):
        linear = nn.Linear(2, 1, bias=False)
        linear.weight.data = torch.tensor([start])
        model = LocalModel(nn.Sequential(nn.Flatten(), linear), LOSSES["absolute_error"])
        split = SplitTensors(torch.tensor(lad.inputs).float(), torch.tensor(lad.targets).float())
        workspace = Workspace(model, split, [np.flatnonzero(lad.owner == i) for i in range(4)], lambda inputs: inputs)
        grid = InlineGrid(make_client_app(workspace), 4)
        server, client = settings_of(
            word, lr=lr, local_steps=local_steps, batch_size=1, theta_radius=RADIUS, beta_range=list(BETA_RANGE),
            lr_beta=lr, beta_init=0.0, **changes,
        )  # fmt: skip
        polyak = PolyakAverage()
        lookup(STRATEGIES, word)(server, client, 4).start(
            grid,
            to_record(model.arrays()),
            num_rounds,
            train_config=ConfigRecord({"seed": seed, **write_settings(client)}),
            manager=RandomAccessClientManager(table_law(lad, seed), 4, 1.0),
            callbacks=[polyak],
        )
        records = {name: to_arrays(record) for name, record in polyak.records().items()}
        beta = records["beta"]["value"] if "beta" in records else np.zeros(())
        return Averages(records["arrays"]["1.weight"].astype(float), beta[None].astype(float))

    return run


@pytest.fixture
def law_of(lad):
    return lambda seed: table_law(lad, seed)


def table_law(problem, seed):
    table = Subsets.Settings(
        name="subsets", subsets=[list(s) for s in problem.law], probabilities=[*problem.law.values()]
    )
    return Subsets(table, 4, 0, seed)


RADIUS = 10.0
BETA_RANGE = (0.0, 20.0)
