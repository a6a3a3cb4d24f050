"""Which actor acts as which client in a round."""

import pytest

from fedrage_flwr.grids.ray import share_out


@pytest.mark.parametrize(
    ("partitions", "movable", "actors", "expected"),
    [
        ([0, 1, 2, 3], True, 2, {0: [0, 2], 1: [1, 3]}),  # each its own
        ([0, 2, 4, 6], True, 2, {0: [0, 1], 1: [2, 3]}),  # the last two of four go over
        ([0, 2, 4, 6], False, 2, {0: [0, 1, 2, 3]}),  # they keep states on another machine
        ([0, 2, 4, 5, 6], True, 2, {0: [0, 1, 2], 1: [3, 4]}),  # three and two is as even as it gets
        ([0, 3, 6, 7], True, 3, {0: [0, 1], 1: [3], 2: [2]}),
        ([5], True, 2, {1: [0]}),
        ([], True, 2, {}),
    ],
)
def test_by_hand(partitions, movable, actors, expected):
    assert share_out(partitions, [movable] * len(partitions), actors) == expected


@pytest.mark.parametrize("actors", [1, 2, 3, 7])
def test_movable_clients_are_shared_evenly(actors):
    """Sizes differ by at most one, whoever was drawn; every client has one actor."""
    for partitions in ([0, 7, 14, 21, 28, 35, 42], list(range(20)), list(range(0, 60, 3))):
        batches = share_out(partitions, [True] * len(partitions), actors)
        sizes = [len(batches.get(actor, [])) for actor in range(actors)]
        assert max(sizes) - min(sizes) <= 1
        assert sorted(place for places in batches.values() for place in places) == list(range(len(partitions)))


def test_only_those_that_may_go():
    """Of 0, 2, 4 on the first actor only the middle one keeps nothing."""
    assert share_out([0, 2, 4], [False, True, False], 2) == {0: [0, 2], 1: [1]}
