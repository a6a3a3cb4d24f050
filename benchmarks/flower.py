"""The same ServerApp and ClientApp on Flower's own simulation runtime, against ours (needs the ``flwr`` command):

    python -m benchmarks.flower [--rounds 20] [--pairs 2] [--participants 3] [overrides …]

``flwr run`` and ``python -m fedrage_flwr`` take turns with the same settings. Compared is the median time of a round as
``rounds.csv`` has it; the first round, in which Flower starts its actors, is left out and shown apart.
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.speed import show

APP = ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "conf", "fedrage_flwr", "strategies", "clients")
BASE = ("num_clients=30", "eval_every=1000", "ram=uniform", "strategy=fedavg")


def ours(folder: Path, words: list[str]) -> pd.Series:
    """Seconds of each round."""
    subprocess.run(
        [sys.executable, "-m", "fedrage_flwr", *words, f"hydra.run.dir={folder}"], check=True, stdout=subprocess.DEVNULL
    )
    return _seconds(folder)


def flowers(folder: Path, app: Path, words: list[str], num_clients: int) -> pd.Series:
    """Seconds of each round under ``flwr run``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(app.parent / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    environment.pop("PYTHONPATH", None)
    command = [
        "flwr", "run", ".", "--stream", "--federation-config",
        f"num-supernodes={num_clients} client-resources-num-cpus=1",
        "--run-config", f'overrides="{" ".join(words)}" output-dir="{folder}"',
    ]  # fmt: skip
    done = subprocess.run(command, cwd=app, env=environment, capture_output=True, text=True)
    if not (folder / "summary.json").exists():  # the exit code is 0 all the same
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return _seconds(folder)


def _seconds(folder: Path) -> pd.Series:
    seconds: pd.Series = pd.read_csv(folder / "rounds.csv")["round_seconds"]
    return seconds


def measure(rounds: int, pairs: int, participants: int, more: list[str]) -> list[dict[str, Any]]:
    """Take turns; return a row for each side."""
    words = [*BASE, f"ram.clients_per_round={participants}", f"num_rounds={rounds}", *more]
    ratios, medians, first = [], {"flower": [], "auto": []}, []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        app = work / "fedrage"
        app.mkdir()
        (work / "home").mkdir()
        for name in APP:  # a copy: flwr run may rewrite pyproject.toml
            source = Path(__file__).parents[1] / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, app / name)
        for pair in range(pairs):
            theirs = flowers(work / f"flower{pair}", app, words, 30)
            mine = ours(work / f"ours{pair}", words)
            medians["flower"].append(theirs[1:].median())
            medians["auto"].append(mine[1:].median())
            first.append(theirs[0])
            ratios.append(medians["flower"][-1] / medians["auto"][-1])
    print(f"Flower's first round: {statistics.median(first):.1f} s", file=sys.stderr)
    base = {
        "case": "flower",
        "algorithm": "fedavg",
        "model": "mlp",
        "M": participants,
        "N": 30,
        "ratio_cpu": None,
        "peak_rss_mb": None,
    }
    return [
        {
            **base,
            "path": path,
            "ratio_wall": round(statistics.median(ratios), 1) if path == "auto" else 1.0,
            "rounds_per_second": round(1 / statistics.median(medians[path]), 2),
        }
        for path in ("flower", "auto")
    ]


def main() -> None:
    """Print two rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--participants", type=int, default=3)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    show(measure(options.rounds, options.pairs, options.participants, options.overrides), head=True)


if __name__ == "__main__":
    main()
