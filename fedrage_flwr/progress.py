"""Live on a terminal: a dashboard, or a line where the terminal is small. Nothing at all elsewhere."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedrage_flwr.dashboard import SMALLEST, Dashboard
from fedrage_flwr.evaluation import Evaluation
from fedrage_flwr.rounds import Round

LEAST_WAIT = 0.25  # seconds between two frames
MOST_COST = 0.007  # share of the time that drawing may take

Item = TypeVar("Item")


def counting(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """Yield the items and show how many of ``total`` have come."""
    console = Console(file=sys.stderr)
    columns = (TextColumn(what), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        for item in items:
            bar.advance(task)
            yield item


class Progress:
    """Shows a run while it goes on.

    Args:
        title: what runs.
        num_rounds: T.
        rare: bool (N,).
        last_evaluation: returns the last evaluation made.
        metrics: names of client metrics to show.
        console: where to; standard error unless given.
    """

    def __init__(
        self,
        title: str,
        num_rounds: int,
        rare: np.ndarray,
        last_evaluation: Callable[[], Evaluation | None],
        metrics: Sequence[str] = (),
        console: Console | None = None,
    ) -> None:
        console = console or Console(file=sys.stderr)
        self._last_evaluation = last_evaluation
        self._dashboard = Dashboard(title, num_rounds, rare, metrics)
        self._live: Live | Bar | None = None
        self._due = 0.0
        if not console.is_terminal or console.is_dumb_terminal:
            return
        if console.size.width >= SMALLEST[0] and console.size.height >= SMALLEST[1]:
            self._live = Live(self._dashboard, console=console, auto_refresh=False)
        else:
            self._live = Bar(
                TextColumn("round"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(),
                console=console, auto_refresh=False,
            )  # fmt: skip
            self._live.add_task("rounds", total=num_rounds)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.refresh()
            self._live.stop()

    def after_round(self, round: Round) -> None:
        """Take the round in, and draw if it is time."""
        if self._live is None:
            return
        self._dashboard.add(round, self._last_evaluation())
        if isinstance(self._live, Bar):
            self._live.update(self._live.task_ids[0], completed=round.number)
        now = time.monotonic()
        if now < self._due:
            return
        before = time.thread_time()
        self._live.refresh()
        self._due = now + max(LEAST_WAIT, (time.thread_time() - before) / MOST_COST)
