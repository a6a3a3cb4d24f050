"""``deploy/local.sh``: what a person runs first. Three authenticated sites over TLS are the command line with another grid."""

import os
import subprocess

import pytest

from tests.deployment.federation import BIN, PATIENCE, REPOSITORY, left_behind
from tests.test_docs import blocks, replaced

pytestmark = pytest.mark.deployment
FOLDER = os.environ.get("FEDRAGE_DATA", "data")
JOB = (
    "strategy=federage", "dataset=fashion_mnist", "partition.classes_per_client=4", "ram=full", "num_clients=3",
    "rare_clients=1", "num_rounds=5", "eval_every=5", "backend=inline",
)  # fmt: skip
BITS = ("model.safetensors", "polyak.safetensors", "participation.csv", "clients.csv", "updates.csv")


@pytest.mark.skipif(
    not os.path.isdir(os.path.join(FOLDER, "FashionMNIST")),
    reason="needs FashionMNIST: python -m fedrage_flwr dataset=fashion_mnist num_rounds=1, then FEDRAGE_DATA=data",
)
def test_the_same_bits_as_the_inline_grid(tmp_path, simulate):
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    (_, command), *_ = blocks("docs/deployment.md")
    words = replaced(command, ("/abs/results", f"{tmp_path}/out node_wait_s={60 * PATIENCE:g}"))
    done = subprocess.run(
        ["bash", "-euc", words],
        cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=180 * PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "round 5: sites 3 averaged" in done.stdout
    assert not list(tmp_path.glob("tmp.*"))
    assert not left_behind(tmp_path)
    expected, _ = simulate(*JOB)
    for name in BITS:
        assert (tmp_path / "out" / name).read_bytes() == (expected / name).read_bytes(), name
