"""The Python API leaves and returns what the command line does, under every way to import it."""

import logging
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import fedrage_flwr
from fedrage_flwr import run
from fedrage_flwr.errors import UserError
from fedrage_flwr.explain import read_config

REPOSITORY = Path(__file__).resolve().parents[1]


def test_a_run_returns_tables(tmp_path):
    result = run("strategy=fedavg", "num_rounds=3", "seed=5", folder=tmp_path / "out")
    assert isinstance(result, fedrage_flwr.Result)
    assert result.summary["strategy"] == "fedavg"
    assert result.rounds["round"].tolist() == [1, 2, 3]
    assert len(result.participation) == len(result.updates) == 9
    assert result.clients["round"].nunique() == 3
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "rounds.csv",
        "summary.json",
        "run.log",
        ".hydra",
        "figures",
    }
    assert read_config(result.folder).seed == 5


def test_the_same_bits_as_the_command(tmp_path, simulate):
    folder, _ = simulate("num_rounds=4")
    result = run("num_rounds=4", folder=str(tmp_path / "out"))
    same = pd.read_csv(folder / "rounds.csv").drop(columns="round_seconds")
    pd.testing.assert_frame_equal(result.rounds.drop(columns="round_seconds"), same)


def test_without_a_folder_it_makes_one_like_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("num_rounds=1")
    assert [result.folder] == list(tmp_path.glob("outputs/*/*"))


def test_the_log_is_the_runs_own_and_the_callers_handlers_come_back(tmp_path):
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    result = run("num_rounds=1", folder=tmp_path / "out")
    assert (root.handlers, root.level) == (before, level)
    assert "rare_classes: clients 27 to 29" in (result.folder / "run.log").read_text()


@pytest.mark.parametrize("overrides", [["resume=x"], ["-m"], ["num_round=3"], ["client.alpha=0"], ["seed=0,1"]])
def test_mistakes_leave_nothing(tmp_path, monkeypatch, overrides):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError):
        run(*overrides)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_refused(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(UserError, match="exists and is not empty"):
        run("num_rounds=1", folder=tmp_path)


IMPORTS = {
    "function first": "from fedrage_flwr import run; from fedrage_flwr.run import Company; from fedrage_flwr import run",
    "module first": "from fedrage_flwr.run import Company; import fedrage_flwr.run as m; m.Company; run = m",
    "attribute": "import fedrage_flwr; run = fedrage_flwr.run",
}


@pytest.mark.parametrize("statement", IMPORTS.values(), ids=IMPORTS)
def test_run_is_callable_however_it_is_imported(tmp_path, statement):
    light = "import sys, fedrage_flwr; assert not {'torch', 'flwr', 'pandas', 'hydra'} & set(sys.modules)"
    check = """
assert 'pandas' not in sys.modules
try:
    run('num_round=1')
except Exception as error:
    print(error)"""
    done = subprocess.run(
        [sys.executable, "-c", f"{light}\n{statement}{check}"], cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": ""}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "num_round=1: no such key; did you mean num_rounds?\n"
