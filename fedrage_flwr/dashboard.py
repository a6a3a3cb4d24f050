"""A run while it goes on: the curve, every client, who took part. Drawn by ``fedrage_flwr.progress`` on a terminal."""

import time
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedrage_flwr.evaluation import Evaluation
from fedrage_flwr.rounds import Round

SMALLEST = (72, 20)  # columns and rows of the terminal; below, there is a line instead
NARROWEST = 34  # columns of a panel
MOST_ROWS = 26
EIGHTHS = " ▁▂▃▄▅▆▇█"
DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # of a braille character: 4 rows, 2 columns
COMMON, RARE, GREY, TITLE = "#56B4E9", "#E69F00", "grey58", "bold"


class Dashboard:
    """Keeps what has been seen of a run and draws it.

    Args:
        title: what runs.
        num_rounds: T.
        rare: bool (N,).
        metrics: names of client metrics to show.
    """

    def __init__(self, title: str, num_rounds: int, rare: np.ndarray, metrics: Sequence[str] = ()) -> None:
        self._title, self._num_rounds, self._rare, self._metrics = title, num_rounds, rare, metrics
        self._curve: list[tuple[int, float, float]] = []  # round, whole test set, rare clients
        self._came = np.zeros(len(rare), np.int64)
        self._round: Round | None = None
        self._evaluation: Evaluation | None = None
        self._measures: dict[str, float | None] = {}
        self._rejected = 0
        self._started, self._first = time.monotonic(), 0

    def add(self, round: Round, evaluation: Evaluation | None) -> None:
        """Take in a finished round; ``evaluation`` is the last one made."""
        if self._round is None:
            self._first = round.number - 1
        self._round = round
        for outcome in round.outcomes:
            self._came[outcome.client] += 1
            self._rejected += outcome.outcome != "averaged"
        if round.evaluation:
            self._evaluation, self._measures = evaluation, round.evaluation
            rare = round.evaluation.get("rare_client_accuracy")
            self._curve.append((round.number, self._whole(), np.nan if rare is None else rare))

    def _whole(self) -> float:
        value = self._measures["accuracy" if self._classifies else "loss"]
        return np.nan if value is None else float(value)

    @property
    def _classifies(self) -> bool:
        accuracy = self._measures.get("accuracy")
        return accuracy is not None and not np.isnan(accuracy)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw, as large as the terminal is."""
        width, rows = options.max_width, min(console.size.height - 1, MOST_ROWS)
        height = (rows - 5) // 2 * 2  # without head, frames and numbers; even, so that the curve has a middle line
        left = width - min(width - NARROWEST, max(2 * len(self._rare) + 4, NARROWEST))
        panels = Table.grid(expand=True)
        panels.add_column(width=left)
        panels.add_column(width=width - left)
        panels.add_row(
            _panel(self._curve_title(), self._draw_curve(left - 4, height)),
            _panel(self._clients_title(), self._draw_clients(width - left - 4, height)),
        )
        yield Group(self._head(), panels, *self._numbers())

    def _head(self) -> Table:
        done = self._round.number if self._round else 0
        seconds = time.monotonic() - self._started
        pace = (done - self._first) / seconds if done and seconds else 0.0
        left = _clock((self._num_rounds - done) / pace) if pace else "…"
        head = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, None, 1, None):
            head.add_column(ratio=ratio, no_wrap=True)
        bar = ProgressBar(self._num_rounds, done, complete_style=COMMON)
        speed = f"{pace:,.0f}" if pace >= 10 else f"{pace:.2g}"
        title = Text(self._title, style=TITLE)
        head.add_row(title, f"round {done}/{self._num_rounds}", bar, f"{speed} rounds a second, {left} left")
        return head

    def _numbers(self) -> Iterator[Text]:
        def percent(name: str) -> str:
            value = self._measures.get(name)
            return "–" if value is None or np.isnan(value) else f"{100 * value:.1f} %"

        shown = [("accuracy", percent("accuracy")), ("worst", percent("client_accuracy_min"))]
        if self._rare.any():
            shown.append(("rare", percent("rare_client_accuracy")))
        if self._measures and not self._classifies:
            shown = [("loss", f"{self._whole():.4g}")]
        metrics = self._round.metrics if self._round else {}
        shown += [(name, f"{metrics[name]:.3f}") for name in self._metrics if name in metrics]
        if "train-loss" in metrics:
            shown.append(("training loss", f"{metrics['train-loss']:.3f}"))
        yield _pairs(shown)
        present = [outcome.client for outcome in self._round.outcomes] if self._round else []
        names = ", ".join(map(str, present[:12])) + (f" and {len(present) - 12} more" if len(present) > 12 else "")
        yield _pairs([("not averaged", f"{self._rejected} replies"), ("this round", names or "nobody")])

    def _curve_title(self) -> Text:
        what = "accuracy" if self._classifies or not self._measures else "loss"
        title = Text.assemble((what, COMMON))
        return title.append(", rare clients", style=RARE) if self._rare.any() and what == "accuracy" else title

    def _draw_curve(self, width: int, height: int) -> list[Text]:
        """Value over rounds, with the numbers of the axis on the left."""
        rounds, whole, rare = np.array(self._curve, float).reshape(-1, 3).T
        finite = whole[np.isfinite(whole)]
        top = 1.0 if self._classifies or not len(finite) else float(finite.max()) or 1.0
        label = len(f"{top:.3g}") if not self._classifies else 4
        columns, lines = width - label - 1, height - 1
        canvas = Canvas(columns, lines)
        for values, style in ((rare, RARE), (whole, COMMON)):
            known = np.isfinite(values)
            canvas.line(rounds[known] / self._num_rounds, values[known] / top, style)
        labels = [""] * lines
        for place, value in ((0, top), (lines // 2, top / 2), (lines - 1, 0.0)):
            labels[place] = f"{100 * value:.0f} %" if self._classifies else f"{value:.3g}"
        axis = Text(" " * (label + 1) + "1" + str(self._num_rounds).rjust(columns - 1), style=GREY)
        drawn = (
            Text(f"{name:>{label}} ", style=GREY).append_text(row)
            for name, row in zip(labels, canvas.rows(), strict=True)
        )
        return [*drawn, axis]

    def _clients_title(self) -> Text:
        title = Text.assemble(("each client", COMMON))
        if self._rare.any():
            title.append(", rare", style=RARE)
        return title.append("; below: how often it came, • now", style=GREY)

    def _draw_clients(self, width: int, height: int) -> list[Text]:
        """A bar for each client; where there are too many for the width, for evenly spaced ones by id."""
        number = len(self._rare)
        wide = min(max(width // number, 1), 6)
        bar, gap = (wide - 1, " ") if wide > 1 else (1, "")
        shown = np.linspace(0, number - 1, min(number, width // wide)).round().astype(int)
        values = np.full(number, np.nan)
        if self._evaluation is not None:
            own = self._evaluation.clients < number
            found = self._evaluation.client_accuracy if self._classifies else self._evaluation.client_loss
            values[self._evaluation.clients[own]] = found[own]
        top = 1.0 if self._classifies or np.isnan(values).all() else float(np.nanmax(values)) or 1.0
        lines = height - 3
        level = np.nan_to_num(np.round(8 * lines * values[shown] / top)).clip(0, 8 * lines).astype(int)
        colors = [RARE if rare else COMMON for rare in self._rare[shown]]
        rows = []
        for line in range(lines):
            part = (level - 8 * (lines - 1 - line)).clip(0, 8)
            rows.append(_cells([EIGHTHS[k] * bar + gap for k in part], colors))
        often = self._came[shown] / max(self._came.max(), 1)
        present = {outcome.client for outcome in self._round.outcomes} if self._round else set()
        rows.append(_cells(["─" * wide] * len(shown), [GREY] * len(shown)))
        rows.append(_cells([EIGHTHS[int(np.ceil(8 * share))] * bar + gap for share in often], colors))
        rows.append(_cells([("•" if i in present else " ").center(bar) + gap for i in shown.tolist()], colors))
        return rows


class Canvas:
    """Lines drawn with braille dots, 2 × 4 of them in a character.

    Args:
        columns, rows: size in characters.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self._dots = np.zeros((rows, columns), np.int64)
        self._styles = np.full((rows, columns), "", dtype=object)

    def line(self, x: np.ndarray, y: np.ndarray, style: str) -> None:
        """Join points of the unit square, (0, 0) at the lower left, x rising: shapes (n,)."""
        if not len(x):
            return
        rows, columns = self._dots.shape
        across = np.arange(round(x[0] * (2 * columns - 1)), round(x[-1] * (2 * columns - 1)) + 1)
        down = np.rint((1 - np.interp(across / (2 * columns - 1), x, y).clip(0, 1)) * (4 * rows - 1)).astype(int)
        before = np.append(down[:1], down[:-1])
        for column, start, end in zip(across.tolist(), before.tolist(), down.tolist(), strict=True):
            step = 1 if end > start else -1
            dots = np.arange(start + step, end + step, step) if end != start else np.array([end])
            np.bitwise_or.at(self._dots, (dots // 4, column // 2), DOTS[dots % 4, column % 2])
            self._styles[dots // 4, column // 2] = style

    def rows(self) -> Iterator[Text]:
        """Yield the rows, the upper one first."""
        for dots, styles in zip(self._dots, self._styles, strict=True):
            yield _cells([chr(0x2800 + dot) if dot else " " for dot in dots], list(styles))


def _panel(title: Text, lines: Sequence[Text]) -> Panel:
    return Panel(Group(*lines), title=title, title_align="left", border_style=GREY)


def _cells(cells: Sequence[str], styles: Sequence[str]) -> Text:
    """One line of pieces in their styles; neighbours of one style are put together."""
    text, start = Text(no_wrap=True), 0
    for end in range(1, len(cells) + 1):
        if end == len(cells) or styles[end] != styles[start]:
            text.append("".join(cells[start:end]), style=styles[start])
            start = end
    return text


def _pairs(pairs: Sequence[tuple[str, str]]) -> Text:
    text = Text(" ", no_wrap=True, overflow="ellipsis")
    for name, value in pairs:
        text.append(f"{name} ", style=GREY).append(f"{value}  ")
    return text


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
