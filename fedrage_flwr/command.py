"""The command line: everything is checked first, then Hydra makes the folder and the run starts."""

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table

from fedrage_flwr.config import compose_config, register_resolvers, validate
from fedrage_flwr.doors import set_switches
from fedrage_flwr.errors import Interrupted, UserError, one_line
from fedrage_flwr.help import help_page
from fedrage_flwr.parts import Prepared, prepare_run
from fedrage_flwr.replicas import Replica, run_replicas
from fedrage_flwr.resume import Request, read_request, resume
from fedrage_flwr.run import run
from fedrage_flwr.sweep_folder import jobs_of
from fedrage_flwr.sweep_words import check_words
from fedrage_flwr.sweeps import BESIDE_EACH_OTHER, Failure, failures, goal, refuse_ray_in_ray, shared_data
from fedrage_flwr.words import conf_dir

ROOM = 65536  # bytes: less than any run writes at its beginning

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments say; return the exit code."""
    failures.clear()
    try:
        if "--help" in arguments or "-h" in arguments:
            print(help_page(), end="")
            return 0
        sweep = "-m" in arguments or "--multirun" in arguments
        overrides = [argument for argument in arguments if not argument.startswith("-")]
        if any(argument.startswith("-") and argument not in ("-m", "--multirun") for argument in arguments):
            return _hand_to_hydra(_Jobs())  # --cfg, --hydra-help and the like
        request = read_request(overrides)
        if request is not None:
            return _resume(request, sweep)
        if sweep:
            with shared_data() if _check_sweep(overrides) in BESIDE_EACH_OTHER else nullcontext():
                return _hand_to_hydra(_Jobs(), sweep)
        cfg = compose_config(overrides)
        refuse_used(cfg.hydra.run.dir, "hydra.run.dir")
        return _hand_to_hydra(_Jobs(prepare_run(validate(cfg))))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


class _Jobs:
    """Hydra's task function: one call per job.

    Args:
        prepared: what was made while checking a single run, so that it is made once; None in a sweep.
    """

    def __init__(self, prepared: Prepared | None = None) -> None:
        self._prepared = prepared

    def __call__(self, cfg: DictConfig) -> float | Failure | None:
        """Run one job, perhaps in a process that a launcher started; return what a tuner looks at."""
        set_switches()
        job = HydraConfig.get()
        folder = Path(job.runtime.output_dir)
        launcher = str(job.runtime.choices.get("hydra/launcher", "basic"))
        if cfg.seeds is not None:
            return self._attempt_replicas(folder, cfg, launcher, list(job.overrides.task))
        return self.attempt(folder, lambda: run(self._prepared or _prepare(cfg, launcher), folder))

    def _attempt_replicas(
        self, folder: Path, cfg: DictConfig, launcher: str, words: Sequence[str]
    ) -> float | Failure | None:
        replicas: list[Replica] = []

        def work() -> dict[str, Any]:
            prepared = self._prepared or _prepare(cfg, launcher)
            replicas.extend(run_replicas(prepared, folder, cfg, words))
            return {}

        outcomes = [self.attempt(folder, work, show=lambda *_: None)]
        if replicas:
            outcomes.clear()
        ended: SystemExit | None = None
        for replica in replicas:
            try:
                outcomes.append(self.attempt(replica.folder, replica.result, show=lambda s, own: draw_figures(own, s)))
            except SystemExit as error:
                ended = error
        if ended is not None:
            raise ended
        if replicas:
            print_replicas(replicas, folder)
        values = [value for value in outcomes if isinstance(value, float)]
        failed = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
        return failed[0] if failed else mean(values) if values else None

    def attempt(
        self,
        folder: Path,
        work: Callable[[], dict[str, Any]],
        show: Callable[[dict[str, Any], Path], None] | None = None,
    ) -> float | Failure | None:
        """Do the work of one job, which returns its summary; show that, or say why there is none.

        Args:
            folder: of the job.
            work: does it.
            show: what becomes of the summary; None draws the figures and prints it.

        Returns:
            ``sweeps.goal`` of the summary, or the failure.

        Raises:
            SystemExit: somebody asked the process to end.
        """
        quiet_libraries()
        try:
            summary = work()
        except Interrupted as error:
            print(error, file=sys.stderr)
            raise SystemExit(error.code) from error
        except OSError as error:
            log.exception("the run failed")
            what = f"{error.filename or folder}: {error.strerror or error}"
            return _fail(folder, f"{what}; once that is mended the run can go on: resume={folder}")
        except UserError as error:
            log.error("%s", error)
            return _fail(folder, str(error))
        except Exception as error:
            log.exception("the run failed")
            return _fail(folder, f"{type(error).__name__}: {error} (traceback in {folder / 'run.log'})")
        (show or show_result)(summary, folder)
        return goal(summary)


def _prepare(cfg: DictConfig, launcher: str) -> Prepared:
    config = validate(cfg)
    refuse_ray_in_ray(launcher, config.backend.name)
    return prepare_run(config)


def _fail(folder: Path, reason: str) -> Failure:
    print(f"error: {reason}", file=sys.stderr, flush=True)
    return Failure(str(folder), reason)


def _resume(request: Request, sweep: bool) -> int:
    logging.getLogger().addHandler(logging.NullHandler())  # until a run's own log is open
    jobs = _Jobs()
    for folder in jobs_of(request.folder) if sweep else [request.folder]:
        jobs.attempt(folder, partial(resume, request, folder, _tell))
    return 1 if failures else 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _hand_to_hydra(jobs: _Jobs, sweep: bool = False) -> int:
    register_resolvers()

    def task(cfg: DictConfig) -> float | Failure | None:
        return jobs(cfg)

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises what happened, and does not print it
    try:
        hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(task)()
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(one_line(error)) from error
    except OSError as error:  # between the jobs of a sweep
        go_on = "; once that is mended the sweep can go on: -m resume=FOLDER" if sweep else ""
        raise UserError(f"{error.filename or 'the output folder'}: {error.strerror}{go_on}") from error
    finally:
        for folder, reason in failures.items() if sweep else ():
            print(f"failed: {folder}: {reason}", file=sys.stderr)
    return 1 if failures else 0


def quiet_libraries() -> None:
    """Send Flower's own chatter to the run's log file only, and say nothing where that cannot be written: the tables will."""
    logging.raiseExceptions = False
    flower = logging.getLogger("flwr")
    flower.setLevel(logging.INFO)
    flower.handlers.clear()
    flower.propagate = True


def _check_sweep(overrides: Sequence[str]) -> str:
    """Refuse what would lose results; return the launcher's name."""
    try:
        cfg = compose_config(overrides, RunMode.MULTIRUN)
    except UserError as error:
        missing = "Could not find 'hydra/" in str(error)
        hint = "; is it installed? pip install 'fedrage-flwr[sweeps]'" if missing else ""
        raise UserError(f"{error}{hint}") from error
    refuse_used(cfg.hydra.sweep.dir, "hydra.sweep.dir")
    typed = dict(override.split("=", 1) for override in overrides if "=" in override)
    subdir = typed.get("hydra.sweep.subdir", "${hydra.job.num}")
    if "hydra.job" not in subdir:
        raise UserError(
            f"hydra.sweep.subdir={subdir} is the same for every job, so they would overwrite each other;"
            " put ${hydra.job.num} in it"
        )
    check_words(cfg.hydra)
    return str(cfg.hydra.runtime.choices["hydra/launcher"])


def refuse_used(folder: str, key: str) -> None:
    """Raise ``UserError`` if the folder, given as ``key``, holds anything."""
    path = Path(folder)
    if path.is_dir() and any(path.iterdir()):
        raise UserError(f"{key}={folder} exists and is not empty; nothing is overwritten: choose another folder")
    parent = next(place for place in (path, *path.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=parent) as file:
            file.write(bytes(ROOM))
    except OSError as error:
        raise UserError(f"{key}={folder} cannot be written: {parent}: {error.strerror}") from error


def show_result(summary: dict[str, Any], folder: Path) -> None:
    """Draw the figures and print the table."""
    draw_figures(folder, summary)
    print_summary(summary, folder)


def print_replicas(replicas: Sequence[Replica], folder: Path) -> None:
    """Print one row a seed, and the mean and standard deviation over seeds."""
    names = {
        "accuracy_mean_last10": "accuracy", "polyak_accuracy": "averaged model",
        "client_accuracy_min": "worst client", "rare_client_accuracy": "rare clients", "loss": "loss",
    }  # fmt: skip
    found = [replica.summary for replica in replicas if replica.summary is not None]
    names = {name: title for name, title in names.items() if any(s.get(name) is not None for s in found)}
    table = Table(box=None, pad_edge=False)
    for title in ("seed", *names.values()):
        table.add_column(title, justify="right")
    for replica in replicas:
        values = [(replica.summary or {}).get(name) for name in names]
        table.add_row(str(replica.seed), *(f"{v:.4f}" if v is not None else "none" for v in values))
    if len(found) > 1:
        columns = [[float(s[name]) for s in found if s.get(name) is not None] for name in names]
        table.add_row("mean", *(f"{mean(column):.4f}" for column in columns))
        table.add_row("std", *(f"{stdev(column):.4f}" if len(column) > 1 else "none" for column in columns))
    console = Console()
    console.print(table)
    console.print(f"folders {folder / 'seed=…'}", soft_wrap=True, highlight=False)


def draw_figures(folder: Path, summary: dict[str, Any]) -> None:
    """Draw the figures; a failure here costs a warning, never a result."""
    try:
        from fedrage_flwr.figures import draw

        draw(folder, " · ".join(str(summary[word]) for word in ("strategy", "ram", "dataset", "partition")))
    except Exception as error:
        log.warning("the figures could not be drawn", exc_info=True)
        print(f"warning: the figures could not be drawn ({error})", file=sys.stderr)


def print_summary(summary: dict[str, Any], folder: Path) -> None:
    """Print the short table that ends a run."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in _rows(summary):
        table.add_row(name, value)
    console = Console()
    console.print(table)
    console.print(f"folder  {folder}", soft_wrap=True, highlight=False)


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    def percent(value: float | None) -> str:
        return "none" if value is None else f"{100 * value:.2f} %"

    rows = [
        ("accuracy", f"{percent(summary['accuracy_mean_last10'])} ± {percent(summary['accuracy_std_last10'])}"
                     " (whole test set, last ten rounds)"),
        ("averaged model", f"{percent(summary['polyak_accuracy'])} (mean of all rounds' models),"
                           f" {percent(summary.get('second_half_accuracy'))} (of the second half's)"),
        ("worst client", percent(summary["client_accuracy_min"])),
        ("bytes a round", f"{summary['bytes_up_per_round']:,.0f} up, {summary['bytes_down_per_round']:,.0f} down"),
        ("time", f"{summary['wall_seconds']:.1f} s, {summary['rounds_per_second']:.0f} rounds a second"),
    ]  # fmt: skip
    if summary["rare_client_accuracy"] is not None:
        rows.insert(3, ("rare clients", f"{percent(summary['rare_client_accuracy'])} (mean)"))
    if "loss" in summary:  # real targets: there is no accuracy
        rows[:3] = [
            ("loss", "none" if summary["loss"] is None else f"{summary['loss']:.6g} (whole test set, last round)")
        ]
    if "faa" in summary:
        rows.append(("FAA", _fairness(summary)))
    if "adjusted_rand_index" in summary:
        rows.append(("clusters", f"{summary['adjusted_rand_index']:.3f} (adjusted Rand index against the true groups)"))
    if summary.get("never_contributed"):
        rows.insert(
            0, ("NEVER CONTRIBUTED", f"sites {', '.join(map(str, summary['never_contributed']))}: see ledger.csv")
        )
    if summary["rejected_replies"]:
        rows.append(
            (
                "NOT AVERAGED",
                f"{summary['rejected_replies']} replies failed, came late or were rejected: see participation.csv",
            )
        )
    return rows


def _fairness(summary: dict[str, Any]) -> str:
    if summary["faa"] is None:
        return "none: no client has an excess risk"
    text = f"{summary['faa']:.4f} (largest difference of two clients' excess risks; smaller is fairer)"
    below = summary["excess_risks_below_zero"]
    return f"{text}, {below} estimated below zero" if below else text
