"""FedProx's local step by hand, on f(θ) = ½ h (θ − a)²."""

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from clients.base import Task
from clients.fedprox import FedProxClient
from fedrage_flwr.records import to_arrays
from fedrage_flwr.stacked import StackedModel
from fedrage_flwr.training import local_sgd


def client(federation, settings):
    received = {"arrays": to_arrays(federation.start)}
    return FedProxClient(Task(settings, received, {}, federation.workspace.client(0), federation.workspace, 0, 1, {}))


def test_o07_the_penalty_is_squared(federation, settings_of):
    """θ − θ̂ = (3, 4), μ = 0.1: the gradient of (μ/2)‖θ − θ̂‖² = 1.25 is (0.3, 0.4); of the norm itself (0.06, 0.08)."""
    one = client(federation([[0.0, 0.0]], start=[1.0, -1.0]), settings_of("fedprox", mu=0.1)[1])
    (direction,) = one.direction((torch.tensor([4.0, 3.0]),))
    torch.testing.assert_close(direction, torch.tensor([0.3, 0.4]))


def test_three_steps(federation, settings_of, train_config):
    """f = ½(θ − 1)² from θ̂ = 0, η = 0.1, μ = 2: directions −1, −0.9 + 0.2, −0.83 + 0.34, so θ = 0.1, 0.17, 0.219; were θ̂
    an alias of θ the pull would be 0 and θ = 0.271. The loss reported is f alone: ½, 0.405, 0.34445."""
    one = federation([[1.0]])
    content = RecordDict({"arrays": one.start})
    settings = settings_of("fedprox", mu=2.0, lr=0.1, local_steps=3)[1]
    content["config"] = ConfigRecord({**train_config(settings), "server-round": 1})
    (reply,) = one.grid.send_and_receive([Message(content, next(iter(one.grid.get_node_ids())), "train")])
    np.testing.assert_allclose(one.theta(reply.content["arrays"]), [0.219], rtol=1e-6)
    assert reply.content["metrics"]["train-loss"] == pytest.approx((0.5 + 0.405 + 0.5 * 0.83**2) / 3, rel=1e-6)
    assert one.theta(one.start) == [0.0]


def test_the_hook_takes_a_cohort(federation, settings_of):
    """Two models stacked, from different places with one θ̂, move as each does alone."""
    world = federation([[1.0, 2.0]], start=[0.5, 0.5])
    hooks = client(world, settings_of("fedprox", mu=0.7)[1])
    inputs, targets = torch.tensor([[[1.0, 2.0]]] * 3), torch.ones(3, 1)
    starts = [{"theta": np.array(s, np.float32)} for s in ([0.0, 0.0], [3.0, -1.0])]
    model, alone = world.workspace.model, []
    for start in starts:
        model.load(start)
        local_sgd(model, inputs, targets, hooks, lr=0.1)
        alone.append(model.arrays()["theta"])
    stacked = StackedModel(model, 2)
    stacked.load(starts)
    local_sgd(stacked, inputs, targets, hooks, lr=0.1)
    np.testing.assert_allclose([arrays["theta"] for arrays in stacked.arrays()], alone, rtol=1e-6)
