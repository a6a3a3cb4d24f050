"""``python -m fedrage_flwr.same A B``: are two runs the same? Exit code 0 if every file is, byte for byte.

Left out is what must differ: times (``*_seconds`` columns, a few numbers of the summary), ``run.log``, ``.hydra/`` and the
checkpoints on the way, which hold times as well.
"""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fedrage_flwr.errors import UserError

MACHINE = ("rounds_per_second", "wall_seconds", "peak_rss_mb")
"""Numbers of ``summary.json`` that say something about the machine and the hour."""
IGNORED = (".hydra", "checkpoint", "run.log")


def differences(first: Path, second: Path) -> list[str]:
    """Name the files of two runs that differ, or that only one of them has."""
    names = [{str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} for folder in (first, second)]
    compared = sorted(name for name in names[0] | names[1] if Path(name).parts[0] not in IGNORED)
    return [name for name in compared if not {name} <= names[0] & names[1] or not _same(first / name, second / name)]


def _same(first: Path, second: Path) -> bool:
    if first.name == "summary.json":
        summaries = [json.loads(path.read_text(encoding="utf-8")) for path in (first, second)]
        kept = [{key: value for key, value in summary.items() if key not in MACHINE} for summary in summaries]
        return kept[0] == kept[1]
    if first.suffix == ".csv":
        return _timeless(first) == _timeless(second)
    return first.read_bytes() == second.read_bytes()


def _timeless(table: Path) -> list[list[str]]:
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    kept = [position for position, name in enumerate(rows[0]) if not name.endswith("_seconds")]
    return [[row[position] for position in kept] for row in rows]


def main(arguments: Sequence[str]) -> int:
    """Compare two folders; return the exit code."""
    folders = [Path(argument) for argument in arguments]
    try:
        if len(folders) != 2 or not all((folder / "rounds.csv").is_file() for folder in folders):
            raise UserError(f"{' '.join(arguments)}: give the folders of two runs")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    found = differences(*folders)
    print("\n".join(f"differs: {name}" for name in found) or "the same")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
