"""Shared tools: tiny federations with closed forms, and runs of the real thing in this process."""

import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import hypothesis
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clients.base import ClientSettings, write_settings
from clients.federage import FedeRageSettings
from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.run import run
from fedrage_flwr.training import LocalModel
from fedrage_flwr.workspace import SplitTensors, Workspace

if os.environ.get("CI"):  # a landing is judged on examples that were seen to pass; people at work draw fresh ones
    hypothesis.settings.register_profile("ci", derandomize=True)
    hypothesis.settings.load_profile("ci")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the source tree that a test may write into."""
    repository = Path(__file__).resolve().parents[1]
    for name in ("fedrage_flwr", "strategies", "clients", "conf", "tests"):
        shutil.copytree(repository / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repository / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class Quadratic(nn.Module):
    """θ, a vector; its output on an example a is θ − a."""

    def __init__(self, start: Sequence[float]) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(start, dtype=torch.float32))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.theta - inputs


def quadratic_loss(outputs: Tensor, curvature: Tensor) -> Tensor:
    """½ h ‖θ − a‖² of each example."""
    return 0.5 * curvature * outputs.square().sum(1)


@dataclass
class Federation:
    """Clients with f_i(θ) = ½ h_i ‖θ − a_i‖² and one example each, so that every batch is the whole set."""

    grid: InlineGrid
    workspace: Workspace
    start: Any

    def theta(self, record: Any) -> np.ndarray:
        return to_arrays(record)["theta"]


def make_federation(
    centres: Sequence[Sequence[float]], curvatures: Sequence[float] | None = None, start: Sequence[float] | None = None
) -> Federation:
    n, d = len(centres), len(centres[0])
    model = LocalModel(Quadratic(start if start is not None else [0.0] * d), loss=quadratic_loss)
    workspace = Workspace(
        model=model,
        train=SplitTensors(
            torch.tensor(centres, dtype=torch.float32),
            torch.tensor(curvatures if curvatures is not None else [1.0] * n, dtype=torch.float32),
        ),
        indices=[np.array([i]) for i in range(n)],
        to_float=lambda inputs: inputs,
    )
    return Federation(InlineGrid(make_client_app(workspace), n), workspace, to_record(model.arrays()))


@pytest.fixture
def federation() -> Callable[..., Federation]:
    return make_federation


@pytest.fixture
def fedavg_settings() -> Callable[..., ClientSettings]:
    def make(**changes: Any) -> ClientSettings:
        return ClientSettings(
            **{"name": "fedavg", "lr": 0.1, "local_steps": 1, "batch_size": 32, "theta_radius": None, **changes}
        )

    return make


@pytest.fixture
def federage_settings() -> Callable[..., FedeRageSettings]:
    def make(**changes: Any) -> FedeRageSettings:
        values = {
            "name": "federage", "lr": 0.1, "local_steps": 1, "batch_size": 32, "theta_radius": None,
            "alpha": 0.5, "gamma": 0.5, "lr_beta": 1.0, "beta_init": 0.0, "beta_range": [0.0, 100.0], "weight_mode": "loss",
        }  # fmt: skip
        return FedeRageSettings(**{**values, **changes})

    return make


@pytest.fixture
def settings_of() -> Callable[..., tuple[Any, Any]]:
    """The (strategy, client) settings that ``strategy=word`` composes, with changes: ``settings_of("fedavg", lr=0.1,
    server_lr=0.5)``; each change goes to the section that has the key."""

    def make(word: str, **changes: Any) -> tuple[Any, Any]:
        config = validate(compose_config([f"strategy={word}"]))
        sections = []
        for section in (config.strategy, config.client):
            own = {k: v for k, v in changes.items() if k in {f.name for f in dataclasses.fields(section)}}
            sections.append(dataclasses.replace(section, **own))
        return sections[0], sections[1]

    return make


@pytest.fixture
def train_config() -> Callable[[Any], Any]:
    from flwr.app import ConfigRecord

    return lambda settings, seed=0: ConfigRecord({"seed": seed, **write_settings(settings)})


@pytest.fixture
def simulate(tmp_path: Path) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """Run overrides in this process; returns the folder and the summary."""
    count = 0

    def simulate(*overrides: str) -> tuple[Path, dict[str, Any]]:
        nonlocal count
        folder = tmp_path / f"run{count}"
        count += 1
        folder.mkdir()
        return folder, run(prepare_run(validate(compose_config(overrides))), folder)

    return simulate
