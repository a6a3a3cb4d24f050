"""The array tools, on arrays short enough to check by eye."""

import numpy as np
import pytest

from fedrage_flwr.data.partition.sharing import (
    UNUSED,
    _level,
    apportion,
    cap,
    deal,
    examples_of,
    positions_within,
    share_alike,
    sizes_from,
    top_up,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_examples_of_skips_the_unused() -> None:
    owner = np.array([2, 0, UNUSED, 2, 0])
    assert [e.tolist() for e in examples_of(owner, 4)] == [[1, 4], [], [0, 3], []]


def test_positions_count_from_zero_in_every_client() -> None:
    owner = np.array([1, 0, 1, UNUSED, 1, 0])
    position = positions_within(owner, rng())
    assert sorted(position[owner == 1]) == [0, 1, 2]
    assert sorted(position[owner == 0]) == [0, 1]


def test_deal_shares_a_class_among_its_holders_only() -> None:
    holds = np.array([[True, False], [True, True], [False, False]])
    owner = deal(np.array([0, 0, 0, 1, 1, 2]), holds, rng())
    assert sorted(np.bincount(owner[:3], minlength=2)) == [1, 2]
    assert owner[3:].tolist() == [1, 1, UNUSED]


@pytest.mark.parametrize(
    ("weights", "total", "parts"),
    [([1, 1, 2], 8, [2, 2, 4]), ([1, 1, 1], 4, [1, 2, 1]), ([0, 5], 3, [0, 3]), ([1, 1], 0, [0, 0])],
)
def test_apportion_rounds_cumulative_sums(weights: list[int], total: int, parts: list[int]) -> None:
    assert apportion(np.array(weights), total).tolist() == parts


def test_sizes_from_shares() -> None:
    assert sizes_from(np.array([0.25, 0.25, 0.5]), 10).tolist() == [2, 3, 5]  # cuts at 2.5 (even: 2) and 5
    assert sizes_from(np.array([1.0]), 10).tolist() == [10]
    assert sizes_from(np.array([1.0, 0.0]), 3).tolist() == [3, 0]


def test_share_alike_follows_the_old_counts() -> None:
    owner, labels = np.array([0, 0, 0, 1, 1, UNUSED]), np.array([0, 0, 0, 0, 1, 2])
    new = share_alike(owner, labels, np.array([0] * 8 + [1, 2]), 3, rng())
    assert np.bincount(new[:8], minlength=3).tolist() == [6, 2, 0]
    assert new[8:].tolist() == [1, UNUSED]  # nobody trains on class 2


def test_cap_keeps_at_most_so_many() -> None:
    owner = np.array([0] * 5 + [1] * 2 + [UNUSED])
    capped = cap(owner, 3, rng())
    assert np.bincount(capped[capped != UNUSED]).tolist() == [3, 2]
    assert capped[-1] == UNUSED


@pytest.mark.parametrize(
    ("sizes", "amount", "kept"),
    [([9, 5, 1], 3, [6, 5, 1]), ([9, 7, 1], 5, [5, 6, 1]), ([4, 4, 4], 2, [3, 3, 4]), ([3, 0], 3, [0, 0])],
)
def test_level_takes_from_the_largest(sizes: list[int], amount: int, kept: list[int]) -> None:
    assert _level(np.array(sizes), amount).tolist() == kept


def test_top_up_moves_only_what_is_missing() -> None:
    owner = np.array([0] * 10 + [1] * 6 + [2] * 1)  # of four clients two lack 3 and 4; 10, 6 -> 6, 6 -> 4, 5
    topped, moved, clients = top_up(owner, 4, 4, rng())
    assert (moved, clients) == (7, 2)
    assert np.bincount(topped).tolist() == [4, 5, 4, 4]
    assert topped[16] == 2  # who has too little gives nothing


def test_top_up_leaves_a_sufficient_partition_alone() -> None:
    owner = np.array([0, 0, 1, 1])
    assert top_up(owner, 2, 2, rng())[0].tolist() == owner.tolist()
