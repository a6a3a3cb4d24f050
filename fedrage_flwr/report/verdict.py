"""``python -m fedrage_flwr.report.verdict [--check] [results]``: the tables and the page of verdicts of recorded runs.

For every experiment in the folder its tables are written to ``EXPERIMENT/report/``, for ``tuning/`` the audit, and the claims of
``claims.yaml`` are judged in ``README.md``. With ``--check`` all of this is made anew elsewhere and compared with what is there;
a difference ends with exit code 1.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fedrage_flwr.doors import enter
from fedrage_flwr.errors import UserError
from fedrage_flwr.report.checks import Results
from fedrage_flwr.report.claims import page, read_claims
from fedrage_flwr.report.tables import build, write
from fedrage_flwr.report.tuning import audit, read_tunings

USAGE = "python -m fedrage_flwr.report.verdict [--check] [results]"
TABLE = "table1"


def make(results: Path, out: Path) -> list[Path]:
    """Write the tables and the page below ``out``; return the files, relative to it.

    Raises:
        UserError: there is no such folder, no ``claims.yaml`` in it, or something in it cannot be read.
    """
    claims, recorded = read_claims(results / "claims.yaml"), Results(results)
    written = []
    for name in recorded.experiments:
        written += write(build(recorded.runs(name)), out / name / "report")
    if list((results / "tuning").glob("*.csv")):
        reporting = [name for name in recorded.experiments if name.startswith(TABLE)]  # others vary what was tuned for
        tables = audit(read_tunings(results / "tuning"), recorded.cells(reporting))
        written += write(tables, out / "tuning" / "report")
    written.append(out / "README.md")
    written[-1].write_text(page(claims, recorded), encoding="utf-8", newline="\n")
    return [path.relative_to(out) for path in written]


def differences(results: Path) -> list[str]:
    """What differs between the tables and the page in ``results`` and those made anew: a line for each file."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = make(results, Path(folder))
        found = []
        for path in fresh:
            if not (results / path).is_file():
                found.append(f"{path} is not there")
            elif (results / path).read_bytes() != (Path(folder) / path).read_bytes():
                found.append(f"{path} differs")
    stale = {path.relative_to(results) for path in results.glob("*/report/tables/*")} - set(fresh)
    return found + [f"{path} is made no more" for path in sorted(stale)]


def main(arguments: Sequence[str]) -> None:
    """Make or check."""
    words = [word for word in arguments if word != "--check"]
    if len(words) > 1 or any(word.startswith("-") for word in words):
        raise UserError(f"usage: {USAGE}")
    results = Path(words[0]) if words else Path("results")
    if "--check" not in arguments:
        print(f"{results}: {len(make(results, results))} files")
        return
    found = differences(results)
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise UserError(f"{results}: {found[0]}{more}; to make all anew: make results")
    print(f"{results}: as made from the recorded runs")


if __name__ == "__main__":
    sys.exit(enter(main))
