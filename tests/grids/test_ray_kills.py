"""Ray actors killed from outside at random moments of a run: it completes, and nothing is lost but what is reported.

A run in which actors died must equal, to the bit, an inline run in which exactly the replies reported as failed are missing.
"""

import contextlib
import os
import random
import signal
import threading
from pathlib import Path

import pandas as pd
import pytest
import torch

from fedrage_flwr.checkpoint import read_newest
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.grids.base import error_reply
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.grids.ray import ACTOR_DIED, RayGrid
from fedrage_flwr.parts import WorkspaceFactory, prepare_run
from fedrage_flwr.run import run
from fedrage_flwr.same import differences

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
ROUNDS = 30
JOB = ("strategy=scaffold", "num_clients=12", "partition=iid", "ram=uniform", "ram.clients_per_round=6",
       f"num_rounds={ROUNDS}", "checkpoint_every=5", "max_empty_rounds=1000")  # fmt: skip
RAY = ("backend=ray", "backend.num_actors=2", "backend.num_cpus=0.5")


class Announced(WorkspaceFactory):
    """An actor leaves its process id in a folder when it begins."""

    folder: str

    def __call__(self, device):
        (Path(self.folder) / str(os.getpid())).touch()
        return super().__call__(device)


class Killer:
    """Kills a living actor at a random moment, several times, beginning in the rounds given."""

    def __init__(self, folder, rng, rounds, times):
        self.folder, self.rng, self.rounds, self.times = folder, rng, set(rounds), times
        self.killed, self.threads, self.over = set(), [], threading.Event()

    def watch(self, round):
        if round in self.rounds:
            self.threads.append(threading.Thread(target=self.strike))
            self.threads[-1].start()

    def strike(self):
        left = self.times
        while left and not self.over.wait(self.rng.uniform(0, 0.03)):  # a round takes about as long
            living = sorted({int(path.name) for path in self.folder.iterdir()} - self.killed)
            if living:
                pid = self.rng.choice(living)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                self.killed.add(pid)
                left -= 1

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def run_on(grid, folder, patch):
    folder.mkdir()
    patch.setattr("fedrage_flwr.run.make_grid", lambda *arguments: grid)
    return run(prepare_run(validate(compose_config(JOB))), folder)


def factory_of(words, kind=WorkspaceFactory):
    config = validate(compose_config(words))
    prepared = prepare_run(config)
    return config, kind(config, prepared.dataset, prepared.partition)


@pytest.mark.parametrize(("seed", "hits", "times"), [(1, 3, 1), (2, 1, 4)], ids=["now and then", "again and again"])
def test_a_run_whose_actors_are_killed_loses_only_what_it_reports(tmp_path, monkeypatch, seed, hits, times):
    rng, pids = random.Random(seed), tmp_path / "pids"
    pids.mkdir()
    config, factory = factory_of([*JOB, *RAY], Announced)
    object.__setattr__(factory, "folder", str(pids))
    grid = RayGrid.create(config.backend, config.num_clients, factory, CPU)
    killer = Killer(pids, rng, rng.sample(range(2, ROUNDS * 2 // 3), hits), times)
    round, run_clients = iter(range(1, ROUNDS + 1)), grid.run_clients

    def struck(messages):
        killer.watch(next(round))
        return run_clients(messages)

    monkeypatch.setattr(grid, "run_clients", struck)
    try:
        summary = run_on(grid, tmp_path / "killed", monkeypatch)
    finally:
        killer.stop()
    assert len(killer.killed) >= hits
    assert summary["rounds_done"] == ROUNDS
    rows = pd.read_csv(tmp_path / "killed" / "participation.csv", keep_default_na=False)
    lost = rows[rows["outcome"] != "averaged"]
    assert set(lost["outcome"]) <= {"failed"}
    assert lost["reason"].str.contains("its Ray actor (?:failed twice|died)").all(), lost
    assert summary["rejected_replies"] == len(lost)
    replay(tmp_path / "replay", monkeypatch, lost)
    assert differences(tmp_path / "killed", tmp_path / "replay") == []
    states = [read_newest(tmp_path / name / "checkpoint")[0].parts["clients"] for name in ("killed", "replay")]
    assert states[0].keys() == states[1].keys()
    for client, state in states[0].items():
        for name, array in state["control"].items():
            assert (array == states[1][client]["control"][name]).all(), (client, name)


def replay(folder, patch, lost):
    """The inline run in which the replies that were reported as lost are missing."""
    config, factory = factory_of(JOB)
    grid = InlineGrid.create(None, config.num_clients, factory, CPU)
    reasons = {(row.round, row.client): row.reason for row in lost.itertuples()}
    round, run_clients = iter(range(1, ROUNDS + 1)), grid.run_clients

    def without_the_lost(messages):
        number = next(round)
        answered = [(client, message) for client, message in messages if (number, client) not in reasons]
        replies = dict(zip([client for client, _ in answered], run_clients(answered), strict=True))
        return [
            replies[client] if client in replies else error_reply(message, reasons[number, client], ACTOR_DIED)
            for client, message in messages
        ]

    patch.setattr(grid, "run_clients", without_the_lost)
    run_on(grid, folder, patch)
