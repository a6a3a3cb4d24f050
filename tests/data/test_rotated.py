"""Rotated images: angles by hand, who owns what, files of the plain data set."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrage_flwr.data import Dataset, Split, load_dataset
from fedrage_flwr.data.mnist import Mnist
from fedrage_flwr.data.owners import deal_iid, group_of_agents
from fedrage_flwr.data.rotated import RotatedCifar10, RotatedFashionMnist, RotatedMnist, turn
from fedrage_flwr.errors import UserError


def settings(**changes: Any) -> RotatedMnist.Settings:
    values = {"name": "rotated_mnist", "root": "unused", "groups": [6, 3, 1], "angles": [0, 90, 180], "seed": 0}
    return RotatedMnist.Settings(**{**values, **changes})


def counter(count: int) -> Split:
    """Image j is [[4j, 4j+1], [4j+2, 4j+3]], label j mod 10."""
    inputs = torch.arange(4 * count, dtype=torch.int64).reshape(count, 1, 2, 2)
    return Split(inputs, torch.arange(count) % 10)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    dataset = Dataset("mnist", counter(103), counter(50), 10, (0.5,), (0.25,), 255.0)
    monkeypatch.setattr(Mnist, "load", lambda self: dataset)
    return dataset


def test_angles_by_hand() -> None:
    """Counter-clockwise: the right column becomes the top row."""
    image = torch.tensor([[1, 2], [3, 4]])
    turned = turn(image.expand(4, 1, 2, 2), np.array([0, 1, 2, 3]), [0, 90, 180, 270])
    assert turned[:, 0].tolist() == [
        [[1, 2], [3, 4]],
        [[2, 4], [1, 3]],
        [[4, 3], [2, 1]],
        [[3, 1], [4, 2]],
    ]
    assert image.tolist() == [[1, 2], [3, 4]]


def test_every_channel_turns_alike() -> None:
    image = torch.arange(12).reshape(1, 3, 2, 2)
    turned = turn(image, np.array([0]), [90])
    assert turned.tolist() == [[[[1, 3], [0, 2]], [[5, 7], [4, 6]], [[9, 11], [8, 10]]]]


def test_groups_and_owners(plain: Dataset) -> None:
    """103 examples among 10 agents: three have 11, seven 10; each image is turned as its owner's group is, nothing else."""
    dataset = RotatedMnist(settings()).load()
    assert dataset.groups is not None
    assert dataset.groups.tolist() == [0] * 6 + [1] * 3 + [2]
    for split, before, owner in (
        (dataset.train, plain.train, dataset.train_owner),
        (dataset.test, plain.test, dataset.test_owner),
    ):
        assert owner is not None
        sizes = np.bincount(owner, minlength=10)
        assert sizes.sum() == len(before)
        assert sizes.max() - sizes.min() <= 1
        for image, original, agent in zip(split.inputs, before.inputs, owner, strict=True):
            assert torch.equal(image, torch.rot90(original, int(dataset.groups[agent]), dims=(1, 2)))
        assert torch.equal(split.labels, before.labels)
    assert (dataset.name, dataset.mean, dataset.std, dataset.scale) == ("rotated_mnist", (0.5,), (0.25,), 255.0)


def test_an_agent_has_so_many_training_examples_at_most(plain: Dataset) -> None:
    """103 examples among 10 agents: ten each stay, of those that it has without the limit and in their order."""
    whole, capped = (RotatedMnist(settings(max_examples=limit)).load() for limit in (None, 10))
    assert whole.train_owner is not None
    assert capped.train_owner is not None
    assert np.bincount(capped.train_owner).tolist() == [10] * 10
    assert len(capped.train) == len(capped.train.labels) == 100
    owner_of = {
        tuple(image.flatten().tolist()): owner
        for image, owner in zip(whole.train.inputs, whole.train_owner, strict=True)
    }
    for image, owner in zip(capped.train.inputs, capped.train_owner, strict=True):
        assert owner_of[tuple(image.flatten().tolist())] == owner
    assert len(capped.test) == len(whole.test)
    unlimited = RotatedMnist(settings(max_examples=11)).load()
    assert torch.equal(unlimited.train.inputs, whole.train.inputs)


def test_the_seed_decides_who_owns_what(plain: Dataset) -> None:
    owners = [RotatedMnist(settings(seed=seed)).load().train_owner for seed in (0, 0, 1)]
    assert np.array_equal(owners[0], owners[1])
    assert not np.array_equal(owners[0], owners[2])


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"angles": [0, 90]}, r"dataset.angles=\[0, 90\].*dataset.groups=\[6, 3, 1\]"),
        ({"angles": [0, 90, 90]}, r"dataset.angles=\[0, 90, 90\].*are one group"),
        ({"groups": [], "angles": []}, "one angle for each"),
    ],
)
def test_mistakes(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        settings(**changes)


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torchvision.datasets.utils._get_redirect_url", fail)
    for kind, word in (
        (RotatedMnist, "MNIST/raw"),
        (RotatedFashionMnist, "FashionMNIST/raw"),
        (RotatedCifar10, "cifar-10"),
    ):
        with pytest.raises(UserError, match=f"{word}.* is missing in {tmp_path}"):
            load_dataset(kind.Settings(kind.word, str(tmp_path), [1, 1], [0, 90], 0))  # type: ignore[attr-defined]


def test_dealing_is_even_and_complete() -> None:
    assert group_of_agents([2, 1]).tolist() == [0, 0, 1]
    owner = deal_iid(11, np.array([4, 7, 9]), np.random.default_rng(0))
    assert sorted(np.bincount(owner)[[4, 7, 9]].tolist()) == [3, 4, 4]
    assert set(owner.tolist()) == {4, 7, 9}
