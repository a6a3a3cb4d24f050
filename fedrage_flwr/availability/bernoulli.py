"""Bernoulli: every client on its own with probability π_i, redrawn while nobody came.

| code | meaning |
| --- | --- |
| ``pi`` | π_i, before conditioning on a non-empty round |

P(i ∈ S) = π_i / P(K > 0). The marginal p_i = E[1{i}/K | K > 0] (FedeRage paper, eq. 8) is exact, see ``mean_share``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from fedrage_flwr.availability.base import Ids, IndependentLaw, Probabilities, per_client, refused
from fedrage_flwr.availability.poisson_binomial import mean_share, probability_any
from fedrage_flwr.settings import Interval

Probability = Annotated[float, Interval(ge=0, le=1)]


class Bernoulli(IndependentLaw):
    """Independent clients, conditional on at least one."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["bernoulli"]
        probability: Probability  # π of every client, unless one of the next two says otherwise
        rare_probability: Probability | None  # π of the last rare_clients clients
        probabilities: Sequence[Probability] | None  # π_i of each client; replaces both

    def __init__(self, settings: Any, num_clients: int, rare_clients: int, seed: int) -> None:
        super().__init__(settings, num_clients, rare_clients, seed)
        if settings.probabilities is not None:
            self.pi = per_client("probabilities", settings.probabilities, num_clients, high=1)
        else:
            self.pi = np.full(num_clients, settings.probability, dtype=np.float64)
            if settings.rare_probability is not None:
                self.pi[num_clients - rare_clients :] = settings.rare_probability
        if not self.pi.any():
            key = "probability" if settings.probabilities is None else "probabilities"
            raise refused(key, getattr(settings, key), "leaves every client at 0; at least one must be positive")

    def _draw(self, rng: np.random.Generator) -> Ids:
        """Draw the first client given that there is one, then those after it: the redrawn law in one pass.

        Redrawing itself would take 1/P(K > 0) tries, which has no bound.
        """
        with np.errstate(divide="ignore"):  # π = 1: certain, hazard ∞
            hazard = np.cumsum(-np.log1p(-self.pi))  # P(first ≤ i) = (1 − e^{−hazard_i}) / (1 − e^{−hazard_N})
        level = -np.log1p((1 - rng.random()) * np.expm1(-hazard[-1]))
        first = np.searchsorted(hazard, min(level, hazard[-1]))
        came = rng.random(self.num_clients) < self.pi
        came[:first] = False
        came[first] = True
        return np.flatnonzero(came)

    def inclusion(self) -> Probabilities:
        """Return π_i / P(K > 0)."""
        return Probabilities(np.minimum(self.pi / probability_any(self.pi), 1), exact=True)

    def marginals(self) -> Probabilities:
        """Return E[1{i}/K | K > 0]."""
        return Probabilities(mean_share(self.pi), exact=True)
