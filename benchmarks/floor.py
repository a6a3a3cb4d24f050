"""Where a round of the MLP goes, and the floor below it: the matrix products alone. No data to fetch:

    python -m benchmarks.floor [--repeats 300]

Each piece is timed by itself on one thread; the figure is the smallest of many repeats, per client and round (5 steps of 32), and
beside it its share of the researcher's loop (``benchmarks/bare.py``), measured the same way.
"""

import argparse
import logging
import time
from collections.abc import Callable

import torch

from benchmarks.speed import bare, ours, prepare
from clients.fedavg import FedAvgClient
from fedrage_flwr import onednn
from fedrage_flwr.cohort import Training, train_group
from fedrage_flwr.memory import keep_freed_memory
from fedrage_flwr.parts import WorkspaceFactory
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.records import non_finite, to_arrays, to_record, weighted_mean
from fedrage_flwr.training import draw_batches, local_sgd

M, STEPS, BATCH, INPUTS, HIDDEN, CLASSES = 3, 5, 32, 784, 200, 10


class Plain:
    """FedAvg's hooks, without a message behind them."""

    step_weight = FedAvgClient.step_weight
    direction = FedAvgClient.direction
    update_state = FedAvgClient.update_state


def smallest(work: Callable[[], object], repeats: int) -> float:
    """Microseconds of the fastest repeat."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return 1e6 * min(times)


def products(by_onednn: bool) -> Callable[[], None]:
    """The five matrix products of each step: two forward, one back, two into the parameters; the large ones by oneDNN or MKL."""
    x, hidden = torch.randn(BATCH, INPUTS), torch.randn(BATCH, HIDDEN)
    delta, behind = torch.randn(BATCH, CLASSES), torch.randn(BATCH, HIDDEN)
    first, second = torch.randn(HIDDEN, INPUTS), torch.randn(CLASSES, HIDDEN)
    bias, last = torch.zeros(HIDDEN), torch.zeros(CLASSES)

    def run() -> None:
        for _ in range(STEPS):
            onednn.affine(x, first, bias) if by_onednn else torch.addmm(bias, x, first.t())
            torch.addmm(last, hidden, second.t())
            torch.mm(delta, second)
            second.addmm_(delta.t(), hidden, alpha=-1e-9)
            if by_onednn:
                onednn.add_product_(first, behind, x, -1e-9)
            else:
                first.addmm_(behind.t(), x, alpha=-1e-9)

    return run


def main() -> None:
    """Print one row a piece."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=300)
    repeats = parser.parse_args().repeats
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    keep_freed_memory()
    prepared = prepare("mlp", "fedavg", M)
    space = WorkspaceFactory(prepared.config, prepared.dataset, prepared.partition)(torch.device("cpu"))
    start = space.model.arrays()
    record = to_record(start)
    rng = generator(0, Stream.BATCHES, 1, 0)
    positions = space.client(0).locate(draw_batches(rng, 1500, BATCH, STEPS))
    batches = space.client(0).gather(positions)
    one = [Training([start], space.client(0), positions, Plain(), 1e-6, None)]
    many = one * M
    whole, _ = ours(prepared)
    pieces: dict[str, float] = {}
    with torch.no_grad():
        pieces["matrix products alone, MKL"] = smallest(products(False), repeats)
        if onednn.is_better_here():
            pieces["matrix products alone, oneDNN"] = smallest(products(True), repeats)
    floor = min(pieces.values())
    pieces["the five steps, one client"] = smallest(lambda: local_sgd(space.model, *batches, Plain(), 1e-6), repeats)
    pieces["gather and convert 160 images"] = smallest(lambda: space.client(0).gather(positions), repeats)
    pieces["whole training, one client"] = smallest(lambda: train_group(one, space), repeats)
    pieces[f"whole training, {M} clients stacked"] = smallest(lambda: train_group(many, space), repeats) / M
    pieces["seed a generator, draw 5 batches"] = smallest(
        lambda: draw_batches(generator(0, Stream.BATCHES, 1, 0), 1500, BATCH, STEPS), repeats
    )
    pieces["check a reply for NaN"] = smallest(lambda: non_finite(to_arrays(record)), repeats)
    pieces["mean in float64"] = smallest(lambda: weighted_mean([start] * M), repeats) / M
    pieces["a round of ours, everything"] = smallest(lambda: whole(1), repeats // 5) / M
    researcher = bare(prepared, "fedavg")
    loop = pieces["the researcher's loop"] = smallest(lambda: researcher(1), repeats // 5) / M
    print("| per client and round | µs | share of the loop |\n| --- | --- | --- |")
    for name, value in pieces.items():
        print(f"| {name} | {value:.0f} | {100 * value / loop:.0f} % |")
    flops = 2 * BATCH * (2 * INPUTS * HIDDEN + 3 * HIDDEN * CLASSES) * STEPS
    speed = flops / floor / 1e3
    print(f"\n{flops / 1e6:.0f} Mflop of products a client and round, {speed:.0f} Gflop/s at the floor")


if __name__ == "__main__":
    main()
