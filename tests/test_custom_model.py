"""A model of the user's by import path: what is passed, what is refused, and that no node takes one from a message."""

import re

import pytest
import torch

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.models import build_model

SOURCE = """
import torch
from torch import nn

class Shaped(nn.Module):
    def __init__(self, input_shape, num_classes, width=4):
        super().__init__()
        inputs = input_shape[1] * input_shape[2]
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.Linear(width, num_classes))
    def forward(self, x):
        return self.layers(x)

class Fixed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10))

class Short(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 9))

class Brain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10).bfloat16()
    def forward(self, x):
        return self.layer(x.flatten(1).bfloat16()).float()

def number():
    return 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    (tmp_path / "my_nets_for_test.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def build(name, *overrides, seed=0):
    config = validate(compose_config(["model=custom", f"model.path=my_nets_for_test:{name}", *overrides]))
    return build_model(config.model, (1, 8, 8), 10, seed)


def test_o05_a_dtype_that_records_cannot_carry_is_named():
    with pytest.raises(UserError, match=r"Brain: layer\.weight is torch\.bfloat16, which NumPy .*; use float16"):
        build("Brain")


def test_shape_and_classes_are_passed_where_they_are_taken_and_arguments_always():
    assert build("Shaped").layers[1].weight.shape == (4, 64)
    assert build("Shaped", "model.arguments={width: 7}").layers[2].weight.shape == (10, 7)
    assert build("Shaped", "model.arguments={num_classes: 10, width: 2}").layers[2].weight.shape == (10, 2)
    assert build("Fixed")(torch.zeros(3, 1, 8, 8)).shape == (3, 10)


def test_trying_it_leaves_it_as_made():
    fixed = build("Fixed")
    assert fixed.training
    assert fixed[2].num_batches_tracked == 0


def test_initial_parameters_come_from_the_seed():
    assert torch.equal(build("Fixed", seed=1)[1].weight, build("Fixed", seed=1)[1].weight)
    assert not torch.equal(build("Fixed", seed=1)[1].weight, build("Fixed", seed=2)[1].weight)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("nets", "must be package.module:Name"),
        ("no_such_module:X", "ModuleNotFoundError"),
        ("my_nets_for_test:Absent", "has no attribute 'Absent'"),
        ("my_nets_for_test:number", "makes a int, must be a torch.nn.Module"),
        ("my_nets_for_test:Short", "into (2, 9), must be (2, 10)"),
        ("torch.nn:Linear", "missing 2 required positional arguments"),
        ("torch.nn:ReLU", "into (2, 1, 8, 8), must be (2, 10)"),
    ],
)
def test_mistakes_are_one_line(path, problem):
    config = validate(compose_config(["model=custom", f"model.path={path}"]))
    with pytest.raises(UserError, match=re.escape(problem)) as caught:
        build_model(config.model, (1, 8, 8), 10, 0)
    assert str(caught.value).startswith(f"model.path={path}")
    assert "\n" not in str(caught.value)


def test_without_a_path_the_key_is_named():
    with pytest.raises(UserError, match=r"model\.path has no default and must be given"):
        validate(compose_config(["model=custom"]))


def test_a_run_trains_it(simulate):
    _, summary = simulate("model=custom", "model.path=my_nets_for_test:Shaped", "num_rounds=2", "strategy=scaffold")
    assert summary["model"] == "custom"
    assert summary["bytes_down_per_round"] == 2 * 3 * 4 * (64 * 4 + 4 + 4 * 10 + 10)  # the model and as much control


def test_no_node_takes_a_path_from_a_message():
    from fedrage_flwr.node import node_workspace, write_job

    job = {"seed": 0, **write_job(validate(compose_config([])))}
    for name in [name for name in job if name.startswith("model.")]:
        del job[name]
    job |= {"model.name": "custom", "model.path": "my_nets_for_test:Fixed"}
    with pytest.raises(ValueError, match="refused"):
        node_workspace(job, {"partition-id": 0, "num-partitions": 30})


def test_a_run_on_nodes_refuses_it():
    from fedrage_flwr.parts import prepare_run

    config = validate(compose_config(["model=custom", "model.path=my_nets_for_test:Fixed"]))
    with pytest.raises(UserError, match="model=custom: only in simulation"):
        prepare_run(config, remote=True)
