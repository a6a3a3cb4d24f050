"""The runs of an experiment: which there are, that each runs once, and what stays of them."""

import json
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from fedrage_flwr.api import run
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.experiment import ADDED, differences, finish, flat, is_recorded, jobs, main

RESULTS = Path(__file__).parents[1] / "results"
TOY = ["dataset=digits", "num_rounds=12", "eval_every=4", "num_clients=6", "rare_clients=2", "checkpoint_every=5"]


def test_the_runs_are_the_product_and_what_is_typed_replaces_it():
    names = [name for name, _ in jobs("table1", [])]
    assert len(names) == len(set(names)) == 2 * 2 * 4 * 5
    typed = jobs("table1", ["dataset=digits", "ram=full", "strategy=fedavg,scaffold", "seed=7", "client.lr=0.1,0.2"])
    assert [name for name, _ in typed] == [
        f"digits_full_{strategy}_seed=7_lr={lr}" for strategy in ("fedavg", "scaffold") for lr in (0.1, 0.2)
    ]
    assert typed[1][1] == [
        "experiment=table1", "dataset=digits", "ram=full", "strategy=fedavg", "seed=7", "client.lr=0.2",
    ]  # fmt: skip


def test_an_experiment_that_is_not_there():
    with pytest.raises(UserError, match="tabel1: no such experiment; did you mean table1"):
        jobs("tabel1", [])


def test_going_on_to_more_rounds_gives_the_run_that_was_never_cut(tmp_path):
    words = [*TOY, "ram=uniform", "strategy=federage"]
    finish([*words, "num_rounds=6"], tmp_path / "cut")
    summary = finish(words, tmp_path / "cut")
    whole = run(*words, folder=tmp_path / "whole", figures=False)
    assert summary["rounds_done"] == 12
    for name in ("model", "polyak"):
        file = f"{name}.safetensors"
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    rounds = pd.read_csv(tmp_path / "cut" / "rounds.csv")
    pd.testing.assert_series_equal(rounds["train_loss"], whole.rounds["train_loss"])
    assert finish(words, tmp_path / "cut")["wall_seconds"] == summary["wall_seconds"]  # finished: nothing is run
    with pytest.raises(UserError, match=r"other settings \(client.lr\)"):
        finish([*words, "client.lr=0.5"], tmp_path / "cut")


def test_each_run_leaves_its_evaluated_rows_and_is_not_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["table1", *TOY, "ram=uniform", "strategy=fedavg", "seed=3,4"]
    main(words)
    name = "digits_uniform_fedavg_seed=3"
    rows = pd.read_csv(tmp_path / "results" / "table1" / f"{name}.csv")
    rounds = pd.read_csv(tmp_path / "outputs" / "table1" / name / "rounds.csv").dropna(subset="accuracy")
    assert rows["round"].tolist() == list(range(3, 13))  # the last ten of twelve; the fourth and eighth are among them
    for column in ("accuracy", "client_accuracy_worst10pct", "rare_client_accuracy"):
        assert rows[column].tolist() == pytest.approx(rounds[column].tolist(), rel=1e-4)
    facts = json.loads((tmp_path / "results" / "table1" / f"{name}.json").read_text())
    assert facts["accuracy_mean_last10"] == pytest.approx(rounds["accuracy"].mean())
    assert (facts["seed"], facts["config"]["client.local_steps"]) == (3, 5)
    clients = pd.read_csv(tmp_path / "outputs" / "table1" / name / "clients.csv")
    expected = clients[clients["client"] == 1]["accuracy"].mean()
    assert facts["clients"]["accuracy_mean_last10"]["1"] == pytest.approx(expected, abs=1e-5)
    assert sum(facts["clients"]["participations"].values()) == 12 * 3  # M = 3 in each of twelve rounds
    assert not {"dataset.root", "evaluate.cache"} & facts["config"].keys()
    capsys.readouterr()
    main(words)
    assert capsys.readouterr().out == "results/table1: 2 of 2 runs\n"
    with pytest.raises(UserError, match=r"other settings \(client.lr\)"):
        main([*words, "client.lr=0.7"])


def test_a_run_that_diverges_does_not_hold_up_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["table1", *TOY, "experiment/tuned=none", "ram=inclusion", "strategy=fedavg", "seed=range(1)"]
    with pytest.raises(
        UserError, match=r"no result of digits_inclusion_fedavg_seed=0_lr=1000000000.0: the steps are too large"
    ):
        main([*words, "client.lr=1e9,0.1"])
    printed = capsys.readouterr()
    assert "lr=1000000000.0: ended after round" in printed.err
    assert "results/table1: 1 of 2 runs" in printed.out
    assert [path.name for path in (tmp_path / "results" / "table1").glob("*.json")] == [
        "digits_inclusion_fedavg_seed=0_lr=0.1.json"
    ]


def test_differences_leave_out_what_changes_no_digit():
    first = {"a": {"b": 1, "c": (1, 2)}, "dataset": {"root": "x"}, "tuned": {"note": "y"}}
    assert differences(first, {"a": {"b": 1, "c": [1, 2]}, "dataset": {"root": "z"}}) == []
    assert differences(first, {"a": {"b": 2, "c": [1, 2]}, "d": None}) == ["a.b", "d"]


def test_a_setting_that_came_after_a_record_differs_only_if_it_changes_the_run():
    old, new = {"a": 1}, {"a": 1, "privacy": {"clip": None, "delta": 1e-5}}
    assert differences(old, new) == differences(new, old) == []
    assert differences(old, {"a": 1, "privacy": {"clip": 2.0, "delta": 1e-5}}) == ["privacy.clip"]


def test_every_committed_record_is_recognised_by_the_command_that_made_it():
    """One record of each experiment: typed again today, the command finds nothing to run."""
    records = {path.parent: path for path in sorted(RESULTS.glob("*/*.json")) if path.with_suffix(".csv").exists()}
    assert len(records) >= 10
    for path in records.values():
        overrides = json.loads(path.read_text(encoding="utf-8"))["overrides"]
        assert is_recorded(overrides, path.with_suffix("")), path


def test_added_settings_have_their_plain_value_by_default():
    """A value in ADDED that is not the default would make an old record look like a run it is not."""
    config = flat(asdict(validate(compose_config(["dataset=rotated_mnist"]))))
    assert {key: config[key] for key in ADDED} == ADDED
