"""Which figures runs have in them, and their files: PDF for print and PNG for the screen.

A panel is a column of the tables (data set and law), a label one of their rows (a method): see ``fedrage_flwr.report.cells``.
What is drawn follows from what varies between the runs, not from the experiment's name.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from fedrage_flwr.availability import LAWS
from fedrage_flwr.availability.base import Law
from fedrage_flwr.data import DATASETS
from fedrage_flwr.report import plots
from fedrage_flwr.report.cells import make_cells
from fedrage_flwr.report.extracts import memberships
from fedrage_flwr.report.runs import RunData
from fedrage_flwr.settings import lookup

MOST_LINES = len(plots.COLOURS)
MEASURES = {
    "accuracy": "whole test set",
    "client_accuracy_min": "worst client",
    "rare_client_accuracy": "rare clients, mean",
}
Runs = Sequence[RunData]


def draw(runs: Runs, out: Path) -> list[Path]:
    """Draw every figure that these runs have in them; return the files, ``NAME.pdf`` and ``NAME.png`` each.

    Args:
        runs: at least one.
        out: a folder, made where it is missing.
    """
    if not runs:
        return []
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures(runs).items():
        paths += save(figure, out / name, caption(runs))
    return paths


def figures(runs: Runs) -> dict[str, Figure]:
    """Every figure that these runs have in them, by the name of its file."""
    panels: dict[str, list[RunData]] = {}
    for cell in make_cells(runs):
        panels.setdefault(cell.column, []).extend(cell.runs)
    datasets: dict[str, list[RunData]] = {}
    for run in runs:
        datasets.setdefault(run.words["dataset"], []).append(run)
    found = {"curves": _curves(runs)}
    for maker in (_regions, _skew, _memberships, _faa, _recovery):
        found |= _of_each(maker, datasets)
    for maker in (_clients, _sensitivity, _ablation, _weights):
        found |= _of_each(maker, panels)
    return {name: figure for name, figure in found.items() if figure is not None}


def _of_each(maker: Callable[[Runs], Figure | None], groups: Mapping[str, Runs]) -> dict[str, Figure | None]:
    """A figure of each group of runs; the group is in the name where there are several."""
    name = maker.__name__.lstrip("_")
    if len(groups) == 1:
        return {name: maker(next(iter(groups.values())))}
    return {f"{name}-{re.sub(r'[^a-z0-9_.=]+', '-', group.lower())}": maker(some) for group, some in groups.items()}


def save(figure: Figure, path: Path, text: str) -> list[Path]:
    """Write ``path``.pdf and ``path``.png with a text about their origin inside; equal figures give equal files."""
    pdf, png = (path.with_name(f"{path.name}.{kind}") for kind in ("pdf", "png"))
    with mpl.rc_context(plots.LOOK):
        figure.savefig(pdf, metadata={"Subject": text, "CreationDate": None})
        figure.savefig(png, dpi=200, metadata={"Description": text})
    return [pdf, png]


def caption(runs: Runs) -> str:
    """Where a figure comes from: command, configuration hashes, versions, seeds."""
    seeds = ", ".join(map(str, sorted({run.seed for run in runs})))
    versions = ", ".join(sorted({f"{name} {version}" for run in runs for name, version in run.versions.items()}))
    hashes = ", ".join(dict.fromkeys(run.config_hash[:8] for run in runs))
    return (
        f"Command: {command(runs)}. Runs: {len(runs)}, seeds {seeds}. Configurations: {hashes}. Versions: {versions}."
    )


def command(runs: Runs) -> str:
    """Return the commands that make these runs, one for each experiment: the words typed, with every value they had."""
    typed: dict[str | None, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        for word in run.overrides:
            key, _, value = word.partition("=")
            if key != "experiment":
                typed[run.experiment][key][value] = None
    commands = []
    for name, values in typed.items():
        words = [f"{key}={','.join(found)}" for key, found in values.items()]
        commands.append(
            " ".join(["python -m", f"fedrage_flwr.experiment {name}" if name else "fedrage_flwr -m", *words])
        )
    return "; ".join(commands)


def varies(runs: Iterable[RunData], *keys: str) -> bool:
    """Whether each of these settings has several values among the runs that have it."""
    runs = list(runs)
    return all(len({str(run.config[key]) for run in runs if key in run.config}) > 1 for key in keys)


def _each(runs: Runs) -> Iterable[tuple[str, str, RunData]]:
    """Panel, label and run; settings go by the last part of their names."""
    for cell in make_cells(runs):
        for run in cell.runs:
            yield _short(cell.column), _short(cell.row), run


def _labels(runs: Runs) -> list[str]:
    return list(dict.fromkeys(label for _, label, _ in _each(runs)))


def _short(text: str) -> str:
    return re.sub(r"\w+\.(?=\w+=)", "", text)


def curve_table(runs: Runs, measure: str = "accuracy") -> pd.DataFrame:
    """Return panel, label, seed, round, value (in %), of every evaluated round."""
    tables = [
        pd.DataFrame({
            "panel": panel, "label": label, "seed": run.seed, "round": run.rounds["round"],
            "value": 100 * run.rounds[measure],
        })
        for panel, label, run in _each(runs) if measure in run.rounds
    ]  # fmt: skip
    columns = ["panel", "label", "seed", "round", "value"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def _curves(runs: Runs) -> Figure | None:
    """Fig. 4."""
    table = curve_table(runs)
    if table.empty or table["label"].nunique() > MOST_LINES:
        return None
    return plots.curves(table)


def client_table(runs: Runs) -> pd.DataFrame:
    """Return label, client, value: accuracy in %, mean over seeds of the means over the last ten rounds."""
    rows = [
        (label, client, 100 * value) for _, label, run in _each(runs) for client, value in run.client_accuracy.items()
    ]
    table = pd.DataFrame(rows, columns=["label", "client", "value"])
    return table.groupby(["label", "client"], sort=False)["value"].mean().reset_index()


def _clients(runs: Runs) -> Figure | None:
    """Fig. 6."""
    table = client_table(runs)
    if table.empty or table["label"].nunique() > 5 or table["client"].nunique() > 40:
        return None
    return plots.client_bars(table, rare(runs[0]))


def rare(run: RunData) -> list[int]:
    """Ids of the rare clients."""
    n = int(run.config["num_clients"])
    return list(range(n - int(run.config["rare_clients"]), n))


def _sensitivity(runs: Runs) -> Figure | None:
    """Accuracy over (α, γ)."""
    keys = ("client.gamma", "client.alpha")
    some = [run for run in runs if all(key in run.config for key in keys)]
    if not varies(some, *keys):
        return None
    rows = [(run.config[keys[0]], run.config[keys[1]], 100 * run.reported()) for run in some]
    table = pd.DataFrame(rows, columns=["row", "column", "value"])
    return plots.heat_map(table, "test accuracy (%)")


def skew_table(runs: Runs) -> tuple[pd.DataFrame, float | None]:
    """Return label, probability and the measures (in %) of each run; and M/(Nκ) for the largest κ among them."""
    rows, kappas = [], []
    for run in runs:
        probability = run.config.get("ram.rare_probability")
        if probability is None:
            continue
        values = {text: 100 * run.reported(measure) for measure, text in MEASURES.items()}
        rows.append({"label": run.words["strategy"], "probability": float(probability), **values})
        kappas.append(kappa(run) or 0.0)
    table = pd.DataFrame(rows, columns=["label", "probability", *MEASURES.values()])
    if not kappas or max(kappas) <= 1:
        return table, None
    run = runs[0]
    return table, float(run.config["ram.clients_per_round"]) / (int(run.config["num_clients"]) * max(kappas))


def kappa(run: RunData) -> float | None:
    """κ = (1−γ) + γ/α; None where the algorithm has no α and γ."""
    alpha, gamma = run.config.get("client.alpha"), run.config.get("client.gamma")
    return None if alpha is None or gamma is None else (1 - gamma) + gamma / alpha


def _skew(runs: Runs) -> Figure | None:
    if not varies(runs, "ram.rare_probability"):
        return None
    table, capacity = skew_table(runs)
    measured = [text for text in MEASURES.values() if table[text].notna().any()]
    return plots.against_rarity(table, measured, capacity)


def _ablation(runs: Runs) -> Figure | None:
    if not varies(runs, "client.weight_mode"):
        return None
    rows = [
        (text, str(run.config["client.weight_mode"]), 100 * run.reported(measure))
        for measure, text in MEASURES.items()
        for run in runs
        if "client.weight_mode" in run.config
    ]
    table = pd.DataFrame(rows, columns=["panel", "label", "value"])
    return plots.dot_bars(table.dropna(), "test accuracy (%)")


def weight_table(runs: Runs) -> pd.DataFrame:
    """Return label, client, value: N · p_i, then N · p_i w̄_i / Σ_j p_j w̄_j for each label, w̄_i the client's mean step weight.

    p_i w̄_i is (1−γ) p_i + γ q̂_i: with the share of tail batches s_i, w̄_i = (1−γ) + γ s_i/α and q̂_i = p_i s_i/α. Means over
    seeds; a client that no seed saw in the second half of its rounds is left out.
    """
    weighed = [run for run in runs if run.step_weights]
    n = int(weighed[0].config["num_clients"])
    p = law(weighed[0]).marginals().values
    rows = [("p", client, n * p[client]) for client in range(n)]
    for _, label, run in _each(weighed):
        marginals = law(run).marginals().values
        products = {client: marginals[client] * w for client, w in run.step_weights.items()}
        total = sum(products.values())
        rows += [(label, client, n * product / total) for client, product in sorted(products.items())]
    table = pd.DataFrame(rows, columns=["label", "client", "value"])
    return table.groupby(["label", "client"], sort=False)["value"].mean().reset_index()


def law(run: RunData) -> Law:
    """Return the law of a run, without its data."""
    settings = {key.removeprefix("ram."): value for key, value in run.config.items() if key.startswith("ram.")}
    found = lookup(LAWS, run.words["ram"])
    made: Law = found(found.Settings(**settings), run.config["num_clients"], run.config["rare_clients"], run.seed)
    return made


def _weights(runs: Runs) -> Figure | None:
    """Fig. 3: of one setting (a), or of several batch sizes (b)."""
    weighed = [run for run in runs if run.step_weights and run.words["ram"] not in ("natural", "trace")]
    if not weighed or not any((kappa(run) or 1) > 1 for run in weighed):
        return None
    table = weight_table(sorted(weighed, key=lambda run: run.config["client.batch_size"]))
    if table["label"].nunique() > MOST_LINES or table["client"].nunique() > 40:
        return None
    return plots.weights(table, rare(weighed[0]), _labels(runs))


def beside(run: RunData, kind: str) -> pd.DataFrame | None:
    """Return what ``fedrage_flwr.report.extracts`` left beside a run's small files, or None."""
    path = run.path.parent / kind / f"{run.path.stem}.csv"
    if not path.is_file():
        return None
    return pd.read_csv(path, index_col="y") if kind == "regions" else pd.read_csv(path)


def _regions(runs: Runs) -> Figure | None:
    """Fig. 1: the first seed's regions, all seeds' curves."""
    found: dict[str, pd.DataFrame] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        region = beside(run, "regions")
        if region is not None:
            found.setdefault(f"{run.words['strategy']}, seed {run.seed}", region)
    if not found:
        return None
    by_strategy: dict[str, tuple[str, pd.DataFrame]] = {}
    for label, region in found.items():
        by_strategy.setdefault(label.partition(",")[0], (label, region))
    settings = {key.removeprefix("dataset."): v for key, v in runs[0].config.items() if key.startswith("dataset.")}
    dataset_class = lookup(DATASETS, runs[0].words["dataset"])
    test = dataset_class(dataset_class.Settings(**settings)).load().test
    parts = [
        curve_table(runs, measure).assign(panel=MEASURES[measure]) for measure in ("accuracy", "rare_client_accuracy")
    ]
    order = [by_strategy[word] for word in dict.fromkeys(run.words["strategy"] for run in runs) if word in by_strategy]
    return plots.decision_regions(order, test.inputs.numpy(), test.labels.numpy(), pd.concat(parts))


def membership_table(runs: Runs) -> pd.DataFrame:
    """Return panel (method and seed), group, client, round, value: π of the cluster that the group likes best at the end."""
    tables = []
    for _, label, run in _each(runs):
        pi = pi_table(run)
        if pi is None or pi["group"].isna().any():
            continue
        columns = [column for column in pi if str(column).startswith("pi_")]
        last = pi[pi["round"] == pi["round"].max()].groupby("group")[columns].mean().idxmax(axis=1)
        best = pi["group"].map(last)
        value = [row[name] for (_, row), name in zip(pi.iterrows(), best, strict=True)]
        tables.append(pi[["group", "client", "round"]].assign(panel=f"{label}, seed {run.seed}", value=value))
    columns = ["group", "client", "round", "panel", "value"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def pi_table(run: RunData) -> pd.DataFrame | None:
    """Return round, client, group, pi_0, … of a run; None where there are no clusters."""
    return memberships(run.path) if run.path.is_dir() else beside(run, "memberships")


def _memberships(runs: Runs) -> Figure | None:
    """π over rounds, three runs at most: the first seed of each cell."""
    table = membership_table([cell.runs[0] for cell in make_cells(runs)])
    if table.empty:
        return None
    shown = list(dict.fromkeys(table["panel"]))[:3]
    return plots.memberships(table[table["panel"].isin(shown)])


def _faa(runs: Runs) -> Figure | None:
    rows = [(panel, label, run.reported("faa")) for panel, label, run in _each(runs) if "faa" in run.rounds]
    table = pd.DataFrame(rows, columns=["panel", "label", "value"]).dropna()
    return None if table.empty else plots.dot_bars(table, "FAA (smaller is fairer)", 3)


def recovery(pi: pd.DataFrame) -> float:
    """Adjusted Rand index of the last round's clusters (largest π) and the true groups: 1 is perfect, 0 chance."""
    from sklearn.metrics import adjusted_rand_score

    last = pi[pi["round"] == pi["round"].max()]
    chosen = last[[column for column in pi if str(column).startswith("pi_")]].to_numpy().argmax(axis=1)
    return float(adjusted_rand_score(last["group"], chosen))


def _recovery(runs: Runs) -> Figure | None:
    rows = []
    for panel, label, run in _each(runs):
        pi = pi_table(run)
        if pi is not None and pi["group"].notna().all():
            rows.append((panel, label, recovery(pi)))
    if not rows:
        return None
    table = pd.DataFrame(rows, columns=["panel", "label", "value"])
    return plots.dot_bars(table, "adjusted Rand index,\nclusters against true groups", 2, _labels(runs))


def rates_figure(folder: Path, out: Path) -> list[Path]:
    """Draw errors.csv and slopes.csv of ``python -m fedrage_flwr.report.rates``."""
    table = pd.read_csv(folder / "errors.csv")
    text = f"Command: python -m fedrage_flwr.report.rates. Seeds: {table['seed'].nunique()}."
    return save(plots.rates(table, pd.read_csv(folder / "slopes.csv")), out / "rates", text)
