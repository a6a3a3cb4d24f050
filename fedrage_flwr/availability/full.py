"""Full participation: S = {0, …, N−1} in every round. P(i ∈ S) = 1, p_i = 1/N."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedrage_flwr.availability.base import Ids, Law, Probabilities


class Full(Law):
    """Everybody, always."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["full"]

    def sample(self, round: int) -> Ids:
        """Return all ids, whatever the round."""
        return np.arange(self.num_clients, dtype=np.int64)

    def inclusion(self) -> Probabilities:
        """Return ones."""
        return Probabilities(np.ones(self.num_clients), exact=True)

    def marginals(self) -> Probabilities:
        """Return 1/N for every client."""
        return Probabilities(np.full(self.num_clients, 1 / self.num_clients), exact=True)
