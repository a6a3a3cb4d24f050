"""One command, one table: ``python -m benchmarks [--turns 7] [--flower] [--write benchmarks/results.json]``.

Rows ``round``: a round of ours against the loop a researcher writes, in pairs in one process (``benchmarks/speed.py``); ``seeds``:
five replicas as one cohort against one after another; ``ray``: two actors against the same bare loop, wall time; ``scale``: a
round at N = 100,000 against N = 30 (here the ratio is time over time, so 1.0 is best); with ``--flower`` the same apps on Flower's
own simulation runtime. Everything runs on one thread a process. Read ratios, not times.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import flower, scale, seeds, speed
from fedrage_flwr.results import versions

CASES = [
    ("mlp", algorithm, participants)
    for participants in (3, 10)
    for algorithm in ("fedavg", "federage", "scaffold", "focus")
]
CASES += [("softmax", "fedavg", 3), ("softmax", "federage", 3), ("mlp", "fedavg", 30)]
CASES += [
    ("cnn", "fedavg", 3),
    ("cnn", "federage", 3),
    ("cnn", "scaffold", 3),
    ("cnn", "focus", 3),
    ("cnn", "fedavg", 10),
]


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform(), "load": os.getloadavg()[0]}


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--flower", action="store_true", help="also compare with Flower's own runtime (minutes)")
    parser.add_argument("--write", type=Path, help="where the rows go, as JSON")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d"),
        "rows": [],
    }

    def add(rows: list[dict[str, Any]], head: bool = False) -> None:
        speed.show(rows, head)
        result["rows"] += rows
        if options.write:  # as they come
            options.write.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    add([], head=True)
    for model, algorithm, participants in CASES:
        add(speed.measure(model, algorithm, participants, list(speed.PATHS), options.turns))
    add(seeds.measure(options.turns))
    add(speed.measure("cnn", "fedavg", 10, ["auto", "ray"], options.turns))
    for algorithm in ("federage", "scaffold"):
        add(scale.rows(algorithm, (30, 100_000), 10, max(1, options.turns // 2)))
    if options.flower:
        add(flower.measure(20, 2, 3, []))
    print(f"load at the end: {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
