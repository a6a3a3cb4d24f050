"""Mini-batches and the loop."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.training import LocalModel, draw_batches, wants_channels_last


def test_a_batch_has_no_repeats_and_every_example_is_as_likely():
    """20,000 batches of 2 of 5: each example is in a batch with probability 2/5; the count is binomial, and four of its
    standard deviations are exceeded with probability 6·10⁻⁵ each."""
    batches = draw_batches(np.random.default_rng(0), 5, 2, 20_000)
    assert batches.shape == (20_000, 2)
    assert (batches[:, 0] != batches[:, 1]).all()
    counts = np.bincount(batches.ravel(), minlength=5)
    assert (np.abs(counts - 8000) < 4 * np.sqrt(20_000 * 0.4 * 0.6)).all()


@pytest.mark.parametrize("n", [1, 3, 4])
def test_a_small_client_uses_all_it_has(n):
    assert draw_batches(np.random.default_rng(0), n, 4, 2).tolist() == [list(range(n))] * 2


def test_o25_batches_differ_between_rounds_and_clients_and_repeat_for_the_same_key():
    def draw(*key):
        return draw_batches(generator(1, Stream.BATCHES, *key), 100, 8, 2).tolist()

    assert draw(1, 0) == draw(1, 0)
    assert draw(1, 0) != draw(2, 0)
    assert draw(1, 0) != draw(1, 1)


def test_streams_do_not_overlap():
    draws = [tuple(generator(0, stream, 1).integers(0, 2**62, 4)) for stream in Stream]
    assert len(set(draws)) == len(Stream)


def test_load_and_arrays_are_copies():
    model = LocalModel(torch.nn.Linear(1, 1))
    before = model.arrays()
    model.load({"weight": np.array([[5.0]], np.float32), "bias": np.array([1.0], np.float32)})
    after = model.arrays()
    assert after["weight"] == 5
    assert before["weight"] != 5
    after["weight"][:] = 7
    assert model.arrays()["weight"] == 5


class ViewsImages(nn.Module):
    """A user's module that relies on the order of channels in memory, as many do."""

    def __init__(self):
        super().__init__()
        self.convolution, self.linear = nn.Conv2d(2, 3, 3), nn.Linear(3 * 6 * 6, 4)

    def forward(self, inputs):
        outputs = self.convolution(inputs)
        return self.linear(outputs.view(len(outputs), -1))


def test_channels_last_is_a_matter_of_memory_alone():
    """Losses and parameters after two steps are those of the module as it was, to rounding; arrays are in C order."""
    torch.manual_seed(0)
    plain = nn.Sequential(
        nn.Conv2d(2, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 3 * 3, 4)
    )
    model = LocalModel(copy.deepcopy(plain))
    assert model.module[0].weight.is_contiguous(memory_format=torch.channels_last)
    inputs, targets = torch.randn(2, 5, 2, 8, 8), torch.randint(0, 4, (2, 5))
    for x, y in zip(inputs, targets, strict=True):
        loss = nn.functional.cross_entropy(plain(x), y)
        gradients = torch.autograd.grad(loss, list(plain.parameters()))
        with torch.no_grad():
            torch._foreach_add_(list(plain.parameters()), gradients, alpha=-0.1)
            assert model.forward(x, y).item() == pytest.approx(loss.item(), rel=1e-5)
            model.descend(None, 0.1)
    arrays = model.arrays()
    for name, tensor in plain.state_dict().items():
        assert arrays[name].flags.c_contiguous
        np.testing.assert_allclose(arrays[name], tensor, rtol=1e-4, atol=1e-6)
    before = model.outputs(inputs[0])
    model.load(arrays)
    assert torch.equal(model.outputs(inputs[0]), before)


def test_a_users_module_keeps_its_order_in_memory():
    assert LocalModel(ViewsImages()).outputs(torch.zeros(1, 2, 8, 8)).shape == (1, 4)
    assert not wants_channels_last(nn.Sequential(ViewsImages()), torch.device("cpu"))
    assert not wants_channels_last(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.device("cpu"))
    assert not wants_channels_last(nn.Sequential(nn.Conv2d(1, 1, 1)), torch.device("cuda"))
