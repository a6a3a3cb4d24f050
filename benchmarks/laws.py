"""What each availability law costs at N clients: to make, to draw a round, and its exact inclusion and marginals. One command:

    python -m benchmarks.laws [--clients 100000] [--participants 10]

Times are CPU times of one thread. Each law has parameters of its own for every client where it allows that: the hardest case.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedrage_flwr.availability import LAWS
from fedrage_flwr.availability.base import Law
from fedrage_flwr.settings import lookup

ROUNDS = 10


def laws(n: int, m: int, folder: Path) -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """Yield name, what is special about it, settings and the number of rare clients."""
    rng = np.random.default_rng(0)
    rare = n // 10
    any_pi = rng.random(n).tolist()
    summing = rng.uniform(0.1, 1.9, n)
    np.save(folder / "trace.npy", (rng.random((200, n)) < 0.01).astype(np.int8))
    subsets = [rng.choice(n, m, replace=False).tolist() for _ in range(1000)]
    yield "full", "", {}, 0
    yield "uniform", "", {"clients_per_round": m}, 0
    yield "rare", "two weights", {"epsilon": 0.05, "clients_per_round": m}, rare
    yield "exponential", "N weights", {"tau": n / 10, "clients_per_round": m}, 0
    yield "weighted", "N weights", {"weights": any_pi, "clients_per_round": m}, 0
    yield (
        "inclusion",
        "two values",
        {"probabilities": None, "rare_probability": m / n / 2, "clients_per_round": m},
        rare,
    )
    yield (
        "inclusion",
        "N values",
        {"probabilities": (summing / summing.sum() * m).tolist(), "rare_probability": None, "clients_per_round": m},
        0,
    )
    yield (
        "bernoulli",
        "N values",
        {"probability": 0.0, "rare_probability": None, "probabilities": (summing * m / n).tolist()},
        0,
    )
    yield "markov", "N rates", {"on_rate": (0.001 + 0.1 * rng.random(n)).tolist(), "off_rate": 0.5}, 0
    yield "subsets", "1,000 subsets", {"subsets": subsets, "probabilities": [1 / 1000] * 1000}, 0
    trace = {"path": str(folder / "trace.npy"), "slot_s": None, "unknown": "off", "clients_per_round": m}
    yield "trace", "200 rounds", {**trace, "clients": "first"}, 0


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds of CPU time, and what came out."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def main() -> None:
    """Print one row per law."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--participants", type=int, default=10)
    options = parser.parse_args()
    n, m = options.clients, options.participants
    torch.set_num_threads(1)
    print("| law | parameters | make, s | draw, ms | inclusion, s | marginals, s | sum of marginals − 1 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, note, values, rare in laws(n, m, Path(folder)):
            chosen: type[Law] = lookup(LAWS, name)
            settings = chosen.Settings(name=name, **values)
            made, law = timed(lambda chosen=chosen, settings=settings, rare=rare: chosen(settings, n, rare, 0))
            drawn, _ = timed(lambda law=law: [law.sample(round) for round in range(1, ROUNDS + 1)])
            inclusion, _ = timed(law.inclusion)
            marginals, p = timed(law.marginals)
            error = float(p.values.sum()) - 1
            row = f"| {name} | {note} | {made:.2f} | {1000 * drawn / ROUNDS:.2f} | {inclusion:.2f} | {marginals:.2f}"
            print(f"{row} | {error:.0e} |", flush=True)


if __name__ == "__main__":
    main()
