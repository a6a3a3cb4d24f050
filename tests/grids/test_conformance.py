"""Every strategy gives the same bits on every grid: model, records, server memory, client state, participants, evaluation."""

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord

from clients.base import write_settings
from fedrage_flwr.config import choices, compose_config, validate
from fedrage_flwr.evaluation import ClientMeasure
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.grids.ray import RayGrid
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.run import WorkspaceFactory, make_local_model, make_strategy, prepare_run

CPU = torch.device("cpu")
JOB = (
    "num_clients=8",
    "rare_clients=2",
    "held_out_clients=1",
    "partition=iid",
    "client.local_steps=3",
    "ram.epsilon=0.5",
)


@pytest.fixture(scope="module")
def grids():
    """One of each, used by all strategies one after another: a grid knows nothing of the algorithm."""
    config = validate(compose_config([*JOB, "backend=ray", "backend.num_actors=2"]))
    prepared = prepare_run(config)
    factory = WorkspaceFactory(config, prepared.dataset, prepared.partition)
    ray = RayGrid.create(config.backend, config.all_clients, factory, CPU)
    yield {"inline": InlineGrid.create(None, config.all_clients, factory, CPU), "ray": ray}
    ray.close()


def everything(grid, word):
    """Run six rounds; return all that must not depend on the grid."""
    config = validate(compose_config([*JOB, f"strategy={word}"]))
    prepared = prepare_run(config)
    strategy = make_strategy(config, prepared.manager)
    train_config = ConfigRecord({"seed": 3, **write_settings(config.client)})
    outcomes = []
    watcher = type("Watcher", (), {"after_round": lambda self, round: outcomes.append(tuple(round.outcomes))})()
    grid.restore_client_states({})
    result = strategy.start(
        grid,
        strategy.initial_arrays(lambda k: to_record(make_local_model(config, prepared.dataset, CPU, k).arrays())),
        6,
        train_config=train_config,
        manager=prepared.manager,
        callbacks=[watcher],
    )
    bits = {
        "arrays": to_arrays(result.arrays),
        **{name: to_arrays(r) for name, r in strategy.records.items()},
        **strategy.memory,
    }
    for client, state in sorted(grid.client_states().items()):
        for name, record in state.items():
            if isinstance(record, ArrayRecord):
                bits[f"client {client} {name}"] = to_arrays(record)
    if strategy.personal:
        measured = ClientMeasure(strategy, grid, train_config)(result.arrays, 6)
        bits["evaluation"] = {"accuracy": measured.client_accuracy, "loss": measured.client_loss, **measured.extra}
    return outcomes, bits


@pytest.mark.parametrize("word", choices("strategy"))
def test_inline_and_ray_agree_to_the_bit(grids, word):
    (expected_outcomes, expected), (outcomes, found) = (everything(grids[name], word) for name in ("inline", "ray"))
    assert outcomes == expected_outcomes
    assert all(outcome.outcome == "averaged" for round in outcomes for outcome in round), outcomes
    assert found.keys() == expected.keys()
    for name, arrays in expected.items():
        assert found[name].keys() == arrays.keys(), name
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[name][key], array, err_msg=f"{name} {key}")
