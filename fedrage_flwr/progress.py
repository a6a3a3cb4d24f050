"""A live line on a terminal; nothing at all elsewhere."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedrage_flwr.rounds import Round

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
    """Shows rounds done, the last accuracy and the algorithm's own numbers.

    Args:
        num_rounds: T.
        metrics: names of client metrics to show.
    """

    def __init__(self, num_rounds: int, metrics: Sequence[str] = ()) -> None:
        self._metrics = metrics
        self._accuracy = ""
        console = Console(file=sys.stderr)
        self._bar = Bar(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            refresh_per_second=5,
        )
        self._task = self._bar.add_task("rounds", total=num_rounds, numbers="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def after_round(self, round: Round) -> None:
        """Move the bar."""
        if self._bar.disable:
            return
        accuracy = round.evaluation.get("accuracy")
        if accuracy is not None:
            self._accuracy = f"accuracy {100 * accuracy:.1f} %"
        shown = [f"{name} {round.metrics[name]:.3f}" for name in self._metrics if name in round.metrics]
        self._bar.update(self._task, completed=round.number, numbers="  ".join([self._accuracy, *shown]))
