"""A convex problem small enough for a solver, and the paper's Algorithm 2 on it: in numpy, and by the engine."""

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
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.losses import LOSSES
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.report.rates import BETA_RANGE, RADIUS, Averages, algorithm, draws, lad_problem
from fedrage_flwr.settings import lookup
from fedrage_flwr.training import LocalModel
from fedrage_flwr.workspace import SplitTensors, Workspace
from strategies import STRATEGIES


@pytest.fixture(scope="session")
def lad():
    return lad_problem()


@pytest.fixture
def by_numpy(lad):
    """Algorithm 2 in numpy, with its own draws unless they are given."""

    def run(num_rounds, local_steps, lr, alpha=1.0, gamma=0.0, replicas=32, members=None, positions=None, seed=0):
        if members is None:
            members, positions = draws(lad, num_rounds, local_steps, range(seed, seed + replicas))
        return algorithm(lad, members, positions, lr, alpha, gamma)

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
        polyak = PolyakAverage(num_rounds)
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
