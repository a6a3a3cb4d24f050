"""The figures, each a function of a small table: what is drawn is what the table says.

Colours are Okabe and Ito's, told apart by the colour-blind; lines differ in dash or marker as well, for print in grey. Text is at
least 8 pt at the size drawn: ``COLUMN`` inches wide for one column of a paper, ``PAGE`` for both.
"""

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure  # no pyplot: no display, no global state
from matplotlib.ticker import LogLocator, NullFormatter

COLUMN, PAGE = 3.5, 7.16
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#595959"
LOOK: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "legend.fontsize": 8, "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
    "pdf.fonttype": 42, "lines.linewidth": 1.3,
}  # fmt: skip


def colour(number: int) -> str:
    """Return the colour of the line of this number."""
    return COLOURS[number % len(COLOURS)]


def dash(number: int) -> str:
    """Return its dash."""
    return DASHES[number % len(DASHES)]


@mpl.rc_context(LOOK)
def curves(table: pd.DataFrame, ylabel: str = "test accuracy (%)") -> Figure:
    """A panel for each ``panel``, a line for each ``label``: mean over seeds, and a band from the lowest to the highest.

    Args:
        table: panel, label, seed, round, value.
    """
    panels, labels = _words(table["panel"]), _words(table["label"])
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, axes = _figure(COLUMN if columns == 1 else PAGE, 2.3 * rows, rows, columns, sharex=False)
    for axis, panel in zip(axes, panels, strict=False):
        _lines(axis, table[table["panel"] == panel], labels)
        axis.set(title=fill(panel, 32), xlabel="round")
    for axis in axes[::columns]:
        axis.set_ylabel(ylabel)
    _hide(axes[len(panels) :])
    _legend(figure, axes[0])
    return figure


def _lines(axis: Axes, table: pd.DataFrame, labels: Sequence[str]) -> None:
    for k, label in enumerate(labels):
        runs = table[table["label"] == label].pivot(index="round", columns="seed", values="value")
        axis.plot(runs.index, runs.mean(axis=1), color=colour(k), ls=dash(k), label=label)
        axis.fill_between(runs.index, runs.min(axis=1), runs.max(axis=1), color=colour(k), alpha=0.18, lw=0)


@mpl.rc_context(LOOK)
def client_bars(table: pd.DataFrame, rare: Iterable[int] = ()) -> Figure:
    """Accuracy of each client (bars) and its mean over clients (dashed), by method; the rare clients on grey.

    Args:
        table: label, client, value: one row each.
        rare: ids of the rare clients.
    """
    labels, clients = _words(table["label"]), sorted(table["client"].unique())
    figure, (axis,) = _figure(PAGE, 2.6)
    width = 0.84 / len(labels)
    place = {client: k for k, client in enumerate(clients)}
    for client in rare:
        axis.axvspan(place[client] - 0.5, place[client] + 0.5, color="#E8E8E8", lw=0)
    for k, label in enumerate(labels):
        rows = table[table["label"] == label]
        x = rows["client"].map(place) + (k - (len(labels) - 1) / 2) * width
        mean = rows["value"].mean()
        axis.bar(x, rows["value"], width, color=colour(k), label=f"{label}, mean {mean:.1f}")
        axis.axhline(mean, color=colour(k), ls="--", lw=1)
    axis.set(xlabel="client (on grey: rare)", ylabel="test accuracy (%)", ylim=(0, 102))
    axis.set_xlim(-0.6, len(clients) - 0.4)
    axis.set_xticks(range(len(clients)), [str(client) for client in clients])
    _legend(figure, axis)
    return figure


@mpl.rc_context(LOOK)
def heat_map(table: pd.DataFrame, value: str, row: str = "γ", column: str = "α") -> Figure:
    """The mean of ``value`` over seeds for each pair, written into its cell.

    Args:
        table: row, column, value: one row a run.
        value: what it is, for the scale.
        row, column: names of the two settings.
    """
    cells = table.pivot_table(index="row", columns="column", values="value", aggfunc="mean").sort_index(ascending=False)
    figure, (axis,) = _figure(COLUMN, 0.36 * len(cells) + 1.1)
    image = axis.imshow(cells, cmap="cividis", aspect="auto")
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for (i, j), cell in np.ndenumerate(cells.to_numpy()):
        if np.isfinite(cell):
            axis.text(j, i, f"{cell:.1f}", ha="center", va="center", color="white" if cell < middle else "black")
    axis.set_xticks(range(len(cells.columns)), [f"{v:g}" for v in cells.columns])
    axis.set_yticks(range(len(cells)), [f"{v:g}" for v in cells.index])
    axis.set(xlabel=column, ylabel=row)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    figure.colorbar(image, ax=axis, label=value)
    return figure


@mpl.rc_context(LOOK)
def against_rarity(table: pd.DataFrame, measures: Sequence[str], capacity: float | None) -> Figure:
    """Measures against the rare clients' P(i∈S), the rarest to the right; seeds as points, their means joined.

    Args:
        table: label, probability, and a column for each measure, in %.
        measures: a panel for each.
        capacity: M/(Nκ), where a line is drawn: left of it κ can bring a rare client up to the weight 1/N.
    """
    labels = _words(table["label"])
    figure, axes = _figure(PAGE, 2.5, 1, len(measures))
    for axis, measure in zip(axes, measures, strict=True):
        for k, label in enumerate(labels):
            rows = table[table["label"] == label]
            mean = rows.groupby("probability")[measure].mean()
            axis.plot(100 * mean.index, mean, color=colour(k), ls=dash(k), marker=MARKERS[k], ms=4, label=label)
            axis.plot(100 * rows["probability"], rows[measure], color=colour(k), marker=".", ms=3, ls="", alpha=0.6)
        axis.set_xscale("log")
        if capacity is not None:
            axis.axvline(100 * capacity, color=GREY, lw=1, ls=":", label="M/(Nκ)")
        axis.invert_xaxis()
        ticks = sorted(table["probability"].unique())
        axis.set_xticks([100 * v for v in ticks], [f"{100 * v:g}" for v in ticks])
        axis.minorticks_off()
        axis.set(title=measure, xlabel="rare clients' P(i∈S) (%)")
    axes[0].set_ylabel("%")
    _legend(figure, axes[0])
    return figure


@mpl.rc_context(LOOK)
def dot_bars(table: pd.DataFrame, ylabel: str, digits: int = 1, among: Sequence[str] = ()) -> Figure:
    """A bar for each ``label`` at the mean of its runs, every run a point; a panel for each ``panel``.

    Args:
        table: panel, label, value: one row a run.
        ylabel: of the first panel.
        digits: decimals of the mean written above a bar.
        among: labels of the other figures, where there are more: each keeps its colour.
    """
    panels, labels = _words(table["panel"]), _words(table["label"])
    order = list(dict.fromkeys([*among, *labels]))
    figure, axes = _figure(COLUMN if len(panels) == 1 else PAGE, 2.5, 1, len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        rows = table[table["panel"] == panel]
        top = rows["value"].max()
        for k, label in enumerate(labels):
            values = rows.loc[rows["label"] == label, "value"]
            if len(values):
                axis.bar(k, values.mean(), 0.7, color=colour(order.index(label)))
                axis.plot([k] * len(values), values, ".", color="black", ms=3)
                axis.text(k, max(values.max(), 0) + 0.03 * top, f"{values.mean():.{digits}f}", ha="center", va="bottom")
        axis.set_xticks(range(len(labels)), [label.replace("_", "\n") for label in labels])
        spare = max(3 - len(labels), 0) / 2
        axis.set_xlim(-0.6 - spare, len(labels) - 0.4 + spare)
        axis.set(title=panel, ylim=(min(0.0, 1.05 * rows["value"].min()), 1.16 * top or 1))
        if max(map(len, labels)) * len(labels) * len(panels) > 60:
            axis.tick_params(axis="x", rotation=40)
    axes[0].set_ylabel(ylabel)
    return figure


@mpl.rc_context(LOOK)
def weights(table: pd.DataFrame, rare: Iterable[int] = (), among: Sequence[str] = ()) -> Figure:
    """Weight of each client in what is minimised, relative to 1/N: markers by ``label``; the rare clients on grey.

    Args:
        table: label, client, value (1 is 1/N): one row each; clients may be missing. The label p, of the law, is black.
        rare: ids of the rare clients.
        among: labels of the other figures, where there are more: each keeps its colour.
    """
    labels, clients = _words(table["label"]), sorted(table["client"].unique())
    order = [label for label in dict.fromkeys([*among, *labels]) if label != "p"]
    figure, (axis,) = _figure(PAGE, 2.6)
    place = {client: k for k, client in enumerate(clients)}
    for client in rare:
        axis.axvspan(place[client] - 0.5, place[client] + 0.5, color="#E8E8E8", lw=0)
    axis.axhline(1, color=GREY, lw=0.8, ls=":")
    step = min(0.2, 0.7 / len(labels))
    for k, label in enumerate(labels):
        rows = table[table["label"] == label]
        x = rows["client"].map(place) + (k - (len(labels) - 1) / 2) * step
        own = "black" if label == "p" else colour(order.index(label))
        axis.plot(x, rows["value"], ls="", marker=MARKERS[k], ms=3.5, color=own, label=label)
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set(xlabel="client (on grey: rare)", ylabel="weight · N")
    axis.set_xlim(-0.6, len(clients) - 0.4)
    axis.set_xticks(range(len(clients)), [str(client) for client in clients])
    _legend(figure, axis)
    return figure


@mpl.rc_context(LOOK)
def probabilities(table: pd.DataFrame) -> Figure:
    """p_i of each client, a panel for each regime, on a logarithmic axis.

    Args:
        table: regime, client, p: one row each.
    """
    regimes = _words(table["regime"])
    lowest = 10 ** np.floor(np.log10(table["p"].min()))
    figure, axes = _figure(PAGE, 1.3 * len(regimes) + 0.3, len(regimes), 1)
    for axis, regime in zip(axes, regimes, strict=True):
        rows = table[table["regime"] == regime]
        rare = rows["p"] < 0.5 * rows["p"].median()
        axis.bar(rows["client"], rows["p"], 0.8, color=np.where(rare, COLOURS[1], COLOURS[0]))
        axis.axhline(1 / len(rows), color=GREY, lw=0.9, ls="--")
        axis.set_yscale("log")
        axis.set(title=regime, ylabel="$p_i$", ylim=(lowest, 0.3))
        axis.set_xlim(-0.7, len(rows) - 0.3)
    axes[-1].set_xlabel("client (dashed: 1/N)")
    axes[-1].set_xticks(range(0, len(rows), 3))
    return figure


@mpl.rc_context(LOOK)
def decision_regions(
    regions: Sequence[tuple[str, pd.DataFrame]], points: np.ndarray, owners: np.ndarray, accuracy: pd.DataFrame
) -> Figure:
    """What class a model gives to each point of the plane, and test points; below them accuracy over rounds.

    Args:
        regions: label of a method, and classes by y (rows) and x (columns).
        points: of the test set, (n, 2).
        owners: class of each, (n,).
        accuracy: as ``curves`` takes it; its panels stand side by side.
    """
    figure = Figure(figsize=(PAGE, 4.7), layout="constrained")
    top, bottom = np.asarray(figure.subfigures(2, 1, height_ratios=[1.15, 1]))
    axes = np.atleast_1d(top.subplots(1, len(regions), sharey=True))
    classes = int(owners.max()) + 1
    colours = COLOURS[:classes]
    for axis, (label, region) in zip(axes, regions, strict=True):
        x, y = region.columns.to_numpy(float), region.index.to_numpy(float)
        axis.pcolormesh(
            x, y, region, cmap=ListedColormap(colours), vmin=-0.5, vmax=classes - 0.5, alpha=0.35, rasterized=True, lw=0
        )
        for k in range(classes):
            some = points[owners == k][:60]
            axis.plot(*some.T, marker=MARKERS[k], ms=2.2, mew=0, ls="", color=colours[k], label=f"client {k}")
        axis.set(title=label, aspect="equal", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
        axis.set_xticks([])
        axis.set_yticks([])
    top.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=classes, markerscale=2)
    labels, panels = _words(accuracy["label"]), _words(accuracy["panel"])
    below = np.atleast_1d(bottom.subplots(1, len(panels)))
    for axis, panel in zip(below, panels, strict=True):
        _lines(axis, accuracy[accuracy["panel"] == panel], labels)
        axis.set(title=panel, xlabel="round")
    below[0].set_ylabel("test accuracy (%)")
    bottom.legend(*below[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(labels))
    return figure


@mpl.rc_context(LOOK)
def memberships(table: pd.DataFrame) -> Figure:
    """π over rounds: for each client, how much it belongs to the cluster most of its true group belongs to in the end.

    Args:
        table: panel, group, client, round, value.
    """
    panels, groups = _words(table["panel"]), sorted(table["group"].unique())
    figure, axes = _figure(COLUMN if len(panels) == 1 else PAGE, 2.3, 1, len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        for k, group in enumerate(groups):
            rows = table[(table["panel"] == panel) & (table["group"] == group)]
            wide = rows.pivot(index="round", columns="client", values="value")
            lines = axis.plot(wide.index, wide, color=colour(k), ls=dash(k), lw=1)
            if lines:
                lines[0].set_label(f"group {group} ({wide.shape[1]} clients)")
        axis.set(title=panel, xlabel="round", ylim=(-0.03, 1.03))
    axes[0].set_ylabel("π of the group's cluster")
    _legend(figure, axes[0])
    return figure


@mpl.rc_context(LOOK)
def rates(table: pd.DataFrame, slopes: pd.DataFrame) -> Figure:
    """Error against T on logarithmic axes, a panel for each method, a line for each step size; dotted: a slope of −½.

    Args:
        table: label, c, rounds, seed, error.
        slopes: label, c, slope, low, high.
    """
    labels, steps = _words(table["label"]), sorted(table["c"].unique())
    rows = -(-len(labels) // 2)
    figure, axes = _figure(PAGE, 2.7 * rows, rows, 2, sharey=True)
    horizons = np.array(sorted(table["rounds"].unique()))
    for axis, label in zip(axes, labels, strict=False):
        own, fitted = table[table["label"] == label], slopes[slopes["label"] == label].set_index("c")
        for k, c in enumerate(steps):
            errors = own[own["c"] == c].pivot(index="rounds", columns="seed", values="error")
            fit = fitted.loc[c]
            text = f"c = {c:g}: {fit['slope']:.3f} ± {(fit['high'] - fit['low']) / 2:.3f}".replace("-", "−")
            axis.plot(
                errors.index, errors.mean(axis=1), color=colour(k), ls=dash(k), marker=MARKERS[k], ms=3.5, label=text
            )
            axis.fill_between(errors.index, errors.min(axis=1), errors.max(axis=1), color=colour(k), alpha=0.15, lw=0)
        start = own.loc[own["rounds"] == horizons[0], "error"].min()
        axis.plot(horizons, 0.4 * start * (horizons / horizons[0]) ** -0.5, color=GREY, lw=1, ls=(0, (1, 1)))
        axis.set(xscale="log", yscale="log", title=label, xlabel="rounds T")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.27), ncols=2, handlelength=2.6, columnspacing=1.2)
    for axis in axes[::2]:
        axis.set_ylabel("error of the averages")
    _hide(axes[len(labels) :])
    return figure


def _words(values: "pd.Series[str]") -> list[str]:
    """The values in the order they come in."""
    return [str(value) for value in dict.fromkeys(values)]


def _figure(
    width: float, height: float, rows: int = 1, columns: int = 1, sharex: bool = True, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    return figure, list(axes.ravel())


def _legend(figure: Figure, axis: Axes) -> None:
    """One legend below all panels, in as many columns as its longest text leaves room for."""
    handles, texts = axis.get_legend_handles_labels()
    inches = 0.55 + 0.066 * max(map(len, texts))  # handle and gaps, and a character of 8 pt
    columns = min(len(texts), max(1, int(figure.get_figwidth() / inches)))
    figure.set_figheight(figure.get_figheight() + 0.17 * (-(-len(texts) // columns) - 1))
    figure.legend(handles, texts, loc="outside lower center", ncols=columns)


def _hide(axes: Sequence[Axes]) -> None:
    for axis in axes:
        axis.set_visible(False)
