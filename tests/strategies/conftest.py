"""Strategies played over given participants, and held to agnostic FedAvg."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedrage_flwr.client_manager import RoundView
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.records import to_arrays
from fedrage_flwr.settings import lookup
from strategies import STRATEGIES


class Script:
    """Lets the clients of a list through, round by round."""

    def __init__(self, subsets: Sequence[Sequence[int]]) -> None:
        self.subsets = subsets

    def connect(self, grid: Any) -> None:
        pass

    def admit(self, grid: Any, round: int) -> RoundView:
        return RoundView(grid, {node: i for node, i in grid.partitions.items() if i in self.subsets[round - 1]})


@functools.cache
def composed(word: str) -> tuple[Any, Any]:
    """The (strategy, client) settings of ``strategy=word``; composing takes longer than the rounds played here."""
    config = validate(compose_config([f"strategy={word}"]))
    return config.strategy, config.client


def changed(settings: Any, changes: dict[str, Any]) -> Any:
    """The settings with those of the changes that belong to them."""
    names = {field.name for field in dataclasses.fields(settings)}
    return dataclasses.replace(settings, **{name: value for name, value in changes.items() if name in names})


@pytest.fixture
def play(train_config) -> Callable[..., tuple[Any, np.ndarray]]:
    """Run ``strategy=word`` on a federation of quadratics with the participants given for each round; returns the server and
    θ̂ after each round, shape (T, d)."""

    def play(federation: Any, word: str, subsets: Sequence[Sequence[int]], **changes: Any) -> tuple[Any, np.ndarray]:
        settings, client = (changed(section, changes) for section in composed(word))
        server = lookup(STRATEGIES, word)(settings, client, len(federation.grid.partitions))
        path: list[np.ndarray] = []
        watcher = type(
            "Watcher", (), {"after_round": lambda self, round: path.append(to_arrays(round.arrays)["theta"].copy())}
        )()
        server.start(
            federation.grid, federation.start, len(subsets), train_config=train_config(client),
            manager=Script(subsets), callbacks=[watcher],
        )  # fmt: skip
        return server, np.array(path, float)

    return play


@pytest.fixture
def assert_fedavg(simulate) -> Callable[..., None]:
    """Hold a strategy to agnostic FedAvg: the last and the averaged model, to the bit or within ``atol``."""

    def check(*overrides: str, job: Sequence[str] = (), atol: float = 0.0) -> None:
        common = ("num_rounds=12", "client.lr=0.05", *job)
        fedavg, _ = simulate("strategy=fedavg", *common)
        other, _ = simulate(*overrides, *common)
        for name in ("model.safetensors", "polyak.safetensors"):
            expected, found = load_file(fedavg / name), load_file(other / name)
            assert expected.keys() == found.keys()
            for key, array in expected.items():
                np.testing.assert_allclose(found[key], array, rtol=0, atol=atol)

    return check
