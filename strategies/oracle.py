"""Oracle: importance-weighted averaging that is *told* the participation law. Not a competitor: the price of ignorance.

    θ̂ ← θ̂ + (1/|S|) Σ_{i∈S} (θ_i − θ̂)/(N p_i),      p_i = E[1{i∈S}/|S|]     (FedeRage paper, eq. 8)

Unbiased: its expectation over S is θ̂ + (1/N) Σ_i (θ_i − θ̂), the plain mean over all N clients. The weights apply to
differences, since on θ_i themselves they do not sum to 1. ``self_normalised`` makes them sum to 1 (weights ∝ 1/p_i):
steadier, and biased.

| code | paper |
| --- | --- |
| ``marginals`` | p, shape (N,) |
| ``num_clients`` | N |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from fedrage_flwr.records import to_arrays
from fedrage_flwr.rounds import Update
from strategies.base import BaseStrategy, StrategySettings


@dataclass(frozen=True)
class OracleSettings(StrategySettings):
    """Settings of the oracle."""

    self_normalised: bool


class Oracle(BaseStrategy):
    """An oracle: it knows what the server of a real federation cannot.

    Aims at: Σ f_i/N for small steps, whatever the RAM.
    Stores: nothing.
    Must know: p itself, who is who, and N: an oracle, the ceiling against which ignorance is priced.

    Args:
        settings, client, num_clients: as for every strategy.
        marginals: p, float64, shape (N,).
    """

    Settings = OracleSettings
    told_marginals = True

    def __init__(self, settings: Any, client: Any, num_clients: int, *, marginals: np.ndarray) -> None:
        super().__init__(settings, client, num_clients)
        self.marginals = marginals

    def weights(self, updates: Sequence[Update]) -> list[float]:
        """1/(N p_i) of every update.

        Raises:
            ValueError: somebody arrived whose p_i is 0.
        """
        impossible = [update.client for update in updates if not self.marginals[update.client] > 0]
        if impossible:
            raise ValueError(f"client {impossible[0]} took part although the oracle was told that it never does")
        return [1 / (self.num_clients * float(self.marginals[update.client])) for update in updates]

    def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
        """θ̂ + (1/|S|) Σ v_i (θ_i − θ̂) = θ̂ + v̄ (Σ v_i θ_i / Σ v_i − θ̂), v_i = 1/(N p_i) and v̄ their mean over S."""
        weights = self.weights(updates)
        mean = self.mean(updates, "arrays", weights)
        if not self.settings.self_normalised:
            stretch = sum(weights) / len(weights)
            before = to_arrays(self.broadcast["arrays"])
            for name in self.parameter_names(mean):
                start = before[name]
                change = stretch * (mean[name].astype(np.float64) - start)
                mean[name] = np.asarray(start + change).astype(start.dtype)
        return self.server_step(mean)
