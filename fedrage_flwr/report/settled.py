"""The checks that need no runs: arithmetic settles them, see ``fedrage_flwr.report.exact``."""

from fractions import Fraction

import numpy as np

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.explain import make_law
from fedrage_flwr.report import exact
from fedrage_flwr.report.finding import AGREES, DIFFERS, Finding


def majority(results: object) -> Finding:
    """Most clients in the majority of rounds: what M = 3 of N = 30 allows, and what our skewed law does."""
    config = validate(compose_config(["experiment=table1", "experiment/tuned=none", "ram=inclusion"]))
    inclusion = make_law(config).inclusion().values
    most = exact.most_in_majority(config.ram.clients_per_round)
    ours = (
        f"at most {most} of {config.num_clients} clients can be; mean inclusion {inclusion.mean():.3g}, in our skewed law at most"
        f" {inclusion.max():.4f}"
    )
    return Finding(ours, AGREES if most > config.num_clients / 2 else DIFFERS, "inclusion probabilities sum to M")


def convergence(results: object) -> Finding:
    """Theorem 4.2 of FOCUS, in expectation: groups of three and two agents, 6 apart and 0.2 wide, models that start 0.8 away."""
    centres, lr, steps = np.array([[3.0, 0.0], [-3.0, 0.0]]), 0.1, 5
    agents = np.array([[3.2, 0], [2.9, 0.1], [2.9, -0.1], [-3, 0.2], [-3, -0.2]])
    group = np.array([0, 0, 0, 1, 1])
    rounds = exact.focus_rounds(agents, centres + np.array([0.0, 0.8]), lr, steps, 12)
    means = np.array([agents[group == m].mean(0) for m in range(2)])
    errors = np.array([np.linalg.norm(one.models - means, axis=1) for one in rounds])
    ratios, factor = errors[1:] / errors[:-1], (1 - 2 * lr) ** steps
    pi = min(float(one.pi[np.arange(len(agents)), group].min()) for one in rounds)
    linear = np.allclose(ratios, factor, rtol=1e-3)
    ours = (
        f"1 − π of the true cluster at most {1 - pi:.1e}; distance to the group's mean falls by {ratios.min():.4f} to"
        f" {ratios.max():.4f} a round, (1 − 2ηδ²)^K = {factor:.4f}"
    )
    return Finding(ours, AGREES if pi > 0.999 and linear else DIFFERS, "computed in expectation, without sampling")


def outlier(results: object) -> Finding:
    """The published outlier condition of FOCUS, on three agents."""
    agents = exact.COUNTEREXAMPLE
    fedavg, focus = exact.faa_of_outlier(agents)
    condition = exact.published_condition(agents, np.zeros(2), 1.0)
    ours = (
        f"agents (±1, 0), outlier (0, 2.2), r = 1 about the origin: R = {condition.distance:g} > {condition.needed:g} (and > 2r),"
        f" yet FAA is {focus:.3f} for FOCUS and {fedavg:.3f} for FedAvg"
    )
    broken = condition.holds and focus > fedavg
    return Finding(ours, DIFFERS if broken else AGREES, "one counterexample is enough")


def outlier_mended(results: object) -> Finding:
    """The condition that can be proved, on the same agents with the outlier moved just beyond it."""
    agents = exact.COUNTEREXAMPLE.copy()
    needed = exact.provable_condition(agents).needed
    agents[-1, 1] = 1.01 * needed
    fedavg, focus = exact.faa_of_outlier(agents)
    ours = f"outlier at 1.01 · {needed:.4f}: FAA {focus:.3f} for FOCUS, {fedavg:.3f} for FedAvg"
    return Finding(
        ours, AGREES if focus < fedavg else DIFFERS, "as proved; random agents in tests/strategies/test_focus.py"
    )


def scaffold(results: object) -> Finding:
    """SCAFFOLD's second vector under option II: redundant or not, in rational numbers."""
    rounds = exact.scaffold_rounds(
        [Fraction(k, 3) for k in (1, 2, 4)],
        [Fraction(k) for k in (0, 3, -5)],
        [[0, 1], [2], [0, 2], [0, 1, 2]],
        5,
        Fraction(1, 10),
    )
    same = all(one.second == one.worked_out and one.control == one.control_worked_out for one in rounds)
    ours = (
        "option II: the second vector is −c − Δθ/(Kη), exactly, and the server knows c, K and η: it can be left out"
        " (strategy.compact_uplink=true: 1× up, 2× down) and tells nothing that Δθ does not"
        if same
        else "option II: the second vector is not a function of the first"
    )
    return Finding(ours, DIFFERS if same else AGREES, "identity in rational numbers")
