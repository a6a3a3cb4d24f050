"""Weighted: successive sampling without replacement. Draw one client ∝ q, remove it, draw again, until M are drawn.

The same law as the M smallest of independent exponential clocks with rates q_i (memorylessness; Rosén 1972, "Asymptotic
theory for successive sampling", Ann. Math. Stat. 43), which gives both the draw and the exact inclusion:

    P(i ∈ S) = ∫₀^∞ q_i e^{−q_i t} · P(#{j ≠ i : clock_j < t} ≤ M−1) dt                         (ALGORITHMS §2)

| code | paper |
| --- | --- |
| ``log_weights`` | log q_i (logarithms: neither 1e-300 nor e^{−i/τ} underflows) |
| ``clients_per_round`` | M |
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np

from fedrage_flwr.availability.base import FixedSizeLaw, Floats, Ids, Probabilities, per_client, refused
from fedrage_flwr.availability.poisson_binomial import binomial_pmf, expect_outside, gauss_panels
from fedrage_flwr.settings import Ge

_CHUNK = 2**20  # numbers per array in the quadrature: 8 MiB
_TILTS = np.geomspace(0.03, 90, 17)  # |θ| of the Chernoff bounds


class Weighted(FixedSizeLaw):
    """M clients by successive sampling with prior weights q_i; q_i = 0 never takes part."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["weighted"]
        weights: Sequence[Annotated[float, Ge(0)]]  # q_i, one per client
        clients_per_round: Annotated[int, Ge(1)]  # M

    def __init__(self, settings: Any, num_clients: int, rare_clients: int, seed: int) -> None:
        super().__init__(settings, num_clients, rare_clients, seed)
        self.log_weights = self._prior_log_weights()
        self.candidates = np.flatnonzero(self.log_weights > -np.inf)
        if self.clients_per_round > len(self.candidates):
            allowed = f"must be at most the number of positive weights={len(self.candidates)}"
            raise refused("clients_per_round", self.clients_per_round, allowed)

    def _prior_log_weights(self) -> Floats:
        """Return log q_i, −inf for zero."""
        with np.errstate(divide="ignore"):
            return np.log(per_client("weights", self.settings.weights, self.num_clients))

    def _draw(self, rng: np.random.Generator) -> Ids:
        # The clock with rate q rings at e^{−(log q + Gumbel)}: the M smallest clocks are the M largest keys.
        keys = self.log_weights[self.candidates] + rng.gumbel(size=len(self.candidates))
        return np.sort(self.candidates[np.argpartition(-keys, self.clients_per_round - 1)[: self.clients_per_round]])

    @cached_property
    def _inclusion(self) -> Probabilities:
        values = np.zeros(self.num_clients)
        values[self.candidates] = successive_inclusion(self.log_weights[self.candidates], self.clients_per_round)
        return Probabilities(values, exact=True)

    def inclusion(self) -> Probabilities:
        """Return the exact P(i ∈ S), see ``successive_inclusion``."""
        return self._inclusion


def successive_inclusion(log_weights: Floats, clients_per_round: int) -> Floats:
    """Return P(i ∈ S) for M = ``clients_per_round`` of the clients by successive sampling, all weights positive.

    Relative error about 1e-14 for small N (against enumeration, weights over twelve decades); at N = 10⁵ the sum misses
    M by 1e-15·M (two distinct weights) to 4e-13·M (all distinct). Equal weights are one group: with G groups, about 200
    quadrature nodes of cost G·M where groups are single clients, G·M² where they are large. N = 10⁵, two weights:
    0.01 s at M = 100, half a second at M = 1000; all weights distinct, M = 10: ten seconds.

    Quadrature in x = log t. Before ``low`` fewer than M clocks have rung almost surely, so that part is 1 − e^{−q t} in
    closed form; after ``high`` more than M have, and nothing is left. Between them P(…) falls from 1 to 0 no faster
    than over 1/√(mean count) in x (|dμ/dx| ≤ σ√μ by Cauchy–Schwarz), so the panels are 3/√M wide, at most 1: e^{−q e^x}
    itself moves over a width of 1.

    Raises:
        ArithmeticError: the values do not sum to M within 1e-9·max(1, M/1000).
    """
    if clients_per_round == len(log_weights):
        return np.ones(len(log_weights))
    log_rates, group, counts = np.unique(log_weights - log_weights.max(), return_inverse=True, return_counts=True)
    low, high = _transition(log_rates, counts, clients_per_round)
    x, widths = gauss_panels(low, high, min(1.0, 3 / math.sqrt(clients_per_round)))
    total = -np.expm1(-_hazard(log_rates, low))
    length = min(clients_per_round, int(counts.max()) + 1)
    chunk = max(1, _CHUNK // (length * len(counts)))
    for start in range(0, len(x), chunk):
        part = slice(start, start + chunk)
        hazard = _hazard(log_rates, x[part, None])
        early = _others_at_most(-np.expm1(-hazard), np.exp(-hazard), counts, clients_per_round - 1, length)
        total += np.einsum("t,tg->g", widths[part], hazard * np.exp(-hazard) * early)
    values = np.asarray(total[group], dtype=np.float64)
    if abs(values.sum() - clients_per_round) > 1e-9 * max(1.0, clients_per_round / 1000):
        raise ArithmeticError(f"inclusion probabilities sum to {values.sum()!r}, not to {clients_per_round}")
    return values


def _hazard(log_rates: Floats, x: Floats | float) -> Floats:
    """Return q t = e^{log q + x}, cut off at e^6.7 = 812, past which e^{−q t} is zero as a float anyway."""
    return np.exp(np.minimum(log_rates + x, 6.7))


def _others_at_most(rung: Floats, silent: Floats, counts: Ids, limit: int, length: int) -> Floats:
    """Return P(#{j ≠ i : rung} ≤ ``limit``) for i in each group, shape (T, G)."""
    outside = expect_outside(binomial_pmf(counts, rung, silent, length), np.ones(limit + 1))
    own = binomial_pmf(counts - 1, rung, silent, length)
    return np.asarray((own * outside).sum(axis=0))


def _transition(log_rates: Floats, counts: Ids, clients_per_round: int) -> tuple[float, float]:
    """Return log times between which the number K of clocks that rang can be M.

    Chernoff with the exact generating function: P(K ≥ M) ≤ e^{−θM} E[e^{θK}] for θ > 0; P(K ≤ M) likewise, θ < 0.
    At ``low`` P(K ≥ M) ≤ 1e-18, which is a relative error of every value; at ``high`` P(K ≤ M) ≤ 1e-30.
    """

    def log_bound(x: float, tilts: Floats) -> float:
        hazard = _hazard(log_rates, x)
        log_rung = np.log(np.maximum(-np.expm1(-hazard), 1e-300))
        exponents = [
            counts @ np.logaddexp(-hazard, log_rung + tilt) - tilt * clients_per_round for tilt in tilts.tolist()
        ]
        return float(min(exponents))

    start = -math.log(counts.sum()) - 60.0  # mean count below e^-60
    end = -float(log_rates.min()) + math.log(
        math.log(counts.sum()) + 160.0
    )  # mean number of silent clocks below e^-160
    low, _ = _bisect(lambda x: log_bound(x, _TILTS) <= math.log(1e-18), start, end)
    _, high = _bisect(lambda x: log_bound(x, -_TILTS) > math.log(1e-30), start, end)
    return low, high


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Narrow [low, high], where ``holds`` turns from true to false, to a width of 0.05."""
    while high - low > 0.05:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
