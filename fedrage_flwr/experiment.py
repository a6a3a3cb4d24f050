"""``python -m fedrage_flwr.experiment NAME [OVERRIDES]``: the runs of an experiment, each once, however often it is interrupted.

NAME is a file of ``conf/experiment/``; its ``hydra.sweeper.params`` say which runs there are, and what is typed replaces them:
``python -m fedrage_flwr.experiment table1 dataset=mnist strategy=fedavg,scaffold 'seed=range(10)'``. A finished run leaves two
small files in ``results/NAME/``, and is not run again while they are there: a CSV with the evaluated rows of ``rounds.csv``, and
its summary as JSON. All else lies below ``outputs/NAME/``, where a run that was cut goes on from its checkpoint. Several
processes may share the work as long as each is given other runs.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from fedrage_flwr.api import run
from fedrage_flwr.callbacks import LAST_ROUNDS
from fedrage_flwr.checkpoint import FOLDER, config_hash, files, read_newest
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.doors import enter, set_switches
from fedrage_flwr.errors import Diverged, Interrupted, UserError
from fedrage_flwr.report.extracts import extract
from fedrage_flwr.results import write_summary
from fedrage_flwr.resume import Request, resume
from fedrage_flwr.words import choices, nearest

if TYPE_CHECKING:
    import pandas as pd

USAGE = "python -m fedrage_flwr.experiment NAME [KEY=VALUE …], NAME of conf/experiment"
MEASURES = (
    "accuracy", "loss", "client_accuracy_mean", "client_accuracy_min", "client_accuracy_worst10pct", "rare_client_accuracy",
    "held_out_client_accuracy", "faa", "held_out_faa",
)  # fmt: skip
PLACES = {"dataset.root", "dataset.cache", "evaluate.cache"}
"""Settings of one machine: they are not recorded."""
NO_MATTER = {*PLACES, "tuned.wanted", "tuned.note", "resume", "resume_force"}
"""Settings that change no digit."""
ADDED: dict[str, Any] = {
    "dataset.max_examples": None, "deadline_s": None, "evaluate.metrics": [],
    "privacy.clip": None, "privacy.clip_others": 1.0, "privacy.noise_multiplier": 0.0, "privacy.delta": 1e-5,
}  # fmt: skip
"""Settings that older records lack, each with the value under which a run is what it was before."""


def jobs(name: str, typed: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The runs of an experiment: a name for each, of the words that vary, and its overrides.

    Raises:
        UserError: no such experiment, or an override that cannot be read.
    """
    if name not in choices("experiment"):
        known = choices("experiment")
        raise UserError(f"{name}: no such experiment{nearest(name, known)}; known: {', '.join(known)}; usage: {USAGE}")
    fixed = [f"experiment={name}", *(word for word in typed if not _sweeps(word))]
    params = compose_config(fixed).hydra.sweeper.params or {}
    words = [f"experiment={name}", *(f"{key}={value}" for key, value in params.items()), *typed]
    parsed = OverridesParser.create().parse_overrides(words)
    varied = [
        key for key in dict.fromkeys(word.key_or_group for word in parsed) if key in params or _varies(key, typed)
    ]
    found = []
    for overrides in BasicSweeper.split_arguments(parsed, None)[0]:
        values = dict(word.partition("=")[::2] for word in overrides)
        parts = [values[key] if key in ("dataset", "ram", "strategy") else f"{key.rpartition('.')[2]}={values[key]}"
                 for key in varied]  # fmt: skip
        found.append(("_".join(parts) or "run", list(overrides)))
    return found


def _sweeps(word: str) -> bool:
    return bool(OverridesParser.create().parse_override(word).is_sweep_override())


def _varies(key: str, typed: Sequence[str]) -> bool:
    return any(word.partition("=")[0] == key and _sweeps(word) for word in typed)


def finish(overrides: Sequence[str], folder: Path) -> dict[str, Any]:
    """Run in ``folder``, or go on with what was begun there, to the round the overrides say; return the summary.

    Raises:
        UserError: what was begun there has other settings; or as ``run``.
    """
    if not files(folder / FOLDER):  # what was cut before its first checkpoint begins anew
        if folder.is_dir():
            shutil.rmtree(folder)
        return run(*overrides, folder=folder, figures=False).summary
    config = validate(compose_config(overrides))
    stored = read_newest(folder / FOLDER)[0].config
    changed = [key for key in differences(stored, asdict(config)) if key != "num_rounds"]
    if changed:
        raise UserError(f"{folder} holds a run with other settings ({', '.join(changed)}); move it away to run again")
    request = Request(folder, ("num_rounds",), (f"num_rounds={config.num_rounds}",))
    return resume(request, folder, lambda line: None)


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Dotted keys whose values differ, those that change no digit left out; a record may lack settings that came later."""
    one, other = as_before(flat(first)), as_before(flat(second))
    return [key for key in {**one, **other} if key not in NO_MATTER and one.get(key, flat) != other.get(key, flat)]


def as_before(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys and values without the settings in ADDED that are at their plain values."""
    return {key: value for key, value in config.items() if key not in ADDED or value != ADDED[key]}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys and plain values of nested settings."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return found


def record(folder: Path, summary: Mapping[str, Any], overrides: Sequence[str], where: Path) -> None:
    """Write the two small files of a finished run: ``where`` with .csv and with .json, the latter last."""
    config = flat(asdict(validate(compose_config(overrides))))
    config = {key: value for key, value in config.items() if key not in PLACES}
    where.parent.mkdir(parents=True, exist_ok=True)
    extract(folder, where)
    evaluated(folder).to_csv(
        where.with_name(f"{where.name}.csv"), index=False, float_format="%.5g", lineterminator="\n"
    )
    facts = {
        "overrides": list(overrides),
        "config_hash": config_hash(config),
        "config": config,
        **summary,
        "clients": of_clients(folder, summary["num_rounds"]),
    }
    write_summary(where.with_name(f"{where.name}.json"), facts)


def evaluated(folder: Path) -> "pd.DataFrame":
    """The evaluated rows of a run's rounds.csv, with the measures it has."""
    import pandas as pd

    rounds = pd.read_csv(folder / "rounds.csv")
    measured = rounds[rounds["loss"].notna()]
    return measured[["round", *(column for column in MEASURES if column in rounds and measured[column].notna().any())]]


def of_clients(folder: Path, num_rounds: int) -> dict[str, Any]:
    """By client: mean accuracy in the last ten rounds, how often it took part and, where steps are weighed, their mean weight.

    The weight is over the second half of the rounds: in the first β is still on its way. A client not seen there has none.
    """
    import pandas as pd

    clients = pd.read_csv(folder / "clients.csv")
    accuracy = clients[clients["round"] > num_rounds - LAST_ROUNDS].groupby("client")["accuracy"].mean().round(5)
    took_part = pd.read_csv(folder / "participation.csv")["client"].value_counts().sort_index()
    found = {"accuracy_mean_last10": accuracy.to_dict(), "participations": took_part.to_dict()}
    updates = pd.read_csv(folder / "updates.csv")
    weights = updates[updates["round"] > num_rounds / 2].groupby("client")["step_weight_mean"].mean().dropna()
    return found | ({"step_weight_mean": weights.round(5).to_dict()} if len(weights) else {})


def is_recorded(overrides: Sequence[str], where: Path) -> bool:
    """Whether the small files of this run are there.

    Raises:
        UserError: those of a run with other settings are.
    """
    path = where.with_name(f"{where.name}.json")
    if not path.exists():
        return False
    stored = json.loads(path.read_text(encoding="utf-8"))["config"]
    changed = differences(stored, asdict(validate(compose_config(overrides))))
    if changed:
        raise UserError(f"{path} has other settings ({', '.join(changed)}); move it away to run again")
    return True


def main(arguments: Sequence[str]) -> None:
    """Run what is missing.

    Raises:
        UserError: what was typed is wrong; or, once all others are done, some runs diverged.
    """
    if not arguments or any(argument.startswith("-") for argument in arguments) or "=" in arguments[0]:
        raise UserError(f"usage: {USAGE}")
    name, *typed = arguments
    wanted = jobs(name, typed)
    diverged = []
    for number, (job, overrides) in enumerate(wanted, 1):
        where = Path("results") / name / job
        if is_recorded(overrides, where):
            continue
        print(f"{number} of {len(wanted)}: {job}", flush=True)
        folder = Path("outputs") / name / job
        try:
            record(folder, guarded(overrides, folder), overrides, where)
        except Diverged as error:
            print(f"{job}: {error}", file=sys.stderr, flush=True)
            diverged.append(job)
    print(f"results/{name}: {len(wanted) - len(diverged)} of {len(wanted)} runs", flush=True)
    if diverged:
        raise UserError(f"no result of {', '.join(diverged)}: the steps are too large")


def guarded(overrides: Sequence[str], folder: Path) -> dict[str, Any]:
    """``finish``, ending the process when it was asked to end."""
    try:
        return finish(overrides, folder)
    except Interrupted as error:
        print("stopped; the same command goes on", file=sys.stderr)
        raise SystemExit(error.code) from error


if __name__ == "__main__":
    set_switches()
    sys.exit(enter(main))
