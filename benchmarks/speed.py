"""How fast a round is, against the loop a researcher writes (``benchmarks/bare.py``). No data to fetch:

    python -m benchmarks.speed [--models softmax mlp cnn] [--algorithms fedavg federage scaffold focus] [--participants 3 10]

Both sides do the same arithmetic: 30 clients of 1,500 images of 28×28 bytes, M a round, 5 SGD steps of 32, the same reduction.
The sides take turns in one process on one thread (bare, ours, ours in cohorts, bare, …), CPU and wall time are read around each,
and a ratio is the median over the turns of bare/ours, so that a machine that changes speed does not decide. Every case is a
process of its own. Paths: ``serial`` is ``engine.cohort=off``, ``auto`` the default, ``cohort`` one stack of all participants;
``compiled`` is ``engine.compile=true``, ``ray`` two actors.
"""

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord

from benchmarks.bare import LOOPS, Job
from clients.base import write_settings
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.data import ClientIndices, Dataset, Partition, Split
from fedrage_flwr.models import build_model
from fedrage_flwr.parts import Prepared, WorkspaceFactory, make_grid, make_local_model, make_strategy, prepare_run
from fedrage_flwr.records import to_record
from fedrage_flwr.results import peak_rss_mb

CLIENTS, EXAMPLES = 30, 1500
PATHS = {"serial": "off", "auto": "auto", "cohort": "64"}
EXTRA = {"compiled": ("engine.compile=true", "engine.cohort=off"), "ray": ("backend=ray",)}
ROUNDS = {"softmax": 60, "mlp": 30, "cnn": 3}
"""Rounds of one turn at M = 3: long enough for the clock, short enough to take many turns."""


def synthetic() -> tuple[Dataset, Partition]:
    """Random images of Fashion-MNIST's shape, dealt in order."""
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.integers(0, 256, (CLIENTS * EXAMPLES, 1, 28, 28), dtype=np.uint8))
    split = Split(inputs, torch.from_numpy(rng.integers(0, 10, len(inputs))))
    few = Split(inputs[:10], split.labels[:10])
    dataset = Dataset("synthetic", split, few, 10, (0.2860,), (0.3530,), 255.0)
    own = [np.arange(i * EXAMPLES, (i + 1) * EXAMPLES) for i in range(CLIENTS)]
    none = np.empty(0, np.int64)
    return dataset, Partition(tuple(ClientIndices(train=i, validation=none, test=none) for i in own), ())


def prepare(model: str, algorithm: str, participants: int, *more: str) -> Prepared:
    """The settings of a case, on the synthetic images."""
    words = [f"model={model}", f"strategy={algorithm}", "ram=uniform", f"ram.clients_per_round={participants}", *more]
    if algorithm == "focus":
        words += ["strategy.num_clusters=3", "strategy.initialisation=distinct"]
    dataset, partition = synthetic()
    return replace(prepare_run(validate(compose_config(words))), dataset=dataset, partition=partition)


def ours(prepared: Prepared) -> tuple[Callable[[int], None], Callable[[], None]]:
    """The engine as ``python -m fedrage_flwr`` runs it, without evaluation and tables; and what closes it."""
    config, dataset, device = prepared.config, prepared.dataset, prepared.device
    grid = make_grid(config, WorkspaceFactory(config, dataset, prepared.partition), device)
    train_config = ConfigRecord({"seed": 0, **write_settings(config.client)})
    models = [to_record(make_local_model(config, dataset, device, k).arrays()) for k in range(3)]

    def run(rounds: int) -> None:
        strategy = make_strategy(config, prepared.manager)
        start = strategy.initial_arrays(lambda k: models[k])
        strategy.start(grid, start, rounds, train_config=train_config, manager=prepared.manager)

    return run, grid.close


def bare(prepared: Prepared, algorithm: str) -> Callable[[int], None]:
    """The researcher's loop on the same images."""
    config, dataset = prepared.config, prepared.dataset
    job = Job(
        lambda k: build_model(config.model, dataset.input_shape, 10, 0, k),
        dataset.to_float(dataset.train.inputs),
        dataset.train.labels,
        CLIENTS,
        EXAMPLES,
        config.ram.clients_per_round,
        config.client,
    )
    return LOOPS[algorithm](job)


def take_turns(
    sides: dict[str, Callable[[int], None]], rounds: int, turns: int
) -> dict[str, list[tuple[float, float]]]:
    """Return (CPU, wall) seconds a round of each side at each turn; a first turn warms up."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name, side in sides.items():
            cpu, wall = time.process_time(), time.perf_counter()
            side(rounds)
            if turn:
                times[name].append(((time.process_time() - cpu) / rounds, (time.perf_counter() - wall) / rounds))
    return times


def case(model: str, algorithm: str, participants: int, paths: list[str], turns: int) -> list[dict[str, Any]]:
    """Measure one case in this process; one row a path, and one for the bare loop."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    sides, closers = {"bare": bare(prepare(model, algorithm, participants), algorithm)}, []
    for path in paths:
        words = EXTRA[path] if path in EXTRA else (f"engine.cohort={PATHS[path]}",)
        sides[path], close = ours(prepare(model, algorithm, participants, *words))
        closers.append(close)
    try:
        rounds = max(1, ROUNDS[model] * 3 // participants // (6 if algorithm == "focus" else 1))
        times = take_turns(sides, rounds, turns)
    finally:
        for close in closers:
            close()
    rows = []
    for name in sides:
        ratios = [(b[0] / o[0], b[1] / o[1]) for b, o in zip(times["bare"], times[name], strict=True)]
        row = {"case": "round", "path": name, "algorithm": algorithm, "model": model, "M": participants, "N": CLIENTS}
        row["ratio_cpu"] = None if name == "ray" else round(statistics.median(r[0] for r in ratios), 3)
        row["ratio_wall"] = round(statistics.median(r[1] for r in ratios), 3)
        row["rounds_per_second"] = round(1 / statistics.median(wall for _, wall in times[name]), 2)
        rows.append({**row, "peak_rss_mb": round(peak_rss_mb())})
    return rows


def measure(model: str, algorithm: str, participants: int, paths: list[str], turns: int) -> list[dict[str, Any]]:
    """Measure one case in a process of its own."""
    words = ["--case", model, algorithm, str(participants), "--paths", *paths, "--turns", str(turns)]
    command = [sys.executable, "-m", "benchmarks.speed", *words]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows: list[dict[str, Any]] = json.loads(output.splitlines()[-1])
    return rows


COLUMNS = (
    "case",
    "path",
    "algorithm",
    "model",
    "M",
    "N",
    "ratio_cpu",
    "ratio_wall",
    "rounds_per_second",
    "peak_rss_mb",
)


def show(rows: list[dict[str, Any]], head: bool = False) -> None:
    """Print rows of a Markdown table."""
    if head:
        print(f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|")
    for row in rows:
        print("| " + " | ".join("" if row[name] is None else str(row[name]) for name in COLUMNS) + " |", flush=True)


def main() -> None:
    """Print one row per case and path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(ROUNDS), choices=list(ROUNDS))
    parser.add_argument("--algorithms", nargs="+", default=list(LOOPS), choices=list(LOOPS))
    parser.add_argument("--participants", nargs="+", type=int, default=[3, 10])
    parser.add_argument("--paths", nargs="+", default=list(PATHS), choices=[*PATHS, *EXTRA])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)  # model, algorithm, M: rows as JSON
    options = parser.parse_args()
    if options.case:
        model, algorithm, participants = options.case
        print(json.dumps(case(model, algorithm, int(participants), options.paths, options.turns)))
        return
    show([], head=True)
    for model in options.models:
        for algorithm in options.algorithms:
            for participants in options.participants:
                show(measure(model, algorithm, participants, options.paths, options.turns))


if __name__ == "__main__":
    main()
