"""``python -m fedrage_flwr.explain FOLDER``: who took part against who should have, who was weighed up, who was never seen.

Participation is compared with P(i ∈ S) by exact binomial intervals (Clopper & Pearson, Biometrika 1934), which take the rounds
to be independent. What an algorithm has to say about itself comes from its own file (``BaseStrategy.explain``).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
from omegaconf import DictConfig, OmegaConf

from fedrage_flwr.availability import LAWS
from fedrage_flwr.availability.base import IndependentLaw, Law
from fedrage_flwr.config import Config, register_resolvers, validate
from fedrage_flwr.display import make_console, show_lines, show_table
from fedrage_flwr.doors import enter
from fedrage_flwr.errors import UserError
from fedrage_flwr.methods import facts
from fedrage_flwr.outlook import Explanation, Outlook, name_clients
from fedrage_flwr.settings import lookup
from strategies import STRATEGIES

USAGE = "python -m fedrage_flwr.explain FOLDER, the folder of one run"
LEVEL = 0.95  # of the intervals
Lines = list[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Observed:
    """A run's tables, one number per client: shape (N,).

    Attributes:
        num_rounds: rounds done.
        came: rounds in which the client reached the server.
        averaged: replies averaged.
        share: Σ over rounds of 1/|S| while in S, over the rounds with anybody: the p_i of this run.
        numbers: means over a client's averaged replies, NaN for none, by column of updates.csv.
        accuracy: on the client's own test part at the last evaluation; NaN where unknown.
    """

    num_rounds: int
    came: np.ndarray
    averaged: np.ndarray
    share: np.ndarray
    numbers: Mapping[str, np.ndarray]
    accuracy: np.ndarray


def read_config(folder: Path) -> Config:
    """Return the configuration of a run.

    Raises:
        UserError: the folder holds no run, or one of another version that this one cannot read.
    """
    path = folder / ".hydra" / "config.yaml"
    if not path.is_file() or not (folder / "rounds.csv").is_file():
        raise UserError(f"{folder} holds no run (.hydra/config.yaml and rounds.csv); usage: {USAGE}")
    register_resolvers()
    return validate(cast(DictConfig, OmegaConf.load(path)))


def make_law(config: Config) -> Law:
    """Return the law of a run, without its data."""
    law: Law = lookup(LAWS, config.ram.name)(config.ram, config.num_clients, config.rare_clients, config.seed)
    return law


def outlook(config: Config, law: Law) -> Outlook:
    """Return the law in numbers."""
    return Outlook(config.num_rounds, law.inclusion().values, law.marginals().values)


def explanation(config: Config, law: Law, view: Outlook | None = None) -> Explanation:
    """Return what the algorithm says about itself, under the law or, where nobody knows that, under ``view``."""
    told: Explanation = lookup(STRATEGIES, config.strategy.name).explain(
        config.strategy, config.client, view or outlook(config, law)
    )
    return told


def method_lines(config: Config) -> Lines:
    """What the method aims at, stores and must know."""
    return [(name.lower(), text) for name, text in facts(config.strategy.name).items()]


def availability_lines(config: Config, law: Law) -> Lines:
    """How often clients can be expected before anything has run."""
    view = outlook(config, law)
    expected = view.num_rounds * view.inclusion
    exact = "exact" if law.inclusion().exact else "estimated from the trace"
    lines = [
        ("P(i∈S)", f"{_range(view.inclusion)} over {view.num_clients} clients, {exact}"),
        ("participants a round", f"{view.participants:.4g} (mean)"),
        ("p_i · N", f"{_range(view.num_clients * view.marginals)}: weight under uniform averaging, 1 is a fair share"),
        ("expected appearances", f"{_range(expected)} in {view.num_rounds} rounds, T · P(i∈S)"),
    ]
    seldom = np.flatnonzero(expected < 1)
    if len(seldom):
        lines.append(("less than once", f"clients {name_clients(seldom)} are expected less than once in the whole run"))
    if isinstance(law, IndependentLaw):
        unseen = ((1 - view.inclusion) ** view.num_rounds).sum()
        lines.append(("never seen", f"{unseen:.3g} clients are expected never to come, Σ (1 − P(i∈S))^T"))
    return lines


def observe(folder: Path, config: Config) -> Observed:
    """Read a run's tables; held-out clients are left out."""
    number = config.num_clients
    rounds = pd.read_csv(folder / "rounds.csv")
    came = pd.read_csv(folder / "participation.csv")
    updates = pd.read_csv(folder / "updates.csv")
    sizes = came.groupby("round")["client"].transform("size")
    somebody = max(came["round"].nunique(), 1)
    means = updates.groupby("client").mean(numeric_only=True).reindex(range(number))
    used = [name for name in means.columns if name not in ("round", "train_loss") and means[name].notna().any()]
    clients = pd.read_csv(folder / "clients.csv")
    last = clients[clients["round"] == clients["round"].max()].set_index("client")["accuracy"].reindex(range(number))
    return Observed(
        num_rounds=len(rounds),
        came=np.bincount(came["client"], minlength=number),
        averaged=np.bincount(updates["client"], minlength=number),
        share=np.bincount(came["client"], weights=1 / sizes, minlength=number) / somebody,
        numbers={name: means[name].to_numpy(float) for name in ("train_loss", *used)},
        accuracy=last.to_numpy(float),
    )


def as_met(observed: Observed) -> Outlook:
    """The availability that a run has met, in numbers: estimates of P(i ∈ S) and p, for sites whose law nobody knows."""
    return Outlook(observed.num_rounds, observed.came / max(observed.num_rounds, 1), observed.share)


def site_lines(config: Config, observed: Observed) -> Lines:
    """How often real sites came, and which never did."""
    view = as_met(observed)
    lines = [
        ("P(i∈S)", "not known beforehand (real sites); what follows are estimates from this run"),
        ("rounds done", f"{observed.num_rounds} of {config.num_rounds}"),
        ("came", f"{_range(view.inclusion)} of the rounds, over {view.num_clients} sites"),
        ("participants a round", f"{view.participants:.4g} (mean)"),
        ("p_i · N", f"{_range(view.num_clients * view.marginals)}: weight under uniform averaging, 1 is a fair share"),
    ]
    return [*lines, *_fate_lines(observed)]


def binomial_interval(successes: np.ndarray, trials: int, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact (Clopper-Pearson) interval of each proportion, shapes (N,); ``trials`` ≥ 1."""
    from scipy.stats import beta  # type: ignore[import-untyped]

    tail = (1 - level) / 2
    low = np.where(successes > 0, beta.ppf(tail, np.maximum(successes, 1), trials - successes + 1), 0.0)
    high = np.where(successes < trials, beta.ppf(1 - tail, successes + 1, np.maximum(trials - successes, 1)), 1.0)
    return low, high


def implied_weights(observed: Observed) -> np.ndarray | None:
    """Return share · mean step weight, scaled to sum to N: 1 is 1/N, shape (N,). None where steps are not weighed."""
    if "step_weight_mean" not in observed.numbers:
        return None
    weight = observed.share * np.nan_to_num(observed.numbers["step_weight_mean"])
    return np.asarray(weight * len(weight) / weight.sum())


def participation_lines(config: Config, law: Law, observed: Observed) -> Lines:
    """Whether clients came as often as the law says, and how those fare who never did."""
    if not observed.num_rounds:
        return [("participation", "no round is finished yet")]
    low, high = binomial_interval(observed.came, observed.num_rounds)
    inclusion = law.inclusion().values
    outside = np.flatnonzero((inclusion < low) | (inclusion > high))
    expected = (1 - LEVEL) * config.num_clients
    names = f": {name_clients(outside)}" if len(outside) else ""
    lines = [
        ("rounds done", f"{observed.num_rounds} of {config.num_rounds}"),
        (
            "outside",
            f"{len(outside)} of {config.num_clients} {100 * LEVEL:g} % intervals do not hold P(i∈S){names}"
            f" (at most about {expected:.2g} by chance)",
        ),
    ]
    if not isinstance(law, IndependentLaw):
        lines.append(("caution", f"ram={config.ram.name}: rounds depend on one another, the intervals are too narrow"))
    return [*lines, *_fate_lines(observed)]


def _fate_lines(observed: Observed) -> Lines:
    """How those fare who came and those who never did, and whose replies were lost."""
    seen = observed.came > 0
    lines = [
        (name, _fare(np.flatnonzero(group), observed.accuracy))
        for name, group in (("seen clients", seen), ("never seen", ~seen))
    ]
    lost = observed.came - observed.averaged
    if lost.any():
        lines.append(("not averaged", f"{lost.sum()} replies, of clients {name_clients(np.flatnonzero(lost))}"))
    return lines


def weight_lines(observed: Observed) -> Lines:
    """Which clients the algorithm weighs up."""
    implied = implied_weights(observed)
    if implied is None:
        return []
    weight = observed.numbers["step_weight_mean"]
    usual = float(np.nansum(weight * observed.averaged) / observed.averaged.sum())
    up = np.flatnonzero(weight > usual)
    up = up[np.argsort(-weight[up], kind="stable")]
    return [
        ("mean step weight", f"{usual:.3g} over all replies"),
        ("weighed up", f"clients {name_clients(up)} (largest first)" if len(up) else "nobody more than the others"),
        ("implied weight · N", f"{_range(implied)}: share of the average times mean step weight, 1 is 1/N"),
    ]


def client_table(
    config: Config, law: Law | None, observed: Observed, told: Explanation
) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of the table of clients; without a law there is nothing to expect."""
    number, rounds = config.num_clients, observed.num_rounds
    low, high = binomial_interval(observed.came, max(rounds, 1))
    columns: dict[str, Sequence[str]] = {
        "client": [f"{i}{' rare' if i >= number - config.rare_clients else ''}" for i in range(number)]
    }
    if law is not None:
        inclusion = law.inclusion().values
        columns |= {"P(i∈S)": _cells(inclusion), "expected": _cells(rounds * inclusion)}
    columns["came"] = [str(n) for n in observed.came]
    columns[f"{100 * LEVEL:g} % interval"] = [f"{a:.4f}–{b:.4f}" for a, b in zip(low, high, strict=True)]
    implied = implied_weights(observed)
    for name, values in observed.numbers.items():
        columns[name.replace("_", " ")] = _cells(values)
    if implied is not None:
        columns["implied weight · N"] = _cells(implied)
    columns |= {name: _cells(values) for name, values in told.columns.items()}
    columns["accuracy"] = ["" if np.isnan(a) else f"{100 * a:.1f} %" for a in observed.accuracy]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _fare(clients: np.ndarray, accuracy: np.ndarray) -> str:
    if not len(clients):
        return "nobody"
    known = accuracy[clients][~np.isnan(accuracy[clients])]
    measured = (
        f"accuracy {100 * known.mean():.1f} % mean, {100 * known.min():.1f} % worst" if len(known) else "no accuracy"
    )
    return f"{len(clients)} clients ({name_clients(clients)}): {measured}"


def _range(values: np.ndarray) -> str:
    low, middle, high = values.min(), np.median(values), values.max()
    return f"{low:.3g}" if low == high else f"{low:.3g} … {high:.3g} (median {middle:.3g})"


def _cells(values: np.ndarray) -> list[str]:
    return ["" if np.isnan(value) else f"{value:.3g}" for value in values]


def main(arguments: Sequence[str]) -> None:
    """Explain the run in the folder named."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise UserError(f"usage: {USAGE}")
    folder = Path(arguments[0])
    config = read_config(folder)
    law, observed = make_law(config), observe(folder, config)
    real = law.terms is not None
    told = explanation(config, law, as_met(observed) if real else None)
    console = make_console()
    show_lines(console, f"Method: {config.strategy.name}", [*method_lines(config), *told.lines])
    if real:
        show_lines(console, f"Sites: {config.ram.name}", site_lines(config, observed))
    else:
        show_lines(console, f"Availability: {config.ram.name}", availability_lines(config, law))
        show_lines(console, "Participation", participation_lines(config, law, observed))
    show_lines(console, "Weights", weight_lines(observed))
    show_table(console, "Clients", *client_table(config, None if real else law, observed, told))


if __name__ == "__main__":
    sys.exit(enter(main))
