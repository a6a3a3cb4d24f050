"""Replicas of a setting in one process: the bits of single runs, and each stands or falls by itself."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedrage_flwr.checkpoint import StopRequest
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import Interrupted, UserError
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.replicas import Exchange, replica_words, run_replicas
from fedrage_flwr.resume import read_request, resume
from fedrage_flwr.run import run
from fedrage_flwr.same import differences
from fedrage_flwr.sweep_folder import jobs_of
from fedrage_flwr.words import choices

JOB = ("num_clients=6", "rare_clients=1", "num_rounds=6", "eval_every=3", "checkpoint_every=2", "partition=iid")


def replicas(folder, *words):
    """Run them without the command line."""
    cfg = compose_config([*JOB, *words])
    folder.mkdir()
    return run_replicas(prepare_run(validate(cfg)), folder, cfg, [*JOB, *words])


@pytest.mark.parametrize("word", choices("strategy"))
def test_each_folder_holds_what_a_run_by_itself_leaves(tmp_path, word):
    words = (f"strategy={word}", "model=softmax")
    found = replicas(tmp_path / "all", "seeds=[0,5]", *words)
    assert [replica.error for replica in found] == [None, None]
    for replica in found:
        alone = tmp_path / f"alone{replica.seed}"
        alone.mkdir()
        run(prepare_run(validate(compose_config([*JOB, *words, f"seed={replica.seed}"]))), alone)
        assert differences(tmp_path / "all" / f"seed={replica.seed}", alone) == []


def test_the_clients_of_all_replicas_are_trained_at_once(tmp_path, monkeypatch):
    import fedrage_flwr.cohort as cohort

    sizes = []
    plain = cohort.train_group
    monkeypatch.setattr(cohort, "train_group", lambda group, space: sizes.append(len(group)) or plain(group, space))
    replicas(tmp_path / "all", "seeds=[0,1,2]", "strategy=fedavg", "ram=uniform", "ram.clients_per_round=2")
    assert sizes == [6] * 6  # three replicas of two clients, in each of six rounds


def test_one_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    import fedrage_flwr.replicas as module

    plain = module.run

    def run_or_raise(prepared, *arguments, **options):
        if prepared.config.seed == 1:
            raise RuntimeError("disk on fire")
        return plain(prepared, *arguments, **options)

    monkeypatch.setattr(module, "run", run_or_raise)
    found = replicas(tmp_path / "all", "seeds=[0,1,2]")
    assert [str(replica.error) for replica in found] == ["None", "disk on fire", "None"]
    assert "disk on fire" in (tmp_path / "all" / "seed=1" / "run.log").read_text()
    assert "disk on fire" not in (tmp_path / "all" / "seed=0" / "run.log").read_text()
    with pytest.raises(RuntimeError, match="disk on fire"):
        found[1].result()
    assert found[0].result()["rounds_done"] == 6


def test_a_signal_stops_all_and_each_goes_on_alone(tmp_path, monkeypatch):
    """The signal comes as seed 1 enters round 4; both write a checkpoint, and end as if nothing had happened."""
    import fedrage_flwr.replicas as module

    plain, asked = StopRequest(), threading.Event()
    monkeypatch.setattr(module, "StopRequest", lambda: plain)
    admit = module.RandomAccessClientManager.admit

    def admit_and_ask(self, grid, round):
        if round == 4 and self.law.seed == 1 and not asked.is_set():
            asked.set()
            plain.asked = signal.SIGTERM
        return admit(self, grid, round)

    monkeypatch.setattr(module.RandomAccessClientManager, "admit", admit_and_ask)
    stopped = replicas(tmp_path / "cut", "seeds=[0,1]")
    assert all(isinstance(replica.error, Interrupted) for replica in stopped)
    monkeypatch.undo()
    assert [r.error for r in replicas(tmp_path / "whole", "seeds=[0,1]")] == [None, None]
    for seed in (0, 1):
        folder = tmp_path / "cut" / f"seed={seed}"
        assert not (folder / "summary.json").exists()
        resume(read_request([f"resume={folder}"]), folder, lambda line: None)
        assert differences(folder, tmp_path / "whole" / f"seed={seed}") == []


def test_resume_with_m_finds_the_replicas(tmp_path):
    replicas(tmp_path / "all", "seeds=[10,9]", "num_rounds=1")
    assert [path.name for path in jobs_of(tmp_path / "all")] == ["seed=9", "seed=10"]


def test_the_exchange_waits_for_all_who_are_there():
    """Three hand in; one leaves; the two left are served; an error reaches both."""
    served = []

    def execute(jobs):
        served.append(list(jobs))
        if "bad" in jobs:
            raise RuntimeError("no")
        return [(f"reply to {job}", None) for job in jobs]

    exchange, results = Exchange(execute, 3), {}

    def work(replica):
        results[replica] = [exchange.run(replica, [f"{replica}a", f"{replica}b"])]
        if replica == 1:
            exchange.leave(1)
            return
        results[replica].append(exchange.run(replica, []))
        try:
            exchange.run(replica, ["bad"] if replica == 0 else ["good"])
        except RuntimeError as error:
            results[replica].append(str(error))

    threads = [threading.Thread(target=work, args=(replica,)) for replica in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert served == [["0a", "0b", "1a", "1b", "2a", "2b"], [], ["bad", "good"]]
    assert results[1] == [[("reply to 1a", None), ("reply to 1b", None)]]
    assert results[0][1:] == results[2][1:] == [[], "no"]


def test_what_starts_a_replica_alone():
    assert replica_words(["num_rounds=3", "seeds=[0,1]", "seed=9"], 1) == ["num_rounds=3", "seed=1"]


def test_the_command(tmp_path):
    words = [sys.executable, "-m", "fedrage_flwr", *JOB, "seeds=[0,1]", "hydra.run.dir=run"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    accuracy = {row[0]: float(row[1]) for row in rows[1:5]}
    assert list(accuracy) == ["0", "1", "mean", "std"]
    assert accuracy["mean"] == pytest.approx((accuracy["0"] + accuracy["1"]) / 2, abs=2e-4)
    assert accuracy["std"] == pytest.approx(abs(accuracy["0"] - accuracy["1"]) / 2**0.5, abs=2e-4)
    assert (tmp_path / "run" / "seed=1" / "figures").is_dir()
    assert "seed: 1\nseeds: null" in (tmp_path / "run" / "seed=1" / ".hydra" / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["seeds=[]"], r"seeds=\[\] must be different seeds, at least one"),
        (["seeds=[1,1]"], r"seeds=\[1, 1\] must be different seeds, at least one"),
        (["seeds=[-1]"], "seeds"),
        (["seeds=[0,1]", "backend=ray"], "replicas share this process, so backend=inline"),
    ],
)
def test_what_is_refused(words, reason):
    with pytest.raises(UserError, match=reason):
        validate(compose_config(words))


def test_only_where_there_is_one_process():
    from fedrage_flwr import run as run_from_python

    with pytest.raises(UserError, match=r"seeds=.*only on the command line"):
        run_from_python("seeds=[0,1]")
    with pytest.raises(UserError, match=r"seeds=.*only in simulation"):
        prepare_run(validate(compose_config(["seeds=[0,1]"])), remote=True)
