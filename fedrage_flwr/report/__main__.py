"""``python -m fedrage_flwr.report FOLDER…``: tables from finished runs, as Markdown, LaTeX and CSV.

Each FOLDER is that of a run, of a sweep, of ``seeds=``, or ``results/EXPERIMENT``. ``--out DIR`` says where the report goes;
without it, ``report/`` in the first FOLDER. ``--aa FOLDER…`` prints how often each test fires between halves of one method's
seeds; ``--tuning FOLDER`` writes the audit of a tuning.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from fedrage_flwr.display import make_console, show_lines
from fedrage_flwr.doors import enter
from fedrage_flwr.errors import UserError
from fedrage_flwr.report.cells import make_cells
from fedrage_flwr.report.runs import load
from fedrage_flwr.report.tables import build, markdown, same_table, write

USAGE = (
    "python -m fedrage_flwr.report [--out DIR] FOLDER…, or --aa FOLDER…, or --tuning FOLDER; folders of runs, of sweeps, or"
    " results/EXPERIMENT"
)


def report(folders: Sequence[Path], out: Path) -> list[Path]:
    """Write the report of the runs in the folders; return its files."""
    runs, remarks = load(folders)
    tables = build(runs)
    files = write(tables, out)
    for table in tables.values():
        print(markdown(table))
    show_lines(make_console(), "Left out", [("", remark) for remark in remarks])
    return files


def main(arguments: Sequence[str]) -> None:
    """Do what was typed."""
    flags = [word for word in arguments if word.startswith("-")]
    words = [word for word in arguments if not word.startswith("-")]
    if flags == ["--aa"] and words:
        table = same_table([cell for cell in make_cells(load([Path(word) for word in words])[0]) if cell.reported()])
        if not len(table):
            raise UserError("--aa: no cell of four seeds or more with an accuracy in these folders")
        print(markdown(table))
    elif flags in ([], ["--out"]) and words:
        out = None
        if flags:
            place = list(arguments).index("--out") + 1
            if place == len(arguments):
                raise UserError(f"--out: no folder was given; usage: {USAGE}")
            out = Path(arguments[place])
            words.remove(arguments[place])
        if not words:
            raise UserError(f"usage: {USAGE}")
        folders = [Path(word) for word in words]
        out = out or folders[0] / "report"
        files = report(folders, out)
        print(f"{out}: {len(files)} files")
    else:
        raise UserError(f"usage: {USAGE}")


if __name__ == "__main__":
    sys.exit(enter(main))
