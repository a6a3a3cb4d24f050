"""What every availability law offers: a draw per round, and the two exact vectors it must not be judged without.

Inclusion P(i ∈ S) and marginal p_i = E[1{i ∈ S}/|S|] (FedeRage paper, eq. 8, with R(∅) = 0) are different vectors. They
are proportional only when |S| is always M: p_i = P(i ∈ S)/M (eq. 7). Only the client manager holds a law; strategies
never do.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrage_flwr.errors import UserError
from fedrage_flwr.randomness import Stream, generator

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Probabilities:
    """One probability per client: ``values`` float64 (N,), read-only; ``exact`` is False where they are estimates."""

    values: Floats
    exact: bool

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        values.setflags(write=False)
        object.__setattr__(self, "values", values)


@dataclass(frozen=True)
class Terms:
    """What is agreed about nodes whose availability is real.

    Attributes:
        deadline_s: seconds after which a round goes on without those who have not answered.
        enough: so many answers end a round; None waits for all.
        min_sites: so many must be there at the start and contribute at least once.
        required_sites: partition ids of which the same holds.
    """

    deadline_s: float
    enough: int | None
    min_sites: int
    required_sites: tuple[int, ...]


class Law(ABC):
    """A law over subsets of the N clients. Derived from (seed, round) alone, so every draw can be recomputed."""

    Settings: ClassVar[type[Any]]
    terms: Terms | None = None
    """Only where availability is real; a law that is drawn counts on all N nodes."""

    def __init__(self, settings: Any, num_clients: int, rare_clients: int, seed: int) -> None:
        """Check the settings against N = ``num_clients``; the rare clients are the last ``rare_clients`` ids.

        Raises:
            UserError: one line naming the key as typed, its value and what is allowed.
        """
        if rare_clients > num_clients:
            raise UserError(f"rare_clients={rare_clients} must be at most num_clients={num_clients}")
        self.settings, self.num_clients, self.rare_clients, self.seed = settings, num_clients, rare_clients, seed

    @abstractmethod
    def sample(self, round: int) -> Ids:
        """Return the sorted partition ids of this round (int64); empty only under ``markov`` and ``trace``."""

    @abstractmethod
    def inclusion(self) -> Probabilities:
        """Return P(i ∈ S)."""

    @abstractmethod
    def marginals(self) -> Probabilities:
        """Return p_i = E[1{i ∈ S}/|S|] given that S is not empty; sums to 1."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return what the next draw needs besides seed and round: nothing, unless the law has a memory."""
        return {}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:  # noqa: B027 (most laws have nothing to restore)
        """Restore what ``state_dict`` returned."""


class IndependentLaw(Law):
    """A law whose rounds are independent: it only says how one subset is drawn."""

    def sample(self, round: int) -> Ids:
        return self._draw(generator(self.seed, Stream.AVAILABILITY, round))

    @abstractmethod
    def _draw(self, rng: np.random.Generator) -> Ids:
        """Draw one subset, sorted."""


class FixedSizeLaw(IndependentLaw):
    """A law with |S| = M = ``clients_per_round`` always."""

    def __init__(self, settings: Any, num_clients: int, rare_clients: int, seed: int) -> None:
        super().__init__(settings, num_clients, rare_clients, seed)
        self.clients_per_round: int = settings.clients_per_round
        if self.clients_per_round > num_clients:
            raise refused("clients_per_round", self.clients_per_round, f"must be at most num_clients={num_clients}")

    def marginals(self) -> Probabilities:
        """Return p_i = P(i ∈ S)/M (eq. 7)."""
        inclusion = self.inclusion()
        return Probabilities(inclusion.values / self.clients_per_round, inclusion.exact)


def refused(key: str, value: object, allowed: str) -> UserError:
    """Return the error for one RAM key: the key as typed, its value, and what is allowed."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        entries = ", ".join(str(v) for v in value[:5])
        value = f"[{entries}]" if len(value) <= 5 else f"[{entries}, …]"
    return UserError(f"ram.{key}={'null' if value is None else value} {allowed}")


def per_client(key: str, values: Sequence[float], num_clients: int, high: float = np.inf) -> Floats:
    """Return ``values`` as an array (N,).

    Raises:
        UserError: not N entries, or one that is not a finite number in [0, ``high``].
    """
    if len(values) != num_clients:
        raise refused(key, values, f"has {len(values)} entries, must have num_clients={num_clients}")
    array = np.asarray(values, dtype=np.float64)
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0) & (array <= high)))
    if wrong.size:
        allowed = "must be a finite number, at least 0" if high == np.inf else f"must be between 0 and {high:g}"
        raise refused(f"{key}[{wrong[0]}]", array[wrong[0]], allowed)
    return array
