"""SCAFFOLD's local steps by hand, on f(θ) = ½ h (θ − a)²."""

import re

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from clients.base import Task
from clients.scaffold import ScaffoldClient
from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.stacked import StackedModel
from fedrage_flwr.training import LocalModel, local_sgd
from fedrage_flwr.workspace import SplitTensors, Workspace


def vector(*values):
    return to_record({"theta": np.array(values, np.float32)})


def ask(world, settings, train_config, control, own=None):
    if own is not None:
        world.grid.context(0).state["control"] = own
    content = RecordDict({"arrays": world.start, "control": control})
    content["config"] = ConfigRecord({**train_config(settings), "server-round": 1})
    (reply,) = world.grid.send_and_receive([Message(content, next(iter(world.grid.get_node_ids())), "train")])
    return reply


def kept(world):
    return world.theta(world.grid.context(0).state["control"]).item()


@pytest.mark.parametrize(("option", "fresh"), [(2, 0.8743333), (1, 1.0)])
def test_o06_three_steps(federation, settings_of, train_config, option, fresh):
    """f = y²/2 from 1, η = 0.1, c = 0.5, c_i = 0.2: y ← y − 0.1(y + 0.3) gives 0.87, 0.753, 0.6477; a wrong sign of c_i or
    c, 0.8103 at best. Option II: 0.2 − 0.5 + (1 − 0.6477)/0.3; option I: f'(1) = 1. What is sent is the change."""
    world = federation([[0.0]], start=[1.0])
    settings = settings_of("scaffold", lr=0.1, local_steps=3, option=option)[1]
    reply = ask(world, settings, train_config, control=vector(0.5), own=vector(0.2))
    np.testing.assert_allclose(world.theta(reply.content["arrays"]), [0.6477], rtol=1e-6)
    np.testing.assert_allclose(world.theta(reply.content["control"]), [fresh - 0.2], rtol=1e-6)
    assert kept(world) == pytest.approx(fresh, rel=1e-6)
    assert reply.content["metrics"]["train-loss"] == pytest.approx((1 + 0.87**2 + 0.753**2) / 6, rel=1e-6)


def test_the_control_variate_is_zero_at_first_and_comes_back(federation, settings_of, train_config):
    """One step from θ̂ = 3 on f = ½(θ − 1)²: c_i⁺ is the gradient met, 2. The second time it is there: c = 0 leaves
    direction 2 − 2 = 0, the model stands still and c_i⁺ = c_i."""
    world, settings = federation([[1.0]], start=[3.0]), settings_of("scaffold", lr=0.1, local_steps=1)[1]
    first = ask(world, settings, train_config, control=vector(0.0))
    np.testing.assert_allclose(world.theta(first.content["control"]), [2.0], rtol=1e-6)
    second = ask(world, settings, train_config, control=vector(0.0))
    np.testing.assert_allclose(world.theta(second.content["arrays"]), [3.0], rtol=1e-6)
    np.testing.assert_allclose(world.theta(second.content["control"]), [0.0], atol=1e-6)
    assert kept(world) == pytest.approx(2.0, rel=1e-6)


def test_compact_uplink_sends_the_model_alone(federation, settings_of, train_config):
    world, settings = federation([[0.0]], start=[1.0]), settings_of("scaffold", compact_uplink=True)[1]
    reply = ask(world, settings, train_config, control=vector(0.0))
    assert set(reply.content.array_records) == {"arrays"}
    assert kept(world) != 0


def test_option_one_takes_the_gradient_of_all_examples(federation, settings_of, train_config, monkeypatch):
    """Five centres 0, 1, 2, 3, 9 with curvatures 1, 1, 2, 1, 1 at θ̂ = 1, in passes of two examples:
    (1 + 0 − 2 − 2 − 8)/5 = −2.2, although a mini-batch holds one."""
    monkeypatch.setattr("fedrage_flwr.training.PASS", 2)
    model = federation([[0.0]]).workspace.model
    train = SplitTensors(torch.tensor([[0.0], [1.0], [2.0], [3.0], [9.0]]), torch.tensor([1.0, 1.0, 2.0, 1.0, 1.0]))
    workspace = Workspace(model, train, [np.arange(5)], to_float=lambda inputs: inputs)
    grid = InlineGrid(make_client_app(workspace), 1)
    settings = settings_of("scaffold", option=1, batch_size=1)[1]
    content = RecordDict({"arrays": vector(1.0), "control": vector(0.0)})
    content["config"] = ConfigRecord({**train_config(settings), "server-round": 1})
    (reply,) = grid.send_and_receive([Message(content, next(iter(grid.get_node_ids())), "train")])
    np.testing.assert_allclose(to_arrays(reply.content["control"])["theta"], [-2.2], rtol=1e-6)


def test_o02_what_is_not_finite_is_not_kept(federation, settings_of, train_config):
    """Curvature 1e38 from 0 to 1 with η = 0.1: θ = 1e37, then −∞, then NaN."""
    world, settings = federation([[1.0]], [1e38]), settings_of("scaffold", lr=0.1, local_steps=3)[1]
    reply = ask(world, settings, train_config, control=vector(0.0), own=vector(0.25))
    assert not np.isfinite(world.theta(reply.content["arrays"])).all()
    assert kept(world) == 0.25


@pytest.mark.parametrize(
    ("control", "reason"),
    [
        ({"beta": np.zeros(1, np.float32)}, "record control: missing"),
        ({"theta": np.zeros(2, np.float32)}, r"record control: theta has shape \(2,\), expected \(1,\)"),
        ({"theta": np.full(1, np.nan, np.float32)}, "record control: theta is not finite"),
    ],
)
def test_a_control_variate_that_does_not_fit_is_an_error(federation, settings_of, train_config, control, reason):
    reply = ask(federation([[1.0]]), settings_of("scaffold")[1], train_config, to_record(control))
    assert re.search(reason, reply.error.reason)


def test_the_hook_takes_a_cohort(federation, settings_of):
    """c − c_i = (0.25, 2) is added to the gradients of all models of a stack, or one for each model."""
    world = federation([[1.0, 2.0]])
    received = {"arrays": to_arrays(world.start), "control": {"theta": np.array([0.5, 1.0], np.float32)}}
    memory = {"control": {"theta": np.array([0.25, -1.0], np.float32)}}
    settings = settings_of("scaffold")[1]
    hooks = ScaffoldClient(Task(settings, received, memory, world.workspace.client(0), world.workspace, 0, 1, {}))
    torch.testing.assert_close(hooks.direction(())[0], torch.tensor([0.25, 2.0]))
    stacked, inputs, targets = StackedModel(world.workspace.model, 2), torch.tensor([[[1.0, 2.0]]]), torch.ones(1, 1)
    for correction in (hooks.correction, (torch.tensor([[1.0, 2.0], [3.0, 4.0]]),)):
        hooks.correction = correction
        stacked.load([{"theta": np.zeros(2, np.float32)}] * 2)
        local_sgd(stacked, inputs, targets, hooks, lr=0.1)
        expected = -0.1 * (torch.tensor([[-1.0, -2.0]] * 2) + correction[0])  # ∇f = θ − a = −a
        torch.testing.assert_close(stacked.parameters[0].detach(), expected)


@pytest.mark.parametrize(
    ("device", "dtype"), [("meta", torch.float32), ("cpu", torch.float64), ("meta", torch.float16)]
)
def test_o05_control_variates_follow_the_parameters(federation, settings_of, device, dtype):
    """They come from the server and from disk as arrays; torch's meta device stands for one that is not there."""
    world = federation([[1.0, 2.0]])
    like = world.workspace.model
    world.workspace.model = LocalModel(like.module.to(dtype), like.example_loss, device)
    kind = np.empty(0, str(dtype).removeprefix("torch.")).dtype
    received = {name: {"theta": np.zeros(2, kind)} for name in ("arrays", "control")}
    memory = {"control": {"theta": np.ones(2, kind)}}
    task = Task(settings_of("scaffold")[1], received, memory, world.workspace.client(0), world.workspace, 0, 1, {})
    (correction,), (parameter,) = ScaffoldClient(task).correction, world.workspace.model.parameters
    assert (correction.device, correction.dtype) == (parameter.device, parameter.dtype) == (torch.device(device), dtype)
