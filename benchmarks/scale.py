"""What a round and a start cost as the number of clients N grows, with M participants a round. One command, no data to fetch:

    python benchmarks/scale.py [--clients 100 100000] [--participants 100] [--strategies fedavg scaffold] [--backend inline]

Every client holds as much as one of 30 clients of the bundled digits: 60 images of 8×8 bytes. Each row is a process of its
own, so that its peak memory is its own. The ratio compares a round with the first N of the same strategy.
"""

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from flwr.app import ConfigRecord

from clients.base import write_settings
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.data import Dataset, Split, partition
from fedrage_flwr.evaluation import ServerMeasure
from fedrage_flwr.records import to_record
from fedrage_flwr.results import peak_rss_mb
from fedrage_flwr.rounds import Round
from fedrage_flwr.run import Prepared, WorkspaceFactory, make_grid, make_local_model, make_strategy, prepare_run

EXAMPLES = 60  # of each client


def synthetic(num_clients: int) -> Dataset:
    """Random images of the digits' shape."""
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.integers(0, 17, (num_clients * EXAMPLES, 1, 8, 8), dtype=np.uint8))
    train = Split(inputs, torch.from_numpy(rng.integers(0, 10, len(inputs))))
    return Dataset("synthetic", train, Split(inputs[:2000], train.labels[:2000]), 10, (0.5,), (0.3,), 16.0)


def measure(overrides: list[str], num_clients: int, rounds: int) -> dict[str, float]:
    """Start a federation and run it; return seconds, MB and milliseconds."""
    torch.set_num_threads(1)
    small = validate(compose_config([*overrides, "num_clients=30", "partition=iid", "ram.clients_per_round=1"]))
    base = prepare_run(small)  # what it loads is left out of the account
    dataset = synthetic(num_clients)
    without = peak_rss_mb()
    config = validate(compose_config([*overrides, f"num_clients={num_clients}", "partition=iid"]))
    started = time.perf_counter()
    shared = partition(config.partition, dataset, num_clients, config.rare_clients)
    law = type(base.manager.law)(config.ram, num_clients, config.rare_clients, config.seed)
    manager = RandomAccessClientManager(law, num_clients, config.node_wait_s)
    prepared = replace(base, config=config, dataset=dataset, partition=shared, manager=manager)
    return {**_rounds(prepared, started, rounds), "data_mb": without, "peak_rss_mb": peak_rss_mb()}


def _rounds(prepared: Prepared, started: float, rounds: int) -> dict[str, float]:
    config, dataset = prepared.config, prepared.dataset
    grid = make_grid(config, WorkspaceFactory(config, dataset, prepared.partition), prepared.device)
    model = make_local_model(config, dataset, prepared.device)
    parts = prepared.partition.test
    evaluate = ServerMeasure(model, dataset.test.inputs, dataset.test.labels, dataset.to_float, parts)
    ends: list[float] = []

    class Clock:
        def after_round(self, round: Round) -> None:
            ends.append(time.perf_counter())

    try:
        make_strategy(config, manager=prepared.manager).start(
            grid,
            to_record(model.arrays()),
            rounds,
            train_config=ConfigRecord({"seed": 0, **write_settings(config.client)}),
            manager=prepared.manager,
            callbacks=[Clock()],
        )
        before = time.perf_counter()
        evaluate(to_record(model.arrays()))
        evaluation = time.perf_counter() - before
    finally:
        grid.close()
    return {
        "start_s": ends[0] - started,
        "round_ms": 1000 * statistics.median(np.diff(ends)),
        "evaluation_ms": 1000 * evaluation,
    }


def main() -> None:
    """Print one row per strategy and N."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", type=int, default=[100, 100_000])
    parser.add_argument("--participants", type=int, default=100)
    parser.add_argument("--strategies", nargs="+", default=["fedavg", "federage", "scaffold"])
    parser.add_argument("--backend", choices=["inline", "ray"], default="inline")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)  # strategy and N: one row, as JSON
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    if options.row:
        logging.disable(logging.WARNING)
        strategy, num_clients = options.row[0], int(options.row[1])
        words = [f"strategy={strategy}", "ram=uniform", f"backend={options.backend}", *options.overrides]
        words.append(f"ram.clients_per_round={options.participants}")
        print(json.dumps(measure(words, num_clients, options.rounds)))
        return
    print(
        "| strategy | N | to the end of round 1, s | ms a round | ratio | evaluation, ms | data and imports, MB | peak, MB |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for strategy in options.strategies:
        first = None
        for num_clients in options.clients:
            row = _in_a_process(strategy, num_clients)
            first = first or row["round_ms"]
            cells = [
                f"{row['start_s']:.2f}", f"{row['round_ms']:.2f}", f"{row['round_ms'] / first:.2f}",
                f"{row['evaluation_ms']:.1f}", f"{row['data_mb']:.0f}", f"{row['peak_rss_mb']:.0f}",
            ]  # fmt: skip
            print(f"| {strategy} | {num_clients} | {' | '.join(cells)} |", flush=True)


def _in_a_process(strategy: str, num_clients: int) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__)), *sys.argv[1:], "--row", strategy, str(num_clients)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    row: dict[str, float] = json.loads(output.splitlines()[-1])
    return row


if __name__ == "__main__":
    main()
