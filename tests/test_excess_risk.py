"""What a client attains alone: closed forms of least squares, the cache, processes, and the columns of a run."""

import logging
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from fedrage_flwr import excess_risk
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.data import load_dataset, partition
from fedrage_flwr.errors import UserError
from fedrage_flwr.excess_risk import Examples, Owner, Recipe, attain, attainable_losses, check, train_alone
from fedrage_flwr.models import LinearMap
from fedrage_flwr.parts import prepare_run

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch):
    """Starting processes takes seconds; one test does."""
    monkeypatch.setattr(excess_risk, "cores", lambda: 1)


LINEAR = ("dataset=linear_gaussian", "partition=natural", "model=linear", "ram=full", "rare_clients=0")
AGENTS = ("num_clients=3", "dataset.groups=[2,1]", "dataset.dimension=4")


@pytest.fixture
def linear(tmp_path):
    """Configuration, data and partition of three linear agents, two of them in one group."""

    def make(*overrides):
        config = validate(
            compose_config([*LINEAR, *AGENTS, "evaluate.faa=true", f"evaluate.cache={tmp_path}", *overrides])
        )
        dataset = load_dataset(config.dataset)
        return config, dataset, partition(config.partition, dataset, config.all_clients, 0)

    return make


def least_squares(dataset, shared, team, client):
    """Test loss of ``client`` at the exact least-squares solution on the training data of ``team``."""
    own = np.concatenate([shared.clients[i].train for i in team])
    x, y = dataset.train.inputs.double().numpy(), dataset.train.labels.double().numpy()
    w = np.linalg.lstsq(x[own], y[own])[0]
    test = shared.clients[client].test
    return np.mean((dataset.test.inputs.double().numpy()[test] @ w - dataset.test.labels.double().numpy()[test]) ** 2)


def test_without_noise_nothing_is_left(linear):
    """The minimum is 0; what SGD leaves is below 10⁻⁹ of the loss at the start, ‖μ‖² ≈ 2."""
    found = attainable_losses(
        *linear("dataset.noise=0.0", "dataset.examples=60", "evaluate.faa_lrs=[0.1]", "evaluate.faa_steps=500"), CPU
    )
    assert (found < 2e-9).all()


@pytest.mark.parametrize("by", ["client", "group"])
def test_linear_model_matches_the_closed_form(linear, by):
    """Within 1 % of σ_e² = 0.25 of least squares on the same data: for 180 examples in 4 dimensions the closed form is itself
    above the population's minimum by about σ²d/n = 2 %."""
    config, dataset, shared = linear(f"evaluate.faa_by={by}", "evaluate.faa_lrs=[0.03,0.1]", "evaluate.faa_steps=1000")
    found = attainable_losses(config, dataset, shared, CPU)
    teams = {"client": [[0], [1], [2]], "group": [[0, 1], [0, 1], [2]]}[by]
    expected = [least_squares(dataset, shared, team, client) for client, team in enumerate(teams)]
    np.testing.assert_allclose(found, expected, atol=0.01 * 0.25)


def test_a_client_without_test_or_validation_data_is_left_out(linear):
    config, dataset, shared = linear("dataset.examples=20", "evaluate.faa_steps=20")
    empty = np.empty(0, np.int64)
    clients = list(shared.clients)
    clients[0], clients[2] = replace(clients[0], test=empty), replace(clients[2], validation=empty)
    found = attainable_losses(config, dataset, replace(shared, clients=tuple(clients)), CPU)
    assert np.isnan(found).tolist() == [True, False, True]


@pytest.fixture
def recipe():
    return Recipe(LinearMap.Settings("linear"), (2,), 1, "squared_error", 20, 4, (0.05, 0.1), 0, "cpu", 1)


def owner(weight, seed=0):
    rng = torch.Generator().manual_seed(seed)
    parts = []
    for count in (12, 6, 5):
        inputs = torch.randn(count, 2, generator=rng)
        parts.append(Examples(inputs, inputs @ torch.tensor(weight)))
    return Owner((0,), parts[0], parts[1], (parts[2],))


def test_the_grid_is_judged_on_the_validation_part(recipe):
    """Two step sizes: one far too small, one that diverges to infinity; a third in between must be taken. And where the
    validation part says that the start θ = 0 is best, training is not used at all."""
    mine = owner([1.0, -1.0])
    assert train_alone(replace(recipe, lrs=(1e-6, 0.2, 1e20)), mine).lr == 0.2
    contrary = replace(mine, validation=Examples(mine.validation.inputs, -mine.validation.targets))
    result = train_alone(recipe, contrary)
    assert result.lr == 0
    assert result.losses[0] == pytest.approx(mine.tests[0].targets.double().square().mean())


def test_the_cache_knows_everything_a_result_depends_on(recipe, tmp_path, monkeypatch):
    count = []
    original = train_alone
    monkeypatch.setattr(excess_risk, "train_alone", lambda *a: (count.append(1), original(*a))[1])
    mine = owner([1.0, -1.0])
    first = attain(recipe, [mine], tmp_path)
    assert attain(recipe, [mine], tmp_path) == first
    assert len(count) == 1
    changed_train = replace(mine, train=Examples(mine.train.inputs, mine.train.targets + 1))
    changed_test = replace(mine, tests=(Examples(mine.tests[0].inputs, mine.tests[0].targets + 1),))
    for recipe_, owner_ in [
        (replace(recipe, steps=30), mine),
        (replace(recipe, batch_size=5), mine),
        (replace(recipe, lrs=(0.05,)), mine),
        (replace(recipe, seed=1), mine),
        (replace(recipe, loss="absolute_error"), mine),
        (recipe, changed_train),
        (recipe, changed_test),
    ]:
        before = len(count)
        attain(recipe_, [owner_], tmp_path)
        assert len(count) == before + 1
    assert attain(recipe, [mine], tmp_path) == first


@pytest.mark.parametrize("content", ["", "{", "[]", '{"losses": [1]}', '{"losses": 3, "lr": 1}'])
def test_a_damaged_entry_is_computed_again(recipe, tmp_path, content):
    mine = owner([1.0, -1.0])
    first = attain(recipe, [mine], tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(content)
    assert attain(recipe, [mine], tmp_path) == first
    assert path.read_text() != content


def test_processes_give_the_same_bits(recipe, tmp_path, monkeypatch):
    """Four trainings in two processes."""
    owners = [owner([1.0, float(k)], seed=k) for k in range(4)]
    alone = [train_alone(recipe, one) for one in owners]
    monkeypatch.setattr(excess_risk, "cores", lambda: 2)
    assert attain(recipe, owners, tmp_path) == alone
    assert len(list(tmp_path.iterdir())) == 4


def test_what_cannot_be_had_is_refused(linear):
    config, _, shared = linear("evaluate.faa_by=group")
    check(config, shared)
    with pytest.raises(UserError, match=r"evaluate.faa_by=group: .*no true groups; give evaluate.faa_by=client"):
        check(config, replace(shared, groups=None))
    with pytest.raises(UserError, match=r"raise partition.validation_fraction"):
        prepare_run(validate(compose_config(["evaluate.faa=true", "partition.validation_fraction=0"])))
    with pytest.raises(UserError, match=r"evaluate.faa_lrs=\[\]: give at least one"):
        validate(compose_config(["evaluate.faa_lrs=[]"]))


SMALL = (
    "dataset.groups=[4,2]",
    "dataset.dimension=4",
    "dataset.examples=40",
    "evaluate.faa=true",
    "evaluate.faa_lrs=[0.1]",
    "evaluate.faa_steps=100",
)


def test_columns_of_a_run(simulate, tmp_path):
    """FAA is the range of the clients' excess risks, those held out apart; loss less excess risk is the same in all rounds."""
    folder, summary = simulate(
        *LINEAR, *SMALL, "num_clients=4", "held_out_clients=2", "strategy=fedavg", "num_rounds=12",
        f"evaluate.cache={tmp_path / 'cache'}",
    )  # fmt: skip
    clients, rounds = pd.read_csv(folder / "clients.csv"), pd.read_csv(folder / "rounds.csv").set_index("round")
    for number, rows in clients.groupby("round"):
        risk = rows.set_index("client")["excess_risk"]
        for column, who in (("faa", [0, 1, 2, 3]), ("held_out_faa", [4, 5])):
            assert rounds.loc[number, column] == pytest.approx(risk[who].max() - risk[who].min(), abs=1e-12)
    attainable = (clients["loss"] - clients["excess_risk"]).groupby(clients["client"])
    assert (attainable.max() - attainable.min() < 1e-12).all()
    last = clients[clients["round"] == 12].set_index("client")["excess_risk"]
    assert summary["faa"] == pytest.approx(last[:4].max() - last[:4].min())
    assert summary["excess_risks_below_zero"] == (last < 0).sum()
    assert summary["loss"] == rounds.loc[12, "loss"]
    assert summary["accuracy_mean_last10"] is None


def test_off_means_no_trace(simulate):
    folder, summary = simulate("num_rounds=1")
    assert "faa" not in summary
    assert "faa" not in pd.read_csv(folder / "rounds.csv")
    assert "excess_risk" not in pd.read_csv(folder / "clients.csv")


def test_one_client_alone_has_no_excess_risk_and_below_zero_is_said(simulate, tmp_path, caplog):
    """One group without spread: FedAvg learns from all agents what each learns from a tenth, and does better than they do."""
    job = (
        *LINEAR,
        "dataset.groups=[10]",
        "num_clients=10",
        "dataset.spread=0.0",
        "dataset.examples=30",
        "strategy=fedavg",
    )
    with caplog.at_level(logging.INFO, logger="fedrage_flwr.callbacks"):
        _, summary = simulate(
            *job,
            "num_rounds=60",
            "evaluate.faa=true",
            "evaluate.faa_lrs=[0.1]",
            "evaluate.faa_steps=200",
            f"evaluate.cache={tmp_path / 'cache'}",
        )
    assert summary["excess_risks_below_zero"] > 5
    assert f"round 60: {summary['excess_risks_below_zero']} of 10 excess risks are estimated below zero" in caplog.text


def test_the_end_of_a_run_is_printed(capsys, simulate, tmp_path):
    from fedrage_flwr.command import print_summary

    folder, summary = simulate(*LINEAR, *SMALL, "num_clients=6", "num_rounds=1", f"evaluate.cache={tmp_path / 'cache'}")
    print_summary(summary, folder)
    printed = capsys.readouterr().out
    assert f"{summary['loss']:.6g}" in printed
    assert f"{summary['faa']:.4f}" in printed
    assert "accuracy" not in printed
