"""Runs killed at a random moment, resumed, and compared with runs nobody touched: ``python tests/chaos.py --runs 50``.

Each job draws its algorithm, law and checkpoint distance. The real command is started twice: once left alone, once killed with
SIGKILL after a random number of rounds (half of the time once more while it goes on). A run that ended before the kill does
not count and is done again. Prints ``k of N equal`` and, with ``--write``, keeps that in a JSON file after each job, so that with
``--continue`` the jobs in it are not done again.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROUNDS = 150
LAWS = ("rare", "uniform", "bernoulli", "markov")


def main(arguments: Sequence[str]) -> int:
    """Run the jobs; return 0 if all are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--continue", dest="go_on", action="store_true")
    options = parser.parse_args(arguments)
    results = json.loads(options.write.read_text(encoding="utf-8"))["jobs"] if options.go_on else []
    for number in range(len(results), options.runs):
        with tempfile.TemporaryDirectory() as folder:
            results.append(one(Path(folder), number, random.Random(f"{options.seed}/{number}")))
        print(f"{number + 1:3d}/{options.runs} {json.dumps(results[-1])}", flush=True)
        if options.write:
            options.write.write_text(json.dumps(report(results, options.seed), indent=1) + "\n", encoding="utf-8")
    equal = report(results, options.seed)["equal"]
    print(f"{equal} of {options.runs} equal")
    return 0 if equal == options.runs else 1


def report(jobs: list[dict[str, object]], seed: int) -> dict[str, object]:
    """What is kept of the jobs done so far."""
    equal = sum(not job["differs"] for job in jobs)
    return {"runs": len(jobs), "equal": equal, "seed": seed, "rounds": ROUNDS, "jobs": jobs}


def one(folder: Path, number: int, rng: random.Random) -> dict[str, object]:
    """One job: what it was, after which rounds it was killed, which files differ."""
    from fedrage_flwr.same import differences
    from fedrage_flwr.words import choices

    word, law, every = rng.choice(choices("strategy")), rng.choice(LAWS), rng.choice((1, 7, 40))
    job = [f"strategy={word}", f"ram={law}", f"num_rounds={ROUNDS}", f"checkpoint_every={every}", f"seed={number}"]
    alone = folder / f"{number}_alone"
    subprocess.run([*command(), *job, f"hydra.run.dir={alone}"], check=True, stdout=subprocess.DEVNULL)
    kills: list[int] = []
    attempt = 0
    while not kills:
        cut = folder / f"{number}_cut{attempt}"
        attempt += 1
        kills += killed([*job, f"hydra.run.dir={cut}"], cut, rng.randrange(ROUNDS), rng)
    if rng.random() < 0.5:
        kills += killed([f"resume={cut}"], cut, rng.randrange(min(kills[0], ROUNDS - 1), ROUNDS), rng)
    subprocess.run([*command(), f"resume={cut}"], check=True, capture_output=True)
    return {
        "strategy": word,
        "ram": law,
        "checkpoint_every": every,
        "killed_after": kills,
        "differs": differences(alone, cut),
    }


def command() -> list[str]:
    """The command a person types."""
    return [sys.executable, "-m", "fedrage_flwr"]


def killed(words: Sequence[str], folder: Path, rounds: int, rng: random.Random) -> list[int]:
    """Start the command, kill it once ``rounds`` rounds stand in the table; return how many stood there, nothing if it ended."""
    process = subprocess.Popen([*command(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and done(folder) < rounds:
        time.sleep(0.002)
    time.sleep(rng.random() * 0.02)
    process.kill()
    if process.wait() != -signal.SIGKILL or (folder / "summary.json").exists():
        assert process.returncode in (0, -signal.SIGKILL), f"{words} ended by itself with {process.returncode}"
        return []
    return [done(folder)]


def done(folder: Path) -> int:
    """Rounds in the table; −1 while there is no run yet."""
    table = folder / "rounds.csv"
    if not table.exists() or not (folder / "checkpoint").is_dir():
        return -1
    return table.read_bytes().count(b"\n") - 1


if __name__ == "__main__":
    home = str(Path(__file__).resolve().parent.parent)
    sys.path.insert(0, home)
    os.environ["PYTHONPATH"] = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.exit(main(sys.argv[1:]))
