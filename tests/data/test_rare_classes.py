"""The three readings of "rare clients hold the rarest classes", counted by hand."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fedrage_flwr.data import Dataset, Partition, partition
from fedrage_flwr.data.partition.rare_classes import RareClasses
from fedrage_flwr.errors import UserError


def share(dataset: Dataset, num_clients: int, rare_clients: int, **changes: Any) -> Partition:
    values: dict[str, Any] = {
        "name": "rare_classes",
        "seed": 0,
        "validation_fraction": 0.0,
        "reading": "exclusive",
        "classes": None,
        "num_rare_classes": 2,
        "classes_per_client": 2,
        "max_examples": None,
    }
    return partition(RareClasses.Settings(**(values | changes)), dataset, num_clients, rare_clients)


def held(part: Partition, dataset: Dataset) -> list[set[int]]:
    labels = dataset.train.labels.numpy()
    return [set(labels[c.train].tolist()) for c in part.clients]


def test_exclusive_is_the_headline_setting(tiny: Any) -> None:
    """30 clients of which 3 rare, 10 classes: clients 27-29 hold both rare classes, 54 slots cover the other eight."""
    dataset = tiny(list(range(10)) * 60, list(range(10)) * 12, rarest_classes=(5, 4))
    part = share(dataset, 30, 3)
    classes = held(part, dataset)
    assert classes[27:] == [{4, 5}] * 3
    assert not any({4, 5} & c for c in classes[:27])
    holders = Counter(label for c in classes[:27] for label in c)
    assert sorted(holders.values()) == [6, 6, 7, 7, 7, 7, 7, 7]
    assert [len(c.train) for c in part.clients[27:]] == [40] * 3  # 120 examples over three
    assert [len(c.test) for c in part.clients[27:]] == [8] * 3
    assert "clients 27 to 29 alone hold classes 4, 5 (dataset.rarest_classes)" in part.notes[0]


def test_rare_classes_given_beat_those_of_the_data_set_and_those_drawn(tiny: Any) -> None:
    dataset = tiny(list(range(6)) * 20, rarest_classes=(5, 4))
    assert held(share(dataset, 6, 1, classes=[0, 3]), dataset)[-1] == {0, 3}


def test_rare_classes_are_drawn_from_the_partition_seed(tiny: Any) -> None:
    dataset = tiny(list(range(6)) * 20)
    drawn = [frozenset(held(share(dataset, 6, 1, seed=seed), dataset)[-1]) for seed in range(20)]
    assert all(len(pair) == 2 for pair in drawn)
    assert len(set(drawn)) > 5  # of 15 pairs
    assert "drawn from partition.seed=3" in share(dataset, 6, 1, seed=3).notes[0]


def test_more_rare_classes_than_a_client_holds_are_spread_over_the_rare_clients(tiny: Any) -> None:
    dataset = tiny(list(range(6)) * 20)
    classes = held(share(dataset, 8, 3, classes=[0, 1, 2]), dataset)
    assert [len(c) for c in classes[5:]] == [2, 2, 2]
    assert Counter(label for c in classes[5:] for label in c) == {0: 2, 1: 2, 2: 2}


def test_one_rare_class_is_all_a_rare_client_holds(tiny: Any) -> None:
    dataset = tiny(list(range(6)) * 20)
    assert held(share(dataset, 8, 3, classes=[2]), dataset)[5:] == [{2}] * 3


def test_sorted_cuts_into_equal_contiguous_parts_rare_classes_last(tiny: Any) -> None:
    """Four classes of 6 examples over 8 clients of 3: order 0, 3, 1, 2, two clients to a class."""
    dataset = tiny([0, 1, 2, 3] * 6, [0, 1, 2, 3] * 2)
    part = share(dataset, 8, 2, reading="sorted", classes=[2, 1])
    assert [len(c.train) for c in part.clients] == [3] * 8
    assert held(part, dataset) == [{0}, {0}, {3}, {3}, {1}, {1}, {2}, {2}]
    assert [dataset.test.labels[c.test].tolist() for c in part.clients] == [[0], [0], [3], [3], [1], [1], [2], [2]]
    assert "classes 1, 2 (partition.classes) lie with clients 4 to 7; the last 2 clients are rare" in part.notes[0]


def test_shared_gives_rare_clients_what_others_hold(tiny: Any) -> None:
    dataset = tiny(list(range(10)) * 60, rarest_classes=(5, 4))
    part = share(dataset, 30, 3, reading="shared")
    classes = held(part, dataset)
    assert set(Counter(label for c in classes for label in c).values()) == {6}
    assert set().union(*classes[:27]) == set(range(10))
    assert part.notes[0] == "rare_classes: shared, common clients hold every class"


def test_cap_drops_training_examples_and_says_how_many(tiny: Any) -> None:
    """Class 2, 60 examples, with one rare client; classes 0 and 1, 10 each, with two others: 60 - 15 are dropped."""
    dataset = tiny([0] * 10 + [1] * 10 + [2] * 60, [2] * 20)
    part = share(dataset, 3, 1, classes=[2], classes_per_client=1, max_examples=15, validation_fraction=0.2)
    assert [(len(c.train), len(c.validation)) for c in part.clients] == [(8, 2), (8, 2), (12, 3)]
    assert len(part.clients[2].test) == 20  # test examples are not capped
    assert "rare_classes: 45 of 80 training examples unused (max_examples=15)" in part.notes
    chosen = np.concatenate([part.clients[2].train, part.clients[2].validation])
    assert len(set(chosen.tolist())) == 15


@pytest.mark.parametrize("reading", ["exclusive", "sorted"])
@pytest.mark.parametrize("rare_clients", [0, 6])
def test_rare_clients_and_others_are_needed(reading: str, rare_clients: int, tiny: Any) -> None:
    with pytest.raises(UserError, match=rf"rare_clients={rare_clients}: .*; give 1 to 5, or partition=pathological"):
        share(tiny(list(range(6)) * 20), 6, rare_clients, reading=reading)


def test_shared_needs_no_rare_clients(tiny: Any) -> None:
    assert len(share(tiny(list(range(6)) * 20), 6, 0, reading="shared").clients) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": [6]}, r"partition.classes=\[6\]: give different classes between 0 and 5"),
        ({"classes": [0, 1, 2, 3, 4, 5]}, r"give 1 to 5 classes"),
        ({"num_rare_classes": 6}, r"partition.num_rare_classes=6: .*give 1 to 5"),
        ({"classes_per_client": 5}, r"partition.classes_per_client=5: the 5 common clients share 4 classes"),
        ({"classes": [0, 1, 2]}, r"the 1 rare clients have 2 slots for 3 classes.*give 3 or more"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(changes: dict[str, Any], message: str, tiny: Any) -> None:
    with pytest.raises(UserError, match=message):
        share(tiny(list(range(6)) * 20), 6, 1, **changes)


@pytest.mark.parametrize("classes", [[], [3, 3]])
def test_lists_that_mean_nothing_are_refused(classes: list[int], tiny: Any) -> None:
    with pytest.raises(ValueError, match=r"partition.classes="):
        share(tiny(list(range(6)) * 20), 6, 1, classes=classes)
