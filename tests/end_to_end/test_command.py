"""The real command, in a process and a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")


def command(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    return subprocess.run(
        [sys.executable, "-m", "fedrage_flwr", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_run_from_any_folder(tmp_path):
    done = command(tmp_path, "num_rounds=12")
    assert (done.returncode, done.stderr) == (0, "")
    (folder,) = tmp_path.glob("outputs/*/*")
    assert str(folder) in done.stdout
    assert all(word in done.stdout for word in ("accuracy", "worst client", "rare clients", "bytes a round", "time"))
    assert {path.name for path in folder.iterdir()} == {
        "rounds.csv", "clients.csv", "participation.csv", "updates.csv", "summary.json", "model.safetensors",
        "polyak.safetensors", "checkpoint", "figures", "run.log", ".hydra",
    }  # fmt: skip
    assert {path.name for path in (folder / "figures").iterdir()} == {"accuracy.png", "clients.png"}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["num_clients=3", "ram.clients_per_round=6"], ["ram.clients_per_round=6", "num_clients=3"]),
        (["client.alpha=0"], ["client.alpha=0", "(0, 1]"]),
        (["strategy=fedragee"], ["strategy=fedragee", "federage"]),
        (["dataset=mnist", "dataset.root=nowhere"], ["dataset=mnist", "nowhere", "FEDRAGE_DATA"]),
        (["device=cuda"], ["device=cuda", "auto, cpu"]),
        (["seed=one"], ["seed='one'", "an integer"]),
        (["hydra.run.dir=used"], ["hydra.run.dir=used", "exists"]),
        (["hydra.run.dir=/proc/run"], ["hydra.run.dir=/proc/run", "cannot be written", "/proc"]),
        (["-m", "seed=0,1", "hydra/launcher=nobody"], ["hydra/launcher/nobody", "fedrage-flwr[sweeps]"]),
        (["-m", "strategy=fedavg,fedragee", "num_rounds=2"], ["strategy=fedragee: no such", "did you mean federage?"]),
        (["-m", "seed=0,1", "hydra.sweep.subdir=same"], ["hydra.sweep.subdir=same", "overwrite"]),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(tmp_path, arguments, parts):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "something").touch()
    done = command(tmp_path, *arguments, CUDA_VISIBLE_DEVICES="", **NO_NETWORK)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert all(part in done.stderr for part in parts), done.stderr
    assert not (tmp_path / "outputs").exists()


def test_a_sweep_makes_a_folder_for_each_job(tmp_path):
    done = command(tmp_path, "-m", "strategy=fedavg,federage", "seed=range(2)", "num_rounds=3")
    assert done.returncode == 0, done.stderr
    folders = sorted(tmp_path.glob("outputs/multirun/*/*/"))
    names = [folder.name for folder in folders if (folder / "summary.json").exists()]
    assert len(names) == 4
    assert names[0] == "0_num_rounds=3,seed=0,strategy=fedavg"
    participation = [
        (folder / "participation.csv").read_text() for folder in folders if (folder / "summary.json").exists()
    ]
    assert participation[0] == participation[2] != participation[1] == participation[3]


def test_o21_a_job_that_fails_fails_alone(tmp_path):
    done = command(tmp_path, "-m", "client.alpha=0.5,0,0.25", "num_rounds=2", "hydra.sweep.dir=sweep")
    assert done.returncode == 1
    assert "client.alpha=0 is not allowed" in done.stderr
    jobs = sorted(path for path in (tmp_path / "sweep").iterdir() if path.is_dir())
    assert [(job / "summary.json").exists() for job in jobs] == [True, False, True]
    assert "client.alpha=0 is not allowed" in (jobs[1] / "run.log").read_text()
    assert "not allowed" not in (jobs[0] / "run.log").read_text()


def test_help_and_config_are_shown_without_a_run(tmp_path):
    done = command(tmp_path, "--cfg", "job")
    assert done.returncode == 0
    assert "clients_per_round: 3" in done.stdout
    assert not (tmp_path / "outputs").exists()


def test_another_package_that_shadows_ours_is_named(tmp_path):
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "__init__.py").touch()
    done = command(tmp_path, PYTHONPATH=f"{tmp_path}:{REPOSITORY}")
    assert done.returncode == 1
    assert "another package called strategies" in done.stderr
    assert "Traceback" not in done.stderr


FASHION = REPOSITORY / "data"


@pytest.mark.skipif(
    not (Path(os.environ.get("FEDRAGE_DATA", FASHION)) / "FashionMNIST").is_dir(),
    reason="needs Fashion-MNIST: python -c \"import torchvision; torchvision.datasets.FashionMNIST('data', download=True)\","
    " then FEDRAGE_DATA=data",
)
def test_fashion_mnist_with_rare_classes(tmp_path):
    root = Path(os.environ.get("FEDRAGE_DATA", FASHION)).resolve()
    done = command(
        tmp_path,
        "dataset=fashion_mnist",
        "partition=rare_classes",
        "num_rounds=20",
        "eval_every=20",
        FEDRAGE_DATA=str(root),
    )
    assert (done.returncode, done.stderr) == (0, "")
    (folder,) = tmp_path.glob("outputs/*/*")
    clients = pd.read_csv(folder / "clients.csv")
    assert clients.loc[clients["rare"] == 1, "client"].unique().tolist() == [27, 28, 29]
    assert (clients["examples"] > 0).all()
