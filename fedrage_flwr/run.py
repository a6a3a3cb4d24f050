"""One run: everything a configuration names is put together here, and only here."""

import logging
import secrets
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from clients.base import write_settings
from fedrage_flwr.availability import LAWS
from fedrage_flwr.availability.base import Law
from fedrage_flwr.callbacks import Evaluate, PolyakAverage, StopWhenDiverged, StopWhenEmpty, Totals
from fedrage_flwr.checkpoint import Checkpoint, Checkpoints, Stateful, StopRequest, lock
from fedrage_flwr.checks import check_model, check_place, check_settings, check_validation, tuning_warnings
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.cohort import cohort_rule
from fedrage_flwr.config import Config
from fedrage_flwr.custom_metric import Metric, load_metrics
from fedrage_flwr.data import Dataset, Partition, load_dataset, on_validation, partition, prepare
from fedrage_flwr.errors import Diverged, Interrupted, UserError
from fedrage_flwr.evaluation import ClientMeasure, Measure, ServerMeasure
from fedrage_flwr.excess_risk import attainable_losses, check
from fedrage_flwr.grids import GRIDS
from fedrage_flwr.grids.base import SimulatedGrid
from fedrage_flwr.ledger import Ledger
from fedrage_flwr.loggers import Logger, make_logger
from fedrage_flwr.losses import LOSSES
from fedrage_flwr.metrics import adjusted_rand_index
from fedrage_flwr.models import build_model
from fedrage_flwr.node import write_job
from fedrage_flwr.progress import Progress
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.records import to_record
from fedrage_flwr.results import CsvLogger, peak_rss_mb, save_model, versions, write_summary
from fedrage_flwr.rounds import Callback
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


@dataclass(frozen=True)
class Company:
    """What a run gets from outside when it has company in its process (``fedrage_flwr.replicas``).

    Attributes:
        grid: where its clients run; closed at the end.
        stop: says when to end.
        shown: its progress is the one that a terminal shows.
    """

    grid: SimulatedGrid
    stop: StopRequest
    shown: bool


def run(
    prepared: Prepared,
    folder: Path,
    remote: Grid | None = None,
    checkpoint: Checkpoint | None = None,
    company: Company | None = None,
) -> dict[str, Any]:
    """Train, measure and write everything into ``folder``.

    Args:
        prepared: from ``prepare_run``.
        folder: exists, and holds no earlier run but the one of ``checkpoint``.
        remote: Flower's grid, whose nodes prepare their own data; None makes the grid that ``backend`` names.
        checkpoint: where to go on; None starts anew.
        company: of other runs in this process; None: it is alone.

    Returns:
        The summary, as written to ``summary.json``.

    Raises:
        UserError: the folder holds a run already, or the run ended because no reply could be used.
        Interrupted: SIGTERM or SIGINT came; a checkpoint is written.
    """
    with make_logger(prepared.config, folder) as logger:
        summary = _run(prepared, folder, logger, remote, checkpoint, company)
        logger.finish(summary)
    return summary


def _run(
    prepared: Prepared,
    folder: Path,
    logger: Logger,
    remote: Grid | None,
    checkpoint: Checkpoint | None,
    company: Company | None,
) -> dict[str, Any]:
    config = prepared.config
    if checkpoint is None and (folder / "rounds.csv").exists():
        raise UserError(f"{folder} already holds a run; choose another folder")
    started = time.perf_counter()
    torch.set_num_threads(config.engine.threads)
    held = lock(folder)
    log.info("computing on %s", prepared.device.type)
    for note in prepared.partition.notes:
        log.info("%s", note)
    strategy = make_strategy(config, prepared.manager, None if remote is None else secrets.randbits(128))
    model = make_local_model(config, prepared.dataset, prepared.device)
    strategy.untrained = frozenset(model.arrays()) - frozenset(model.parameter_names)
    if checkpoint is not None:
        check_model(checkpoint, config, model)
    for line in [*strategy.warnings(), *tuning_warnings(config)]:
        log.warning("%s", line)
        print(f"warning: {line}", file=sys.stderr)
    measures = ["held_out_client_accuracy"] if config.held_out_clients else []
    client_columns = list(strategy.client_columns())
    optimum = None
    if config.evaluate.faa:
        optimum = attainable_losses(config, prepared.dataset, prepared.partition, prepared.device)
        measures += ["faa", *(["held_out_faa"] if config.held_out_clients else [])]
        client_columns.append("excess_risk")
    measures += prepared.metrics
    client_columns += prepared.metrics
    old = checkpoint is not None
    tables = CsvLogger(folder, prepared.rare, strategy.columns, measures, client_columns, resumed=old)
    train_config = ConfigRecord({"seed": config.seed, **write_settings(config.client)})
    if remote is not None:
        train_config.update(write_job(config))
        train_config.update({"experiment-id": experiment_id(folder), "checkpoint-every": config.checkpoint_every})
        prepared.manager.greeting = train_config
    simulated: SimulatedGrid | None = None
    ledger = Ledger(folder, prepared.manager, config.num_clients, old) if remote is not None else None
    with ExitStack() as closing:  # all of them, also where the tables cannot be written
        closing.callback(held.release)
        closing.callback(tables.close)
        if ledger is not None:
            closing.callback(ledger.table.close)
        if company is not None:
            simulated = company.grid
        elif remote is None:
            factory = WorkspaceFactory(config, prepared.dataset, prepared.partition)
            simulated = make_grid(config, factory, prepared.device)
        if simulated is not None:
            closing.callback(simulated.close)
        grid = remote or simulated
        assert grid is not None
        measure = make_measure(prepared, strategy, grid, train_config)
        evaluate = Evaluate(
            lambda arrays, round: measure(strategy.reported(arrays), round),
            config.num_rounds,
            config.eval_every,
            prepared.rare,
            tables,
            optimum,
        )
        polyak, empty, totals = PolyakAverage(), StopWhenEmpty(config.max_empty_rounds), Totals()
        diverged = StopWhenDiverged(config.max_loss)
        parts: dict[str, Stateful] = {
            "strategy": strategy, "law": prepared.manager.law, "tables": tables,
            "evaluate": evaluate, "polyak": polyak, "totals": totals, "empty": empty,
        }  # fmt: skip
        if simulated is not None:  # on Flower's own grids clients keep their state themselves
            parts["clients"] = simulated
        if ledger is not None:
            parts["ledger"] = ledger
        stop = company.stop if company else StopRequest()
        checkpoints = Checkpoints(folder, config, parts, prepared.device.type, stop)
        initial_arrays, first_round = checkpoints.begin(
            lambda: strategy.initial_arrays(
                lambda k: to_record(make_local_model(config, prepared.dataset, prepared.device, k).arrays())
            ),
            checkpoint,
        )
        title = " · ".join((config.strategy.name, config.ram.name, config.dataset.name))
        dashboard = Progress(
            title, config.num_rounds, prepared.rare, lambda: evaluate.last_evaluation, strategy.progress
        )
        with (
            dashboard if company is None or company.shown else nullcontext() as progress,
            stop if simulated and company is None else nullcontext(),
        ):
            callbacks: list[Callback] = [
                evaluate, polyak, totals, tables, logger, empty, diverged, checkpoints,
                *([progress] if progress else []),
            ]  # fmt: skip
            if ledger is not None:
                callbacks.insert(0, ledger)
            arrays = strategy.start(
                grid,
                initial_arrays=initial_arrays,
                num_rounds=config.num_rounds,
                timeout=None,
                train_config=train_config,
                manager=prepared.manager,
                callbacks=callbacks,
                first_round=first_round,
            ).arrays
        if empty.stopped:
            advice = f"; {strategy.advice()}" if empty.overflown else ""
            kind = Diverged if empty.overflown else UserError
            raise kind(f"{empty.stopped}; the reasons: {empty.most_common()}; see {folder / 'run.log'}{advice}")
        if diverged.stopped:
            raise Diverged(f"{diverged.stopped}; {strategy.advice()}")
        if checkpoints.stopped_by is not None:
            raise Interrupted(
                f"{checkpoints.stopped_by.name}: stopped after round {totals.rounds} of {config.num_rounds};"
                f" go on with: python -m fedrage_flwr resume={folder}",
                128 + checkpoints.stopped_by,
            )
        averages = polyak.records()
        average = averages.pop("arrays")
        polyak_accuracy = measure(average, config.num_rounds).accuracy
    save_model(folder / "model.safetensors", strategy.reported(arrays), strategy.records)
    save_model(folder / "polyak.safetensors", average, averages)
    seconds = checkpoints.seconds_before + time.perf_counter() - started
    summary = _summary(prepared, evaluate, totals, polyak_accuracy, seconds)
    summary.update(strategy.summary_entries())
    summary.update(_group_recovery(prepared, strategy, evaluate))
    if ledger is not None:
        summary.update(ledger.summary())
    write_summary(folder / "summary.json", summary)
    if ledger is not None and (broken := ledger.failure()):
        raise UserError(broken)
    return summary


def experiment_id(folder: Path) -> str:
    """Return the name under which nodes keep their clients' state: drawn once for a folder, so that a resumed run finds it."""
    path = folder / "experiment-id"
    if not path.exists():
        path.write_text(uuid4().hex + "\n", encoding="ascii")
    return path.read_text(encoding="ascii").strip()


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
    further = (
        "faa",
        "held_out_faa",
        "excess_risks_below_zero",
        *(["loss"] if np.isnan(polyak_accuracy) else []),
        *prepared.metrics,
    )
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


class _Callable(ModuleType):
    """``from fedrage_flwr import run`` finds this module once it is loaded, so the module answers for the Python API."""

    def __call__(self, *overrides: str, folder: str | Path | None = None) -> Any:
        """See ``fedrage_flwr.api.run``."""
        from fedrage_flwr.api import run as run_once

        return run_once(*overrides, folder=folder)


sys.modules[__name__].__class__ = _Callable
