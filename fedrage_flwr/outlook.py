"""What an algorithm can say about itself under a law: for the person who reads about a run, never for the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Outlook:
    """The law in numbers.

    Attributes:
        num_rounds: T.
        inclusion: P(i ∈ S), shape (N,).
        marginals: p_i = E[1{i ∈ S}/|S|], shape (N,).
    """

    num_rounds: int
    inclusion: np.ndarray
    marginals: np.ndarray

    @property
    def num_clients(self) -> int:
        """N."""
        return len(self.inclusion)

    @property
    def participants(self) -> float:
        """E|S|; M where every round has M participants."""
        return float(self.inclusion.sum())


@dataclass(frozen=True, eq=False)
class Explanation:
    """What an algorithm makes of it.

    Attributes:
        lines: pairs of a name and a sentence.
        columns: one number per client, shape (N,), by name.
    """

    lines: Sequence[tuple[str, str]] = ()
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)


def name_clients(ids: Sequence[int] | np.ndarray, most: int = 10) -> str:
    """Write ids out, at most ``most`` of them: ``3, 4, 5 and 7 more``."""
    shown = ", ".join(str(int(i)) for i in ids[:most])
    return shown + (f" and {len(ids) - most} more" if len(ids) > most else "")
