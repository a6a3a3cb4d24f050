"""Tables for a person at the prompt: in colour on a terminal, plain and wide elsewhere."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 160  # characters where nobody tells how wide the reader's window is


def make_console() -> Console:
    """Return a console on standard output."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PLAIN_WIDTH)


def show_lines(console: Console, title: str, lines: Iterable[tuple[str, str]]) -> None:
    """Print names and sentences in two columns under a title."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(name, Text(text))
    if table.row_count:
        _show(console, title, table)


def show_table(console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table under a title; all columns but the first are numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    if table.row_count:
        _show(console, title, table)


def _show(console: Console, title: str, table: Table) -> None:
    console.print(Text(f"\n{title}", style="bold"))
    console.print(table)
