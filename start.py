#!/usr/bin/env python3
"""Set up and start, with nothing but Python: makes .venv, installs the project into it and runs what you ask for.

python3 start.py                          one default run
python3 start.py run strategy=fedavg      one run with overrides
python3 start.py test                     the tests
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUPPORTED = ((3, 11), (3, 13))


def main() -> int:
    """Make the environment if need be, then run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=HERE / ".venv", help="the virtual environment (default: .venv)")
    parser.add_argument("what", nargs="?", choices=("run", "test"), default="run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="handed on to the run, or to pytest")
    options = parser.parse_args()
    if not SUPPORTED[0] <= sys.version_info[:2] <= SUPPORTED[1]:
        found = ".".join(map(str, sys.version_info[:2]))
        print(f"error: Python 3.11, 3.12 or 3.13 is needed, this is {found}: try python3.12 start.py", file=sys.stderr)
        return 1
    python = environment(options.venv, "test" if options.what == "test" else "")
    module = ["pytest"] if options.what == "test" else ["fedrage_flwr"]
    return subprocess.call([str(python), "-m", *module, *options.arguments], cwd=HERE)


def environment(folder: Path, extra: str) -> Path:
    """Return the Python of a virtual environment with the project (editable) and one of its extras installed."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        print(f"making {folder} (once; torch makes it large)", flush=True)
        subprocess.check_call([sys.executable, "-m", "venv", str(folder)])
    done = folder / f".fedrage-{extra or 'run'}"
    project = HERE / "pyproject.toml"
    if not done.exists() or done.stat().st_mtime < project.stat().st_mtime:
        target = f"{HERE}[{extra}]" if extra else str(HERE)
        subprocess.check_call([str(python), "-m", "pip", "install", "--quiet", "--editable", target])
        done.touch()
    return python


if __name__ == "__main__":
    sys.exit(main())
