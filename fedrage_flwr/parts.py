"""The parts of a run, each made of what the configuration names. What is wrong about them is said before anything is written."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from fedrage_flwr.availability import LAWS
from fedrage_flwr.availability.base import Law
from fedrage_flwr.checks import check_place, check_settings, check_validation
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.cohort import cohort_rule
from fedrage_flwr.config import Config
from fedrage_flwr.custom_metric import Metric, load_metrics
from fedrage_flwr.data import Dataset, Partition, load_dataset, on_validation, partition, prepare
from fedrage_flwr.errors import UserError
from fedrage_flwr.evaluation import ClientMeasure, Measure, ServerMeasure
from fedrage_flwr.excess_risk import check
from fedrage_flwr.grids import GRIDS
from fedrage_flwr.grids.base import SimulatedGrid
from fedrage_flwr.losses import LOSSES
from fedrage_flwr.models import build_model
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.settings import lookup
from fedrage_flwr.sweeps import load_shared
from fedrage_flwr.training import LocalModel
from fedrage_flwr.workspace import Workspace, build_workspace
from strategies import STRATEGIES
from strategies.base import BaseStrategy
from strategies.private import private

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
        metrics: the user's own, by name.
    """

    config: Config
    device: torch.device
    dataset: Dataset
    partition: Partition
    manager: RandomAccessClientManager
    rare: np.ndarray
    metrics: Mapping[str, Metric]


def prepare_run(config: Config, remote: bool = False) -> Prepared:
    """Load data and make the law.

    Args:
        config: checked settings.
        remote: clients are Flower's nodes.

    Raises:
        UserError: a setting does not fit the data, the number of clients or this machine.
    """
    check_settings(config, remote)
    device = pick_device(config.device)
    law = make_law(config)
    check_place(config, device, law, remote)
    prepare(config.dataset)
    dataset = load_shared(config.dataset, load_dataset)
    shared = partition(config.partition, dataset, config.all_clients, config.rare_clients)
    check(config, shared, on_demand=dataset.source is not None)
    if config.evaluate.split == "validation":
        check_validation(config, dataset, remote)
        dataset, shared = on_validation(dataset, shared)
    rare = np.arange(config.num_clients) >= config.num_clients - config.rare_clients
    manager = RandomAccessClientManager(law, config.all_clients, config.node_wait_s, config.deadline_s)
    metrics = load_metrics(config.evaluate.metrics, dataset)
    return Prepared(config, device, dataset, shared, manager, rare, metrics)


def make_law(config: Config) -> Law:
    """Make the participation law over the N training clients."""
    law: Law = lookup(LAWS, config.ram.name)(config.ram, config.num_clients, config.rare_clients, config.seed)
    return law


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
    return LocalModel(module, LOSSES[dataset.loss], device, config.engine.compile)


@dataclass(frozen=True)
class WorkspaceFactory:
    """Makes the workspace of a process; can be sent to another one."""

    config: Config
    dataset: Dataset
    partition: Partition

    def __call__(self, device: torch.device) -> Workspace:
        """Return what a process needs to act as any of the clients, with its arithmetic on ``device``."""
        torch.set_num_threads(self.config.engine.threads)
        model = make_local_model(self.config, self.dataset, device)
        return build_workspace(self.dataset, self.partition, model, cohort_rule(self.config.engine.cohort, model))


def make_strategy(config: Config, manager: RandomAccessClientManager, secret: int | None = None) -> BaseStrategy:
    """Make the server half; only an oracle is told the marginals. ``secret``: see ``strategies.private``."""
    chosen: type[BaseStrategy] = lookup(STRATEGIES, config.strategy.name)
    if config.privacy.clip is not None:
        chosen = private(chosen, config.privacy, config.seed, secret)
    if chosen.told_marginals:
        told = manager.law.marginals().values
        return chosen(config.strategy, config.client, config.num_clients, marginals=told)  # type: ignore[call-arg]
    return chosen(config.strategy, config.client, config.num_clients)


def make_grid(config: Config, factory: WorkspaceFactory, device: torch.device) -> SimulatedGrid:
    """Make the grid that ``backend`` names, with all clients on it."""
    grid: SimulatedGrid = lookup(GRIDS, config.backend.name).create(config.backend, config.all_clients, factory, device)
    return grid


def make_measure(prepared: Prepared, strategy: BaseStrategy, grid: Grid, train_config: ConfigRecord) -> Measure:
    """Make what measures a model after a round: the server itself, or the clients where they predict with models of their own."""
    config, dataset = prepared.config, prepared.dataset
    clients = None
    if config.num_clients > config.evaluate.max_clients:
        draw = generator(config.seed, Stream.EVALUATION).choice(
            config.num_clients, config.evaluate.max_clients, replace=False, shuffle=False
        )
        clients = np.concatenate([np.sort(draw), np.arange(config.num_clients, config.all_clients)])
        log.info("%d of %d clients are evaluated, the same ones each time", len(clients), config.num_clients)
    parts = prepared.partition.test
    if not len(dataset.test):  # only the clients have data
        strategy.asks_clients = True
    untested = 0 if dataset.source is not None else sum(not len(part) for part in parts)
    if untested and not strategy.asks_clients:
        log.info("%d clients have no test data and are left out of the client measures", untested)
    if strategy.asks_clients:
        everyone = prepared.manager.everyone
        return lambda arrays, round: ClientMeasure(strategy, everyone(grid), train_config, clients)(arrays, round)
    model = make_local_model(config, dataset, prepared.device)
    return ServerMeasure(
        model, dataset.test.inputs, dataset.test.labels, dataset.to_float, parts, clients, prepared.metrics
    )
