"""What a round and a start cost as the number of clients N grows, with M participants a round. One command, no data to fetch:

    python -m benchmarks.scale [--clients 30 100000] [--participants 10] [--strategies fedavg scaffold] [--backend inline]

Clients are those of ``dataset=synthetic``: 60 images of 8×8 bytes, as many as one of 30 clients of the bundled digits has. Each
measurement is a process of its own, so that its peak memory is its own; the values of N take turns (30, 100000, 30, 100000, …),
and the ratio is the median over the turns of a round's time to that with the first N. CPU times are this process's, so with
``--backend ray`` they are the server's side alone.
"""

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord

from clients.base import write_settings
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.parts import WorkspaceFactory, make_grid, make_local_model, make_measure, make_strategy, prepare_run
from fedrage_flwr.records import to_record
from fedrage_flwr.results import peak_rss_mb
from fedrage_flwr.rounds import Round

COLUMNS = {  # of a row: what is printed, and how
    "start_s": ("start to the end of round 1, s", ".1f"),
    "round_ms": ("ms a round", ".2f"),
    "cpu_ms": ("CPU ms a round", ".2f"),
    "evaluation_ms": ("evaluation, ms", ".1f"),
    "peak_mb": ("peak, MB", ".0f"),
    "actors_mb": ("largest child's peak, MB", ".0f"),
}


class Clock:
    """Notes when each round ends, in seconds of wall and of CPU time."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def after_round(self, round: Round) -> None:
        """Look at the clocks."""
        self.wall.append(time.time())
        self.cpu.append(time.process_time())


def measure(overrides: list[str], rounds: int, born: float) -> dict[str, float]:
    """Start a federation and run it; ``born`` is when its process was started, as ``time.time()`` says it."""
    config = validate(compose_config(overrides))
    torch.set_num_threads(config.engine.threads)
    prepared = prepare_run(config)
    grid = make_grid(config, WorkspaceFactory(config, prepared.dataset, prepared.partition), prepared.device)
    start = to_record(make_local_model(config, prepared.dataset, prepared.device).arrays())
    settings = ConfigRecord({"seed": config.seed, **write_settings(config.client)})
    strategy, clock = make_strategy(config, prepared.manager), Clock()
    evaluate = make_measure(prepared, strategy, grid, settings)
    try:
        strategy.start(grid, start, rounds, train_config=settings, manager=prepared.manager, callbacks=[clock])
        before = time.perf_counter()
        evaluate(start, rounds)
        evaluation = time.perf_counter() - before
        children = max((_peak_mb(child) for child in _descendants(os.getpid())), default=0.0)
    finally:
        grid.close()
    return {
        "start_s": clock.wall[0] - born,
        "round_ms": 1000 * statistics.median(np.diff(clock.wall)),
        "cpu_ms": 1000 * statistics.mean(np.diff(clock.cpu)),
        "evaluation_ms": 1000 * evaluation,
        "peak_mb": peak_rss_mb(),
        "actors_mb": children,
    }


def _descendants(pid: int) -> list[int]:
    """Ids of the processes started by another, and by those; none where the system does not say."""
    lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    own = [int(child) for ids in lists for child in ids]
    return own + [further for child in own for further in _descendants(child)]


def _peak_mb(pid: int) -> float:
    """Largest resident set of another process so far, in MB; 0 where the system does not say."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) / 1e6 for line in lines if line.startswith("VmHWM")), 0.0)


def rows(strategy: str, clients: Sequence[int], participants: int, repeats: int) -> list[dict[str, Any]]:
    """Rows of ``python -m benchmarks``: ratios are a round's time to that with the first N."""
    words = ["--participants", str(participants)]
    turns = [[_in_a_process(strategy, n, words) for n in clients] for _ in range(repeats)]
    return [
        {
            "case": "scale", "path": "auto", "algorithm": strategy, "model": "mlp", "M": participants, "N": num_clients,
            "ratio_cpu": round(statistics.median(turn[k]["cpu_ms"] / turn[0]["cpu_ms"] for turn in turns), 3),
            "ratio_wall": round(statistics.median(turn[k]["round_ms"] / turn[0]["round_ms"] for turn in turns), 3),
            "rounds_per_second": round(1000 / statistics.median(turn[k]["round_ms"] for turn in turns), 2),
            "peak_rss_mb": round(max(turn[k]["peak_mb"] for turn in turns)),
            "start_s": round(statistics.median(turn[k]["start_s"] for turn in turns), 1),
        }
        for k, num_clients in enumerate(clients)
    ]  # fmt: skip


def main() -> None:
    """Print one row per strategy and N."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", type=int, default=[30, 100_000])
    parser.add_argument("--participants", type=int, default=10)
    parser.add_argument("--strategies", nargs="+", default=["fedavg", "federage", "scaffold"])
    parser.add_argument("--backend", choices=["inline", "ray"], default="inline")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)  # strategy, N, time of birth: one row, as JSON
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    if options.row:
        logging.disable(logging.WARNING)
        strategy, num_clients, born = options.row
        words = [f"strategy={strategy}", f"num_clients={num_clients}", f"backend={options.backend}"]
        words += ["dataset=synthetic", "partition=natural", "ram=uniform"]
        words += [f"ram.clients_per_round={options.participants}", *options.overrides]
        print(json.dumps(measure(words, options.rounds, float(born))))
        return
    titles = [title for title, _ in COLUMNS.values()]
    print(f"| strategy | N | {' | '.join(titles)} | ratio of wall | ratio of CPU | load |")
    print("| --- " * (len(titles) + 5) + "|")
    for strategy in options.strategies:
        turns = [[_in_a_process(strategy, n, sys.argv[1:]) for n in options.clients] for _ in range(options.repeats)]
        for k, num_clients in enumerate(options.clients):
            middle = [f"{statistics.median(turn[k][c] for turn in turns):{form}}" for c, (_, form) in COLUMNS.items()]
            ratios = [
                f"{statistics.median(turn[k][c] / turn[0][c] for turn in turns):.2f}" for c in ("round_ms", "cpu_ms")
            ]
            print(
                f"| {strategy} | {num_clients} | {' | '.join([*middle, *ratios])} | {os.getloadavg()[0]:.1f} |",
                flush=True,
            )


def _in_a_process(strategy: str, num_clients: int, words: Sequence[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale", *words, "--row", strategy, str(num_clients), str(time.time())]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    measured: dict[str, float] = json.loads(output.splitlines()[-1])
    return measured


if __name__ == "__main__":
    main()
