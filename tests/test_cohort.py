"""Clients trained together against clients trained one after another: every strategy on every model that can be stacked."""

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord

from clients.base import write_settings
from fedrage_flwr.cohort import AUTO, Training, cohort_rule, train_group
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.parts import WorkspaceFactory, make_local_model, make_strategy, prepare_run
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.training import LocalModel
from fedrage_flwr.words import choices
from fedrage_flwr.workspace import CohortRule

CPU = torch.device("cpu")
JOB = (
    "num_clients=6",
    "rare_clients=0",
    "ram=full",
    "partition=quantity",
    "partition.min_examples=12",
    "client.local_steps=3",
)


@pytest.fixture(scope="module")
def run():
    """Four rounds in the process; returns outcomes and all arrays: model, records, server memory, client state."""
    prepared = {}

    def run(word, model, cohort, *more):
        words = [f"strategy={word}", f"model={model}", f"engine.cohort={cohort}", "client.lr=0.05", *more]
        config = validate(compose_config([*JOB, *words]))
        key = (model, cohort, *more)
        if key not in prepared:
            made = prepare_run(config)
            grid = InlineGrid.create(None, 6, WorkspaceFactory(config, made.dataset, made.partition), CPU)
            prepared[key] = made, grid
        made, grid = prepared[key]
        grid.contexts.clear()
        strategy, outcomes = make_strategy(config, made.manager), []
        watcher = type("Watcher", (), {"after_round": lambda self, round: outcomes.append(tuple(round.outcomes))})()
        result = strategy.start(
            grid,
            strategy.initial_arrays(lambda k: to_record(make_local_model(config, made.dataset, CPU, k).arrays())),
            4 if model == "mlp" else 2,
            train_config=ConfigRecord({"seed": 0, **write_settings(config.client)}),
            manager=made.manager,
            callbacks=[watcher],
        )
        arrays = {
            "arrays": to_arrays(result.arrays),
            **{n: to_arrays(r) for n, r in strategy.records.items()},
            **strategy.memory,
        }
        for client, context in grid.contexts.items():
            for name, record in context.state.items():
                if isinstance(record, ArrayRecord):
                    arrays[f"client {client} {name}"] = to_arrays(record)
        return outcomes, arrays, {client.train.size for client in made.partition.clients}

    return run


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("word", choices("strategy"))
def test_together_and_one_by_one_agree(run, word, model):
    """Sizes differ and some are below a batch. Tolerance: float32 rounding over at most 12 steps, 2·10⁻⁴ of the largest
    entry. FedeRage compares losses with β, and a tie could fall either way, but does not here."""
    expected_outcomes, expected, sizes = run(word, model, "off")
    outcomes, found, _ = run(word, model, 4)  # six clients: cohorts of four and two
    assert min(sizes) < 32 < max(sizes)
    assert outcomes == expected_outcomes
    assert all(outcome.outcome == "averaged" for round in outcomes for outcome in round)
    assert found.keys() == expected.keys()
    for name, arrays in expected.items():
        for key, array in arrays.items():
            scale = max(1.0, float(np.abs(array).max()) if array.size else 1.0)
            np.testing.assert_allclose(found[name][key], array, rtol=0, atol=2e-4 * scale, err_msg=f"{name} {key}")


@pytest.mark.parametrize("word", choices("strategy"))
def test_auto_changes_no_bit_on_a_cpu(run, word):
    """Batches of 32 of an MLP are stacked, smaller ones are not: see ``linear_stack.same_bits_stacked``."""
    expected_outcomes, expected, _ = run(word, "mlp", "off")
    outcomes, found, _ = run(word, "mlp", "auto")
    assert outcomes == expected_outcomes
    assert found.keys() == expected.keys()
    for name, arrays in expected.items():
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[name][key], array, err_msg=f"{name} {key}")


def test_auto_stacks_what_keeps_its_bits(monkeypatch):
    """Batches of 32 of six clients at once; a projection, whose norm would be summed in another order, one by one."""
    sizes = []
    config = validate(compose_config(["num_clients=6", "rare_clients=0", "partition=iid", "strategy=fedavg"]))
    made = prepare_run(config)
    workspace = WorkspaceFactory(config, made.dataset, made.partition)(CPU)
    monkeypatch.setattr(
        workspace, "stacked", lambda models, make=workspace.stacked: sizes.append(models) or make(models)
    )
    start = workspace.model.arrays()

    def trainings(batch_size, radius):
        batches = torch.arange(2 * batch_size).view(2, batch_size)
        return [Training([start], workspace.client(i), batches, Plain(), 0.1, radius) for i in range(6)]

    train_group(trainings(32, None), workspace)
    assert sizes == [6]
    train_group(trainings(31, None), workspace)
    train_group(trainings(32, 1.0), workspace)
    assert sizes == [6]


class Plain:
    """Plain SGD."""

    def step_weight(self, loss):
        return None

    def direction(self, parameters):
        return None

    def update_state(self, weight):
        pass


def test_the_whole_command_in_cohorts(simulate):
    """Of the same client data and batches: the tables show the same participants, and the accuracies agree."""
    alone, first = simulate("num_rounds=10", "engine.cohort=off")
    together, second = simulate("num_rounds=10", "engine.cohort=3")
    assert (alone / "participation.csv").read_bytes() == (together / "participation.csv").read_bytes()
    assert first["accuracy_mean_last10"] == pytest.approx(second["accuracy_mean_last10"], abs=0.01)


def test_one_client_that_raises_does_not_disturb_its_cohort(run, monkeypatch):
    from clients.fedavg import FedAvgClient

    plain = FedAvgClient.train

    def train(self):
        if self.task.data.partition == 2:
            raise RuntimeError("disk on fire")
        return (yield from plain(self))

    monkeypatch.setattr(FedAvgClient, "train", train)
    outcomes, arrays, _ = run("fedavg", "mlp", 4)
    expected, expected_arrays, _ = run("fedavg", "mlp", "off")
    assert outcomes == expected
    assert [(o.client, o.outcome, o.reason) for o in outcomes[0] if o.outcome != "averaged"] == [
        (2, "failed", "RuntimeError: disk on fire")
    ]
    np.testing.assert_allclose(arrays["arrays"]["1.weight"], expected_arrays["arrays"]["1.weight"], atol=1e-5)


def test_auto_is_a_static_table():
    model = LocalModel(torch.nn.Linear(2, 2))
    by_hand = LocalModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2)))
    assert cohort_rule("auto", model) == AUTO["cpu", "autograd"] == CohortRule(1, stack=False)
    assert cohort_rule("auto", by_hand) == AUTO["cpu", "by hand"] == CohortRule(64, same_bits=True)
    assert cohort_rule("off", by_hand) == CohortRule(1)
    assert cohort_rule(7, model) == CohortRule(7)
    model.device = torch.device("cuda")
    assert cohort_rule("auto", model) == CohortRule(64)


def test_a_model_with_buffers_is_trained_one_by_one(caplog):
    model = LocalModel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))
    with caplog.at_level("INFO"):
        assert cohort_rule(5, model) == CohortRule(1, stack=False)
    assert "cannot be stacked" in caplog.text


@pytest.mark.parametrize("value", ["0", "-1", "fast"])
def test_what_cohort_may_be(value):
    with pytest.raises(
        UserError, match=r"engine.cohort=.* is not allowed: must be one of auto, off or an integer in \[1, ∞\)"
    ):
        validate(compose_config([f"engine.cohort={value}"]))


@pytest.mark.slow
@pytest.mark.parametrize("cohort", ["off", 4])
def test_compiled_and_plain_agree(run, cohort):
    """Tolerance: float32 rounding over at most 6 steps, 2·10⁻⁴ of the largest entry."""
    _, expected, _ = run("fedprox", "cnn", cohort)
    _, found, _ = run("fedprox", "cnn", cohort, "engine.compile=true")
    for key, array in expected["arrays"].items():
        scale = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(found["arrays"][key], array, rtol=0, atol=2e-4 * scale, err_msg=key)
