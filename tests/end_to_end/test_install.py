"""A plain ``pip install .`` works from any folder: conf/ is packaged, tests are not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_an_installed_copy_runs_from_any_folder(tmp_path):
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(REPOSITORY)],
        check=True,
    )
    assert {path.name for path in site.iterdir() if path.suffix != ".dist-info" and path.name != "bin"} == {
        "fedrage_flwr",
        "strategies",
        "clients",
    }
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "fedrage_flwr", "num_rounds=2"],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(elsewhere.glob("outputs/*/*/summary.json"))
