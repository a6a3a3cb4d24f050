"""Array tools of the partitioners. ``owner[j]`` is the client of example j, int64, ``UNUSED`` for none."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

UNUSED = -1


class _ByClient(Sequence[Indices]):
    """Each client's examples, looked up when asked for."""

    @abstractmethod
    def _of(self, client: int) -> Indices:
        """Those of client 0..N-1."""

    @overload
    def __getitem__(self, client: int) -> Indices: ...
    @overload
    def __getitem__(self, client: slice) -> tuple[Indices, ...]: ...
    def __getitem__(self, client: int | slice) -> Indices | tuple[Indices, ...]:
        if isinstance(client, slice):
            return tuple(self[i] for i in range(*client.indices(len(self))))
        return self._of(range(len(self))[client])  # IndexError where there is none


@dataclass(frozen=True, eq=False)
class Parts(_ByClient):
    """Each client's examples, as views of one array: nothing is held for each of N clients but a bound.

    Attributes:
        examples: those of client 0, then those of client 1, …
        bounds: where each client's begin, and the end, int64 (N + 1,).
    """

    examples: Indices
    bounds: Indices

    @property
    def sizes(self) -> Indices:
        """How many examples each client has, int64 (N,)."""
        return np.diff(self.bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def _of(self, client: int) -> Indices:
        return self.examples[self.bounds[client] : self.bounds[client + 1]]


@dataclass(frozen=True, eq=False)
class Drawn(_ByClient):
    """Each client's examples, made when asked for: nothing at all is held for a client.

    Attributes:
        num_clients: N.
        draw: makes those of one client.
    """

    num_clients: int
    draw: Callable[[int], Indices]

    def __len__(self) -> int:
        return self.num_clients

    def _of(self, client: int) -> Indices:
        return self.draw(client)


def examples_of(owner: Indices, num_clients: int) -> Parts:
    """Return each client's examples in ascending order."""
    order = np.argsort(owner, kind="stable")
    return Parts(order, np.searchsorted(owner[order], np.arange(num_clients + 1)))


def positions_within(owner: Indices, rng: np.random.Generator) -> Indices:
    """Return each example's place, from 0, in a random order of its client's examples."""
    shuffled = rng.permutation(len(owner))
    return places(owner, shuffled[np.argsort(owner[shuffled], kind="stable")])


def places(owner: Indices, order: Indices) -> Indices:
    """Return each example's place, from 0, among those of its owner, (n,), in an ``order`` in which owners rise."""
    ordered = owner[order]
    place = np.empty(len(owner), dtype=np.int64)
    place[order] = np.arange(len(owner)) - np.searchsorted(ordered, ordered)
    return place


def deal(labels: Indices, holds: npt.NDArray[np.bool_], rng: np.random.Generator) -> Indices:
    """Deal the examples of each class out among the clients that hold it: shares differ by at most one.

    Args:
        holds: (num_clients, num_classes). A class nobody holds stays unused.
    """
    owner = np.full(len(labels), UNUSED, dtype=np.int64)
    for label in range(holds.shape[1]):
        holders = rng.permutation(np.flatnonzero(holds[:, label]))
        if len(holders):
            where = rng.permutation(np.flatnonzero(labels == label))
            owner[where] = holders[np.arange(len(where)) % len(holders)]
    return owner


def share_alike(
    owner: Indices, labels: Indices, new_labels: Indices, num_clients: int, rng: np.random.Generator
) -> Indices:
    """Share new examples out so that of each class every client gets the share it has of the old ones, rounded.

    Exact integer arithmetic; shares of equal owners differ by at most one. A class without an old owner stays unused.

    Returns:
        the owner of each new example, (len(new_labels),).
    """
    new_owner = np.full(len(new_labels), UNUSED, dtype=np.int64)
    for label in np.unique(new_labels):
        old = owner[labels == label]
        counts = np.bincount(old[old != UNUSED], minlength=num_clients)
        if not counts.any():
            continue
        where = rng.permutation(np.flatnonzero(new_labels == label))
        clients = rng.permutation(num_clients)  # or rounding would favour the same ids in every class
        sizes = apportion(counts[clients], len(where))
        new_owner[where] = np.repeat(clients, sizes)
    return new_owner


def apportion(weights: Indices, total: int) -> Indices:
    """Cut ``total`` into parts proportional to integer ``weights``, by rounding the cumulative sums."""
    cumulative = np.cumsum(weights, dtype=np.int64)
    cuts = (2 * cumulative * total + cumulative[-1]) // (2 * cumulative[-1])
    sizes: Indices = np.diff(cuts, prepend=0)
    return sizes


def sizes_from(shares: npt.NDArray[np.float64], total: int) -> Indices:
    """Cut ``total`` into parts proportional to ``shares`` (which sum to 1) by rounding the cumulative sums."""
    cuts = np.rint(np.cumsum(shares[:-1]) * total).astype(np.int64)
    return np.diff(np.minimum(cuts, total), prepend=0, append=total)


def cap(owner: Indices, limit: int, rng: np.random.Generator) -> Indices:
    """Drop random examples of each client beyond ``limit``."""
    return np.where(positions_within(owner, rng) < limit, owner, UNUSED)


def top_up(owner: Indices, minimum: int, num_clients: int, rng: np.random.Generator) -> tuple[Indices, int, int]:
    """Move examples from the largest clients, levelled down together, to those that have fewer than ``minimum``.

    Needs num_clients · minimum ≤ the number of examples. One pass, so it ends for any proportions.

    Returns:
        the new owners, how many examples moved, and to how many clients.
    """
    sizes = np.bincount(owner[owner != UNUSED], minlength=num_clients)
    wanted = np.maximum(minimum - sizes, 0)
    missing = int(wanted.sum())
    if missing == 0:
        return owner, 0, 0
    kept = _level(sizes, missing)
    moving = (owner != UNUSED) & (positions_within(owner, rng) >= kept[owner])
    topped = owner.copy()
    topped[rng.permutation(np.flatnonzero(moving))] = np.repeat(np.arange(num_clients), wanted)
    return topped, missing, int(np.count_nonzero(wanted))


def _level(sizes: Indices, amount: int) -> Indices:
    """Return the sizes after taking ``amount`` one by one from whoever is largest (of equals the lowest id first)."""
    low, high = 0, int(sizes.max())  # the highest level at which enough is above it
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.maximum(sizes - middle, 0).sum()) >= amount:
            low = middle
        else:
            high = middle - 1
    kept = np.minimum(sizes, low)
    too_many = int((sizes - kept).sum()) - amount
    kept[np.flatnonzero(sizes > low)[::-1][:too_many]] += 1
    return kept
