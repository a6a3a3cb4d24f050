"""``seeds=[0,1,2]``: the same setting with several seeds in one process, their clients trained as one cohort.

Every replica is an ordinary run in a thread and a folder of its own; only its grid is special. It hands the messages of a round
to an ``Exchange``, which waits until all replicas that are still running have handed in theirs and executes them together. On
a GPU one round of five seeds then costs little more than a round of one. What a client computes does not depend on its company
(docs/performance.md), so each folder holds what a run by itself would have left.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Message, RecordDict
from omegaconf import DictConfig, OmegaConf

from fedrage_flwr.checkpoint import StopRequest
from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.config import write_config
from fedrage_flwr.errors import Interrupted, UserError
from fedrage_flwr.excess_risk import attainable_losses
from fedrage_flwr.grids.executor import Executor, Job
from fedrage_flwr.grids.inline import InProcessGrid
from fedrage_flwr.parts import Prepared, WorkspaceFactory, make_law
from fedrage_flwr.results import log_file
from fedrage_flwr.run import Company, run

Results = list[tuple[Message, RecordDict]]

log = logging.getLogger(__name__)


class Exchange:
    """Executes the messages of several replicas together.

    Args:
        execute: runs jobs, see ``Executor.run``.
        replicas: how many there are.
    """

    def __init__(self, execute: Callable[[Sequence[Job]], Results], replicas: int) -> None:
        self._execute = execute
        self._running = set(range(replicas))
        self._handed_in: dict[int, Sequence[Job]] = {}
        self._results: dict[int, Results | BaseException] = {}
        self._condition = threading.Condition()

    def run(self, replica: int, jobs: Sequence[Job]) -> Results:
        """Hand in the jobs of one replica and wait for the others; return its results."""
        with self._condition:
            self._handed_in[replica] = jobs
            self._execute_if_complete()
            self._condition.wait_for(lambda: replica in self._results)
            result = self._results.pop(replica)
        if isinstance(result, BaseException):
            raise result
        return result

    def leave(self, replica: int) -> None:
        """Let the others go on without this one."""
        with self._condition:
            self._running.discard(replica)
            self._execute_if_complete()

    def _execute_if_complete(self) -> None:
        if not self._handed_in or self._handed_in.keys() != self._running:
            return
        order = sorted(self._handed_in)
        jobs = [job for replica in order for job in self._handed_in[replica]]
        try:
            results = iter(self._execute(jobs))
            for replica in order:
                self._results[replica] = [next(results) for _ in self._handed_in[replica]]
        except BaseException as error:
            self._results.update(dict.fromkeys(order, error))
        self._handed_in.clear()
        self._condition.notify_all()


class ReplicaGrid(InProcessGrid):
    """The N clients of one replica.

    Args:
        exchange: executes messages.
        replica: its number.
        num_clients: N.
    """

    def __init__(self, exchange: Exchange, replica: int, num_clients: int) -> None:
        super().__init__(lambda jobs: exchange.run(replica, jobs), num_clients)
        self._leave = partial(exchange.leave, replica)

    def close(self) -> None:
        """See ``SimulatedGrid``."""
        self._leave()


@dataclass(frozen=True)
class Replica:
    """What became of one of them: a summary, or the error that ended it."""

    seed: int
    folder: Path
    summary: dict[str, Any] | None
    error: BaseException | None

    def result(self) -> dict[str, Any]:
        """Return the summary, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.summary is not None
        return self.summary


def replica_words(words: Sequence[str], seed: int) -> list[str]:
    """The overrides that start the run of one seed alone."""
    kept = [word for word in words if word.lstrip("+").partition("=")[0] not in ("seed", "seeds")]
    return [*kept, f"seed={seed}"]


def run_replicas(prepared: Prepared, folder: Path, cfg: DictConfig, words: Sequence[str]) -> list[Replica]:
    """Run one replica for each of ``seeds`` in ``folder/seed=K``.

    Args:
        prepared: data and partition, which they share.
        folder: of all of them.
        cfg: the composed configuration, for what stands in ``.hydra``.
        words: as typed.

    Returns:
        One entry per seed, in order; one that failed does not stop the others.
    """
    config = prepared.config
    seeds = config.seeds or []
    workspace = WorkspaceFactory(config, prepared.dataset, prepared.partition)(prepared.device)
    exchange = Exchange(Executor(make_client_app(workspace), workspace).run, len(seeds))
    folders = [folder / f"seed={seed}" for seed in seeds]
    for seed, own in zip(seeds, folders, strict=True):
        own.mkdir(parents=True)
        write_config(OmegaConf.merge(cfg, {"seed": seed, "seeds": None}), replica_words(words, seed), own)  # type: ignore[arg-type]
    outcomes: dict[int, dict[str, Any] | BaseException] = {}
    if config.evaluate.faa:  # on all cores: one seed after another; the runs find the results kept
        for seed in seeds:
            own_seed = replace(config, seed=seed)
            attainable_losses(own_seed, prepared.dataset, prepared.partition, prepared.device)

    def work(number: int, stop: StopRequest) -> None:
        own = replace(config, seed=seeds[number], seeds=None)
        manager = RandomAccessClientManager(make_law(own), own.all_clients, own.node_wait_s)
        grid = ReplicaGrid(exchange, number, own.all_clients)
        try:
            with _log_of_this_thread(folders[number] / "run.log"):
                company = Company(grid, stop, shown=number == 0)
                mine = replace(prepared, config=own, manager=manager)
                outcomes[number] = run(mine, folders[number], company=company)
        except BaseException as error:
            outcomes[number] = error
        finally:
            grid.close()

    with StopRequest() as stop:
        threads = [threading.Thread(target=work, args=(number, stop), daemon=True) for number in range(len(seeds))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [
        Replica(seed, own, None, outcome) if isinstance(outcome, BaseException) else Replica(seed, own, outcome, None)
        for seed, own, outcome in zip(seeds, folders, (outcomes[k] for k in range(len(seeds))), strict=True)
    ]


@contextmanager
def _log_of_this_thread(path: Path) -> Iterator[None]:
    mine = threading.get_ident()
    handler = log_file(path)
    handler.addFilter(lambda record: record.thread == mine)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    except (UserError, Interrupted) as error:
        log.error("%s", error)
        raise
    except Exception:
        log.exception("the run failed")
        raise
    finally:
        root.removeHandler(handler)
        handler.close()
