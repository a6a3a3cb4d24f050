"""The statistics of a table (ALGORITHMS of the papers, section 8): spreads, the paper's mark, and tests that are calibrated.

A run's reported value is its mean over the last ten rounds; a cell's is the mean over its seeds. The paper's † is a two-sample
Z-test on the last ten rounds pooled over seeds, as if the rounds of one run were independent runs. They are not, so that it fires
far too often between runs of the same method: ``z_false_positives`` says how often. The test to go by is the paired t over seeds.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

LEVEL = 0.95
ROUNDING = 1e-12  # differences of shares this close are the same one
REPEATS = 20_000  # of a simulation: a rate is known to ± 0.7 percentage points (two standard errors at a half)


@dataclass(frozen=True)
class Spread:
    """What a cell reports; the unit is that of the values.

    Attributes:
        mean: over seeds, of the means over the last ten rounds.
        std_seeds: of those means, n − 1 in the denominator; NaN for one seed.
        std_rounds: within a run: root of the mean over seeds of the rounds' variances, n in the denominator.
        std_pooled: of all rounds of all seeds, n in the denominator; its square is that of std_rounds plus the variance of
            the seeds' means (n in the denominator), where all runs have as many rounds.
        half_width: of the 95 % t-interval of the mean over seeds; NaN for one seed.
        num_seeds: n.
        num_rounds: that were averaged in a run: ten, or fewer in a shorter run.
    """

    mean: float
    std_seeds: float
    std_rounds: float
    std_pooled: float
    half_width: float
    num_seeds: int
    num_rounds: int


def spread(last: Sequence[np.ndarray]) -> Spread:
    """Describe a cell.

    Args:
        last: by seed, the values of the last rounds, each of shape (rounds,); at least one.
    """
    from scipy.stats import t  # type: ignore[import-untyped]

    means = np.array([values.mean() for values in last])
    n = len(means)
    std = float(means.std(ddof=1)) if n > 1 else float("nan")
    return Spread(
        mean=float(means.mean()),
        std_seeds=std,
        std_rounds=float(np.sqrt(np.mean([values.var() for values in last]))),
        std_pooled=float(np.concatenate(last).std()),
        half_width=float(t.ppf((1 + LEVEL) / 2, n - 1) * std / np.sqrt(n)) if n > 1 else float("nan"),
        num_seeds=n,
        num_rounds=min(len(values) for values in last),
    )


def z_test(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    """Two-sided p of the paper's two-sample Z-test, on the last rounds pooled over seeds; NaN where nothing varies.

    z = (m₁ − m₂)/√(s₁²/n₁ + s₂²/n₂), every round a sample, s² with n − 1 in the denominator.
    """
    from scipy.stats import norm

    one, other = np.concatenate(first), np.concatenate(second)
    if min(len(one), len(other)) < 2:
        return float("nan")
    error = np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other))
    return float(2 * norm.sf(abs(one.mean() - other.mean()) / error)) if error > 0 else float("nan")


@dataclass(frozen=True)
class Paired:
    """A difference over the seeds that two cells share.

    Attributes:
        difference: mean of second − first.
        half_width: of its 95 % t-interval; NaN for fewer than two seeds.
        p: two-sided; NaN for fewer than two seeds or where all differences are the same.
        num_seeds: shared.
    """

    difference: float
    half_width: float
    p: float
    num_seeds: int


def paired_t(first: Mapping[int, float], second: Mapping[int, float]) -> Paired | None:
    """Compare two cells seed by seed: with the same seed all methods meet the same participants. None without a shared seed.

    Args:
        first, second: reported value by seed.
    """
    from scipy.stats import t

    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    differences = np.array([second[seed] - first[seed] for seed in shared])
    mean, n = float(differences.mean()), len(differences)
    if n < 2:
        return Paired(mean, float("nan"), float("nan"), n)
    error = float(differences.std(ddof=1) / np.sqrt(n))
    p = float(2 * t.sf(abs(mean) / error, n - 1)) if np.ptp(differences) > ROUNDING else float("nan")
    return Paired(mean, float(t.ppf((1 + LEVEL) / 2, n - 1)) * error, p, n)


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values for all comparisons of a family (Holm 1979, Scand. J. Stat. 6); NaN stays and is no member."""
    adjusted, largest = [float("nan")] * len(p), 0.0
    order = sorted((index for index, value in enumerate(p) if not np.isnan(value)), key=lambda index: p[index])
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p[index]))
        adjusted[index] = largest
    return adjusted


def detectable(num_seeds: int, power: float = 0.8) -> float:
    """The smallest mean difference, in standard deviations of the differences, that a paired t at 5 % finds with ``power``.

    NaN for fewer than two seeds.
    """
    from scipy.optimize import brentq  # type: ignore[import-untyped]
    from scipy.stats import chi, norm, t

    if num_seeds < 2:
        return float("nan")
    df, root = num_seeds - 1, np.sqrt(num_seeds)
    deviations = chi.ppf((np.arange(4000) + 0.5) / 4000, df) / np.sqrt(df)  # of a sample, at even steps of probability
    needed = t.ppf((1 + LEVEL) / 2, df) * deviations  # of √n times the mean difference

    def missing(d: float) -> float:
        return power - float(np.mean(norm.sf(needed - d * root) + norm.cdf(-needed - d * root)))

    return float(brentq(missing, 0.0, 100.0))


@lru_cache
def z_false_positives(num_seeds: int, num_rounds: int, seed_spread: float, round_spread: float) -> float:
    """How often the paper's Z-test fires at 5 % between two cells of the same method: its A/A false-positive rate.

    Simulated (20,000 pairs, always the same draws): normal, independent rounds around seeds' means that are normal as well.

    Args:
        num_seeds: of each cell.
        num_rounds: the last ones of each run.
        seed_spread: standard deviation of the seeds' true means.
        round_spread: standard deviation within a run; only the ratio of the two matters.
    """
    rng = np.random.default_rng(0)
    means = seed_spread * rng.standard_normal((REPEATS, 2, num_seeds, 1))
    values = (means + round_spread * rng.standard_normal((REPEATS, 2, num_seeds, num_rounds))).reshape(REPEATS, 2, -1)
    error = np.sqrt(values.var(axis=2, ddof=1).sum(1) / values.shape[2])
    z = np.abs(values[:, 0].mean(1) - values[:, 1].mean(1)) / error
    return float((z > 1.959963984540054).mean())


def own_false_positives(cell: Spread) -> float:
    """``z_false_positives`` with a cell's own spreads; NaN where they are not known.

    The variance of the seeds' true means is that of the means less what the rounds' own variance puts into them, 0 at least.
    """
    if cell.num_seeds < 2 or cell.num_rounds < 2 or not cell.std_pooled > 0:
        return float("nan")
    of_rounds = cell.std_rounds**2 * cell.num_rounds / (cell.num_rounds - 1)
    of_seeds = max(0.0, cell.std_seeds**2 - of_rounds / cell.num_rounds)
    return z_false_positives(cell.num_seeds, cell.num_rounds, of_seeds**0.5, of_rounds**0.5)


def halves(seeds: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of disjoint halves of the seeds, each pair once; of an odd number one is left out in turn."""
    for first in itertools.combinations(seeds, len(seeds) // 2):
        rest = [seed for seed in seeds if seed not in first]
        for second in itertools.combinations(rest, len(seeds) // 2):
            if first < second:
                yield first, second


@dataclass(frozen=True)
class Rates:
    """How often each test fired at 5 % between halves of one cell's seeds: shares of ``num_pairs`` pairs."""

    z: float
    paired_t: float
    num_pairs: int
    num_seeds: int


def same_against_same(last: Mapping[int, np.ndarray]) -> Rates:
    """Split a cell's seeds into all pairs of halves and test each pair: an A/A test.

    The pairs share seeds, so that this describes these seeds; it is no sample of independent comparisons. Seeds of different
    halves are paired in their order.

    Args:
        last: by seed, the values of the last rounds; four seeds or more.
    """
    fired = []
    for first, second in halves(sorted(last)):
        one, other = [last[seed] for seed in first], [last[seed] for seed in second]
        paired = paired_t(dict(enumerate(v.mean() for v in one)), dict(enumerate(v.mean() for v in other)))
        assert paired is not None
        fired.append((z_test(one, other) < 1 - LEVEL, paired.p < 1 - LEVEL))
    z, t = np.mean(fired, axis=0)
    return Rates(float(z), float(t), len(fired), len(last))
