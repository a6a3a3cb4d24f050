"""``resume=`` typed at the prompt: after a kill, with other settings, on sweeps."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

from fedrage_flwr.command import main
from fedrage_flwr.resume import merge, read_request
from fedrage_flwr.same import differences
from fedrage_flwr.sweep_folder import cells

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "fedrage_flwr"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
SMALL = ("num_clients=6", "rare_clients=1", "partition=iid", "model=softmax", "client.local_steps=1", "eval_every=1000")


def typed(folder, *arguments):
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )


def kill_after(folder, rounds, *arguments):
    """Start a run in ``folder/run`` and kill it once that many rounds stand in its table."""
    process = subprocess.Popen([*COMMAND, *arguments, "hydra.run.dir=run"], cwd=folder, env=ENVIRONMENT)
    table = folder / "run" / "rounds.csv"
    while not (table.exists() and table.read_bytes().count(b"\n") > rounds):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert not (folder / "run" / "summary.json").exists()


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run of 10⁵ rounds killed behind its 30th, and the number of rounds in its table then."""
    folder = tmp_path_factory.mktemp("killed")
    kill_after(folder, 30, *SMALL, "strategy=scaffold", "checkpoint_every=20", "num_rounds=100000")
    return folder, len(pd.read_csv(folder / "run" / "rounds.csv", on_bad_lines="skip"))


def test_o24_every_complete_round_survives_a_kill(killed):
    folder, rounds = killed
    table = (folder / "run" / "rounds.csv").read_text()
    complete = table[: table.rindex("\n")].splitlines()[1:]
    assert [int(row.partition(",")[0]) for row in complete] == list(range(1, len(complete) + 1))
    assert rounds >= 30


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["resume=nowhere"], ["resume=nowhere", "no such folder"]),
        (["resume=run", "client.lr=0.5"], ["client.lr=0.5", "the run has", "resume_force=[client.lr]"]),
        (["resume=run", "ram=uniform"], ["ram=uniform", "the run has rare", "resume_force=[ram]"]),
        (["resume=run", "strategy=fedavg", "resume_force=[strategy]"], ["strategy=fedavg", "the run has scaffold"]),
        (["resume=run", "num_rounds=5", "resume_force=[num_rounds]"], ["num_rounds=5", "has done"]),
        (["resume=run", "client.lear=0.5"], ["client.lear", "did you mean client.lr?"]),
        (["resume=run", "experiment=table1"], ["experiment=table1", "cannot be typed beside resume="]),
        (["resume=run", "resume_force=[seed]"], ["resume_force=[seed]", "type the new value"]),
        (["resume=run", "resume_force=seed"], ["resume_force=seed", "a list"]),
        (["resume_force=[seed]"], ["resume_force=[seed]", "goes with resume=FOLDER"]),
        (["-m", "resume=run"], ["resume=run", "no job of a sweep"]),
    ],
)
def test_what_does_not_fit_is_refused_by_name(killed, monkeypatch, capsys, arguments, parts):
    folder, _ = killed
    monkeypatch.chdir(folder)
    before = (folder / "run" / "rounds.csv").read_bytes()
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert all(part in error for part in parts), error
    assert (folder / "run" / "rounds.csv").read_bytes() == before


def test_a_killed_run_goes_on_and_ends_like_any_other(killed):
    """The one test that changes the killed run, so it comes last."""
    folder, rounds = killed
    hydra = {path.name: path.read_bytes() for path in (folder / "run" / ".hydra").iterdir()}
    end = f"num_rounds={rounds + 30}"
    gone_on = typed(folder, "resume=run", end, "strategy=scaffold", "resume_force=[num_rounds]")
    assert gone_on.returncode == 0, gone_on.stderr
    assert "going on after round" in gone_on.stderr
    alone = typed(folder, *SMALL, "strategy=scaffold", end, "checkpoint_every=20", "hydra.run.dir=alone")
    assert alone.returncode == 0, alone.stderr
    assert differences(folder / "run", folder / "alone") == []
    after = {path.name: path.read_bytes() for path in (folder / "run" / ".hydra").iterdir()}
    assert f"num_rounds={rounds + 30} strategy=scaffold resume_force=[num_rounds]" in after.pop("resumes.log").decode()
    assert after == hydra
    again = typed(folder, "resume=run")
    assert again.returncode == 0
    assert f"run is finished: {rounds + 30} of {rounds + 30} rounds" in again.stderr
    assert "accuracy" in again.stdout


def test_each_job_of_a_sweep_goes_on(tmp_path):
    """One job was stopped, one was finished, one could never run: two end well, the third says why once more."""
    words = [*SMALL, "num_rounds=4", "checkpoint_every=2", "hydra.sweep.dir=sweep"]
    assert typed(tmp_path, "-m", "client.batch_size=8,16,0", *words).returncode == 1
    jobs = sorted(path for path in (tmp_path / "sweep").iterdir() if path.is_dir())
    kept = (jobs[0] / "model.safetensors").read_bytes()
    for name in ("summary.json", "model.safetensors", "polyak.safetensors", "checkpoint/round-0000004.safetensors"):
        (jobs[0] / name).unlink()  # as a kill in round 3 would have left it
    done = typed(tmp_path, "-m", "resume=sweep")
    assert done.returncode == 1
    assert "going on after round 2 of 4" in done.stderr
    assert f"{jobs[1].relative_to(tmp_path)} is finished: 4 of 4 rounds" in done.stderr
    assert "client.batch_size=0 is not allowed" in done.stderr
    assert (jobs[0] / "model.safetensors").read_bytes() == kept


def test_jobs_a_sweep_was_stopped_before_are_started_as_if_nothing_had_happened(tmp_path):
    """The sweep ended while its second of four jobs began: two folders are missing, one is without its settings."""
    words = [*SMALL, "num_rounds=3", "strategy=fedavg,scaffold", "seed=range(2)"]
    subdir = "hydra.sweep.subdir=${hydra.job.num}_${strategy.name}"
    done = typed(tmp_path, "-m", *words, "hydra.sweep.dir=sweep", subdir)
    assert done.returncode == 0, done.stderr
    shutil.copytree(tmp_path / "sweep", tmp_path / "alone")
    for name in ("2_scaffold", "3_scaffold"):
        shutil.rmtree(tmp_path / "sweep" / name)
    for path in (tmp_path / "sweep" / "1_fedavg").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (tmp_path / "sweep" / "1_fedavg" / ".hydra").mkdir()
    done = typed(tmp_path, "-m", "resume=sweep")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("it had done no round; beginning the first of 3") == 3
    assert "0_fedavg is finished" in done.stderr
    jobs = sorted(path.name for path in (tmp_path / "alone").iterdir() if path.is_dir())
    assert jobs == ["0_fedavg", "1_fedavg", "2_scaffold", "3_scaffold"]
    for job in jobs:
        assert differences(tmp_path / "sweep" / job, tmp_path / "alone" / job) == []
        for name in ("overrides.yaml", "config.yaml"):
            files = [(tmp_path / sweep / job / ".hydra" / name).read_text() for sweep in ("sweep", "alone")]
            assert files[0] == files[1]


def test_a_sweep_is_split_as_hydra_splits_it(tmp_path):
    """Parameters of the sweeper come first and what was typed replaces them; globs ask for a group's words."""
    hydra = {"sweeper": {"params": {"seed": "0,1", "num_rounds": 5}}, "overrides": {"hydra": ["hydra.sweep.dir=x"]}}
    hydra["overrides"]["task"] = ["seed=3,4", "partition=glob(i*)"]
    OmegaConf.save(OmegaConf.create({"hydra": hydra}), tmp_path / "multirun.yaml")
    tail = ["num_rounds=5", "partition=iid"]
    assert cells(tmp_path) == [["hydra.sweep.dir=x", f"seed={seed}", *tail] for seed in (3, 4)]


def test_values_are_compared_not_their_spelling():
    stored = {"client": {"lr": 0.001, "beta_range": [0.0, 100.0]}, "seed": 1, "ram": {"name": "rare"}, "device": "cpu"}
    same = ["client.lr=1e-3", "client.beta_range=[0,100]", "seed=1", "ram=rare", "device='cpu'"]
    values, changed = merge(stored, read_request(["resume=x", *same]))
    assert (values, changed) == (stored, [])
    request = read_request(["resume=x", "seed=2", "client.lr=0.1", "resume_force=[client.lr,seed]"])
    values, changed = merge(stored, request)
    assert (values["client"]["lr"], values["seed"], sorted(changed)) == (0.1, 2, ["client.lr", "seed"])


def test_a_run_whose_output_cannot_grow_ends_with_one_line(tmp_path):
    """A file-size limit stands for a full disk."""
    limited = f"ulimit -f 200; exec {sys.executable} -m fedrage_flwr num_rounds=2000 eval_every=5 hydra.run.dir=run"
    done = subprocess.run(
        ["bash", "-c", limited], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "File too large" in done.stderr
    assert "run" in done.stderr
