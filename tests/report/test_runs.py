"""Runs found in every kind of folder, and what is read of them."""

import json
import shutil

import pytest

from fedrage_flwr.api import run
from fedrage_flwr.errors import UserError
from fedrage_flwr.experiment import main
from fedrage_flwr.report.runs import load

TOY = ["dataset=digits", "num_rounds=12", "eval_every=4", "num_clients=6", "rare_clients=2"]


def test_a_run_reads_the_same_from_its_folder_and_from_its_small_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["table1", *TOY, "ram=uniform", "strategy=fedavg", "seed=3,4"])
    (first, second), remarks = load([tmp_path / "results"])
    (large, _), _ = load([tmp_path / "outputs" / "table1"])
    assert remarks == []
    assert (first.seed, second.seed, first.experiment) == (3, 4, "table1")
    assert first.words["strategy"] == "fedavg"
    assert first.setting == second.setting
    assert first.config_hash != second.config_hash
    facts = json.loads(first.path.read_text())
    assert first.config_hash == large.config_hash == facts["config_hash"]
    assert first.rounds["round"].tolist() == large.rounds["round"].tolist() == list(range(3, 13))
    assert first.reported() == pytest.approx(facts["accuracy_mean_last10"], rel=1e-4)  # the CSV keeps five digits
    assert len(first.last()) == 10
    assert first.client_accuracy == pytest.approx(large.client_accuracy)
    assert first.participations == large.participations
    assert sum(first.participations.values()) == 12 * 3
    both, remarks = load([tmp_path / "results", tmp_path / "outputs"])
    assert len(both) == 2
    assert len(remarks) == 2
    assert "the same run as" in remarks[0]


def test_replicas_are_runs_each(tmp_path):
    for seed in (5, 6):  # as seeds=[5,6] lays them out
        run(*TOY, "strategy=fedavg", f"seed={seed}", folder=tmp_path / "replicas" / f"seed={seed}", figures=False)
    shutil.copytree(tmp_path / "replicas" / "seed=5" / ".hydra", tmp_path / "replicas" / ".hydra")
    runs, remarks = load([tmp_path / "replicas"])
    assert [found.seed for found in runs] == [5, 6]
    assert remarks == []
    (tmp_path / "replicas" / "seed=6" / "summary.json").unlink()
    runs, remarks = load([tmp_path / "replicas"])
    assert [found.seed for found in runs] == [5]
    assert remarks == [f"{tmp_path / 'replicas' / 'seed=6'}: not finished, left out"]


def test_what_is_no_folder_of_runs_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere: no such folder"):
        load([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="no finished run there"):
        load([tmp_path])
    (tmp_path / "a.json").write_text('{"overrides": []}')
    (tmp_path / "a.csv").write_text("round,accuracy\n1,0.5\n")
    with pytest.raises(UserError, match=r"a.json: cannot be read as a recorded run \(KeyError: 'config'\)"):
        load([tmp_path])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_text("[1]"), "cannot be read as a recorded run"),
        (lambda path: path.write_text('"text"'), "cannot be read as a recorded run"),
        (lambda path: path.write_bytes(b"\xff\xfe{"), "cannot be read as a recorded run"),
        (lambda path: path.write_text(path.read_text()[:100]), "cannot be read as a recorded run"),
        (lambda path: path.write_text(path.read_text().replace("wall_seconds", "seconds")), "it lacks wall_seconds"),
        (lambda path: path.with_suffix(".csv").write_text(""), "EmptyDataError"),
        (lambda path: path.with_suffix(".csv").write_text("accuracy\n0.5\n"), "it lacks round"),
        (lambda path: path.with_suffix(".csv").write_text("round,accuracy\n1,high\n"), "high"),
    ],
)
def test_a_damaged_record_is_named_in_one_line(tmp_path, record_run, change, message):
    path = record_run(tmp_path, "fedavg", 0, [0.5])
    assert len(load([tmp_path])[0]) == 1
    change(path)
    with pytest.raises(UserError, match=message) as caught:
        load([tmp_path])
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
