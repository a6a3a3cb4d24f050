"""Inclusion: M of the N clients with *prescribed* inclusion probabilities π_i, Σ π_i = M.

The design is conditional Poisson sampling (Hájek 1964, Ann. Math. Stat. 35): P(S) ∝ Π_{i∈S} w_i over the subsets of
size M. Chosen because it is the law of maximum entropy with these π (no structure beyond them) and because P(S) is
explicit, so that it can be tested by enumeration; pivotal and Sampford sampling lack one or the other. The weights w
that give π are found by a fixed point in the manner of Chen, Dempster & Liu (1994, "Weighted finite population sampling
to maximize entropy", Biometrika 81).

| code | paper |
| --- | --- |
| ``pi`` | π_i; 0 and 1 are set apart: never and always drawn |
| ``log_odds`` | log w_i, shifted so that p_i = w_i/(1+w_i) sum to M: independent p_i given K = M are the design |
| ``_ratios`` | log R(M−1, −i) − log R(M, −i), R the elementary symmetric functions of w |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from fedrage_flwr.availability.base import FixedSizeLaw, Floats, Ids, Probabilities, per_client, refused
from fedrage_flwr.availability.poisson_binomial import binomial_pmf, expect_outside
from fedrage_flwr.settings import Ge, Interval

Probability = Annotated[float, Interval(ge=0, le=1)]


class Inclusion(FixedSizeLaw):
    """Fixed size, prescribed P(i ∈ S), maximum entropy."""

    @dataclass(frozen=True)
    class Settings:
        name: Literal["inclusion"]
        probabilities: Sequence[Probability] | None  # π_i of each client; replaces rare_probability
        rare_probability: Probability | None  # π of the last rare_clients clients; the others share the rest
        clients_per_round: Annotated[int, Ge(1)]  # M

    def __init__(self, settings: Any, num_clients: int, rare_clients: int, seed: int) -> None:
        super().__init__(settings, num_clients, rare_clients, seed)
        self.pi = self._listed() if settings.probabilities is not None else self._rare()
        self.certain = np.flatnonzero(self.pi == 1)
        self.uncertain = np.flatnonzero((self.pi > 0) & (self.pi < 1))
        self.free = self.clients_per_round - len(self.certain)  # places left for the uncertain ones
        self.log_odds = maximum_entropy_log_odds(self.pi[self.uncertain], self.free)
        self._p = _sigmoid(self.log_odds)

    def _listed(self) -> Floats:
        probabilities = self.settings.probabilities
        pi = per_client("probabilities", probabilities, self.num_clients, high=1)
        if abs(pi.sum() - self.clients_per_round) > 1e-9:
            allowed = f"sums to {pi.sum():.10g}, must sum to ram.clients_per_round={self.clients_per_round}"
            raise refused("probabilities", probabilities, allowed)
        return pi

    def _rare(self) -> Floats:
        rare, k, others = self.settings.rare_probability, self.rare_clients, self.num_clients - self.rare_clients
        if rare is None:
            raise refused("rare_probability", None, "must be a number when ram.probabilities=null")
        left = self.clients_per_round - k * rare
        if left < 0 or left > others or (not others and left):
            allowed = f"leaves {left:g} of ram.clients_per_round={self.clients_per_round} to the {others} other clients"
            raise refused("rare_probability", rare, f"{allowed}, must leave 0 to {others}")
        return np.concatenate([np.full(others, left / max(others, 1)), np.full(k, float(rare))])

    def _draw(self, rng: np.random.Generator) -> Ids:
        """Draw independently with p, keep the first try of the right size (rejective sampling, Hájek)."""
        tries = _batch(self._p)
        while self.free:
            came = rng.random((tries, len(self._p))) < self._p
            right = np.flatnonzero(np.count_nonzero(came, axis=1) == self.free)
            if right.size:
                return np.sort(np.concatenate([self.certain, self.uncertain[came[right[0]]]]))
        return self.certain.copy()

    def inclusion(self) -> Probabilities:
        """Return the prescribed π; the design meets it to 1e-12."""
        return Probabilities(self.pi, exact=True)


def _batch(p: Floats) -> int:
    """Return how many tries make a hit likely: P(K = M) is near 1/√(2πd), d = Σ p(1−p); at most 4 million numbers."""
    wanted = 2 * math.sqrt(2 * math.pi * float((p * (1 - p)).sum()) + 1)
    return max(1, min(math.ceil(wanted), 2**22 // max(1, len(p))))


def maximum_entropy_log_odds(pi: Floats, size: int) -> Floats:
    """Return log w with P(i ∈ S) = π_i under P(S) ∝ Π_{i∈S} w_i, |S| = ``size``, to 1e-13 (1e-12 at the worst).

    Chen, Dempster & Liu iterate w ← π R(M)/R(M−1, −i), slow when some π are near 1. Here on both sides at once, on
    odds: log w ← ½ log w + ½ (logit π_i − log R(M−1,−i)/R(M,−i)). The covariance of the indicators is a graph Laplacian
    (off-diagonal terms ≤ 0, rows sum to 0), the undamped step has eigenvalues 1 − [0, 2], so the half step contracts.

    Args:
        pi: strictly between 0 and 1, summing to ``size``.
        size: M.

    Raises:
        ArithmeticError: no convergence.
    """
    if not len(pi):
        return np.zeros(0)
    values, group, counts = np.unique(pi, return_inverse=True, return_counts=True)
    values = values * (size / (counts @ values))
    target = np.log(values) - np.log1p(-values)
    log_odds = _centred(target, counts, size)
    error = math.inf
    for _ in range(1000):
        step = target - (log_odds + _ratios(log_odds, counts, size))
        error = float(np.abs(step * values * (1 - values)).max())  # ≈ |π(w) − π|
        if error <= 1e-14:
            break
        log_odds = _centred(log_odds + step / 2, counts, size)
    if error > 1e-12:
        raise ArithmeticError(f"the conditional Poisson weights did not converge: inclusion is off by {error:.1e}")
    return np.asarray(log_odds[group])


def _ratios(log_odds: Floats, counts: Ids, size: int) -> Floats:
    """Return log P(K₋ᵢ = M−1) − log P(K₋ᵢ = M), K₋ᵢ the count of the others; adding log w_i gives logit P(i ∈ S)."""
    p, q = _sigmoid(log_odds)[None], _sigmoid(-log_odds)[None]
    length = min(size, int(counts.max())) + 1
    exactly = np.zeros(size + 1)
    exactly[size] = 1.0
    outside = expect_outside(binomial_pmf(counts, p, q, length), exactly)[:, 0]  # [r]: others outside the group = M − r
    own = binomial_pmf(counts - 1, p, q, length)[:, 0]
    return np.asarray(np.log((own[:-1] * outside[1:]).sum(axis=0)) - np.log((own * outside).sum(axis=0)))


def _centred(log_odds: Floats, counts: Ids, size: int) -> Floats:
    """Shift so that the independent p sum to M (bisection): P(K = M) is then as large as can be."""
    spread = float(np.abs(log_odds).max()) + math.log(counts.sum()) + 1
    low, high = -spread, spread
    for _ in range(60):
        shift = (low + high) / 2
        short = float(counts @ _sigmoid(log_odds + shift)) < size
        low, high = (shift, high) if short else (low, shift)
    return log_odds + low


def _sigmoid(x: Floats) -> Floats:
    """Return 1/(1 + e^{−x})."""
    with np.errstate(over="ignore"):  # 1/∞ = 0 is the limit
        return np.asarray(1 / (1 + np.exp(-x)))
