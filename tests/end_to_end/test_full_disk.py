"""A disk that is really full, and one that really cannot be written, also by root: one line, exit code 1, nothing lost.

The disk is a small file system in memory; where mounting is not permitted the tests are skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedrage_flwr.same import differences

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = 4096
WORDS = ("num_clients=6", "rare_clients=1", "partition=iid", "strategy=fedavg", "num_rounds=120", "eval_every=1000")

pytestmark = pytest.mark.slow


def typed(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "fedrage_flwr", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=600,
    )


def mount(*arguments):
    return subprocess.run(["mount", *arguments], capture_output=True, text=True)


@pytest.fixture
def disk(tmp_path):
    """A function that gives the disk at ``tmp_path/disk`` its size in bytes, and further options of mount."""
    place = tmp_path / "disk"
    place.mkdir()

    def sized(size, *options):
        words = ",".join([*(["remount"] if os.path.ismount(place) else []), f"size={size}", *options])
        done = mount("-t", "tmpfs", "-o", words, "tmpfs", str(place))
        if done.returncode:
            pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
        return place

    try:
        yield sized
    finally:
        subprocess.run(["umount", str(place)], capture_output=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folders of runs that nothing disturbed, by ``checkpoint_every``."""
    folder = tmp_path_factory.mktemp("whole")
    for every in (40, 1000):
        done = typed(folder, *WORDS, f"checkpoint_every={every}", f"hydra.run.dir={every}")
        assert done.returncode == 0, done.stderr
    return folder


def size(*paths):
    """Bytes of the pages that files take."""
    return sum(-(-path.stat().st_size // PAGE) * PAGE for path in paths)


def beginning(run):
    """Bytes of a run that has done no round: settings, log, headers of tables, a checkpoint; and those of its last checkpoint."""
    first, last = sorted((run / "checkpoint").glob("*.safetensors"))
    return size(*(run / ".hydra").iterdir(), first) + 5 * PAGE, size(last)


@pytest.mark.parametrize("full", ["tables", "checkpoint", "model", "averaged model"])
def test_a_run_that_a_full_disk_cut_goes_on_when_there_is_room(whole, disk, full, tmp_path):
    every = 40 if full == "checkpoint" else 1000
    before, checkpoint = beginning(whole / "1000")
    model = size(whole / "1000" / "model.safetensors")
    tables = size(*(whole / "1000").glob("*.csv")) - 4 * PAGE
    room, named = {
        "tables": (PAGE, "run"),
        "checkpoint": (4 * PAGE + checkpoint // 2, "run/checkpoint/round-0000040.safetensors"),
        "model": (tables + checkpoint + model // 2, "run/model.safetensors"),
        "averaged model": (tables + checkpoint + model + model // 2, "run/polyak.safetensors"),
    }[full]
    disk(before + room)
    done = typed(tmp_path / "disk", *WORDS, f"checkpoint_every={every}", "hydra.run.dir=run")
    run = tmp_path / "disk" / "run"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"error: {tmp_path / 'disk' / named}: ")
    assert "No space left on device" in done.stderr
    assert f"resume={run}" in done.stderr
    assert not (run / "summary.json").exists()
    disk("64M")
    done = typed(tmp_path, f"resume={run}")
    assert done.returncode == 0, done.stderr
    assert differences(run, whole / str(every)) == []


def test_a_disk_that_is_full_already_is_said_before_the_run(disk):
    place = disk(8 * PAGE)
    done = typed(place, *WORDS, "hydra.run.dir=run")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: hydra.run.dir=run cannot be written: {place}: No space left on device\n"
    assert list(place.iterdir()) == []


def test_a_sweep_that_a_full_disk_cut_goes_on_when_there_is_room(whole, disk, tmp_path):
    before, checkpoint = beginning(whole / "1000")
    one = size(*(path for path in (whole / "1000").rglob("*") if path.is_file()))
    words = (
        *WORDS,
        "checkpoint_every=1000",
        "seed=0,1,2",
        "hydra.sweep.dir=sweep",
        "hydra.sweep.subdir=${hydra.job.num}",
    )
    place = disk(one + 8 * PAGE + before + checkpoint // 2)
    done = typed(place, "-m", *words)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
    assert (place / "sweep" / "0" / "summary.json").exists()
    disk("64M")
    done = typed(place, "-m", "resume=sweep")
    assert done.returncode == 0, done.stderr
    assert [(place / "sweep" / str(job) / "summary.json").exists() for job in range(3)] == [True] * 3
    assert differences(place / "sweep" / "0", whole / "1000") == []


def test_a_folder_that_cannot_be_written_is_named(disk, tmp_path):
    place = disk("64M")
    done = typed(place, *WORDS, "hydra.run.dir=run", "num_rounds=2")
    assert done.returncode == 0, done.stderr
    (place / "run" / "summary.json").unlink()
    disk("64M", "ro")
    for words, line in (
        ("hydra.run.dir=disk/new", f"hydra.run.dir=disk/new cannot be written: {place}: Read-only file system"),
        (
            "resume=disk/run",
            "disk/run/run.log: Read-only file system; once that is mended the run can go on: resume=disk/run",
        ),
    ):
        done = typed(tmp_path, words)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {line}\n")
    disk("64M", "rw")
    assert typed(tmp_path, "resume=disk/run").returncode == 0
