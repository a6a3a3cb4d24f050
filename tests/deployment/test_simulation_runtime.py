"""``flwr run`` on Flower's simulation runtime is the command line with another grid."""

import zipfile

import pytest

pytestmark = pytest.mark.deployment
JOB = "num_rounds=3 num_clients=4 rare_clients=1 ram=uniform partition=iid"
BITS = ("model.safetensors", "polyak.safetensors", "participation.csv", "clients.csv", "updates.csv")


def test_what_flower_sends_to_the_nodes(processes):
    for name in ("outputs/old/.hydra/config.yaml", "data/notes.json", "conf/strategy/mine.yaml"):
        (processes.app / name).parent.mkdir(parents=True, exist_ok=True)
        (processes.app / name).write_text("{}")
    processes.call("flwr", "build")
    (bundle,) = processes.app.glob("*.fab")
    names = set(zipfile.ZipFile(bundle).namelist())
    wanted = {
        "conf/config.yaml",
        "conf/strategy/mine.yaml",
        "strategies/base.py",
        "clients/base.py",
        "fedrage_flwr/node.py",
        "LICENSE",
    }
    assert wanted <= names
    assert {name.split("/")[0] for name in names if "/" in name} <= {
        "conf",
        "strategies",
        "clients",
        "fedrage_flwr",
        ".info",
    }


def test_the_same_bits_as_the_inline_grid(processes, tmp_path, simulate):
    """One method that keeps control variates, one with a scalar, one with several models: three runs of one runtime."""
    for word in ("scaffold", "federage", "focus"):
        output, job = tmp_path / word, f"strategy={word} {JOB}"
        processes.call(
            "flwr", "run", ".", "--stream", "--federation-config", "num-supernodes=4 client-resources-num-cpus=1",
            "--run-config", f'overrides="{job}" output-dir="{output}"',
        )  # fmt: skip
        expected, summary = simulate(*job.split())
        assert summary["rejected_replies"] == 0
        for name in BITS:
            assert (output / name).read_bytes() == (expected / name).read_bytes(), f"{word} {name}"


def test_an_unknown_override_ends_the_run_before_the_first_round(processes, tmp_path):
    text = processes.call(
        "flwr", "run", ".", "--stream", "--run-config", f'overrides="strategy=scafold" output-dir="{tmp_path / "out"}"'
    )
    assert "strategy=scafold: no such strategy; did you mean scaffold?" in text
    assert not (tmp_path / "out").exists()
