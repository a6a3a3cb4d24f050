"""``partition=rare_classes``: some classes lie with the last ``rare_clients`` clients.

The FedeRage paper gives its rarely available clients the rarest classes; that can be read in three ways (``reading``):

* ``exclusive``: they alone hold the rare classes, each of them all (up to ``classes_per_client``); the slots of the
  others are balanced over the remaining classes as in ``pathological``.
* ``sorted``: examples sorted by label, the rare classes last, cut into N equal contiguous parts. How many classes a
  client holds follows from the cut (``classes_per_client`` has no say); rare classes larger than the share of the rare
  clients also lie with the clients just before, which the notes report.
* ``shared``: ``pathological`` over all classes: rare clients hold what others hold, too. The negative control.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedrage_flwr.data.partition.base import Draw, Partitioner, PartitionSettings, Task
from fedrage_flwr.data.partition.sharing import UNUSED, Indices, cap, deal
from fedrage_flwr.data.partition.slots import draw_slots
from fedrage_flwr.errors import UserError
from fedrage_flwr.settings import Ge


class RareClasses(Partitioner):
    """See the head of this file."""

    @dataclass(frozen=True)
    class Settings(PartitionSettings):
        """See ``conf/partition/rare_classes.yaml``."""

        name: Literal["rare_classes"]
        reading: Literal["exclusive", "sorted", "shared"]
        classes: list[Annotated[int, Ge(0)]] | None
        num_rare_classes: Annotated[int, Ge(1)]
        classes_per_client: Annotated[int, Ge(1)]
        max_examples: Annotated[int, Ge(1)] | None

        def __post_init__(self) -> None:
            """Refuse lists that are empty or name a class twice."""
            if self.classes is not None and len(set(self.classes)) != max(len(self.classes), 1):
                raise ValueError(f"partition.classes={self.classes}: give different classes, at least one, or null")

    settings: Settings

    def assign(self, task: Task) -> tuple[Indices, Sequence[str]]:
        """See the base class."""
        if self.settings.reading == "exclusive":
            owner, note = self._exclusive(task)
        elif self.settings.reading == "sorted":
            owner, note = self._sorted(task)
        else:
            owner, note = self._shared(task)
        capped, notes = self._cap(owner, task)
        return capped, (note, *notes)

    def _exclusive(self, task: Task) -> tuple[Indices, str]:
        self._refuse_no_rare_clients(task)
        rare, origin = self._rare_classes(task)
        common = np.setdiff1d(np.arange(task.num_classes), rare)
        per_client = self.settings.classes_per_client
        num_common = task.num_clients - task.rare_clients
        rng, sizes = self.settings.generator(Draw.SLOTS), task.class_sizes
        holds = np.zeros((task.num_clients, task.num_classes), dtype=np.bool_)
        holds[:num_common, common] = draw_slots(
            common, sizes, num_common, per_client, rng, f"{num_common} common clients"
        )
        holds[num_common:, rare] = draw_slots(
            rare, sizes, task.rare_clients, min(per_client, len(rare)), rng, f"{task.rare_clients} rare clients"
        )
        note = f"clients {num_common} to {task.num_clients - 1} alone hold classes {_list(rare)} ({origin})"
        return deal(task.labels, holds, self.settings.generator(Draw.TRAIN)), f"rare_classes: {note}"

    def _sorted(self, task: Task) -> tuple[Indices, str]:
        self._refuse_no_rare_clients(task)
        rare, origin = self._rare_classes(task)
        common = np.setdiff1d(np.arange(task.num_classes), rare)
        rank = np.empty(task.num_classes, dtype=np.int64)
        rank[np.concatenate([common, rare])] = np.arange(task.num_classes)
        shuffled = self.settings.generator(Draw.TRAIN).permutation(len(task.labels))
        order = shuffled[np.argsort(rank[task.labels[shuffled]], kind="stable")]
        owner = np.empty(len(task.labels), dtype=np.int64)
        owner[order] = np.arange(len(order)) * task.num_clients // len(order)
        holders = owner[np.isin(task.labels, rare)]
        first = int(holders.min()) if len(holders) else task.num_clients
        note = f"classes {_list(rare)} ({origin}) lie with clients {first} to {task.num_clients - 1}"
        return owner, f"rare_classes: {note}; the last {task.rare_clients} clients are rare"

    def _shared(self, task: Task) -> tuple[Indices, str]:
        holds = draw_slots(
            np.arange(task.num_classes),
            task.class_sizes,
            task.num_clients,
            self.settings.classes_per_client,
            self.settings.generator(Draw.SLOTS),
            f"{task.num_clients} clients",
        )
        alone = np.flatnonzero(~holds[: task.num_clients - task.rare_clients].any(axis=0))
        note = f"rare clients alone hold classes {_list(alone)}" if len(alone) else "common clients hold every class"
        return deal(task.labels, holds, self.settings.generator(Draw.TRAIN)), f"rare_classes: shared, {note}"

    def _rare_classes(self, task: Task) -> tuple[Indices, str]:
        """Return the rare classes, ascending, and where they come from."""
        for key, given in (
            ("partition.classes", self.settings.classes),
            ("dataset.rarest_classes", task.rarest_classes),
        ):
            if given is not None:
                _refuse_classes(key, given, task)
                return np.array(sorted(given), dtype=np.int64), key
        number = self.settings.num_rare_classes
        if number >= task.num_classes:
            raise UserError(
                f"partition.num_rare_classes={number}: leaves none of the {task.num_classes} classes to the common "
                f"clients; give 1 to {task.num_classes - 1}"
            )
        drawn = self.settings.generator(Draw.CLASSES).permutation(task.num_classes)[:number]
        return np.sort(drawn), f"drawn from partition.seed={self.settings.seed}"

    def _refuse_no_rare_clients(self, task: Task) -> None:
        if not 1 <= task.rare_clients < task.num_clients:
            raise UserError(
                f"rare_clients={task.rare_clients}: partition.reading={self.settings.reading} needs rare clients "
                f"and others; give 1 to {task.num_clients - 1}, or partition=pathological for none"
            )

    def _cap(self, owner: Indices, task: Task) -> tuple[Indices, list[str]]:
        limit = self.settings.max_examples
        if limit is None:
            return owner, []
        capped = cap(owner, limit, self.settings.generator(Draw.CAP))
        unused = int(np.count_nonzero(capped == UNUSED))
        if unused == 0:
            return capped, []
        of = f"{unused:,} of {len(owner):,} training examples unused"
        return capped, [f"rare_classes: {of} (max_examples={limit})"]


def _refuse_classes(key: str, given: Sequence[int], task: Task) -> None:
    if len(set(given)) != len(given) or not all(0 <= label < task.num_classes for label in given):
        raise UserError(f"{key}={list(given)}: give different classes between 0 and {task.num_classes - 1}")
    if not 1 <= len(given) < task.num_classes:
        raise UserError(
            f"{key}={list(given)}: give 1 to {task.num_classes - 1} classes, so that common clients have some"
        )


def _list(classes: Indices) -> str:
    return ", ".join(str(label) for label in classes)
