"""Runs made of numbers, as if they had been read."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedrage_flwr.checkpoint import config_hash
from fedrage_flwr.report.runs import WORDS, RunData


@pytest.fixture(scope="session")
def make_run() -> Callable[..., RunData]:
    """A run of ``strategy`` whose accuracies in rounds 1, 2, … are those given; three replies of five steps a round."""

    def make(strategy: str, seed: int, accuracy: Sequence[float], config: Any = None, **facts: Any) -> RunData:
        words = {**dict.fromkeys(WORDS, "x"), "dataset": "fashion_mnist", "ram": "inclusion", "strategy": strategy}
        words |= {key: facts.pop(key) for key in WORDS if key in facts}
        rounds = len(accuracy)
        settings = {
            "seed": seed, "num_rounds": rounds, "client.name": "fedavg", "client.local_steps": 5, "client.batch_size": 32,
            **{f"{word}.name": name for word, name in words.items()}, **(config or {}),
        }  # fmt: skip
        summary = {
            "rounds_done": rounds, "bytes_up_per_round": 100.0, "bytes_down_per_round": 100.0, "wall_seconds": 1.0,
            **facts,
        }  # fmt: skip
        return RunData(
            path=Path("somewhere"),
            experiment="table1",
            words=words,
            overrides=(),
            seed=seed,
            config=settings,
            config_hash=config_hash(settings),
            versions={},
            rounds=pd.DataFrame({"round": range(1, rounds + 1), "accuracy": accuracy}),
            client_accuracy={},
            participations={0: 3 * rounds},
            summary=summary,
        )

    return make


@pytest.fixture(scope="session")
def record_run(make_run: Callable[..., RunData]) -> Callable[..., Path]:
    """Leave a made-up run as ``python -m fedrage_flwr.experiment`` does; returns its JSON file."""

    def record(folder: Path, *args: Any, **facts: Any) -> Path:
        run = make_run(*args, **facts)
        path = folder / f"{'_'.join(run.words[word] for word in ('dataset', 'ram', 'strategy'))}_seed={run.seed}.json"
        folder.mkdir(parents=True, exist_ok=True)
        run.rounds.to_csv(path.with_suffix(".csv"), index=False)
        content = {
            "overrides": ["experiment=table1"], "config": run.config, **run.words, **run.summary, "seed": run.seed,
            "num_rounds": run.num_rounds, "versions": {},
            "clients": {"accuracy_mean_last10": {}, "participations": run.participations},
        }  # fmt: skip
        path.write_text(json.dumps(content))
        return path

    return record
