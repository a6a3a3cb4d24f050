"""Clusters in the plane: corners by hand, and moments of what is drawn."""

import numpy as np
import pytest
import torch

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.data import load_dataset, partition
from fedrage_flwr.data.toy2d import Toy2d, centres
from fedrage_flwr.errors import UserError
from fedrage_flwr.explain import make_law


def test_corners_by_hand():
    np.testing.assert_allclose(centres(4, 2.0), [[0, 2], [-2, 0], [0, -2], [2, 0]], atol=1e-12)
    pentagon = centres(5, 1.0)
    sides = np.linalg.norm(pentagon - np.roll(pentagon, 1, axis=0), axis=1)
    np.testing.assert_allclose(sides, 2 * np.sin(np.pi / 5))


def test_a_cluster_is_a_class_and_a_client():
    """20,000 points of each: means and covariances within five standard errors (about 10⁻⁶ of error each, 25 numbers)."""
    settings = Toy2d.Settings("toy2d", 5, 2.0, 0.5, 20_000, 3, 0)
    dataset = Toy2d(settings).load()
    assert dataset.train.inputs.shape == (100_000, 2)
    assert dataset.train.inputs.dtype == torch.float32
    assert dataset.test.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert np.array_equal(dataset.train_owner, dataset.train.labels.numpy())
    for k, centre in enumerate(centres(5, 2.0)):
        points = dataset.train.inputs[dataset.train.labels == k].double().numpy()
        np.testing.assert_allclose(points.mean(axis=0), centre, atol=5 * 0.5 / np.sqrt(20_000))
        np.testing.assert_allclose(np.cov(points.T), 0.25 * np.eye(2), atol=5 * 0.25 * np.sqrt(2 / 20_000))


def test_more_examples_leave_the_first_where_they_were():
    few, many = (Toy2d(Toy2d.Settings("toy2d", 3, 1.0, 0.1, n, 5, 7)).load() for n in (4, 9))
    assert torch.equal(few.train.inputs[:4], many.train.inputs[:4])
    assert not torch.equal(few.train.inputs[:4], few.test.inputs[:4])


def test_the_experiment_is_that_of_the_paper():
    """Three clients with probability 0.3, two with 0.05, one at a time; client k holds cluster k."""
    config = validate(compose_config(["experiment=toy2d"]))
    np.testing.assert_allclose(make_law(config).inclusion().values, [0.3, 0.3, 0.3, 0.05, 0.05], atol=1e-9)
    np.testing.assert_allclose(make_law(config).marginals().values, [0.3, 0.3, 0.3, 0.05, 0.05], atol=1e-9)
    dataset = load_dataset(config.dataset)
    shared = partition(config.partition, dataset, config.all_clients, config.rare_clients)
    for client in range(5):
        assert set(dataset.train.labels[shared.train[client]].tolist()) == {client}


@pytest.mark.parametrize(("key", "value"), [("clusters", 1), ("radius", 0.0), ("noise", -1.0)])
def test_mistakes(key, value):
    with pytest.raises(UserError, match=f"dataset.{key}"):
        validate(compose_config(["experiment=toy2d", f"dataset.{key}={value}"]))
