"""The loss at the model received, then FedAvg's steps."""

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from fedrage_flwr.client_app import make_client_app
from fedrage_flwr.grids.inline import InlineGrid
from fedrage_flwr.records import to_record
from fedrage_flwr.training import LocalModel
from fedrage_flwr.workspace import SplitTensors, Workspace


def ask(grid, start, settings, train_config):
    content = RecordDict({"arrays": start})
    content["config"] = ConfigRecord({**train_config(settings), "server-round": 1})
    (reply,) = grid.send_and_receive([Message(content, next(iter(grid.get_node_ids())), "train")])
    assert not reply.has_error(), reply.error
    return reply.content


def test_loss_before_and_along_the_steps(federation, settings_of, train_config):
    """f = (θ − 1)² from θ = 0, η = 0.1: the loss received is 1; the steps see 1, 0.64, 0.4096 and end at 0.488."""
    one = federation([[1.0]], curvatures=[2.0])
    _, settings = settings_of("qffl", lr=0.1, local_steps=3)
    content = ask(one.grid, one.start, settings, train_config)
    assert content["metrics"]["initial-loss"] == 1.0
    assert content["metrics"]["train-loss"] == pytest.approx((1 + 0.64 + 0.4096) / 3, rel=1e-6)
    np.testing.assert_allclose(one.theta(content["arrays"]), [0.488], rtol=1e-6)


def test_all_examples_count_not_only_a_batch(settings_of, train_config):
    """5,000 examples, more than are evaluated at once, and batches of 32: the mean of ½(0.5 − a)² over all of them."""
    examples = np.random.default_rng(0).standard_normal((5000, 1)).astype(np.float32)
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, 0.5)
    model = LocalModel(module, loss=lambda outputs, targets: 0.5 * (outputs[:, 0] - targets).square())
    train = SplitTensors(torch.ones(5000, 1), torch.from_numpy(examples[:, 0]))
    workspace = Workspace(model, train, [np.arange(5000)], lambda inputs: inputs)
    grid, start = InlineGrid(make_client_app(workspace), 1), to_record(model.arrays())
    content = ask(grid, start, settings_of("qffl")[1], train_config)
    expected = 0.5 * np.square(0.5 - examples.astype(float)).mean()
    assert content["metrics"]["initial-loss"] == pytest.approx(expected, rel=1e-6)
