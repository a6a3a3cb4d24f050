"""``python -m fedrage_flwr.report.rates [--draw] [OUT] [seeds=20] [rounds=100,1000,…]``: Theorems 1 and 2, measured.

The FedeRage paper's rates on a convex, non-smooth problem: least absolute deviation, four clients, mini-batches of one example.
HiGHS finds its optimum. The paper's listing with η_θ = η_β = η = c/(κ√(TH)) is run for each T, c and (α, γ), all replicas at
once in numpy; tests/theory holds it to the engine. Written: the error f(θ̄, β̄) − f* of the averaged checkpoints of each
replica, and for each c the slope of log error over log T.

OUT (default ``results/rates``) gets errors.csv, slopes.csv and the figure; replicas share participants and mini-batches between
methods and step sizes, not between T. ``--draw`` runs nothing: slopes and figure are made of the errors.csv that is there.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedrage_flwr.data.linear_gaussian import draw
from fedrage_flwr.doors import enter
from fedrage_flwr.errors import UserError
from fedrage_flwr.reference import Batches, batches, least_absolute_deviation, objective

Floats = npt.NDArray[np.float64]

USAGE = "python -m fedrage_flwr.report.rates [--draw] [OUT] [seeds=20] [rounds=100,316,1000]"
METHODS = {"FedAvg (κ = 1)": (1.0, 0.0), "α = 0.5, γ = 0.5 (κ = 1.5)": (0.5, 0.5), "α = 0.25, γ = 1 (κ = 4)": (0.25, 1.0),
           "α = 0.1, γ = 0.5 (κ = 5.5)": (0.1, 0.5)}  # fmt: skip
STEP_SIZES = (0.1, 0.3, 1.0, 3.0)  # c
HORIZONS = (100, 316, 1000, 3162, 10_000, 31_623, 100_000)  # T
LOCAL_STEPS = 2  # H
SEEDS = 20
LATE = 3  # values of T
RADIUS = 10.0  # of the ball C
BETA_RANGE = (0.0, 20.0)


@dataclass(frozen=True, eq=False)
class LadProblem:
    """Least absolute deviation: N clients of equally many examples.

    Attributes:
        inputs: (n, d), client by client.
        targets: (n,).
        owner: client of each example, (n,).
        law: subsets of clients and their probabilities.
        p: E[1{i∈S}/|S|], (N,).
    """

    inputs: Floats
    targets: Floats
    owner: npt.NDArray[np.int64]
    law: dict[tuple[int, ...], float]
    p: Floats

    @property
    def batches(self) -> Batches:
        """Q^b for mini-batches of one example."""
        return batches(self.owner, self.p, 1)

    def losses(self, theta: Floats) -> Floats:
        """|x·θ − y| of each example, (n,)."""
        values: Floats = np.abs(self.inputs @ theta - self.targets)
        return values


@dataclass(frozen=True, eq=False)
class Averages:
    """θ̄ (…, d) and β̄ (…): means of the T checkpoints, one for each replica."""

    theta: Floats
    beta: Floats


def lad_problem() -> LadProblem:
    """Four clients of eight examples each, in two dimensions, subsets of different sizes. The last client differs and is rare.

    The start θ = 0 is about 5 from any optimum: in bound (22) its distance leads.
    """
    weights = np.array([4.0, -3.0]) + np.array([[0.0, 1.0], [0.5, 1.0], [0.0, 0.5], [3.0, -1.0]])
    data = draw(weights, np.arange(4), 0.3, 1.0, 8, 1, "absolute_error", seed=3)
    law = {(0,): 0.25, (1,): 0.15, (0, 1): 0.2, (1, 2): 0.2, (0, 1, 2): 0.12, (2, 3): 0.08}
    # client 0: 0.25 + 0.1 + 0.04; 1: 0.15 + 0.1 + 0.1 + 0.04; 2: 0.1 + 0.04 + 0.04; 3: 0.04
    p = np.array([0.39, 0.39, 0.18, 0.04])
    owner = np.repeat(np.arange(4), 8)
    return LadProblem(data.train.inputs.double().numpy(), data.train.labels.double().numpy(), owner, law, p)


def algorithm(
    problem: LadProblem, members: npt.NDArray[np.bool_], positions: npt.NDArray[np.int64],
    lr: float | Floats, alpha: float | Floats, gamma: float | Floats,
) -> Averages:  # fmt: skip
    """FedeRage paper, Algorithm 2 with η_θ = η_β, many replicas at once; γ = 0 is Algorithm 1.

    All clients work and those outside S^t weigh nothing: what they have is overwritten by the broadcast.

    Args:
        problem: what is learned.
        members: (T, R, N), S^t of each replica.
        positions: (T, H, R, N), which of its examples a client draws.
        lr, alpha, gamma: numbers, or (K,): K settings on the same R draws. The result is then (K, R, …).
    """
    num_rounds, replicas, n = members.shape
    d = problem.inputs.shape[1]
    x, y = problem.inputs.reshape(n, -1, d), problem.targets.reshape(n, -1)
    client = np.arange(n)
    step, usual, tail = (
        np.asarray(v, float)[..., None, None] for v in (lr, 1 - np.asarray(gamma), np.divide(gamma, alpha))
    )
    shape = np.broadcast_shapes(step.shape, usual.shape, tail.shape)[:-2]
    theta, beta = np.zeros((*shape, replicas, d)), np.zeros((*shape, replicas))
    sums = np.zeros_like(theta), np.zeros_like(beta)
    for chosen, steps in zip(members, positions, strict=True):
        theta_i = np.repeat(theta[..., None, :], n, axis=-2)
        beta_i = np.repeat(beta[..., None], n, axis=-1)
        for drawn in steps:
            xi = x[client, drawn]
            residual = (xi * theta_i).sum(-1) - y[client, drawn]
            w = usual + tail * (np.abs(residual) >= beta_i)
            theta_i -= (step * w * np.sign(residual))[..., None] * xi
            theta_i *= np.minimum(1, RADIUS / np.maximum(np.linalg.norm(theta_i, axis=-1, keepdims=True), RADIUS))
            beta_i = np.clip(beta_i - step * (1 - w), *BETA_RANGE)
        share = chosen / chosen.sum(1, keepdims=True)
        theta, beta = (share[..., None] * theta_i).sum(-2), (share * beta_i).sum(-1)
        sums = sums[0] + theta, sums[1] + beta
    return Averages(sums[0] / num_rounds, sums[1] / num_rounds)


def draws(
    problem: LadProblem, num_rounds: int, local_steps: int, seeds: Sequence[int]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Draw members (T, R, N) and positions (T, H, R, N), each replica from its own seed."""
    n = len(problem.p)
    table = np.array([[i in subset for i in range(n)] for subset in problem.law])
    members = np.empty((num_rounds, len(seeds), n), bool)
    positions = np.empty((num_rounds, local_steps, len(seeds), n), np.int64)
    for k, seed in enumerate(seeds):
        rng = np.random.default_rng([seed, num_rounds])
        members[:, k] = table[rng.choice(len(table), num_rounds, p=list(problem.law.values()))]
        positions[:, :, k] = rng.integers(len(problem.targets) // n, size=(num_rounds, local_steps, n))
    return members, positions


def errors(problem: LadProblem, averages: Averages, alpha: float, gamma: float) -> Floats:
    """f_{α,γ}(θ̄, β̄) − f* of each replica, (R,); never negative."""
    optimum = least_absolute_deviation(problem.inputs, problem.targets, problem.batches, alpha, gamma)
    q = problem.batches.probabilities
    pairs = zip(averages.theta, averages.beta, strict=True)
    return np.array([objective(problem.losses(t), q, alpha, gamma, float(b)) for t, b in pairs]) - optimum.value


def kappa(alpha: float, gamma: float) -> float:
    """κ = (1−γ) + γ/α."""
    return (1 - gamma) + gamma / alpha


def measure(horizons: Sequence[int], seeds: Sequence[int]) -> pd.DataFrame:
    """Run everything: label, alpha, gamma, kappa, c, rounds, seed, error."""
    problem = lad_problem()
    settings = [(label, alpha, gamma, c) for label, (alpha, gamma) in METHODS.items() for c in STEP_SIZES]
    _, alphas, gammas, cs = zip(*settings, strict=True)
    rows = []
    for rounds in horizons:
        kappas = np.array([kappa(a, g) for a, g in zip(alphas, gammas, strict=True)])
        lr = np.array(cs) / (kappas * np.sqrt(rounds * LOCAL_STEPS))
        found = algorithm(problem, *draws(problem, rounds, LOCAL_STEPS, seeds), lr, np.array(alphas), np.array(gammas))
        for k, (label, alpha, gamma, c) in enumerate(settings):
            values = errors(problem, Averages(found.theta[k], found.beta[k]), alpha, gamma)
            rows += [(label, alpha, gamma, kappa(alpha, gamma), c, rounds, s, e)
                     for s, e in zip(seeds, values, strict=True)]  # fmt: skip
        print(f"T = {rounds} done", flush=True)
    return pd.DataFrame(rows, columns=["label", "alpha", "gamma", "kappa", "c", "rounds", "seed", "error"])


def slopes(table: pd.DataFrame) -> pd.DataFrame:
    """Slope of log error over log T for each method and c.

    A line is fitted to each seed alone; ``slope`` is the mean of these, ``low`` and ``high`` its 95 % t interval over seeds.
    ``late_…`` is the same over the last ``LATE`` values of T, where a small c has left its start behind. ``largest`` is the
    largest over T of (mean error) · √T/κ, which the theorems bound by a constant of the problem.
    """
    rows = []
    for (label, c), runs in table.groupby(["label", "c"], sort=False):
        wide = runs.pivot(index="rounds", columns="seed", values="error")
        scaled = wide.mean(axis=1) * np.sqrt(wide.index) / runs["kappa"].iloc[0]
        rows.append((label, c, wide.shape[1], *_slope(wide), *_slope(wide.iloc[-LATE:]), scaled.max()))
    columns = ["label", "c", "seeds", "slope", "low", "high", "late_slope", "late_low", "late_high", "largest"]
    return pd.DataFrame(rows, columns=columns)


def _slope(errors: pd.DataFrame) -> tuple[float, float, float]:
    """Mean slope over seeds (columns) and its interval."""
    from scipy.stats import t  # type: ignore[import-untyped]

    fitted = np.polyfit(np.log(errors.index), np.log(errors), 1)[0]
    n, middle = len(fitted), fitted.mean()
    half = t.ppf(0.975, n - 1) * fitted.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return middle, middle - half, middle + half


def main(arguments: Sequence[str]) -> None:
    """Measure, write the tables and draw."""
    from fedrage_flwr.report.figures import rates_figure

    out, seeds = Path("results/rates"), SEEDS
    horizons: tuple[int, ...] = HORIZONS
    only_draw = "--draw" in arguments
    for word in arguments:
        if word == "--draw":
            continue
        key, sign, value = word.partition("=")
        try:
            if sign and key == "seeds":
                seeds = int(value)
            elif sign and key == "rounds":
                horizons = tuple(int(v) for v in value.split(","))
            elif sign or word.startswith("-"):
                raise UserError(f"{word}: not known; usage: {USAGE}")
            else:
                out = Path(word)
        except ValueError as error:
            raise UserError(f"{word}: whole numbers; usage: {USAGE}") from error
    if seeds < 1 or len(set(horizons)) < 2 or min(horizons) < 1:
        raise UserError(
            f"seeds={seeds} rounds={','.join(map(str, horizons))}: at least one seed and two numbers of rounds"
        )
    path = out / "errors.csv"
    if only_draw and not path.is_file():
        raise UserError(f"{path} is not there; without --draw it is made")
    if not only_draw:
        out.mkdir(parents=True, exist_ok=True)
        measure(horizons, range(seeds)).to_csv(path, index=False, float_format="%.5g", lineterminator="\n")
    fitted = slopes(pd.read_csv(path))
    fitted.to_csv(out / "slopes.csv", index=False, float_format="%.4f", lineterminator="\n")
    print(fitted.to_string(index=False, float_format="%.3f"))
    for drawn in rates_figure(out, out):
        print(drawn)


if __name__ == "__main__":
    sys.exit(enter(main))
