"""One pass over the test set gives the global numbers and every client's own."""

import numpy as np
import pytest
import torch
from torch import nn

from fedrage_flwr import training
from fedrage_flwr.evaluation import ServerMeasure
from fedrage_flwr.records import to_record
from fedrage_flwr.training import LocalModel


@pytest.fixture
def evaluator(monkeypatch):
    """Inputs are logits: the model is the identity. Right on examples 0, 1, 3; wrong on 2."""
    monkeypatch.setattr(training, "PASS", 3)  # two uneven passes
    inputs = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 2.0], [0.0, 2.0]])
    targets = torch.tensor([0, 1, 0, 1])
    linear = nn.Linear(2, 2, bias=False)
    parts = [np.array([0, 1]), np.array([2]), np.array([], np.int64)]
    return ServerMeasure(LocalModel(linear), inputs, targets, lambda x: x, parts)


def test_global_and_per_client_numbers(evaluator):
    """A right example costs ln(1 + e⁻²), the wrong one ln(1 + e²)."""
    found = evaluator(to_record({"weight": np.eye(2, dtype=np.float32)}))
    right, wrong = np.log1p(np.exp(-2)), np.log1p(np.exp(2))
    assert found.accuracy == 0.75
    assert found.loss == pytest.approx((3 * right + wrong) / 4)
    np.testing.assert_array_equal(found.client_accuracy, [1, 0, np.nan])
    np.testing.assert_allclose(found.client_loss, [right, wrong, np.nan], rtol=1e-6)
    assert found.client_examples.tolist() == [2, 1, 0]


def test_it_uses_the_model_it_is_given(evaluator):
    swapped = evaluator(to_record({"weight": np.array([[0, 1], [1, 0]], np.float32)}))
    assert swapped.accuracy == 0.25
    assert evaluator(to_record({"weight": np.eye(2, dtype=np.float32)})).accuracy == 0.75
