"""What a finished round is made of, and who may watch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flwr.app import ArrayRecord


@dataclass(frozen=True)
class Outcome:
    """What became of one client that was asked: averaged, rejected, failed or late."""

    client: int
    outcome: str
    reason: str = ""


@dataclass(frozen=True)
class Update:
    """One usable reply: the client's records and metrics."""

    client: int
    records: Mapping[str, ArrayRecord]
    metrics: Mapping[str, float]


@dataclass
class Round:
    """A finished round, as callbacks see it.

    Attributes:
        number: 1..T.
        arrays: θ̂ after the round.
        records: the strategy's other records after the round.
        outcomes: one per client asked, in partition order.
        updates: one per reply averaged, in partition order.
        metrics: means over the updates.
        bytes_up, bytes_down: tensors in the named records, over the round's participants.
        seconds: wall time of the round, callbacks excluded.
        evaluation: filled by the evaluation callback on the rounds it evaluates.
        stop: a callback sets it to a reason to end the run here.
    """

    number: int
    arrays: ArrayRecord
    records: Mapping[str, ArrayRecord]
    outcomes: Sequence[Outcome]
    updates: Sequence[Update]
    metrics: Mapping[str, float]
    bytes_up: int
    bytes_down: int
    seconds: float
    evaluation: dict[str, float | None] = field(default_factory=dict)
    stop: str | None = None


class Callback(Protocol):
    """Sees every finished round; callbacks run in the order given."""

    def after_round(self, round: Round) -> None:
        """Called after each round, empty ones included."""
