"""The scaffold writes what works, or nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clients import CLIENTS
from fedrage_flwr import new
from fedrage_flwr.errors import UserError
from fedrage_flwr.new import texts, write
from strategies import STRATEGIES

REPOSITORY = Path(__file__).resolve().parents[1]
MADE = {
    "strategies/my_mean.py", "clients/my_mean.py", "conf/strategy/my_mean.yaml", "tests/strategies/test_my_mean.py",
}  # fmt: skip


def state(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_four_files_and_one_line_in_each_table(copy):
    before = state(copy)
    write(texts("my_mean", copy))
    after = state(copy)
    assert after.keys() - before.keys() == MADE
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {"strategies/__init__.py", "clients/__init__.py"}
    for path, table in (("strategies/__init__.py", STRATEGIES), ("clients/__init__.py", CLIENTS)):
        old, more = before[path].decode().splitlines(), after[path].decode().splitlines()
        (line,) = [line for line in more if line not in old]
        assert [entry for entry in more if entry != line] == old
        assert more.index(line) == max(i for i, entry in enumerate(old) if entry.startswith('    "')) + 1
        assert len(table) == sum(entry.startswith('    "') for entry in old)


@pytest.mark.parametrize(
    "name", ["MyMean", "my-mean", "2nd", "class", "", "a b", "../x", "fedavg", "loss_first", "base"]
)
def test_a_name_that_cannot_be_is_refused_in_one_line(capsys, monkeypatch, name):
    before = state(REPOSITORY / "strategies")
    monkeypatch.setattr(sys, "argv", ["new", "strategy", name])
    assert new.enter(new.main) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {name}")
    assert err.count("\n") == 1
    assert state(REPOSITORY / "strategies") == before


@pytest.mark.parametrize("words", [[], ["strategy"], ["model", "x"], ["strategy", "x", "y"]])
def test_other_words_get_the_usage(words):
    with pytest.raises(UserError, match=r"usage: python -m fedrage_flwr\.new strategy NAME"):
        new.main(words)


def test_an_installed_copy_has_no_place_for_it(tmp_path):
    with pytest.raises(UserError, match="no checkout"):
        texts("my_mean", tmp_path)


def test_when_the_last_file_cannot_be_written_the_first_are_taken_back(copy):
    before = state(copy)
    files = texts("my_mean", copy)
    with pytest.raises(UserError, match="nothing was changed"):
        write({**files, copy / "missing" / "file.py": ""})
    assert state(copy) == before


@pytest.mark.slow
def test_its_own_test_passes_and_it_runs_in_a_sweep(copy):
    def python(*words):
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=copy, env=environment, capture_output=True, text=True, timeout=300
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        return done.stdout

    assert "new     strategies/my_mean.py" in python("fedrage_flwr.new", "strategy", "my_mean")
    assert "2 passed" in python("pytest", "-q", "-n", "0", "tests/strategies/test_my_mean.py")
    python("fedrage_flwr", "-m", "strategy=fedavg,my_mean", "seed=0,1", "num_rounds=2", "hydra.sweep.dir=out")
    assert len(list(copy.glob("out/*/summary.json"))) == 4
    assert "| `my_mean` |" in python("fedrage_flwr.methods")
