"""One HTML file about a sweep that needs nothing else: charts (Plotly) with hover and legend toggles, tables that sort, figures.

Nothing is loaded from anywhere: script, data and images are in the file. Under every chart and figure stands where it comes from.
"""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from fedrage_flwr.errors import UserError
from fedrage_flwr.report.cells import make_cells
from fedrage_flwr.report.figures import MEASURES, Runs, client_table, command, curve_table
from fedrage_flwr.report.plots import COLOURS, colour

NAME = "report.html"
DASHES = ("solid", "dash", "dashdot", "dot")
STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; padding: 0 1rem;
  max-width: 72rem; margin: 2rem auto; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
figure { margin: 1.5rem 0; }
figure img { max-width: 100%; height: auto; }
figcaption, .origin { font-size: 0.85rem; color: #444; overflow-wrap: anywhere; }
code { font-size: 0.95em; background: #f3f3f3; padding: 0 0.2em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #ddd; text-align: left; }
thead th { background: #f3f3f3; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid #0072B2; }
th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
"""
SORT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows].pop().cells;
  for (const head of heads) {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.onclick = () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = row => row.cells[head.cellIndex].textContent.trim();
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)], [m, n] = [parseFloat(x), parseFloat(y)];
        if (isNaN(m) !== isNaN(n)) return isNaN(m) ? 1 : -1;  // what is no number comes last either way
        return (up ? 1 : -1) * (isNaN(m) ? x.localeCompare(y) : m - n);
      });
      table.tBodies[0].append(...rows);
    };
  }
}
"""


def write(runs: Runs, tables: Mapping[str, pd.DataFrame], figures: Sequence[Path], out: Path) -> Path:
    """Write ``report.html`` into the folder ``out`` and return its path.

    Args:
        runs: at least one.
        tables: by name; ``attrs`` may hold a ``title`` and ``notes``.
        figures: files that ``fedrage_flwr.report.figures.draw`` wrote; those that are PNG are shown.
        out: a folder, made where it is missing.

    Raises:
        UserError: Plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UserError("the report page needs Plotly: pip install 'fedrage-flwr[report]'") from error
    names = sorted({run.experiment or run.words["strategy"] for run in runs})
    title = f"Report: {', '.join(names)}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{len(runs)} finished runs. Click a name in a legend to hide its line, double-click to see it alone; click the head"
        " of a column to sort by it.</p>",
        origin(runs),
        *(section(table.attrs.get("title", name), sortable(table)) for name, table in tables.items()),
        section("Charts", "".join(charts(runs))),
        section("Figures", "".join(picture(path, runs) for path in figures if path.suffix == ".png")),
        section("Runs", sortable(run_table(runs))),
    ]
    text = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><script>{get_plotlyjs()}</script></head>\n"
        f"<body>{''.join(parts)}<script>{SORT}</script></body></html>\n"
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / NAME).write_text(text, encoding="utf-8")
    return out / NAME


def section(title: str, content: str) -> str:
    """A heading and what stands below it; nothing where there is nothing."""
    return f"<section><h2>{escape(title)}</h2>{content}</section>\n" if content else ""


def origin(runs: Runs) -> str:
    """Where numbers come from: command, seeds, versions; the hash of each configuration folded away."""
    seeds = ", ".join(map(str, sorted({run.seed for run in runs})))
    versions = "; ".join(
        dict.fromkeys(", ".join(f"{name} {version}" for name, version in run.versions.items()) for run in runs)
    )
    hashes = ", ".join(dict.fromkeys(run.config_hash[:12] for run in runs))
    return (
        f'<div class="origin">n = {len(runs)} runs, seeds {seeds}. <code>{escape(command(runs))}</code><br>{escape(versions)}'
        f"<details><summary>Configuration hashes</summary>{escape(hashes)}</details></div>"
    )


def sortable(table: pd.DataFrame) -> str:
    """The table and its notes; a click on the head of a column sorts by it. What stands between ** is bold."""
    shown = table if table.index.equals(pd.RangeIndex(len(table))) else table.reset_index()
    body = shown.to_html(classes="sortable", border=0, index=False, na_rep="", float_format=lambda v: f"{v:.4g}")
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.attrs.get("notes", ()))
    body = re.sub(r"[*]{2}(.+?)[*]{2}", r"<strong>\1</strong>", body)
    return f'<div class="wide">{body}</div>{notes}'


def picture(path: Path, runs: Runs) -> str:
    """A figure, inside the page."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    name = escape(path.stem)
    return (
        f'<figure id="figure-{name}"><img src="data:image/png;base64,{data}" alt="{name}">'
        f"<figcaption>{name} (for print: {name}.pdf)</figcaption>{origin(runs)}</figure>\n"
    )


def run_table(runs: Runs) -> pd.DataFrame:
    """Every run: where it stands, seed, rounds, accuracy in %, hash."""
    return pd.DataFrame(
        {
            "setting": cell.column, "method": cell.row, "seed": run.seed, "rounds": run.num_rounds,
            "accuracy (%), last ten rounds": 100 * run.reported(), "configuration": run.config_hash[:12],
        }
        for cell in make_cells(runs)
        for run in cell.runs
    )  # fmt: skip


def charts(runs: Runs) -> Iterable[str]:
    """Curves of each measure and accuracy by client, for each panel."""
    cells = make_cells(runs)
    for number, panel in enumerate(dict.fromkeys(cell.column for cell in cells)):
        some = [run for cell in cells if cell.column == panel for run in cell.runs]
        for measure, text in MEASURES.items():
            table = curve_table(some, measure).dropna()
            if not table.empty:
                yield _chart(_curves(table), f"{panel}: {text}", "round", f"chart-{number}-{measure}", some)
        table = client_table(some)
        if not table.empty:
            yield _chart(_bars(table), f"{panel}: each client", "client", f"chart-{number}-clients", some)


def _curves(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A line for each label, mean over seeds; the lowest and the highest seed on hover."""
    traces = []
    for k, (label, rows) in enumerate(table.groupby("label", sort=False)):
        by_round = rows.groupby("round")["value"].agg(["mean", "min", "max", "count"])
        traces.append({
            "type": "scatter", "mode": "lines", "name": label,
            "x": by_round.index.tolist(), "y": by_round["mean"].round(3).tolist(),
            "customdata": by_round[["min", "max", "count"]].round(3).to_numpy().tolist(),
            "line": {"color": colour(k), "dash": DASHES[k // len(COLOURS) % len(DASHES)]},
            "hovertemplate": "%{y:.2f} % (%{customdata[0]:.2f} to %{customdata[1]:.2f}, n = %{customdata[2]})",
        })  # fmt: skip
    return traces


def _bars(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Bars by label."""
    return [
        {"type": "bar", "name": label, "x": rows["client"].tolist(), "y": rows["value"].round(3).tolist(),
         "marker": {"color": colour(k)}, "hovertemplate": "%{y:.2f} %"}
        for k, (label, rows) in enumerate(table.groupby("label", sort=False))
    ]  # fmt: skip


def _chart(traces: list[dict[str, Any]], title: str, xlabel: str, name: str, runs: Runs) -> str:
    import plotly.graph_objects as go

    layout = {
        "title": {"text": title}, "template": "plotly_white", "hovermode": "x unified", "height": 420,
        "xaxis": {"title": {"text": xlabel}}, "yaxis": {"title": {"text": "test accuracy (%)"}}, "showlegend": True,
    }  # fmt: skip
    chart: str = go.Figure(traces, layout).to_html(
        full_html=False, include_plotlyjs=False, div_id=name, config={"displaylogo": False, "responsive": True}
    )
    return f"<figure>{chart}{origin(runs)}</figure>\n"
