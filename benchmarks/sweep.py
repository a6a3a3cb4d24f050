"""How much faster a sweep is with its jobs beside each other. One command, no data to fetch (needs the ``sweeps`` extra):

    python -m benchmarks.sweep [--jobs 4] [--rounds 3000] [--processes 2] [--repeats 3] [--launcher joblib]

A plain sweep (one job after another) and the same with a parallel launcher take turns; times are wall times of the whole command,
imports and start of processes included. Other work on the machine takes cores from the parallel sweep, so the load (runnable
processes, one minute) before each pair, and the CPU seconds of both, are printed beside.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

LAUNCHERS = {
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs={}"],
    "ray": [
        "hydra/launcher=ray",
        "+hydra.launcher.ray.init.num_cpus={}",
        "+hydra.launcher.ray.init.include_dashboard=false",
    ],
}


def timed(words: list[str]) -> tuple[float, float]:
    """Run one sweep in a folder of its own; return seconds of wall and of CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        before, started = _cpu(), time.perf_counter()
        command = [sys.executable, "-m", "fedrage_flwr", "-m", *words, f"hydra.sweep.dir={folder}/sweep"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - started, _cpu() - before


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print one row per pair, and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--launcher", choices=sorted(LAUNCHERS), default="joblib")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    seeds = ",".join(map(str, range(options.jobs)))
    plain = [f"seed={seeds}", f"num_rounds={options.rounds}", "eval_every=100", *options.overrides]
    parallel = [*plain, *(word.format(options.processes) for word in LAUNCHERS[options.launcher])]
    print("| plain, s | parallel, s | ratio | CPU, s | CPU, s | load |\n| --- | --- | --- | --- | --- | --- |")
    ratios = []
    for _ in range(options.repeats):
        load = os.getloadavg()[0]
        (one, one_cpu), (many, many_cpu) = timed(plain), timed(parallel)
        ratios.append(one / many)
        print(
            f"| {one:.1f} | {many:.1f} | {one / many:.2f} | {one_cpu:.1f} | {many_cpu:.1f} | {load:.1f} |", flush=True
        )
    print(f"\nmedian ratio {statistics.median(ratios):.2f}: {options.jobs} jobs, {options.processes} processes")


if __name__ == "__main__":
    main()
