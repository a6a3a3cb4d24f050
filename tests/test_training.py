"""Mini-batches and the loop."""

import numpy as np
import pytest
import torch

from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.training import LocalModel, draw_batches


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
