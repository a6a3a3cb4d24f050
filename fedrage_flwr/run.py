"""One run: its parts are put together here, and only here, and trained from the first round to the summary."""

import logging
import secrets
import sys
import time
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
from fedrage_flwr.callbacks import Evaluate, PolyakAverage, StopWhenDiverged, StopWhenEmpty, Totals
from fedrage_flwr.checkpoint import Checkpoint, Checkpoints, Stateful, StopRequest, lock
from fedrage_flwr.checks import check_model, tuning_warnings
from fedrage_flwr.errors import Diverged, Interrupted, UserError
from fedrage_flwr.excess_risk import attainable_losses
from fedrage_flwr.grids.base import SimulatedGrid
from fedrage_flwr.ledger import Ledger
from fedrage_flwr.loggers import Logger, make_logger
from fedrage_flwr.node import write_job
from fedrage_flwr.parts import Prepared, WorkspaceFactory, make_grid, make_local_model, make_measure, make_strategy
from fedrage_flwr.progress import Progress
from fedrage_flwr.records import to_record
from fedrage_flwr.results import CsvLogger, save_model, write_summary
from fedrage_flwr.rounds import Callback
from fedrage_flwr.summary import group_recovery, summarise
from strategies.base import BaseStrategy

log = logging.getLogger(__name__)


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
    config, resumed = prepared.config, checkpoint is not None
    if not resumed and (folder / "rounds.csv").exists():
        raise UserError(f"{folder} already holds a run; choose another folder")
    started = time.perf_counter()
    torch.set_num_threads(config.engine.threads)
    with ExitStack() as closing:  # all of them, also where the tables cannot be written
        closing.callback(lock(folder).release)
        strategy = _strategy(prepared, remote, checkpoint)
        optimum, measures, client_columns = _measured(prepared, strategy)
        tables = CsvLogger(folder, prepared.rare, strategy.columns, measures, client_columns, resumed)
        closing.callback(tables.close)
        train_config = _train_config(prepared, folder, remote)
        ledger: Ledger | None = None
        simulated: SimulatedGrid | None = None
        if remote is not None:
            prepared.manager.greeting = train_config
            ledger = Ledger(folder, prepared.manager, config.num_clients, resumed)
            closing.callback(ledger.table.close)
        else:
            simulated = company.grid if company else make_grid(config, _factory(prepared), prepared.device)
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
        polyak, totals = PolyakAverage(config.num_rounds), Totals()
        empty, diverged = StopWhenEmpty(config.max_empty_rounds), StopWhenDiverged(config.max_loss)
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
        dashboard = nullcontext() if company is not None and not company.shown else Progress(
            title, config.num_rounds, prepared.rare, lambda: evaluate.last_evaluation, strategy.progress
        )  # fmt: skip
        with dashboard as progress, stop if simulated and company is None else nullcontext():
            callbacks: list[Callback | None] = [
                ledger, evaluate, polyak, totals, tables, logger, empty, diverged, checkpoints, progress,
            ]  # fmt: skip
            arrays = strategy.start(
                grid,
                initial_arrays=initial_arrays,
                num_rounds=config.num_rounds,
                timeout=None,
                train_config=train_config,
                manager=prepared.manager,
                callbacks=[callback for callback in callbacks if callback is not None],
                first_round=first_round,
            ).arrays
        _raise_if_stopped(
            strategy, empty, diverged, checkpoints, folder, f"round {totals.rounds} of {config.num_rounds}"
        )
        averages = polyak.records()
        average = averages.pop("arrays")
        half = polyak.second_half()
        averaged = {
            "polyak_accuracy": measure(average, config.num_rounds).accuracy,
            "second_half_accuracy": measure(half["arrays"], config.num_rounds).accuracy if half else float("nan"),
        }
    save_model(folder / "model.safetensors", strategy.reported(arrays), strategy.records)
    save_model(folder / "polyak.safetensors", average, averages)
    seconds = checkpoints.seconds_before + time.perf_counter() - started
    summary = summarise(prepared, evaluate, totals, averaged, seconds)
    summary |= strategy.summary_entries() | group_recovery(prepared, strategy, evaluate)
    if ledger is not None:
        summary |= ledger.summary()
    write_summary(folder / "summary.json", summary)
    if ledger is not None and (broken := ledger.failure()):
        raise UserError(broken)
    return summary


def _factory(prepared: Prepared) -> WorkspaceFactory:
    return WorkspaceFactory(prepared.config, prepared.dataset, prepared.partition)


def _strategy(prepared: Prepared, remote: Grid | None, checkpoint: Checkpoint | None) -> BaseStrategy:
    """Make the server half, say what there is to say about it, and see that a checkpoint's model is ours."""
    config = prepared.config
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
    return strategy


def _measured(prepared: Prepared, strategy: BaseStrategy) -> tuple[np.ndarray | None, list[str], list[str]]:
    """Each client's attainable loss, where fairness is asked for, and what rounds.csv and clients.csv hold beside the usual."""
    config, names = prepared.config, list(prepared.metrics)
    held_out = config.held_out_clients > 0
    measures = ["held_out_client_accuracy"] if held_out else []
    of_clients = list(strategy.client_columns())
    if not config.evaluate.faa:
        return None, measures + names, of_clients + names
    optimum = attainable_losses(config, prepared.dataset, prepared.partition, prepared.device)
    measures += ["faa", "held_out_faa"] if held_out else ["faa"]
    return optimum, measures + names, [*of_clients, "excess_risk", *names]


def _train_config(prepared: Prepared, folder: Path, remote: Grid | None) -> ConfigRecord:
    """What every message to a client says; a node has to be told the job as well."""
    config = prepared.config
    said = ConfigRecord({"seed": config.seed, **write_settings(config.client)})
    if remote is not None:
        said.update(write_job(config))
        said.update({"experiment-id": experiment_id(folder), "checkpoint-every": config.checkpoint_every})
    return said


def _raise_if_stopped(
    strategy: BaseStrategy,
    empty: StopWhenEmpty,
    diverged: StopWhenDiverged,
    checkpoints: Checkpoints,
    folder: Path,
    where: str,
) -> None:
    """Raises: UserError, Diverged or Interrupted, where the rounds ended before their time."""
    if empty.stopped:
        advice = f"; {strategy.advice()}" if empty.overflown else ""
        kind = Diverged if empty.overflown else UserError
        raise kind(f"{empty.stopped}; the reasons: {empty.most_common()}; see {folder / 'run.log'}{advice}")
    if diverged.stopped:
        raise Diverged(f"{diverged.stopped}; {strategy.advice()}")
    if checkpoints.stopped_by is not None:
        raise Interrupted(
            f"{checkpoints.stopped_by.name}: stopped after {where}; go on with: python -m fedrage_flwr resume={folder}",
            128 + checkpoints.stopped_by,
        )


def experiment_id(folder: Path) -> str:
    """Return the name under which nodes keep their clients' state: drawn once for a folder, so that a resumed run finds it."""
    path = folder / "experiment-id"
    if not path.exists():
        path.write_text(uuid4().hex + "\n", encoding="ascii")
    return path.read_text(encoding="ascii").strip()


class _Callable(ModuleType):
    """``from fedrage_flwr import run`` finds this module once it is loaded, so the module answers for the Python API."""

    def __call__(self, *overrides: str, folder: str | Path | None = None) -> Any:
        """See ``fedrage_flwr.api.run``."""
        from fedrage_flwr.api import run as run_once

        return run_once(*overrides, folder=folder)


sys.modules[__name__].__class__ = _Callable
