"""Two figures of a run, drawn from its tables: accuracy over rounds, and accuracy of every client beside its participation."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure  # no pyplot: no display, no global state, safe in threads

COMMON, RARE, GREY = "#0072B2", "#D55E00", "#595959"  # Okabe & Ito: told apart by the colour-blind and in grey


def draw(folder: Path, title: str) -> list[Path]:
    """Draw ``figures/accuracy.png`` and ``figures/clients.png`` from the tables in ``folder``."""
    (folder / "figures").mkdir(exist_ok=True)
    rounds = pd.read_csv(folder / "rounds.csv")
    clients = pd.read_csv(folder / "clients.csv")
    participation = pd.read_csv(folder / "participation.csv")
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figures = {"accuracy": _accuracy(rounds, clients, title), "clients": _clients(clients, participation, title)}
    paths = []
    for name, figure in figures.items():
        paths.append(folder / "figures" / f"{name}.png")
        figure.savefig(paths[-1], dpi=150)
    return paths


def _accuracy(rounds: pd.DataFrame, clients: pd.DataFrame, title: str) -> Figure:
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.add_subplot()
    seen = rounds.dropna(subset=["accuracy"])
    quartiles = clients.groupby("round")["accuracy"].quantile(np.array([0.25, 0.75])).unstack()
    axes.fill_between(
        quartiles.index, 100 * quartiles[0.25], 100 * quartiles[0.75], color=COMMON, alpha=0.15, lw=0,
        label="clients, middle half",
    )  # fmt: skip
    axes.plot(seen["round"], 100 * seen["accuracy"], color=COMMON, lw=1.8, label="whole test set")
    if seen["rare_client_accuracy"].notna().any():
        axes.plot(
            seen["round"], 100 * seen["rare_client_accuracy"], color=RARE, lw=1.5, ls="--", label="rare clients, mean"
        )
    axes.plot(seen["round"], 100 * seen["client_accuracy_min"], color=GREY, lw=1, ls=":", label="worst client")
    axes.set(xlabel="round", ylabel="test accuracy (%)", ylim=(-2, 102), title=title)
    figure.legend(loc="outside lower center", frameon=False, ncols=4)
    return figure


def _clients(clients: pd.DataFrame, participation: pd.DataFrame, title: str) -> Figure:
    last = clients[clients["round"] == clients["round"].max()].set_index("client")
    counts = participation["client"].value_counts().reindex(last.index, fill_value=0)
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    top, bottom = figure.subplots(2, sharex=True, height_ratios=[2, 1])
    for rare, color, label in ((0, COMMON, "common clients"), (1, RARE, "rare clients")):
        chosen = last.index[last["rare"] == rare]
        if len(chosen):
            top.bar(chosen, 100 * last["accuracy"][chosen], color=color, label=label)
            bottom.bar(chosen, counts[chosen], color=color)
    mean = 100 * last["accuracy"].mean()
    top.axhline(mean, color=GREY, lw=1, ls="--", label=f"mean {mean:.1f} %")
    top.set(ylabel="test accuracy (%)", ylim=(0, 102), title=title)
    bottom.set(xlabel="client", ylabel="rounds reached\nthe server")
    bottom.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside lower center", frameon=False, ncols=3)
    return figure
