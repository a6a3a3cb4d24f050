"""The tables of a report: frames with a title and notes, and how they are written as Markdown, LaTeX and CSV.

``frame.attrs["title"]`` and ``frame.attrs["notes"]`` say what a table shows. Shares are in per cent.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from fedrage_flwr.experiment import MEASURES
from fedrage_flwr.report.budgets import (
    AXES,
    BUDGETS,
    common_target,
    label,
    mean_spent,
    trials,
    unequal,
    views,
)
from fedrage_flwr.report.cells import Cell, by_column, make_cells
from fedrage_flwr.report.runs import AVERAGED, RunData
from fedrage_flwr.report.statistics import (
    Spread,
    detectable,
    holm,
    own_false_positives,
    paired_t,
    same_against_same,
    spread,
    z_test,
)

SIGNIFICANT = 0.05
NONE = "—"


@cache
def published() -> dict[str, dict[str, dict[str, list[float]]]]:
    """Table I as printed: by data set, law and method, mean and standard deviation in per cent."""
    content: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("published.yaml")))
    return dict(content)


def build(runs: Sequence[RunData]) -> dict[str, pd.DataFrame]:
    """Every table that the runs allow, by the name of its files; tables without a row are left out."""
    cells = make_cells(runs)
    accurate = [cell for cell in cells if cell.reported()]
    tables = {
        "accuracy": accuracy_table(accurate),
        "spreads": spreads_table(accurate),
        "measures": measures_table(cells),
        "pairs": pairs_table(accurate),
        "same_against_same": same_table(accurate),
        "budgets": budgets_table(cells),
        "equal_budgets": equal_budgets_table(accurate),
    }
    return {name: table for name, table in tables.items() if len(table)}


def accuracy_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Table I: a row for each method, a column for each data set and regime, the paper's numbers beside."""
    columns: dict[str, dict[str, str]] = {}
    title = f"{'Validation' if all(map(_validated, cells)) else 'Test'} accuracy"
    notes = [
        f"{title} in %: mean over seeds of each run's mean over its last ten rounds ± std_seeds, the standard deviation of"
        " these over seeds (n − 1). In brackets: seeds, rounds and tuning trials.",
        "Bold: the best mean of a column. ‡ (the paper's blue): the largest mean − std_seeds. † is the paper's mark, on the best"
        " mean: two-sample Z-test at 5 % against the second best, last ten rounds pooled over seeds. The paper does not say"
        " against which other cell: this is our reading. † is not calibrated:",
    ]
    for column, own in by_column(cells).items():
        spreads = [spread(cell.last()) for cell in own]
        values, note = _accuracy_column(own, spreads)
        columns[column] = values
        theirs = {cell.row: _published(cell) for cell in own}
        if any(theirs.values()):
            columns[f"{column} (paper)"] = {row: text or NONE for row, text in theirs.items()}
        notes.append(f"{column}: {note}")
    table = pd.DataFrame(columns).fillna(NONE).rename_axis("method").reset_index()
    return _titled(table, title, notes)


def _accuracy_column(cells: Sequence[Cell], spreads: Sequence[Spread]) -> tuple[dict[str, str], str]:
    order = sorted(range(len(cells)), key=lambda index: -spreads[index].mean)
    lower = [one.mean - one.std_seeds for one in spreads]
    steady = int(np.nanargmax(lower)) if not np.all(np.isnan(lower)) else None
    fires = len(order) > 1 and z_test(cells[order[0]].last(), cells[order[1]].last()) < SIGNIFICANT
    found = {}
    for index, (cell, one) in enumerate(zip(cells, spreads, strict=True)):
        text = _plus_minus(100 * one.mean, 100 * one.std_seeds)
        if len(cells) > 1 and index == order[0]:
            text = f"**{text}**{' †' if fires else ''}"
        if len(cells) > 1 and index == steady:
            text += " ‡"
        found[cell.row] = f"{text} ({_n(cell)})"
    rates = [rate for rate in map(own_false_positives, spreads) if not np.isnan(rate)]
    if not rates:
        rate = "† has no false-positive rate here: one seed"
    else:
        low, high = f"{100 * min(rates):.0f}", f"{100 * max(rates):.0f}"
        share = low if low == high else f"{low} to {high}"
        rate = f"† fires in {share} % of A/A comparisons (simulated with these cells' spreads)"
    return found, f"{rate}; {label(unequal(cells))}."


def _n(cell: Cell) -> str:
    tried = {trials(run) for run in cell.runs}
    rounds = {run.num_rounds for run in cell.runs}
    seeds = "1 seed" if len(cell.runs) == 1 else f"{len(cell.runs)} seeds"
    return f"{seeds}, {_range(rounds)} rounds, {_range(tried)} trials"


def _range(values: set[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _validated(cell: Cell) -> bool:
    return cell.runs[0].config.get("evaluate.split") == "validation"


def _published(cell: Cell) -> str | None:
    words = cell.runs[0].words
    if words["model"] == "softmax" or _validated(cell):
        return None  # the paper's models are not named, but they are not convex; and its numbers are of the test set
    found = published().get(words["dataset"], {}).get(words["ram"], {}).get(words["strategy"])
    return f"{_plus_minus(*found)} (5 seeds, 10,000 rounds)" if found else None


def _plus_minus(mean: float, std: float) -> str:
    return f"{mean:.2f}" if np.isnan(std) else f"{mean:.2f} ± {std:.2f}"


def spreads_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """The three spreads of each cell, kept apart, and what its † is worth."""
    rows = []
    for cell in cells:
        one = spread(cell.last())
        rows.append({
            "column": cell.column, "method": cell.row, "seeds": one.num_seeds, "mean": _percent(one.mean),
            "95 % ±": _percent(one.half_width), "std_seeds": _percent(one.std_seeds), "std_rounds": _percent(one.std_rounds),
            "std_pooled": _percent(one.std_pooled), "† fires A/A": _percent(own_false_positives(one), 1),
            "detectable": _round(detectable(one.num_seeds), 2),
        })  # fmt: skip
    notes = [
        "Accuracy in %. std_seeds: of the runs' means over the last ten rounds (n − 1). std_rounds: within a run (root mean"
        " square over runs). std_pooled: of all last rounds of all seeds. 95 % ±: half-width of the t-interval over seeds.",
        "† fires A/A: simulated share (%) of comparisons of the method with itself in which the paper's Z-test fires at 5 %,"
        " rounds taken as independent. detectable: the mean difference, in standard deviations of the differences by seed, that a"
        " paired t finds with 80 % power.",
    ]
    return _titled(pd.DataFrame(rows), "Spreads of the accuracy", notes)


def measures_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Every measure of every cell: mean over seeds with its interval."""
    rows = []
    for cell in cells:
        for measure in (*MEASURES, *AVERAGED):
            last = cell.last(measure)
            if last:
                one, scale = spread(last), 100 if "accuracy" in measure else 1
                rows.append({
                    "column": cell.column, "method": cell.row, "measure": measure, "seeds": one.num_seeds,
                    "mean": _digits(scale * one.mean), "95 % ±": _digits(scale * one.half_width),
                    "std_seeds": _digits(scale * one.std_seeds),
                })  # fmt: skip
    notes = [
        "Means over the last ten rounds, then over seeds; accuracies in %, on the test set or on each client's own test part.",
        "polyak_accuracy: of the average of all rounds' models, of which the theorems speak; second_half_accuracy: of the average"
        " of the second half's. Accuracy is of the last ten models themselves.",
    ]
    return _titled(pd.DataFrame(rows), "Measures", notes)


def pairs_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Every pair of methods of a column: the difference over shared seeds, its interval, and p with and without correction."""
    rows = []
    for column, own in by_column(cells).items():
        pairs = [(a, b, paired_t(a.reported(), b.reported())) for a, b in combinations(own, 2)]
        found = [(a, b, pair) for a, b, pair in pairs if pair is not None]
        corrected = holm([pair.p for _, _, pair in found])
        for (a, b, pair), p_holm in zip(found, corrected, strict=True):
            rows.append({
                "column": column, "difference": f"{b.row} − {a.row}", "seeds": pair.num_seeds,
                "points": _percent(pair.difference), "95 % ±": _percent(pair.half_width), "p": _digits(pair.p),
                "p (Holm)": _digits(p_holm), "differ": _differ(p_holm), "† would say": _differ(z_test(a.last(), b.last())),
            })  # fmt: skip
    notes = [
        "Paired t over the seeds that both have: with the same seed they meet the same participants. Percentage points; interval"
        " without correction; p (Holm) corrected for all pairs of the column. differ: p (Holm) below 5 %.",
        "† would say: the paper's Z-test at 5 %, uncorrected, which fires too often (see the spreads).",
    ]
    return _titled(pd.DataFrame(rows), "Differences between methods", notes)


def _differ(p: float) -> str:
    return NONE if np.isnan(p) else "yes" if p < SIGNIFICANT else "no"


def same_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """How often each test fires between halves of one method's seeds; cells of four seeds or more."""
    rows = []
    for cell in cells:
        last = {run.seed: run.last() for run in cell.runs if len(run.last())}
        if len(last) >= 4:
            rates = same_against_same(last)
            rows.append({
                "column": cell.column, "method": cell.row, "seeds": rates.num_seeds, "pairs of halves": rates.num_pairs,
                "Z-test (†) %": _percent(rates.z, 1), "paired t %": _percent(rates.paired_t, 1),
            })  # fmt: skip
    notes = [
        "A method against itself: its seeds are split into all pairs of halves, and each pair is tested at 5 %. A test that keeps"
        " its level fires in 5 % of them in the long run. The pairs of one cell share seeds: they are no independent tests.",
    ]
    return _titled(pd.DataFrame(rows), "Tests of a method against itself", notes)


def budgets_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """What each cell has spent, and whether its column has spent equally."""
    rows = []
    for column, own in by_column(cells).items():
        verdict = label(unequal(own))
        for cell in own:
            seconds = float(np.mean([float(run.summary["wall_seconds"]) for run in cell.runs]))
            costs = mean_spent(cell)
            rows.append({
                "column": column, "method": cell.row, **{name: _digits(costs[name], 6) for name in BUDGETS},
                "seconds": _digits(seconds, 3), "label": verdict,
            })  # fmt: skip
    notes = [
        "Means over seeds, of whole runs. Client compute: examples whose gradient was taken in local steps. Bytes: of the named"
        " records. A column is not equal when a budget differs by more than 5 %. Seconds: as measured then; no budget.",
    ]
    return _titled(pd.DataFrame(rows), "Budgets", notes)


def equal_budgets_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """Each comparison re-indexed by each budget: accuracy, area under the curve and cost to a target."""
    rows = []
    for column, own in by_column(cells).items():
        target = common_target(own)
        for axis in AXES:
            for cell, view in zip(own, views(own, axis, target), strict=True):
                rows.append({
                    "column": column, "axis": axis, "up to": _digits(view.budget, 6), "method": cell.row,
                    "accuracy": _percent(view.accuracy), "area": _percent(view.area), "target": _percent(target, 0),
                    "spent to target": _digits(view.to_target, 4), "seeds at target": f"{view.reached} of {len(cell.reported())}",
                })  # fmt: skip
    notes = [
        "Every curve is cut at the smallest amount that the cells of its column have spent. accuracy: mean of the last ten"
        " evaluations within it (they lie closer together at the end of a run); area: mean height of the curve; target: the"
        " largest multiple of 5 % that every cell reports; spent to target: until the first evaluation at or above it, mean over"
        " the seeds that get there. Tuning trials are no axis of a curve: see the budgets and the audit of the tuning.",
    ]
    return _titled(pd.DataFrame(rows), "At equal budgets", notes)


def _titled(table: pd.DataFrame, title: str, notes: Sequence[str]) -> pd.DataFrame:
    table.attrs = {"title": title, "notes": list(notes)}
    return table


def _percent(share: float, digits: int = 2) -> float:
    return _round(100 * share, digits)


def _round(value: float, digits: int) -> float:
    return round(value, digits)


def _digits(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


def write(tables: Mapping[str, pd.DataFrame], out: Path) -> list[Path]:
    """Write ``tables/NAME.md``, ``.tex`` and ``.csv`` for every table; return the files."""
    folder = out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, table in tables.items():
        for suffix, text in ((".md", markdown(table)), (".tex", latex(table)), (".csv", table.to_csv(index=False))):
            written.append(folder / f"{name}{suffix}")
            written[-1].write_text(text, encoding="utf-8", newline="\n")
    return written


def markdown(table: pd.DataFrame) -> str:
    """Title, table and notes in Markdown."""
    lines = [list(map(str, table.columns)), *([_show(value) for value in row] for row in table.itertuples(index=False))]
    widths = [max(len(line[i]) for line in lines) for i in range(table.shape[1])]
    rows = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines]
    rows.insert(1, f"| {' | '.join('-' * width for width in widths)} |")
    notes = "\n\n".join(table.attrs["notes"])
    return f"## {table.attrs['title']}\n\n" + "\n".join(rows) + f"\n\n{notes}\n"


def latex(table: pd.DataFrame) -> str:
    """A ``tabular`` with booktabs rules, the notes as comments above it."""
    words = table.map(_show).replace(r"\*\*(.+)\*\*", r"<<\1>>", regex=True)
    text = words.to_latex(index=False, escape=True, column_format="l" * table.shape[1])
    text = text.replace("<<", "\\textbf{").replace(">>", "}")
    head = "".join(f"% {note}\n" for note in [table.attrs["title"], *table.attrs["notes"]])
    return head + text


def _show(value: Any) -> str:
    if isinstance(value, float):
        return NONE if np.isnan(value) else f"{value:,.10g}"
    return str(value).replace("|", "\\|")
