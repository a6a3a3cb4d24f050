"""``partition=natural``: every example stays with its owner."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.data import Dataset, Partition, partition
from fedrage_flwr.data.partition.natural import Natural
from fedrage_flwr.errors import UserError
from fedrage_flwr.parts import prepare_run


@pytest.fixture
def owned(tiny: Callable[..., Dataset]) -> Dataset:
    """Three agents with 20, 10 and 5 training and 1, 2 and 0 test examples."""
    dataset = tiny([0] * 35, [0] * 3)
    return replace(
        dataset,
        train_owner=np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [20, 10, 5])),
        test_owner=np.array([1, 0, 1]),
        groups=np.array([0, 0, 1]),
    )


def share(dataset: Dataset, clients: int, fraction: float = 0.1, order: list[int] | None = None) -> Partition:
    return partition(Natural.Settings("natural", 0, fraction, order), dataset, clients, 0)


def test_owners_keep_everything(owned: Dataset) -> None:
    found = share(owned, 3)
    assert owned.train_owner is not None
    for client, part in enumerate(found.clients):
        both = np.concatenate([part.train, part.validation])
        assert np.array_equal(np.sort(both), np.flatnonzero(owned.train_owner == client))
    assert [len(part.validation) for part in found.clients] == [2, 1, 0]
    assert [part.test.tolist() for part in found.clients] == [[1], [0, 2], []]
    assert found.groups is not None
    assert found.groups.tolist() == [0, 0, 1]


def test_order_says_which_agent_a_client_is(owned: Dataset) -> None:
    found = share(owned, 3, 0.0, [2, 0, 1])
    assert [len(part.train) for part in found.clients] == [5, 20, 10]
    assert [part.test.tolist() for part in found.clients] == [[], [1], [0, 2]]
    assert found.groups is not None
    assert found.groups.tolist() == [1, 0, 0]


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3]])
def test_an_order_names_each_agent_once(owned: Dataset, order: list[int]) -> None:
    with pytest.raises(UserError, match=r"partition.order=.*0 to 2 once"):
        share(owned, 3, order=order)


@pytest.mark.parametrize("clients", [2, 4])
def test_as_many_clients_as_agents(owned: Dataset, clients: int) -> None:
    with pytest.raises(
        UserError, match=f"num_clients \\+ held_out_clients is {clients}.*has 3 agents: give num_clients=3"
    ):
        share(owned, clients)


def test_the_two_belong_together(owned: Dataset, tiny: Callable[..., Dataset]) -> None:
    with pytest.raises(UserError, match="partition=natural: the examples of dataset=tiny belong to nobody"):
        share(tiny([0, 1]), 2)
    settings: Any = validate(compose_config(["partition=iid"])).partition
    with pytest.raises(UserError, match=r"partition=iid.*type partition=natural num_clients=3"):
        partition(settings, owned, 3, 0)


def test_other_partitions_have_no_groups(tiny: Callable[..., Dataset]) -> None:
    settings: Any = validate(compose_config(["partition=iid"])).partition
    assert partition(settings, tiny([0] * 9), 3, 0).groups is None


def test_from_the_command_line() -> None:
    job = ["dataset=linear_gaussian", "partition=natural", "model=linear", "ram=full", "rare_clients=0"]
    prepared = prepare_run(validate(compose_config([*job, "num_clients=7", "held_out_clients=2"])))
    assert prepared.partition.groups is not None
    assert prepared.partition.groups.tolist() == [0] * 6 + [1] * 3
    with pytest.raises(UserError, match="is 30, but dataset=linear_gaussian has 9 agents"):
        prepare_run(validate(compose_config(job)))
