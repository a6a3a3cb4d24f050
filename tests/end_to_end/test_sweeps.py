"""Real sweeps with jobs beside each other: the same files as one after another, failures collected; and a tuner."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
JOBS = ("strategy=fedavg,scaffold", "client.lr=0.05,-1.0", "num_rounds=12", "num_clients=6", "rare_clients=1")
LAUNCHERS = {
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
    "ray": (
        "hydra/launcher=ray",
        "+hydra.launcher.ray.init.num_cpus=2",
        "+hydra.launcher.ray.init.include_dashboard=false",
    ),
}
FILES = ("clients.csv", "participation.csv", "updates.csv", "model.safetensors", "polyak.safetensors")

pytestmark = pytest.mark.slow


def sweep(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "fedrage_flwr", "-m", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return folder / "sweep", sweep(folder, *JOBS, "hydra.sweep.dir=sweep")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_same_bits_and_the_same_failures_as_one_after_another(plain, launcher, tmp_path):
    pytest.importorskip(f"hydra_plugins.hydra_{launcher}_launcher")
    expected, alone = plain
    done = sweep(tmp_path, *JOBS, *LAUNCHERS[launcher], "hydra.sweep.dir=sweep")
    folders = sorted(path.name for path in expected.iterdir() if path.is_dir())
    assert sorted(path.name for path in (tmp_path / "sweep").iterdir() if path.is_dir()) == folders
    finished = [name for name in folders if (expected / name / "summary.json").exists()]
    assert (len(folders), len(finished)) == (4, 2)
    for name in finished:
        for file in FILES:
            assert (tmp_path / "sweep" / name / file).read_bytes() == (expected / name / file).read_bytes(), (
                name,
                file,
            )
        tables = [pd.read_csv(where / name / "rounds.csv") for where in (expected, tmp_path / "sweep")]
        pd.testing.assert_frame_equal(*(table.drop(columns="round_seconds") for table in tables))
    for name, where, run in [
        (n, w, r) for n in set(folders) - set(finished) for w, r in ((expected, alone), (tmp_path / "sweep", done))
    ]:
        assert run.returncode == 1
        assert f"failed: {where / name}: client.lr=-1.0 is not allowed" in run.stderr
        assert "client.lr=-1.0 is not allowed" in (where / name / "run.log").read_text()
        assert not (where / name / "summary.json").exists()


MODEL = """
import torch

class Broken(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, 10)

    def forward(self, inputs):
        if len(inputs) > 400:  # the test set of the digits
            raise RuntimeError("not today")
        return super().forward(inputs.flatten(1))
"""


def test_a_crash_in_another_process_leaves_its_traceback_in_its_log(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    (tmp_path / "broken.py").write_text(MODEL)
    words = ("model=custom", "model.path=broken:Broken", "seed=0,1", "num_rounds=2", "hydra.sweep.dir=sweep")
    done = sweep(tmp_path, *words, *LAUNCHERS["joblib"])
    assert done.returncode == 1
    logs = sorted((tmp_path / "sweep").glob("*/run.log"))
    assert len(logs) == 2
    for log in logs:
        assert f"failed: {log.parent}: RuntimeError: not today (traceback in {log})" in done.stderr
        assert 'raise RuntimeError("not today")' in log.read_text()


def test_ray_actors_inside_a_parallel_sweep_are_refused(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    done = sweep(tmp_path, "backend=inline,ray", "num_rounds=2", "hydra.sweep.dir=sweep", *LAUNCHERS["joblib"])
    assert done.returncode == 1
    assert "backend=ray with hydra/launcher=joblib" in done.stderr
    assert len(list((tmp_path / "sweep").glob("*/summary.json"))) == 1


def test_optuna_finds_the_best_of_its_trials_and_survives_one_that_fails(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    """Draws with a seed: its grid, in an order of chance, ends in a traceback when the trial that fails is the last."""
    draws = ("hydra/sweeper=optuna", "hydra/sweeper/sampler=random", "hydra.sweeper.sampler.seed=1")
    done = sweep(
        tmp_path,
        *draws,
        "hydra.sweeper.n_trials=6",
        "hydra.sweeper.n_jobs=1",
        "hydra.sweeper.direction=maximize",
        "client.lr=choice(0.001,-1.0,0.1)",
        "num_rounds=12",
        "hydra.sweep.dir=sweep",
    )
    assert done.returncode == 1
    assert "client.lr=-1.0 is not allowed" in done.stderr
    best = yaml.safe_load((tmp_path / "sweep" / "optimization_results.yaml").read_text())
    accuracies = {}
    for summary in (tmp_path / "sweep").glob("*/summary.json"):
        overrides = yaml.safe_load((summary.parent / ".hydra" / "overrides.yaml").read_text())
        (lr,) = [float(word.partition("=")[2]) for word in overrides if word.startswith("client.lr=")]
        accuracies[lr] = json.loads(summary.read_text())["accuracy_mean_last10"]
    assert accuracies.keys() == {0.001, 0.1}
    assert best["best_params"]["client.lr"] == max(accuracies, key=accuracies.get)
    assert best["best_value"] == max(accuracies.values())
