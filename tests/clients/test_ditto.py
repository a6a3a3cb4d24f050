"""Ditto's client half by hand, on f(θ) = ½ (θ − a)² (Li et al., ICML 2021, Algorithm 1)."""

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from torch import nn

from clients.ditto import DittoSettings
from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.losses import squared_error
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.training import LocalModel
from fedrage_flwr.workspace import SplitTensors, Workspace


@pytest.fixture
def settings(fedavg_settings):
    return lambda lam, **changes: DittoSettings(**vars(fedavg_settings(name="ditto", **changes)), lam=lam)


def ask(grid, settings, train_config, arrays, kind="train", round=1, client=0):
    config = ConfigRecord({**train_config(settings), "server-round": round})
    content = RecordDict({"arrays": to_record(arrays), "config": config})
    (reply,) = grid.send_and_receive([Message(content, list(grid.get_node_ids())[client], kind)])
    assert not reply.has_error(), reply.error
    return reply.content


def theta(value):
    return {"theta": np.array([value], np.float32)}


def personal(grid, client=0):
    return float(to_arrays(grid.context(client).state["personal"])["theta"][0])


def test_two_rounds_by_hand(federation, settings, train_config):
    """a = 4, η = ½, λ = 1, two steps. v ← v − ½((v − 4) + (v − θ̂)) = (4 + θ̂)/2: from anywhere, in one step. From θ̂ = 0
    v = 2, 2; with θ̂ = 1, next round, 2.5. θ itself goes half the way to 4 twice: 3; from 1: 3.25."""
    one = federation([[4.0]])
    chosen = settings(lr=0.5, local_steps=2, lam=1.0)
    first = ask(one.grid, chosen, train_config, theta(0))
    assert one.theta(first["arrays"]) == [3]
    assert personal(one.grid) == 2
    assert first["metrics"]["personal_loss"] == pytest.approx((8 + 2) / 2)  # ½(0 − 4)², ½(2 − 4)²: the pull is no loss
    second = ask(one.grid, chosen, train_config, theta(1), round=2)
    assert one.theta(second["arrays"]) == [3.25]
    assert personal(one.grid) == 2.5


def test_the_personal_model_goes_on_from_where_it_was(federation, settings, train_config):
    """λ = 0 is local training alone: 0 → 2 → 3, whatever is broadcast the second time."""
    one = federation([[4.0]])
    chosen = settings(lr=0.5, local_steps=1, lam=0.0)
    for round, start in ((1, 0), (2, 100)):
        ask(one.grid, chosen, train_config, theta(start), round=round)
    assert personal(one.grid) == 3


def test_it_predicts_with_the_personal_model_once_there_is_one(settings, train_config):
    """Inputs are 0, so the output is the bias. Training target 4, η = ¼, one step of 2·¼·(4 − 0) = 2 with λ = 0."""
    parts = [np.array([0])] * 2
    data = SplitTensors(torch.zeros(1, 1), torch.tensor([4.0]))
    model = LocalModel(nn.Sequential(nn.Linear(1, 1)), squared_error)
    grid = InlineGrid(make_client_app(Workspace(model, data, parts, lambda x: x, data, parts)), 2)
    chosen = settings(lr=0.25, local_steps=1, lam=0.0)
    zero = {"0.weight": np.zeros((1, 1), np.float32), "0.bias": np.zeros(1, np.float32)}
    ask(grid, chosen, train_config, zero)
    three = {**zero, "0.bias": np.array([3], np.float32)}
    loss = [ask(grid, chosen, train_config, three, "evaluate", client=i)["metrics"]["loss"] for i in (0, 1)]
    assert loss == [4, 1]  # (2 − 4)² of the personal model; (3 − 4)² of the global one


def test_the_personal_model_has_mini_batches_of_its_own(settings, train_config):
    """With λ = 0 and from the same start, the same batches would give the same model."""
    data = SplitTensors(torch.zeros(20, 1), torch.arange(20.0))
    model = LocalModel(nn.Sequential(nn.Linear(1, 1)), squared_error)
    grid = InlineGrid(make_client_app(Workspace(model, data, [np.arange(20)], lambda x: x)), 1)
    chosen = settings(lr=0.25, local_steps=3, batch_size=2, lam=0.0)
    zero = {"0.weight": np.zeros((1, 1), np.float32), "0.bias": np.zeros(1, np.float32)}
    content = ask(grid, chosen, train_config, zero)
    assert to_arrays(content["arrays"])["0.bias"] != to_arrays(grid.context(0).state["personal"])["0.bias"]
