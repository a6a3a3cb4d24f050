"""The same runs from Python: ``from fedrage_flwr import run; result = run("strategy=federage", "num_rounds=100")``."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrage_flwr.command import draw_figures, quiet_libraries, refuse_used
from fedrage_flwr.config import compose_config, validate, write_config
from fedrage_flwr.doors import set_switches
from fedrage_flwr.errors import UserError
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.results import log_file
from fedrage_flwr.run import run as run_prepared

if TYPE_CHECKING:
    import pandas as pd

set_switches()


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        folder: holds its files; docs/results.md says what the columns mean.
        summary: what ``summary.json`` holds.
    """

    folder: Path
    summary: dict[str, Any]

    @cached_property
    def rounds(self) -> "pd.DataFrame":
        """One row a round."""
        return self._table("rounds")

    @cached_property
    def clients(self) -> "pd.DataFrame":
        """One row per evaluated round and client."""
        return self._table("clients")

    @cached_property
    def participation(self) -> "pd.DataFrame":
        """One row per round and client that arrived."""
        return self._table("participation")

    @cached_property
    def updates(self) -> "pd.DataFrame":
        """One row per averaged reply."""
        return self._table("updates")

    def _table(self, name: str) -> "pd.DataFrame":
        import pandas as pd

        return pd.read_csv(self.folder / f"{name}.csv")


def run(*overrides: str, folder: str | Path | None = None, figures: bool = True) -> Result:
    """Run once and return the result; the files are those that the command line leaves.

    Args:
        overrides: as on the command line, each ``key=value``. No sweep and no ``resume=``: call again, or use the command.
        folder: for the files; None makes a new one below ``outputs/``.
        figures: draw them.

    Raises:
        UserError: a setting is not allowed, the folder is not empty, or the run came to nothing.
    """
    for override in overrides:
        if override.partition("=")[0] in ("resume", "seeds", "-m", "--multirun"):
            raise UserError(f"{override}: only on the command line, python -m fedrage_flwr {override}")
    cfg = compose_config(overrides)
    where = Path(cfg.hydra.run.dir if folder is None else folder).absolute()
    refuse_used(str(where), "folder")
    prepared = prepare_run(validate(cfg))
    where.mkdir(parents=True, exist_ok=True)
    write_config(cfg, overrides, where)
    with _log_to(where / "run.log"):
        summary = run_prepared(prepared, where)
        if figures:
            draw_figures(where, summary)
    return Result(where, summary)


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Send the log of the packages to a file meanwhile, and nothing anywhere else."""
    root = logging.getLogger()
    handler = log_file(path)
    level, others = root.level, list(root.handlers)
    quiet_libraries()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.handlers[:] = others
        root.setLevel(level)
        handler.close()
