"""Uniform: M of the N clients, every subset alike. P(i ∈ S) = M/N, p_i = 1/N (FedeRage paper, eq. 7)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedrage_flwr.availability.base import FixedSizeLaw, Ids, Probabilities
from fedrage_flwr.settings import Ge


class Uniform(FixedSizeLaw):
    """M of N without replacement, all alike."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["uniform"]
        clients_per_round: Annotated[int, Ge(1)]  # M

    def _draw(self, rng: np.random.Generator) -> Ids:
        return np.sort(rng.choice(self.num_clients, self.clients_per_round, replace=False, shuffle=False))

    def inclusion(self) -> Probabilities:
        """Return M/N for every client."""
        return Probabilities(np.full(self.num_clients, self.clients_per_round / self.num_clients), exact=True)
