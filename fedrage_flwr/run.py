"""One run: everything a configuration names is put together here, and only here."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord

from clients.base import write_settings
from fedrage_flwr.availability import LAWS
from fedrage_flwr.callbacks import Evaluate, PolyakAverage, StopWhenEmpty, Totals
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.config import Config
from fedrage_flwr.data import Dataset, Partition, load_dataset, partition, prepare
from fedrage_flwr.errors import UserError
from fedrage_flwr.evaluation import ClientMeasure, Measure, ServerMeasure
from fedrage_flwr.excess_risk import attainable_losses, check
from fedrage_flwr.grids import GRIDS
from fedrage_flwr.grids.base import SimulatedGrid
from fedrage_flwr.losses import LOSSES
from fedrage_flwr.metrics import adjusted_rand_index
from fedrage_flwr.models import build_model
from fedrage_flwr.progress import Progress
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.records import to_record
from fedrage_flwr.results import CsvLogger, peak_rss_mb, save_model, versions, write_summary
from fedrage_flwr.rounds import Callback
from fedrage_flwr.settings import lookup
from fedrage_flwr.training import LocalModel
from fedrage_flwr.workspace import SplitTensors, Workspace
from strategies import STRATEGIES
from strategies.base import BaseStrategy

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """What can be made, and can be wrong, before anything starts or is written.

    Attributes:
        config: checked settings.
        device: where the arithmetic runs.
        dataset, partition: data in memory and who holds what.
        manager: holds the participation law over the N training clients.
        rare: bool (N,).
    """

    config: Config
    device: torch.device
    dataset: Dataset
    partition: Partition
    manager: RandomAccessClientManager
    rare: np.ndarray


def prepare_run(config: Config) -> Prepared:
    """Load data and make the law.

    Raises:
        UserError: a setting does not fit the data, the number of clients or this machine.
    """
    device = pick_device(config.device)
    law = lookup(LAWS, config.ram.name)(config.ram, config.num_clients, config.rare_clients, config.seed)
    prepare(config.dataset)
    dataset = load_dataset(config.dataset)
    shared = partition(config.partition, dataset, config.all_clients, config.rare_clients)
    check(config, shared)
    rare = np.arange(config.num_clients) >= config.num_clients - config.rare_clients
    manager = RandomAccessClientManager(law, config.all_clients, config.node_wait_s)
    return Prepared(config, device, dataset, shared, manager, rare)


def pick_device(word: str) -> torch.device:
    """Return the device of ``device=auto|cpu|cuda``.

    Raises:
        UserError: cuda was asked for and there is none.
    """
    available = torch.cuda.is_available()
    if word == "cuda" and not available:
        raise UserError("device=cuda: this machine has no CUDA device that torch can use; allowed here: auto, cpu")
    return torch.device("cuda" if available and word != "cpu" else "cpu")


def make_local_model(config: Config, dataset: Dataset, device: torch.device, index: int = 0) -> LocalModel:
    """Return the model with its initial parameters, the same in every process; ``index`` picks one of different ones."""
    module = build_model(config.model, dataset.input_shape, dataset.num_classes, config.seed, index)
    return LocalModel(module, LOSSES[dataset.loss], device)


@dataclass(frozen=True)
class WorkspaceFactory:
    """Makes the workspace of a process; can be sent to another one."""

    config: Config
    dataset: Dataset
    partition: Partition

    def __call__(self, device: torch.device) -> Workspace:
        """Return what a process needs to act as any of the clients, with its arithmetic on ``device``."""
        torch.set_num_threads(self.config.engine.threads)
        return Workspace(
            model=make_local_model(self.config, self.dataset, device),
            train=SplitTensors(self.dataset.train.inputs.to(device), self.dataset.train.labels.to(device)),
            indices=[client.train for client in self.partition.clients],
            to_float=self.dataset.to_float,
            test=SplitTensors(self.dataset.test.inputs.to(device), self.dataset.test.labels.to(device)),
            test_indices=[client.test for client in self.partition.clients],
        )


def run(prepared: Prepared, folder: Path) -> dict[str, Any]:
    """Train, measure and write everything into ``folder``.

    Args:
        prepared: from ``prepare_run``.
        folder: exists, and holds no earlier run.

    Returns:
        The summary, as written to ``summary.json``.

    Raises:
        UserError: the folder holds a run already, or the run ended because no reply could be used.
    """
    config = prepared.config
    if (folder / "rounds.csv").exists():
        raise UserError(f"{folder} already holds a run; choose another folder")
    started = time.perf_counter()
    torch.set_num_threads(config.engine.threads)
    for note in prepared.partition.notes:
        log.info("%s", note)
    strategy = make_strategy(config, prepared.manager)
    model = make_local_model(config, prepared.dataset, prepared.device)
    strategy.untrained = frozenset(model.arrays()) - frozenset(model.parameter_names)
    measures = ["held_out_client_accuracy"] if config.held_out_clients else []
    client_columns = list(strategy.client_columns())
    optimum = None
    if config.evaluate.faa:
        optimum = attainable_losses(config, prepared.dataset, prepared.partition, prepared.device)
        measures += ["faa", *(["held_out_faa"] if config.held_out_clients else [])]
        client_columns.append("excess_risk")
    tables = CsvLogger(folder, prepared.rare, strategy.columns, measures, client_columns)
    train_config = ConfigRecord({"seed": config.seed, **write_settings(config.client)})
    grid: SimulatedGrid | None = None
    try:
        factory = WorkspaceFactory(config, prepared.dataset, prepared.partition)
        grid = make_grid(config, factory, prepared.device)
        measure = _measure(prepared, strategy, grid, train_config)
        evaluate = Evaluate(
            lambda arrays, round: measure(strategy.reported(arrays), round),
            config.num_rounds,
            config.eval_every,
            prepared.rare,
            tables,
            optimum,
        )
        polyak, empty, totals = PolyakAverage(), StopWhenEmpty(config.max_empty_rounds), Totals()
        with Progress(config.num_rounds, strategy.progress) as progress:
            callbacks: list[Callback] = [evaluate, polyak, totals, tables, empty, progress]
            arrays = strategy.start(
                grid,
                initial_arrays=strategy.initial_arrays(
                    lambda k: to_record(make_local_model(config, prepared.dataset, prepared.device, k).arrays())
                ),
                num_rounds=config.num_rounds,
                timeout=None,
                train_config=train_config,
                manager=prepared.manager,
                callbacks=callbacks,
            ).arrays
        if empty.stopped:
            raise UserError(f"{empty.stopped}; the reasons: {empty.most_common()}; see {folder / 'run.log'}")
        averages = polyak.records()
        average = averages.pop("arrays")
        polyak_accuracy = measure(average, config.num_rounds).accuracy
    finally:
        tables.close()
        if grid is not None:
            grid.close()
    save_model(folder / "model.safetensors", strategy.reported(arrays), strategy.records)
    save_model(folder / "polyak.safetensors", average, averages)
    summary = _summary(prepared, evaluate, totals, polyak_accuracy, time.perf_counter() - started)
    summary.update(_group_recovery(prepared, strategy, evaluate))
    write_summary(folder / "summary.json", summary)
    return summary


def make_strategy(config: Config, manager: RandomAccessClientManager) -> BaseStrategy:
    """Make the server half; only an oracle is told the marginals."""
    chosen: type[BaseStrategy] = lookup(STRATEGIES, config.strategy.name)
    if chosen.told_marginals:
        told = manager.law.marginals().values
        return chosen(config.strategy, config.client, config.num_clients, marginals=told)  # type: ignore[call-arg]
    return chosen(config.strategy, config.client, config.num_clients)


def make_grid(config: Config, factory: WorkspaceFactory, device: torch.device) -> SimulatedGrid:
    """Make the grid that ``backend`` names, with all clients on it."""
    grid: SimulatedGrid = lookup(GRIDS, config.backend.name).create(config.backend, config.all_clients, factory, device)
    return grid


def _measure(prepared: Prepared, strategy: BaseStrategy, grid: SimulatedGrid, train_config: ConfigRecord) -> Measure:
    config, dataset = prepared.config, prepared.dataset
    clients = None
    if config.num_clients > config.evaluate.max_clients:
        draw = generator(config.seed, Stream.EVALUATION).choice(
            config.num_clients, config.evaluate.max_clients, replace=False, shuffle=False
        )
        clients = np.concatenate([np.sort(draw), np.arange(config.num_clients, config.all_clients)])
        log.info("%d of %d clients are evaluated, the same ones each time", len(clients), config.num_clients)
    parts = [client.test for client in prepared.partition.clients]
    untested = sum(not len(part) for part in parts)
    if untested:
        log.info("%d clients have no test data and are left out of the client measures", untested)
    if strategy.personal:
        return ClientMeasure(strategy, grid, train_config, clients)
    model = make_local_model(config, dataset, prepared.device)
    return ServerMeasure(model, dataset.test.inputs, dataset.test.labels, dataset.to_float, parts, clients)


def _group_recovery(prepared: Prepared, strategy: BaseStrategy, evaluate: Evaluate) -> dict[str, float]:
    """How well a method that looks for groups of clients found them at the last evaluation, where they are known."""
    groups, last = prepared.partition.groups, evaluate.last_evaluation
    columns = [last.extra[name] for name in strategy.assignment_columns() if name in last.extra] if last else []
    if groups is None or last is None or not columns:
        return {}
    training = last.clients < prepared.config.num_clients
    belongs = np.stack(columns, 1)[training]
    return {"adjusted_rand_index": adjusted_rand_index(groups[last.clients[training]], belongs)}


def _summary(
    prepared: Prepared, evaluate: Evaluate, totals: Totals, polyak_accuracy: float, seconds: float
) -> dict[str, Any]:
    config = prepared.config
    words = ("strategy", "dataset", "partition", "ram", "model", "backend")
    last: Mapping[str, float | None] = evaluate.last
    accuracies = evaluate.last_accuracies()
    measures = ("client_accuracy_min", "client_accuracy_worst10pct", "client_accuracy_std", "rare_client_accuracy")
    further = ("faa", "held_out_faa", "excess_risks_below_zero", *(["loss"] if np.isnan(polyak_accuracy) else []))
    return {
        **{word: getattr(config, word).name for word in words},
        "seed": config.seed,
        "num_clients": config.num_clients,
        "num_rounds": config.num_rounds,
        "rounds_done": totals.rounds,
        "accuracy_mean_last10": _known(float(np.mean(accuracies))),
        "accuracy_std_last10": _known(float(np.std(accuracies))),
        "polyak_accuracy": _known(polyak_accuracy),
        **{name: last[name] for name in (*measures, *further) if name in last},
        "bytes_up_per_round": totals.bytes_up / totals.rounds,
        "bytes_down_per_round": totals.bytes_down / totals.rounds,
        "rejected_replies": totals.unusable,
        "rounds_per_second": totals.rounds / totals.seconds if totals.seconds else None,
        "wall_seconds": seconds,
        "peak_rss_mb": peak_rss_mb(),
        "versions": versions(),
    }


def _known(value: float) -> float | None:
    """None for what there is not: real targets know no accuracy."""
    return None if np.isnan(value) else value
