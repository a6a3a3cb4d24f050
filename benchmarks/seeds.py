"""Five seeds as one cohort (``seeds=[0,1,2,3,4]``) against five runs one after another, in turn. No data to fetch:

    python -m benchmarks.seeds [--models mlp] [--rounds 20] [--turns 7]

Both sides train the same rounds on the images of ``benchmarks/speed.py`` in this process; evaluation and tables are left out.
"""

import argparse
import logging
import statistics
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from flwr.app import ConfigRecord

from benchmarks.speed import CLIENTS, ours, prepare, show, take_turns
from clients.base import write_settings
from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.grids.executor import Executor
from fedrage_flwr.parts import Prepared, WorkspaceFactory, make_local_model, make_strategy
from fedrage_flwr.records import to_record
from fedrage_flwr.replicas import Exchange, ReplicaGrid
from fedrage_flwr.results import peak_rss_mb

SEEDS = 5


def together(prepared: Prepared) -> Callable[[int], None]:
    """Five replicas, each a thread, their clients one cohort."""
    config = prepared.config
    workspace = WorkspaceFactory(config, prepared.dataset, prepared.partition)(prepared.device)
    execute = Executor(make_client_app(workspace), workspace).run
    start = to_record(make_local_model(config, prepared.dataset, prepared.device).arrays())
    law = type(prepared.manager.law)

    def run(rounds: int) -> None:
        exchange = Exchange(execute, SEEDS)

        def work(seed: int) -> None:
            own = law(config.ram, CLIENTS, config.rare_clients, seed)
            grid = ReplicaGrid(exchange, seed, CLIENTS)
            settings = ConfigRecord({"seed": seed, **write_settings(config.client)})
            manager = RandomAccessClientManager(own, CLIENTS, config.node_wait_s)
            make_strategy(config, manager).start(grid, start, rounds, train_config=settings, manager=manager)
            grid.close()

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(SEEDS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


def measure(turns: int, model: str = "mlp", rounds: int = 10) -> list[dict[str, Any]]:
    """Return a row for each side; ratios are to one run after another."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    prepared = prepare(model, "fedavg", 3)
    one, _ = ours(replace(prepared))

    def apart(rounds: int) -> None:
        for _ in range(SEEDS):
            one(rounds)

    times = take_turns({"apart": apart, "together": together(prepared)}, rounds, turns)
    rows = []
    for name, taken in times.items():
        ratios = [(a[0] / b[0], a[1] / b[1]) for a, b in zip(times["apart"], taken, strict=True)]
        rows.append(
            {
                "case": "seeds", "path": name, "algorithm": "fedavg", "model": model, "M": 3, "N": CLIENTS,
                "ratio_cpu": round(statistics.median(r[0] for r in ratios), 3),
                "ratio_wall": round(statistics.median(r[1] for r in ratios), 3),
                "rounds_per_second": round(SEEDS / statistics.median(wall for _, wall in taken), 2),
                "peak_rss_mb": round(peak_rss_mb()),
            }
        )  # fmt: skip
    logging.disable(logging.NOTSET)
    return rows


def main() -> None:
    """Print two rows per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["softmax", "mlp"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    show([], head=True)
    for model in options.models:
        show(measure(options.turns, model, options.rounds))


if __name__ == "__main__":
    main()
