"""Subsets: any law R over subsets of clients, written out as a table. Equation 8 of the FedeRage paper verbatim."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from fedrage_flwr.availability.base import Floats, Ids, IndependentLaw, Probabilities, per_client, refused
from fedrage_flwr.settings import Ge, Interval


class Subsets(IndependentLaw):
    """Subset S_k with probability R(S_k)."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["subsets"]
        subsets: Sequence[Sequence[Annotated[int, Ge(0)]]]  # S_k, each a non-empty list of partition ids
        probabilities: Sequence[Annotated[float, Interval(ge=0, le=1)]]  # R(S_k), summing to 1

    def __init__(self, settings: Any, num_clients: int, rare_clients: int, seed: int) -> None:
        super().__init__(settings, num_clients, rare_clients, seed)
        self.subsets = [self._checked(k, subset) for k, subset in enumerate(settings.subsets)]
        self.probabilities = self._table(settings.probabilities)

    def _checked(self, k: int, subset: Sequence[int]) -> Ids:
        key, ids = f"subsets[{k}]", np.unique(np.asarray(subset, dtype=np.int64))
        if not ids.size:
            raise refused(key, subset, "must name at least one client")
        if ids[0] < 0 or ids[-1] >= self.num_clients:
            raise refused(
                key, subset, f"must hold ids from 0 to {self.num_clients - 1} (num_clients={self.num_clients})"
            )
        if len(ids) < len(subset):
            raise refused(key, subset, "must name each client once")
        return ids

    def _table(self, probabilities: Sequence[float]) -> Floats:
        if len(probabilities) != len(self.subsets) or not self.subsets:
            allowed = f"has {len(probabilities)} entries, must have one for each of the {len(self.subsets)} ram.subsets"
            raise refused("probabilities", probabilities, allowed)
        table = per_client("probabilities", probabilities, len(self.subsets), high=1)
        if abs(table.sum() - 1) > 1e-9:
            raise refused("probabilities", probabilities, f"sums to {table.sum():.10g}, must sum to 1")
        return np.asarray(table / table.sum())

    def _draw(self, rng: np.random.Generator) -> Ids:
        return self.subsets[int(rng.choice(len(self.subsets), p=self.probabilities))].copy()

    def inclusion(self) -> Probabilities:
        """Return Σ_{S ∋ i} R(S)."""
        values = np.zeros(self.num_clients)
        for subset, probability in zip(self.subsets, self.probabilities, strict=True):
            values[subset] += probability
        return Probabilities(values, exact=True)

    def marginals(self) -> Probabilities:
        """Return Σ_{S ∋ i} R(S)/|S| (eq. 8)."""
        values = np.zeros(self.num_clients)
        for subset, probability in zip(self.subsets, self.probabilities, strict=True):
            values[subset] += probability / len(subset)
        return Probabilities(values, exact=True)
