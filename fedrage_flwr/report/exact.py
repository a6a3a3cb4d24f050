"""Claims that arithmetic settles, without a run: inclusion, FOCUS' convergence and outlier condition, what SCAFFOLD sends.

The first two are in floats or by enumeration; SCAFFOLD's identity is in rational numbers, so that equal is equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from fedrage_flwr.metrics import fairness


def most_in_majority(clients_per_round: int) -> int:
    """The most clients that can each be in more than half of the rounds, whatever the law with M survivors a round.

    Inclusion probabilities sum to M, so that k clients above a half need k/2 < M.
    """
    return ceil(2 * clients_per_round) - 1


def faa_of_outlier(agents: np.ndarray) -> tuple[float, float]:
    """FAA of FedAvg and of FOCUS in the limit (linear agents, equal weights, full participation, δ = 1).

    FedAvg serves all with the mean of all; FOCUS the normal agents with their mean, the outlier with its own.

    Args:
        agents: μ_e, shape (E, d), E ≥ 3; the last is the outlier.
    """
    normal = agents[:-1].mean(0)
    models = np.vstack([np.tile(normal, (len(agents) - 1, 1)), agents[-1:]])
    found = [fairness(np.square(model - agents).sum(1)) for model in (agents.mean(0), models)]
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


@dataclass(frozen=True)
class Condition:
    """A condition for FOCUS to be fairer: ``distance`` of the outlier beyond ``needed``."""

    distance: float
    needed: float

    @property
    def holds(self) -> bool:
        """Whether the outlier is farther away than needed."""
        return self.distance > self.needed


def published_condition(agents: np.ndarray, centre: np.ndarray, radius: float) -> Condition:
    """R > 2r/(E−2): normal agents within ``radius`` of ``centre``, the outlier R away (FOCUS paper, Theorem 4.6)."""
    return Condition(float(np.linalg.norm(agents[-1] - centre)), 2 * radius / (len(agents) - 2))


def provable_condition(agents: np.ndarray) -> Condition:
    """R' > ρ √(2E/(E−2)), both from the normal agents' mean c: ρ = max ‖μ_e − c‖ over these, R' = ‖μ_E − c‖."""
    normal, count = agents[:-1], len(agents)
    centre = normal.mean(0)
    rho = float(np.linalg.norm(normal - centre, axis=1).max())
    return Condition(float(np.linalg.norm(agents[-1] - centre)), float(rho * np.sqrt(2 * count / (count - 2))))


COUNTEREXAMPLE = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.2]])
"""Three agents for which the published condition holds, with r = 1 about the origin, and FOCUS is the less fair."""


@dataclass(frozen=True)
class FocusRound:
    """FOCUS after one round on linear agents.

    Attributes:
        pi: π_em, shape (E, G).
        models: w_m, shape (G, d).
    """

    pi: np.ndarray
    models: np.ndarray


def focus_rounds(
    agents: np.ndarray, starts: np.ndarray, lr: float, steps: int, rounds: int, delta: float = 1.0
) -> list[FocusRound]:
    """Run FOCUS on linear agents with expectations in place of samples: loss δ²‖w − μ_e‖² + σ², everybody takes part.

    K steps from w_m end at μ_e + (1 − 2ηδ²)^K (w_m − μ_e).

    Args:
        agents: μ_e, shape (E, d).
        starts: w_m, shape (G, d).
        lr, steps: η and K.
    """
    log_pi, models, found = np.zeros((len(agents), len(starts))), starts, []
    for _ in range(rounds):
        away = models[None] - agents[:, None]
        log_pi = log_pi - delta**2 * np.square(away).sum(-1)
        log_pi -= np.logaddexp.reduce(log_pi, axis=1, keepdims=True)
        pi = np.exp(log_pi)
        trained = agents[:, None] + (1 - 2 * lr * delta**2) ** steps * away
        models = (pi[..., None] * trained).sum(0) / pi.sum(0)[:, None]
        found.append(FocusRound(pi, models))
    return found


@dataclass(frozen=True)
class ScaffoldRound:
    """What one round of SCAFFOLD, option II, sends and does.

    Attributes:
        second: Δc_i of each participant, the second vector of its reply.
        worked_out: the same from Δθ_i and what the server knows: −c − Δθ_i/(K η_θ).
        control: c after the round, as the sum of second vectors gives it.
        control_worked_out: (1 − |S|/N) c − (|S|/N) mean Δθ/(K η_θ).
    """

    second: tuple[Fraction, ...]
    worked_out: tuple[Fraction, ...]
    control: Fraction
    control_worked_out: Fraction


def scaffold_rounds(
    curvatures: Sequence[Fraction], centres: Sequence[Fraction], participants: Sequence[Sequence[int]], steps: int,
    lr: Fraction,
) -> list[ScaffoldRound]:  # fmt: skip
    """Run SCAFFOLD (option II, η_g = 1) on f_i(θ) = ½ h_i (θ − a_i)², in rational numbers, from θ = 0.

    Args:
        curvatures, centres: h_i and a_i.
        participants: of each round.
        steps, lr: K and η_θ.
    """
    n = len(centres)
    theta, c, own = Fraction(0), Fraction(0), [Fraction(0)] * n
    rounds = []
    for chosen in participants:
        moves, second = [], []
        for i in chosen:
            local = theta
            for _ in range(steps):
                local -= lr * (curvatures[i] * (local - centres[i]) - own[i] + c)
            fresh = own[i] - c + (theta - local) / (steps * lr)
            moves.append(local - theta)
            second.append(fresh - own[i])
            own[i] = fresh
        share = Fraction(len(chosen), n)
        mean = sum(moves, Fraction(0)) / len(chosen)
        after = c + sum(second, Fraction(0)) / n
        rounds.append(
            ScaffoldRound(
                second=tuple(second),
                worked_out=tuple(-c - move / (steps * lr) for move in moves),
                control=after,
                control_worked_out=(1 - share) * c - share * mean / (steps * lr),
            )
        )
        theta, c = theta + mean, after
    return rounds
