"""Ten of the runs of ``make chaos``: killed at a random moment, resumed, equal to runs left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_ten_killed_runs_end_like_ten_left_alone(tmp_path):
    script = [sys.executable, str(REPOSITORY / "tests" / "chaos.py"), "--runs", "10", "--seed", "1"]
    done = subprocess.run(
        [*script, "--write", str(tmp_path / "chaos.json")], cwd=tmp_path, env=os.environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "chaos.json").read_text())
    assert (result["runs"], result["equal"]) == (10, 10)
    assert all(job["killed_after"] for job in result["jobs"])
