"""Markov: each client is an on/off chain of its own; S is whoever is on. Correlated over rounds, so outside the theory.

| code | meaning |
| --- | --- |
| ``on_rate`` | P(off → on) in one round |
| ``off_rate`` | P(on → off) in one round |
| ``pi`` | stationary P(on) = on_rate/(on_rate + off_rate) |

Round 0 is drawn from the stationary law, so P(i ∈ S) = π_i in every round; rounds with nobody are empty. The on/off
state is kept between calls, but it is a function of (seed, round): an earlier round is replayed from round 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrage_flwr.availability.base import Floats, Ids, Law, Probabilities, per_client, refused
from fedrage_flwr.availability.poisson_binomial import mean_share
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.settings import Interval

OnRate = Annotated[float, Interval(gt=0, le=1)]
OffRate = Annotated[float, Interval(gt=0, lt=1)]  # below 1: no chain alternates with period two


class Markov(Law):
    """Independent two-state chains, started in their stationary law."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["markov"]
        on_rate: OnRate | Sequence[OnRate]  # P(off → on) per round: one number, or one per client
        off_rate: OffRate | Sequence[OffRate]  # P(on → off) per round

    def __init__(self, settings: Any, num_clients: int, rare_clients: int, seed: int) -> None:
        super().__init__(settings, num_clients, rare_clients, seed)
        self.on_rate, self.off_rate = self._rates("on_rate"), self._rates("off_rate")
        self.pi = self.on_rate / (self.on_rate + self.off_rate)
        self._round, self._on = -1, np.zeros(num_clients, dtype=np.bool_)

    def _rates(self, key: str) -> Floats:
        value = getattr(self.settings, key)
        if not isinstance(value, Sequence):
            return np.full(self.num_clients, value, dtype=np.float64)
        rates = per_client(key, value, self.num_clients, high=1)
        if not rates.all():
            raise refused(key, value, "must be above 0 for every client")
        return rates

    def sample(self, round: int) -> Ids:
        """Return the clients that are on in this round (≥ 0); steps on from the last round asked for, or replays."""
        if round < self._round or self._round < 0:
            self._round, self._on = 0, self._uniforms(0) < self.pi
        while self._round < round:
            self._round += 1
            u = self._uniforms(self._round)
            self._on = np.where(self._on, u >= self.off_rate, u < self.on_rate)
        return np.flatnonzero(self._on)

    def _uniforms(self, round: int) -> Floats:
        return generator(self.seed, Stream.AVAILABILITY, round).random(self.num_clients)

    def inclusion(self) -> Probabilities:
        """Return the stationary P(on), empty rounds counted."""
        return Probabilities(self.pi, exact=True)

    def marginals(self) -> Probabilities:
        """Return E[1{i}/K | K > 0] under the stationary law."""
        return Probabilities(mean_share(self.pi), exact=True)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the last round drawn (−1: none yet), int64 (), and who was on in it, bool (N,)."""
        return {"round": np.array(self._round, dtype=np.int64), "on": self._on.copy()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Restore ``state_dict``; ``ValueError`` when it is not of N clients."""
        on: NDArray[np.bool_] = np.asarray(state["on"], dtype=np.bool_).copy()
        if on.shape != (self.num_clients,):
            raise ValueError(f"the saved state holds {on.size} clients, not num_clients={self.num_clients}")
        self._round, self._on = int(state["round"]), on
