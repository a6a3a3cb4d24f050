"""Linear agents: geometry of the true models, and the closed forms of least squares on what is drawn."""

from typing import Any

import numpy as np
import pytest
import torch

from fedrage_flwr.data.linear_gaussian import LinearGaussian, agents, draw
from fedrage_flwr.losses import LOSSES


def settings(**changes: Any) -> LinearGaussian.Settings:
    values = {
        "name": "linear_gaussian", "groups": [6, 3], "dimension": 4, "distance": 2.0, "spread": 0.1, "outlier": None,
        "noise": 0.5, "delta": 1.0, "examples": 50, "test_examples": 20, "loss": "squared_error", "seed": 0,
    }  # fmt: skip
    return LinearGaussian.Settings(**{**values, **changes})


def test_geometry() -> None:
    """Centres 3 apart, agents 0.2 from theirs, the outlier 7 from the mean of the others."""
    weights, groups = agents([4, 3, 2], 5, 3.0, 0.2, 7.0, seed=1)
    assert groups.tolist() == [0] * 4 + [1] * 3 + [2] * 2 + [3]
    centres = np.stack([3 / np.sqrt(2) * np.eye(5)[g] for g in range(3)])
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert np.linalg.norm(centres[a] - centres[b]) == pytest.approx(3)
    np.testing.assert_allclose(np.linalg.norm(weights[:-1] - centres[groups[:-1]], axis=1), 0.2)
    assert np.linalg.norm(weights[-1] - weights[:-1].mean(axis=0)) == pytest.approx(7)
    assert len(np.unique(weights, axis=0)) == 10


def test_without_spread_a_group_is_one_model() -> None:
    weights, groups = agents([2, 2], 2, 1.0, 0.0, None, seed=0)
    assert np.array_equal(weights[0], weights[1])
    assert np.array_equal(weights[2], weights[3])
    assert groups.tolist() == [0, 0, 1, 1]


def test_shapes_and_owners() -> None:
    dataset = LinearGaussian(settings(outlier=5.0)).load()
    assert dataset.train.inputs.shape == (500, 4)
    assert dataset.train.inputs.dtype == dataset.train.labels.dtype == torch.float32
    assert dataset.test.labels.shape == (200,)
    assert dataset.train_owner is not None
    assert dataset.test_owner is not None
    assert np.bincount(dataset.train_owner).tolist() == [50] * 10
    assert np.bincount(dataset.test_owner).tolist() == [20] * 10
    assert (dataset.input_shape, dataset.num_classes, dataset.loss) == ((4,), 1, "squared_error")
    assert dataset.to_float(dataset.train.inputs) is dataset.train.inputs  # nothing to convert


def test_without_noise_least_squares_finds_the_true_models() -> None:
    weights, groups = agents([2, 1], 4, 2.0, 0.3, None, seed=2)
    dataset = draw(weights, groups, 0.0, 1.5, 30, 10, "squared_error", seed=2)
    inputs, targets = dataset.train.inputs.double().numpy(), dataset.train.labels.double().numpy()
    for agent, weight in enumerate(weights):
        mine = dataset.train_owner == agent
        np.testing.assert_allclose(np.linalg.lstsq(inputs[mine], targets[mine])[0], weight, atol=1e-5)


def test_excess_risk_is_delta_squared_times_the_squared_distance() -> None:
    """40,000 examples: L(w) − L(μ) = δ²‖w − μ‖² within five standard errors of the mean of the differences (two-sided error
    rate 6·10⁻⁷), and L(μ) = σ_e² likewise; each agent its own σ_e."""
    weights = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 3.0]])
    noise, delta, w = [0.3, 2.0], 1.5, np.array([0.5, -1.0, 1.0])
    dataset = draw(weights, np.arange(2), noise, delta, 40_000, 1, "squared_error", seed=0)
    loss = LOSSES[dataset.loss]
    for agent, weight in enumerate(weights):
        mine = torch.from_numpy(np.flatnonzero(dataset.train_owner == agent))
        x, y = dataset.train.inputs[mine].double(), dataset.train.labels[mine].double()
        at_w, at_mu = (loss(x @ torch.from_numpy(v), y).numpy() for v in (w, weight))
        for values, expected in ((at_w - at_mu, delta**2 * np.sum((w - weight) ** 2)), (at_mu, noise[agent] ** 2)):
            assert abs(values.mean() - expected) < 5 * values.std() / 200


def test_an_agent_is_drawn_alone() -> None:
    """More examples, more agents or another noise of the others do not move what agent 0 has."""
    weights = np.eye(3)
    few = draw(weights[:1], np.zeros(1, np.int64), 0.5, 1.0, 5, 5, "squared_error", seed=4)
    many = draw(weights, np.arange(3), [0.5, 9.0, 9.0], 1.0, 5, 5, "squared_error", seed=4)
    assert torch.equal(few.train.inputs, many.train.inputs[:5])
    assert torch.equal(few.train.labels, many.train.labels[:5])
    assert not torch.equal(few.train.inputs, few.test.inputs)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"groups": [1] * 5}, r"dataset.groups=\[1, 1, 1, 1, 1\].*dataset.dimension=4"),
        ({"groups": []}, r"dataset.groups=\[\]"),
        ({"noise": [0.1, 0.2]}, r"dataset.noise=\[0.1, 0.2\].*9 agents"),
    ],
)
def test_mistakes(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        settings(**changes)
