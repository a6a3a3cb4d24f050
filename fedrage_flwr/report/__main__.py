"""``python -m fedrage_flwr.report FOLDER…``: tables from finished runs, as Markdown, LaTeX and CSV; figures; a page.

Each FOLDER is that of a run, of a sweep, of ``seeds=``, or ``results/EXPERIMENT``. ``--out DIR`` says where the report goes;
without it, ``report/`` in the first FOLDER. ``--aa FOLDER…`` prints how often each test fires between halves of one method's
seeds. ``--tuning results/tuning FOLDER…`` writes the audit of the tuning; the FOLDERs hold the reporting runs, if there are any.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from fedrage_flwr.display import make_console, show_lines
from fedrage_flwr.doors import enter
from fedrage_flwr.errors import UserError
from fedrage_flwr.report import page
from fedrage_flwr.report.cells import make_cells
from fedrage_flwr.report.figures import draw
from fedrage_flwr.report.runs import load
from fedrage_flwr.report.tables import build, markdown, same_table, write
from fedrage_flwr.report.tuning import audit, read_tunings

USAGE = (
    "python -m fedrage_flwr.report [--out DIR] FOLDER…, or --aa FOLDER…, or --tuning results/tuning [FOLDER…]; each FOLDER holds"
    " runs, a sweep, or is results/EXPERIMENT"
)


def report(folders: Sequence[Path], out: Path) -> list[Path]:
    """Write the report of the runs in the folders; return its files."""
    runs, remarks = load(folders)
    tables = build(runs)
    files = write(tables, out)
    for table in tables.values():
        print(markdown(table))
    drawn = draw(runs, out / "figures")
    files += [*drawn, page.write(runs, tables, drawn, out)]
    show_lines(make_console(), "Left out", [("", remark) for remark in remarks])
    return files


def compare_with_itself(folders: Sequence[Path]) -> None:
    """Print how often each test fires between halves of one method's seeds."""
    table = same_table([cell for cell in make_cells(load(folders)[0]) if cell.reported()])
    if not len(table):
        raise UserError("--aa: no cell of four seeds or more with an accuracy in these folders")
    print(markdown(table))


def audit_tuning(folders: Sequence[Path], out: Path) -> list[Path]:
    """Write the audit of the tuning in the first folder, with the reporting runs of the others; return its files."""
    tables = audit(read_tunings(folders[0]), make_cells(load(folders[1:])[0]))
    for table in tables.values():
        print(markdown(table))
    return write(tables, out)


def main(arguments: Sequence[str]) -> None:
    """Do what was typed."""
    words, out = list(arguments), None
    if "--out" in words:
        place = words.index("--out")
        out = Path(words[place + 1]) if place + 1 < len(words) else None
        words[place : place + 2] = []
    flags = [word for word in words if word.startswith("-")]
    folders = [Path(word) for word in words if not word.startswith("-")]
    if not folders or flags not in ([], ["--aa"], ["--tuning"]) or ("--out" in arguments and out is None):
        raise UserError(f"usage: {USAGE}")
    if flags == ["--aa"]:
        compare_with_itself(folders)
        return
    out = out or folders[0] / "report"
    files = audit_tuning(folders, out) if flags == ["--tuning"] else report(folders, out)
    print(f"{out}: {len(files)} files")


if __name__ == "__main__":
    sys.exit(enter(main))
