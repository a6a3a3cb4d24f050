"""Finished runs as a report needs them, from the folders of runs, of sweeps, of ``seeds=`` and of ``results/EXPERIMENT``.

A run that lies there twice (as a folder below ``outputs/`` and as the two small files that ``python -m fedrage_flwr.experiment``
left) is read once.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from fedrage_flwr.callbacks import LAST_ROUNDS
from fedrage_flwr.checkpoint import config_hash
from fedrage_flwr.config import validate
from fedrage_flwr.errors import UserError, one_line
from fedrage_flwr.experiment import NO_MATTER, PLACES, as_before, evaluated, flat, of_clients

WORDS = ("strategy", "dataset", "partition", "ram", "model", "backend")
NUMBERS = ("seed", "num_rounds", "rounds_done", "bytes_up_per_round", "bytes_down_per_round", "wall_seconds")
"""What no table can do without."""
AVERAGED = ("polyak_accuracy", "second_half_accuracy")
"""Accuracy of the average of all rounds' models, and of those of the second half, at the end of a run."""
NOT_A_SETTING = {*NO_MATTER, "seed", "seeds", "tuned.wanted", "device", "checkpoint_every"}
"""Settings that do not tell one cell from another."""


@dataclass(frozen=True)
class RunData:
    """One finished run.

    Attributes:
        path: its folder, or the JSON file that an experiment left.
        experiment: the word of ``experiment=``, or None.
        words: strategy, dataset, partition, ram, model and backend.
        overrides: what was typed.
        config: dotted keys and values, without the paths of one machine; ``config_hash`` is of these.
        versions: of Python and the libraries.
        rounds: the evaluated rounds, one row each: ``round`` and the measures, shares in 0..1.
        client_accuracy: by client, mean over the last ten rounds, in 0..1; empty where it was not measured.
        participations: by client, in how many rounds it reached the server; those that never did are not in it.
        summary: the rest of summary.json.
        step_weights: by client, mean over the second half of the rounds; empty where steps are not weighed.
    """

    path: Path
    experiment: str | None
    words: Mapping[str, str]
    overrides: tuple[str, ...]
    seed: int
    config: Mapping[str, Any]
    config_hash: str
    versions: Mapping[str, str]
    rounds: pd.DataFrame
    client_accuracy: Mapping[int, float]
    participations: Mapping[int, int]
    summary: Mapping[str, Any]
    step_weights: Mapping[int, float] = field(default_factory=dict)

    @property
    def num_rounds(self) -> int:
        """T, of the configuration."""
        return int(self.config["num_rounds"])

    @property
    def setting(self) -> dict[str, Any]:
        """The configuration without the seed, what changes no result, and settings that came later at their plain values."""
        return {key: value for key, value in as_before(self.config).items() if key not in NOT_A_SETTING}

    def last(self, measure: str = "accuracy") -> np.ndarray:
        """A measure in the last ten rounds, shape (10,) or fewer in a shorter run; empty where it was not measured.

        Of an averaged model (``AVERAGED``) there is one value.
        """
        if measure in AVERAGED:
            value = self.summary.get(measure)
            return np.empty(0) if value is None else np.array([value], float)
        if measure not in self.rounds:
            return np.empty(0)
        rows = self.rounds[self.rounds["round"] > self.num_rounds - LAST_ROUNDS]
        return rows[measure].dropna().to_numpy(float)

    def reported(self, measure: str = "accuracy") -> float:
        """The mean of ``last``: the reported value of a run (ALGORITHMS of the papers); NaN where it was not measured."""
        values = self.last(measure)
        return float(values.mean()) if len(values) else float("nan")


def load(folders: Iterable[Path]) -> tuple[list[RunData], list[str]]:
    """Return the finished runs in or below the folders, in the order of their names, and a remark on each left out.

    Raises:
        UserError: a folder is not there, has no finished run, or holds one that cannot be read.
    """
    runs: dict[str, RunData] = {}
    remarks: list[str] = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder")
        small, unfinished = _small_files(folder), []
        found = [_read_small(path) for path in small]
        for path in sorted(path.parent.parent for path in folder.rglob(".hydra/config.yaml")):
            if (path / "summary.json").is_file():
                found.append(_read_folder(path))
            elif not list(path.glob("seed=*/.hydra")):  # the folder that seeds= made has runs below it
                unfinished.append(f"{path}: not finished, left out")
        if not found:
            raise UserError(unfinished[0] if unfinished else f"{folder}: no finished run there")
        remarks += unfinished
        for run in found:
            if runs.setdefault(run.config_hash, run) is not run:
                remarks.append(f"{run.path}: the same run as {runs[run.config_hash].path}, left out")
    return list(runs.values()), list(dict.fromkeys(remarks))


def _small_files(folder: Path) -> list[Path]:
    """The JSON files that have a CSV of the same name beside them."""
    return sorted(path for path in folder.rglob("*.json") if path.with_name(f"{path.name[:-5]}.csv").is_file())


def _read_small(path: Path) -> RunData:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        rounds = pd.read_csv(path.with_name(f"{path.name[:-5]}.csv"))
        return _make(path, facts.pop("overrides"), facts.pop("config"), facts.pop("clients"), rounds, facts)
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # of JSON, of pandas, of what should be there
        raise UserError(f"{path}: cannot be read as a recorded run ({_one_line(error)})") from error


def _read_folder(folder: Path) -> RunData:
    try:
        config = validate(OmegaConf.load(folder / ".hydra" / "config.yaml"))  # type: ignore[arg-type]
        typed = OmegaConf.to_container(OmegaConf.load(folder / ".hydra" / "overrides.yaml"))
        facts = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        rounds = evaluated(folder)
        clients = of_clients(folder, config.num_rounds)
        return _make(folder, [str(word) for word in typed or []], flat(asdict(config)), clients, rounds, facts)
    except (OSError, ValueError, KeyError, TypeError, UserError) as error:
        raise UserError(f"{folder}: cannot be read as a run ({_one_line(error)})") from error


def _make(
    path: Path, typed: Sequence[str], config: Mapping[str, Any], clients: Mapping[str, Mapping[Any, Any]],
    rounds: pd.DataFrame, facts: Mapping[str, Any],
) -> RunData:  # fmt: skip
    config = {key: value for key, value in config.items() if key not in PLACES}
    rounds = rounds.apply(pd.to_numeric)
    lacking = [name for name in NUMBERS if facts.get(name) is None] + ["round"] * ("round" not in rounds)
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    config["num_rounds"] = facts["num_rounds"]  # a run that went on beyond its first end
    named = [word.partition("=")[2] for word in typed if word.startswith("experiment=")]
    return RunData(
        path=path,
        experiment=named[-1] if named else None,
        words={word: str(facts[word]) for word in WORDS},
        overrides=tuple(typed),
        seed=int(facts["seed"]),
        config=config,
        config_hash=config_hash(config),
        versions=facts["versions"],
        rounds=rounds,
        client_accuracy={int(k): float(v) for k, v in clients["accuracy_mean_last10"].items() if v is not None},
        participations={int(client): int(count) for client, count in clients["participations"].items()},
        step_weights={int(client): float(w) for client, w in clients.get("step_weight_mean", {}).items()},
        summary={key: value for key, value in facts.items() if key not in {*WORDS, "versions", "config_hash", "seed"}},
    )


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}"
