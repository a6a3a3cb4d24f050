"""How much faster Ray actors on every core are than one process on one thread. One command, no data to fetch:

    python benchmarks/grids.py [--models cnn mlp] [--strategies fedavg scaffold] [--participants 10] [--rounds 5] [--repeats 7]

Both grids are started once and run the same rounds in turn (inline, Ray, inline, Ray, …): 30 clients of 1,500 images of 28×28
bytes, 5 SGD steps of 32. Times are wall times; the ratio is the median of the pairs. Other processes on the machine take from the
actors what they do not take from the single process, so its load (runnable processes, one minute) is printed beside.
"""

import argparse
import logging
import os
import statistics
import time
from dataclasses import replace

import torch
from flwr.app import ConfigRecord
from speed import synthetic

from clients.base import write_settings
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.grids.base import SimulatedGrid
from fedrage_flwr.records import to_record
from fedrage_flwr.run import Prepared, WorkspaceFactory, make_grid, make_local_model, make_strategy, prepare_run


def rounds(prepared: Prepared, grid: SimulatedGrid, count: int) -> float:
    """Run rounds from the same start; return milliseconds of wall time a round."""
    config = prepared.config
    start = to_record(make_local_model(config, prepared.dataset, prepared.device).arrays())
    train_config = ConfigRecord({"seed": 0, **write_settings(config.client)})
    strategy = make_strategy(config, prepared.manager)
    started = time.perf_counter()
    strategy.start(grid, start, count, train_config=train_config, manager=prepared.manager)
    return 1000 * (time.perf_counter() - started) / count


def compare(overrides: list[str], count: int, repeats: int) -> tuple[float, float, float]:
    """Return the median ratio inline/Ray and both medians in milliseconds a round."""
    dataset, partition = synthetic()
    base = prepare_run(validate(compose_config([*overrides, "backend=ray"])))
    prepared = replace(base, dataset=dataset, partition=partition)
    factory = WorkspaceFactory(prepared.config, dataset, partition)
    inline = replace(prepared, config=validate(compose_config([*overrides, "backend=inline"])))
    grids = [make_grid(side.config, factory, side.device) for side in (inline, prepared)]
    try:
        times: list[list[float]] = [[], []]
        for repeat in range(repeats + 1):  # the first pair warms up
            for grid, samples in zip(grids, times, strict=True):
                taken = rounds(prepared, grid, count)
                if repeat:
                    samples.append(taken)
    finally:
        grids[1].close()
    ratios = [a / b for a, b in zip(*times, strict=True)]
    return statistics.median(ratios), statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    """Print one row per model, strategy and M."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["cnn"])
    parser.add_argument("--strategies", nargs="+", default=["fedavg", "scaffold"])
    parser.add_argument("--participants", nargs="+", type=int, default=[10])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    print("| model | strategy | M | inline / Ray | inline, ms a round | Ray, ms a round | load |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for model in options.models:
        for strategy in options.strategies:
            for participants in options.participants:
                words = [
                    f"model={model}",
                    f"strategy={strategy}",
                    "ram=uniform",
                    f"ram.clients_per_round={participants}",
                ]
                ratio, inline_ms, ray_ms = compare([*words, *options.overrides], options.rounds, options.repeats)
                row = f"| {model} | {strategy} | {participants} | {ratio:.2f} | {inline_ms:.1f} | {ray_ms:.1f}"
                print(f"{row} | {os.getloadavg()[0]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
