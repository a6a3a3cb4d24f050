"""M models at once against one model at a time: the same steps, to rounding."""

import numpy as np
import pytest
import torch
from torch import nn

from fedrage_flwr import stacked, training
from fedrage_flwr.losses import cross_entropy
from fedrage_flwr.stacked import StackedModel, can_walk
from fedrage_flwr.training import KNOWN_LAYERS, LocalModel, local_sgd


class Unknown(nn.Module):
    """Not a chain of known layers."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 10)

    def forward(self, inputs):
        return self.inner(inputs.flatten(1)).sin()


MODELS = {
    "softmax": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 10)),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 7), nn.ReLU(), nn.Linear(7, 10, bias=False)),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 10)
    ),
    "unknown": Unknown,
}


class Weighted:
    """Hooks with a weight that depends on the loss and a direction that depends on the parameters."""

    def step_weight(self, loss):
        return torch.where(loss > 2.3, 1.5, 0.5)

    def direction(self, parameters):
        return tuple(0.1 * p for p in parameters)

    def update_state(self, weight):
        pass


@pytest.fixture(params=[*MODELS, "cnn, grouped as on a GPU"])
def name(request, monkeypatch):
    name, _, grouped = request.param.partition(", ")
    if grouped:
        monkeypatch.setattr(stacked, "wants_channels_last", lambda module, device: False)
    return name


@pytest.mark.parametrize("radius", [None, 1.0])
@pytest.mark.parametrize("shared", [True, False])
def test_stacked_training_is_serial_training(name, radius, shared):
    torch.manual_seed(0)
    starts = [LocalModel(MODELS[name]()).arrays() for _ in range(3)]
    inputs, targets = torch.randn(4, 3, 5, 1, 4, 4), torch.randint(0, 10, (4, 3, 5))
    if shared:
        inputs, targets = inputs[:, 0], targets[:, 0]

    like = LocalModel(MODELS[name](), cross_entropy)
    assert can_walk(like.module) == (name != "unknown")
    stacked = StackedModel(like, 3)
    stacked.load(starts)
    losses = local_sgd(stacked, inputs, targets, Weighted(), 0.3, radius)
    for m, (start, found) in enumerate(zip(starts, stacked.arrays(), strict=True)):
        like.load(start)
        own = (inputs, targets) if shared else (inputs[:, m], targets[:, m])
        expected = local_sgd(like, *own, Weighted(), 0.3, radius)
        np.testing.assert_allclose(losses[:, m], expected, rtol=2e-5)
        for key, array in like.arrays().items():
            np.testing.assert_allclose(found[key], array, rtol=2e-4, atol=2e-6)


def test_outputs_of_every_model(name, monkeypatch):
    """In passes of three, and of two for images, and in one."""
    torch.manual_seed(0)
    whole = LocalModel(MODELS[name]())
    monkeypatch.setattr(training, "PASS", 3)
    monkeypatch.setattr(training, "PASS_OF_IMAGES", 2)
    like = LocalModel(MODELS[name]())
    stacked, starts = StackedModel(like, 2), [LocalModel(MODELS[name]()).arrays() for _ in range(2)]
    stacked.load(starts)
    inputs = torch.randn(7, 1, 4, 4)
    outputs = stacked.outputs(inputs)
    for m in range(2):
        for model in (whole, like):
            model.load(starts[m])
            np.testing.assert_allclose(outputs[m], model.outputs(inputs), rtol=1e-5, atol=1e-6)


def test_there_is_a_stack_for_every_known_layer():
    assert set(stacked._LAYERS) == set(KNOWN_LAYERS)
