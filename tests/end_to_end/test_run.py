"""Whole runs in this process: files, columns, participants, empty rounds."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from fedrage_flwr.availability import LAWS
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.parts import pick_device, prepare_run
from fedrage_flwr.words import choices

ROUNDS = [
    "round",
    "participants",
    "rejected",
    "train_loss",
    "beta",
    "step_weight_mean",
    "tail_share",
    "bytes_up",
    "bytes_down",
    "round_seconds",
    "accuracy",
    "loss",
    "client_accuracy_mean",
    "client_accuracy_min",
    "client_accuracy_worst10pct",
    "rare_client_accuracy",
]
SUMMARY = [
    "strategy",
    "dataset",
    "partition",
    "ram",
    "model",
    "backend",
    "seed",
    "num_clients",
    "num_rounds",
    "rounds_done",
    "accuracy_mean_last10",
    "accuracy_std_last10",
    "polyak_accuracy",
    "second_half_accuracy",
    "client_accuracy_min",
    "client_accuracy_worst10pct",
    "client_accuracy_std",
    "rare_client_accuracy",
    "bytes_up_per_round",
    "bytes_down_per_round",
    "rejected_replies",
    "rounds_per_second",
    "wall_seconds",
    "peak_rss_mb",
    "versions",
]
MLP_BYTES = 4 * (64 * 200 + 200 + 200 * 10 + 10)


def test_files_of_a_run(simulate):
    folder, summary = simulate("num_rounds=25", "eval_every=5")
    rounds, clients = pd.read_csv(folder / "rounds.csv"), pd.read_csv(folder / "clients.csv")
    participation, updates = pd.read_csv(folder / "participation.csv"), pd.read_csv(folder / "updates.csv")
    assert list(rounds) == ROUNDS
    assert list(clients) == ["round", "client", "accuracy", "loss", "examples", "rare"]
    assert list(participation) == ["round", "client", "outcome", "reason"]
    assert rounds["round"].tolist() == list(range(1, 26))
    evaluated = [5, 10, 15, *range(16, 26)]
    assert rounds.loc[rounds["accuracy"].notna(), "round"].tolist() == evaluated
    assert clients.groupby("round")["client"].apply(list).to_dict() == {r: list(range(30)) for r in evaluated}
    assert clients.loc[clients["rare"] == 1, "client"].unique().tolist() == [27, 28, 29]
    assert (participation.groupby("round").size() == 3).all()
    assert (updates["round"] == participation["round"]).all()
    assert (rounds[["bytes_up", "bytes_down"]] == 3 * (MLP_BYTES + 4)).all(axis=None)  # θ and one float32 more
    text = (folder / "summary.json").read_text()
    assert list(json.loads(text, parse_constant=pytest.fail)) == SUMMARY
    assert json.loads(text) == summary
    last = rounds.tail(10)["accuracy"]
    assert summary["accuracy_mean_last10"] == pytest.approx(last.mean())
    assert summary["accuracy_std_last10"] == pytest.approx(last.std(ddof=0))


def test_client_measures_can_be_recomputed_from_the_client_rows(simulate):
    folder, _ = simulate("num_rounds=12")
    rounds = pd.read_csv(folder / "rounds.csv").dropna(subset=["accuracy"]).set_index("round")
    clients = pd.read_csv(folder / "clients.csv")
    by_round = clients.groupby("round")["accuracy"]
    np.testing.assert_allclose(rounds["client_accuracy_mean"], by_round.mean())
    np.testing.assert_allclose(rounds["client_accuracy_min"], by_round.min())
    np.testing.assert_allclose(rounds["client_accuracy_worst10pct"], by_round.apply(lambda a: a.nsmallest(3).mean()))
    rare = clients[clients["rare"] == 1].groupby("round")["accuracy"].mean()
    np.testing.assert_allclose(rounds["rare_client_accuracy"], rare)


def test_models_on_disk(simulate):
    """The last model, and the average of the checkpoints: after one round they are the same."""
    folder, _ = simulate("num_rounds=1")
    model, polyak = (load_file(folder / f"{name}.safetensors") for name in ("model", "polyak"))
    assert set(model) == {"1.weight", "1.bias", "3.weight", "3.bias", "beta"}
    assert model["beta"].shape == ()
    assert all((model[name] == polyak[name]).all() for name in model)


def test_polyak_is_the_mean_of_the_checkpoints(simulate):
    """The checkpoints of a longer run are the last models of shorter ones."""
    job = ("client.lr=0.1",)
    checkpoints = [load_file(simulate(f"num_rounds={t}", *job)[0] / "model.safetensors") for t in (1, 2, 3)]
    average = load_file(simulate("num_rounds=3", *job)[0] / "polyak.safetensors")
    for name in average:
        np.testing.assert_allclose(average[name], np.mean([c[name] for c in checkpoints], axis=0), atol=1e-6)


def test_o25_the_same_seed_gives_the_same_files(simulate):
    first, _ = simulate("num_rounds=6", "seed=1")
    simulate("num_rounds=2", "seed=7")  # another run in the same process in between
    second, _ = simulate("num_rounds=6", "seed=1")
    for name in ("model.safetensors", "polyak.safetensors", "participation.csv", "clients.csv", "updates.csv"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    with (first / "rounds.csv").open() as a, (second / "rounds.csv").open() as b:
        for one, two in zip(csv.DictReader(a), csv.DictReader(b), strict=True):
            assert {k: v for k, v in one.items() if k != "round_seconds"} == {
                k: v for k, v in two.items() if k != "round_seconds"
            }
    other, _ = simulate("num_rounds=6", "seed=2")
    assert (first / "participation.csv").read_bytes() != (other / "participation.csv").read_bytes()


@pytest.mark.parametrize("law", ["rare", "uniform", "exponential", "inclusion", "bernoulli", "markov"])
def test_every_strategy_meets_the_same_participants(simulate, law):
    files = {
        simulate(f"strategy={word}", f"ram={law}", "num_rounds=5")[0] / "participation.csv"
        for word in choices("strategy")
    }
    assert len({file.read_bytes() for file in files}) == 1


def test_o13_exactly_as_many_as_asked_for(simulate):
    for n, m in ((4, 1), (1, 1), (4, 4)):
        folder, _ = simulate(
            f"num_clients={n}",
            f"ram.clients_per_round={m}",
            "rare_clients=1",
            "num_rounds=3",
            "ram=uniform",
            "partition=iid",
        )
        assert (pd.read_csv(folder / "rounds.csv")["participants"] == m).all()


def test_more_participants_than_clients_is_refused():
    with pytest.raises(UserError, match=r"ram.clients_per_round=6.*num_clients=3"):
        prepare_run(validate(compose_config(["num_clients=3", "ram.clients_per_round=6", "rare_clients=1"])))


def test_every_law_is_reachable_from_the_command_line():
    assert choices("ram") == sorted(LAWS)


def test_a_round_with_nobody_is_recorded(simulate):
    """Both clients are almost always off: most rounds are empty; the run goes on, and the rows say so."""
    folder, summary = simulate(
        "num_clients=2", "rare_clients=0", "partition=iid", "ram=markov", "ram.on_rate=0.05", "ram.off_rate=0.9", "num_rounds=40"
    )  # fmt: skip
    rounds = pd.read_csv(folder / "rounds.csv")
    empty = rounds["participants"] == 0
    assert empty.sum() > 20
    assert rounds["round"].tolist() == list(range(1, 41))
    assert rounds.loc[empty, ["bytes_up", "bytes_down"]].to_numpy().sum() == 0
    assert summary["rounds_done"] == 40


def test_o19_a_run_in_which_nobody_is_usable_ends(simulate, tmp_path):
    """Steps of 10³⁰ make every model overflow: the server keeps its model and gives up after three such rounds."""
    with pytest.raises(UserError, match=r"ended after round 3: 3 rounds in a row .*max_empty_rounds=3.*rejected"):
        simulate("client.lr=1e30", "max_empty_rounds=3")
    participation = pd.read_csv(tmp_path / "run0" / "participation.csv")
    assert participation["outcome"].tolist() == ["rejected"] * 9
    assert pd.read_csv(tmp_path / "run0" / "rounds.csv")["round"].tolist() == [1, 2, 3]
    assert not (tmp_path / "run0" / "summary.json").exists()


def test_a_folder_that_holds_a_run_is_refused(simulate, tmp_path):
    from fedrage_flwr.run import run

    folder, _ = simulate("num_rounds=1")
    before = (folder / "rounds.csv").read_bytes()
    with pytest.raises(UserError, match="already holds a run"):
        run(prepare_run(validate(compose_config(["num_rounds=2"]))), folder)
    assert (folder / "rounds.csv").read_bytes() == before


def test_above_a_number_of_clients_a_fixed_subset_is_evaluated(simulate):
    folder, _ = simulate("num_rounds=3", "evaluate.max_clients=7")
    clients = pd.read_csv(folder / "clients.csv").groupby("round")["client"].apply(tuple)
    assert len(set(clients)) == 1
    assert len(clients.iloc[0]) == 7


@pytest.mark.parametrize("model", ["softmax", "cnn", "resnet18_gn"])
def test_every_model_trains(simulate, model):
    _, summary = simulate(f"model={model}", "num_rounds=2", "num_clients=6", "partition=iid", "client.local_steps=1")
    assert 0 <= summary["accuracy_mean_last10"] <= 1


@pytest.mark.parametrize(
    ("word", "available", "device"), [("auto", False, "cpu"), ("auto", True, "cuda"), ("cpu", True, "cpu")]
)
def test_o05_auto_takes_what_there_is(monkeypatch, word, available, device):
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    assert pick_device(word).type == device


def test_o05_cuda_that_is_not_there_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="device=cuda: this machine has no CUDA device"):
        prepare_run(validate(compose_config(["device=cuda"])))


def test_o05_the_log_says_where_it_computes(simulate, caplog):
    with caplog.at_level("INFO"):
        simulate("num_rounds=1")
    assert sum(record.getMessage() == "computing on cpu" for record in caplog.records) == 1
