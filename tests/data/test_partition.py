"""Counts that follow from the definitions, and what holds for every partitioner."""

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from fedrage_flwr.data import PARTITIONS, Dataset, Partition, Split, on_validation, partition
from fedrage_flwr.errors import UserError
from fedrage_flwr.settings import lookup

OWN: dict[str, dict[str, Any]] = {
    "iid": {},
    "pathological": {"classes_per_client": 2},
    "dirichlet": {"alpha": 0.3, "min_examples": 3},
    "quantity": {"alpha": 0.3, "min_examples": 3},
    "rare_classes": {
        "reading": "exclusive",
        "classes": None,
        "num_rare_classes": 2,
        "classes_per_client": 2,
        "max_examples": None,
    },
}


def settings(name: str, **changes: Any) -> Any:
    values = {"name": name, "seed": 0, "validation_fraction": 0.0} | OWN[name] | changes
    return TypeAdapter(lookup(PARTITIONS, name).Settings).validate_python(values)


def share(name: str, dataset: Dataset, num_clients: int, rare_clients: int = 0, **changes: Any) -> Partition:
    return partition(settings(name, **changes), dataset, num_clients, rare_clients)


def trained(part: Partition) -> list[np.ndarray]:
    """Each client's training and validation examples."""
    return [np.concatenate([client.train, client.validation]) for client in part.clients]


def classes_of(part: Partition, dataset: Dataset) -> list[set[int]]:
    labels = dataset.train.labels.numpy()
    return [set(labels[indices].tolist()) for indices in trained(part)]


def lists(part: Partition) -> list[list[list[int]]]:
    return [[c.train.tolist(), c.validation.tolist(), c.test.tolist()] for c in part.clients]


ALL: list[tuple[str, dict[str, Any]]] = [("iid", {}), ("pathological", {}), ("dirichlet", {}), ("quantity", {})] + [
    ("rare_classes", {"reading": reading}) for reading in ("exclusive", "sorted", "shared")
]


@pytest.mark.parametrize(("name", "changes"), ALL)
def test_every_example_lies_with_exactly_one_client(name: str, changes: dict[str, Any], tiny: Any) -> None:
    labels = [k for k in range(5) for _ in range(41 + k)]  # 215
    dataset = tiny(labels, labels[::3])
    part = share(name, dataset, 10, 2, validation_fraction=0.25, **changes)
    assert len(part.clients) == 10
    assert sorted(np.concatenate(trained(part)).tolist()) == list(range(215))
    assert sorted(np.concatenate([c.test for c in part.clients]).tolist()) == list(range(72))
    for client in part.clients:
        assert len(client.validation) == (len(client.train) + len(client.validation)) // 4
        for indices in (client.train, client.validation, client.test):
            assert indices.dtype == np.int64
            assert (np.diff(indices) > 0).all()


@pytest.mark.parametrize(("name", "changes"), ALL)
def test_same_seed_same_partition(name: str, changes: dict[str, Any], tiny: Any) -> None:
    labels = list(range(5)) * 40
    dataset = tiny(labels, labels[:50])
    first = lists(share(name, dataset, 10, 2, validation_fraction=0.1, **changes))
    assert lists(share(name, dataset, 10, 2, validation_fraction=0.1, **changes)) == first
    assert lists(share(name, dataset, 10, 2, validation_fraction=0.1, seed=1, **changes)) != first


@pytest.mark.parametrize(("name", "changes"), ALL)
def test_more_clients_than_examples_is_refused(name: str, changes: dict[str, Any], tiny: Any) -> None:
    with pytest.raises(UserError, match=r"num_clients=30: dataset=tiny has only 20 training examples"):
        share(name, tiny([0, 1, 2, 3] * 5), 30, 3, **changes)


def test_validation_share_is_exact_in_spite_of_floats(tiny: Any) -> None:
    part = share("iid", tiny([0] * 100), 1, validation_fraction=0.29)  # 0.29 * 100 = 28.999999999999996
    assert (len(part.clients[0].train), len(part.clients[0].validation)) == (71, 29)


def test_changing_the_validation_fraction_moves_no_example_between_clients(tiny: Any) -> None:
    dataset = tiny([0, 1] * 50)
    none, some = (share("dirichlet", dataset, 5, validation_fraction=f) for f in (0.0, 0.5))
    assert [sorted(a.tolist()) for a in trained(none)] == [sorted(a.tolist()) for a in trained(some)]


def test_iid_sizes_differ_by_at_most_one(tiny: Any) -> None:
    part = share("iid", tiny([0] * 23, [0] * 7), 5)
    assert sorted(len(c.train) for c in part.clients) == [4, 4, 5, 5, 5]
    assert sorted(len(c.test) for c in part.clients) == [1, 1, 1, 2, 2]


def test_o16_iid_shuffles_data_sorted_by_label(tiny: Any) -> None:  # case f
    labels = [0] * 100 + [1] * 100
    part = share("iid", tiny(labels), 2)
    for client in part.clients:
        assert 30 <= np.array(labels)[client.train].sum() <= 70  # sd 3.5


@pytest.mark.parametrize("seed", range(5))
def test_o16_slots_when_the_numbers_do_not_divide(seed: int, tiny: Any) -> None:  # case a
    dataset = tiny(list(range(7)) * 100, list(range(7)) * 20)
    part = share("pathological", dataset, 30, seed=seed)
    held = classes_of(part, dataset)
    assert all(len(classes) == 2 for classes in held)
    holders = Counter(label for classes in held for label in classes)
    assert sorted(holders.values()) == [8, 8, 8, 9, 9, 9, 9]  # 60 slots; a floor would fill 56
    assert sorted(np.concatenate(trained(part)).tolist()) == list(range(700))
    labels, test_labels = dataset.train.labels.numpy(), dataset.test.labels.numpy()
    for client, classes in zip(part.clients, held, strict=True):
        assert set(test_labels[client.test].tolist()) == classes
        for label in classes:  # 100 / 9 and 100 / 8; of 20: 2 or 3
            assert np.count_nonzero(labels[client.train] == label) in (100 // holders[label], 100 // holders[label] + 1)
            assert np.count_nonzero(test_labels[client.test] == label) in (2, 3)


def test_pathological_pairs_are_not_consecutive_classes(tiny: Any) -> None:
    dataset = tiny(list(range(10)) * 30)
    pairs = {
        tuple(sorted(c))
        for seed in range(3)
        for c in classes_of(share("pathological", dataset, 30, seed=seed), dataset)
    }
    assert len(pairs) > 25  # of 45; a consecutive scheme knows 5 or 10


def test_o16_more_classes_per_client_than_classes(tiny: Any) -> None:  # case b
    with pytest.raises(UserError, match=r"partition.classes_per_client=8: the 30 clients share 7 classes; give 1 to 7"):
        share("pathological", tiny(list(range(7)) * 100), 30, classes_per_client=8)


def test_o16_fewer_slots_than_classes_names_the_unused_class(tiny: Any) -> None:  # case c
    with pytest.raises(UserError, match=r"have 6 slots for 7 classes.*class \d \(10 examples\); give 3 or more"):
        share("pathological", tiny(list(range(7)) * 10), 3)


def test_o16_class_with_fewer_examples_than_clients(tiny: Any) -> None:  # case d: 27 slots, 9 per class
    with pytest.raises(UserError, match=r"class 2 has 5 training examples for 9 clients"):
        share("pathological", tiny([0] * 50 + [1] * 50 + [2] * 5), 27, classes_per_client=1)


def test_o16_no_classes_per_client_is_out_of_range() -> None:  # case e
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        settings("pathological", classes_per_client=0)


def test_small_test_split_leaves_clients_without_and_says_so(tiny: Any) -> None:
    part = share("pathological", tiny([0, 1] * 50, [0, 1, 1]), 10, classes_per_client=1)
    assert sum(len(c.test) for c in part.clients) == 3
    assert part.notes == ("pathological: 7 of 10 clients have no test examples",)


@pytest.mark.parametrize("seed", range(10))
def test_o15_every_client_gets_the_minimum(seed: int, tiny: Any) -> None:  # case a
    part = share("dirichlet", tiny(list(range(10)) * 100), 30, seed=seed, alpha=0.05, min_examples=10)
    assert min(len(a) for a in trained(part)) >= 10
    assert sorted(np.concatenate(trained(part)).tolist()) == list(range(1000))
    assert "below min_examples=10" in part.notes[0]


def test_o15_impossible_minimum_is_refused_at_once(tiny: Any) -> None:  # case b
    start = time.perf_counter()
    with pytest.raises(UserError, match=r"partition.min_examples=50: 30 clients × 50 .* 1000 .* at most 33"):
        share("dirichlet", tiny(list(range(10)) * 100), 30, alpha=0.05, min_examples=50)
    assert time.perf_counter() - start < 1


def test_o15_the_largest_possible_minimum_ends(tiny: Any) -> None:
    part = share("dirichlet", tiny(list(range(10)) * 99), 30, alpha=0.05, min_examples=33)
    assert [len(a) for a in trained(part)] == [33] * 30


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["dirichlet", "quantity"])
def test_o15_alpha_out_of_range(name: str, alpha: float) -> None:  # case c
    with pytest.raises(ValidationError):
        settings(name, alpha=alpha)


@pytest.mark.parametrize("name", ["dirichlet", "quantity"])
@pytest.mark.parametrize("alpha", [1e-300, 1e6])
def test_o15_extreme_alpha(name: str, alpha: float, tiny: Any) -> None:
    part = share(name, tiny(list(range(10)) * 30), 10, alpha=alpha, min_examples=1)
    sizes = [len(a) for a in trained(part)]
    assert sum(sizes) == 300
    assert min(sizes) >= 1
    if alpha == 1e6:
        assert max(sizes) - min(sizes) <= 10


def test_o15_same_partition_in_another_process(tiny: Any) -> None:
    code = (
        "import torch; from fedrage_flwr.data import *; from fedrage_flwr.data.partition.dirichlet import Dirichlet;"
        "y = torch.arange(10).repeat(20); s = Split(torch.zeros(200, 1, 1, 1, dtype=torch.uint8), y);"
        "d = Dataset('tiny', s, s, 10, (0.,), (1.,), 255.);"
        "p = partition(Dirichlet.Settings('dirichlet', 0, 0.0, 0.3, 3), d, 8, 0);"
        "print([c.train.tolist() for c in p.clients])"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    part = share("dirichlet", tiny(list(range(10)) * 20), 8)
    assert out.stdout.strip() == str([c.train.tolist() for c in part.clients])


def test_dirichlet_test_split_follows_the_training_proportions(tiny: Any) -> None:
    dataset = tiny([0] * 400 + [1] * 400, [0] * 100 + [1] * 100)
    labels, test_labels = dataset.train.labels.numpy(), dataset.test.labels.numpy()
    for client in share("dirichlet", dataset, 5).clients:
        for label in (0, 1):
            have = np.count_nonzero(labels[client.train] == label)
            assert abs(np.count_nonzero(test_labels[client.test] == label) - have / 4) <= 1


def test_quantity_mixes_labels_and_skews_sizes(tiny: Any) -> None:
    dataset = tiny([0] * 500 + [1] * 500, [0] * 100)
    part = share("quantity", dataset, 10, alpha=0.5)
    sizes = [len(c.train) for c in part.clients]
    assert max(sizes) > 5 * min(sizes)
    for client in part.clients:
        assert abs(len(client.test) - len(client.train) / 10) <= 1
        if len(client.train) > 100:
            assert 0.3 < dataset.train.labels[client.train].float().mean() < 0.7


def test_validation_parts_in_the_place_of_test_parts(tiny):
    """Every client is measured on its own validation examples, all of them together are the whole test set."""
    labels = [label for label in range(10) for _ in range(20)]
    numbered = Split(torch.arange(200).view(200, 1, 1, 1), torch.tensor(labels))
    balanced = replace(tiny(labels, range(10)), train=numbered)
    shared = share("rare_classes", balanced, 10, 3, validation_fraction=0.2)
    dataset, measured = on_validation(balanced, shared)
    assert len(dataset.test) == sum(len(client.validation) for client in shared.clients)
    for old, new in zip(shared.clients, measured.clients, strict=True):
        assert np.array_equal(old.train, new.train)
        assert torch.equal(dataset.test.labels[new.test], balanced.train.labels[old.validation])
        assert torch.equal(dataset.test.inputs[new.test], balanced.train.inputs[old.validation])
    assert sorted(np.concatenate(measured.test).tolist()) == list(range(len(dataset.test)))
    with pytest.raises(UserError, match="validation_fraction"):
        on_validation(balanced, share("iid", balanced, 4))
