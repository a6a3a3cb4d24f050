"""How fast a round is, against the loop a researcher writes. One command, no data to fetch:

    python benchmarks/speed.py [--rounds 60] [--repeats 7] [--models mlp softmax cnn] [--participants 3 10]

Both sides do the same arithmetic: 30 clients of 1,500 images of 28×28 bytes, M a round, 5 SGD steps of 32, the plain mean. Times
are CPU times of this process on one thread, measured in turn (bare, ours, bare, ours, …); the ratio is the median of the pairs,
so that a machine that changes speed does not decide. The bare loop holds its data as float32, converted once, which is in its
favour; ours holds bytes and converts each batch.
"""

import argparse
import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from flwr.app import ConfigRecord
from torch import nn

from clients.base import write_settings
from fedrage_flwr.config import Config, compose_config, validate
from fedrage_flwr.data import ClientIndices, Dataset, Partition, Split
from fedrage_flwr.models import build_model
from fedrage_flwr.records import to_record
from fedrage_flwr.run import Prepared, WorkspaceFactory, make_grid, make_local_model, make_strategy, prepare_run

CLIENTS, EXAMPLES = 30, 1500


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


def ours(config: Config, prepared: Prepared, rounds: int) -> Callable[[], None]:
    """The engine as ``python -m fedrage_flwr`` runs it, without evaluation and tables."""
    factory = WorkspaceFactory(config, prepared.dataset, prepared.partition)
    grid = make_grid(config, factory, prepared.device)
    start = to_record(make_local_model(config, prepared.dataset, prepared.device).arrays())
    train_config = ConfigRecord({"seed": 0, **write_settings(config.client)})

    def run() -> None:
        strategy = make_strategy(config, prepared.manager)
        strategy.start(grid, start, rounds, train_config=train_config, manager=prepared.manager)

    return run


def bare(config: Config, prepared: Prepared, rounds: int) -> Callable[[], None]:
    """Federated averaging as one writes it in PyTorch."""
    dataset, client = prepared.dataset, config.client
    inputs, labels = dataset.to_float(dataset.train.inputs), dataset.train.labels
    model = build_model(config.model, dataset.input_shape, 10, seed=0)
    loss_function, rng = nn.CrossEntropyLoss(), np.random.default_rng(0)
    participants = config.ram.clients_per_round

    def run() -> None:
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for _ in range(rounds):
            mean = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
            for i in rng.choice(CLIENTS, participants, replace=False):
                model.load_state_dict(state)
                optimizer = torch.optim.SGD(model.parameters(), lr=client.lr)
                for _ in range(client.local_steps):
                    batch = torch.from_numpy(i * EXAMPLES + rng.choice(EXAMPLES, client.batch_size, replace=False))
                    optimizer.zero_grad()
                    loss = loss_function(model(inputs[batch]), labels[batch])
                    loss.backward()
                    optimizer.step()
                for name, tensor in model.state_dict().items():
                    mean[name] += tensor / participants
            state = mean

    return run


def compare(config: Config, prepared: Prepared, rounds: int, repeats: int) -> tuple[float, float, float]:
    """Return the median ratio bare/ours and both medians in milliseconds of CPU time a round."""
    sides = [bare(config, prepared, rounds), ours(config, prepared, rounds)]
    times: list[list[float]] = [[], []]
    for repeat in range(repeats + 1):  # the first pair warms up
        for side, samples in zip(sides, times, strict=True):
            started = time.process_time()
            side()
            if repeat:
                samples.append(1000 * (time.process_time() - started) / rounds)
    ratios = [b / o for b, o in zip(*times, strict=True)]
    return statistics.median(ratios), statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    """Print one row per model, strategy and M."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--models", nargs="+", default=["softmax", "mlp", "cnn"])
    parser.add_argument("--strategies", nargs="+", default=["fedavg", "federage"])
    parser.add_argument("--participants", nargs="+", type=int, default=[3])
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    dataset, partition = synthetic()
    print("| model | strategy | M | bare loop / ours | bare, ms a round | ours, ms a round |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model in options.models:
        for strategy in options.strategies:
            for participants in options.participants:
                words = [
                    f"model={model}",
                    f"strategy={strategy}",
                    "ram=uniform",
                    f"ram.clients_per_round={participants}",
                ]
                config = validate(compose_config([*words, *options.overrides]))
                prepared = replace(prepare_run(config), dataset=dataset, partition=partition)
                rounds = max(2, options.rounds // (10 if model == "cnn" else 1))
                ratio, bare_ms, ours_ms = compare(config, prepared, rounds, options.repeats)
                print(
                    f"| {model} | {strategy} | {participants} | {ratio:.2f} | {bare_ms:.2f} | {ours_ms:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
