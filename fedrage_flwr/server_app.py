"""The Flower ServerApp: ``flwr run . --run-config 'overrides="strategy=scaffold num_rounds=20"'``.

The words in ``overrides`` are those of the command line, split as a shell would; ``resume=/abs/folder`` goes on with a run whose
ServerApp was stopped. Clients run wherever Flower has nodes, so ``backend`` has no say here.
"""

import logging
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedrage_flwr.command import draw_figures, print_summary
from fedrage_flwr.config import compose_config, validate, write_config
from fedrage_flwr.errors import UserError
from fedrage_flwr.neighbours import check_neighbours
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.resume import Request, read_request, resume
from fedrage_flwr.run import run

log = logging.getLogger(__name__)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run what the run config says.

    Raises:
        UserError: one line; Flower shows it as the reason of the failed run.
    """
    try:
        _run(grid, context)
    except (UserError, OSError) as error:  # a full disk is nobody's mistake in the code either
        log.error("%s", error)
        raise UserError(str(error)) from None  # Flower prints the traceback: without our inner frames


def _run(grid: Grid, context: Context) -> None:
    check_neighbours()
    words = split_overrides(str(context.run_config["overrides"]))
    setting = str(context.run_config["output-dir"])
    request = read_request(words)
    if request is not None:
        _resume(request, setting, grid)
        return
    cfg = compose_config(words)
    prepared = prepare_run(validate(cfg), remote=True)
    folder = output_folder(setting, context.run_id)
    write_config(cfg, words, folder)
    with _log_to(folder / "run.log"):
        summary = run(prepared, folder, remote=grid)
        draw_figures(folder, summary)
    print_summary(summary, folder)


def _resume(request: Request, output_dir: str, grid: Grid) -> None:
    folder = request.folder.expanduser()
    if not folder.is_absolute() or not folder.is_dir():
        raise UserError(f"resume={request.folder} must be the absolute path of a run's folder on the server")
    if output_dir and Path(output_dir).expanduser() != folder:
        raise UserError(
            f"output-dir={output_dir!r} goes with a new run; resume={request.folder} goes on in its own folder"
        )
    with _log_to(folder / "run.log"):
        summary = resume(request, folder, log.info, grid)
        draw_figures(folder, summary)
    print_summary(summary, folder)


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Log to the file, and what is ours also to whoever watches Flower's log of the run."""
    form = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    file, stream = logging.FileHandler(path, encoding="utf-8"), logging.StreamHandler(sys.stdout)
    file.addFilter(lambda record: not record.name.startswith("httpx"))  # a line for every request of Flower's
    stream.addFilter(lambda record: record.name.startswith(("fedrage_flwr.", "strategies.")))
    root = logging.getLogger()
    before = root.level
    for handler in (file, stream):
        handler.setLevel(logging.INFO)
        handler.setFormatter(form)
        root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    except Exception:
        log.exception("the run failed")
        raise
    finally:
        root.setLevel(before)
        for handler in (file, stream):
            root.removeHandler(handler)
        file.close()


def split_overrides(text: str) -> list[str]:
    """Split the overrides as a shell would: ``a=1 'b=[1, 2]'`` are two.

    Raises:
        UserError: a quote is left open, or something is no override.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"overrides={text!r} in the run config cannot be split as a shell would: {error}") from error
    options = [word for word in words if word.startswith("-")]
    if options:
        raise UserError(f"overrides: {options[0]} is an option of the command line; a run config takes key=value only")
    return words


def output_folder(setting: str, run_id: int) -> Path:
    """Make the folder of the results: ``output-dir``, or one of the run's own below Flower's home.

    Raises:
        UserError: it is not absolute, or holds something already.
    """
    home = Path(os.environ.get("FLWR_HOME", "~/.flwr")).expanduser()
    folder = Path(setting).expanduser() if setting else home / "fedrage" / str(run_id)
    if not folder.is_absolute():
        raise UserError(f"output-dir={setting!r} must be absolute: the server's working folder is Flower's, not yours")
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(
            f"output-dir={setting!r} exists and is not empty; nothing is overwritten: choose another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder
