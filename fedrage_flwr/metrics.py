"""Measures of one model over all clients (ALGORITHMS of the papers; every name says population and statistic)."""

from math import ceil

import numpy as np


def client_measures(accuracy: np.ndarray, rare: np.ndarray) -> dict[str, float | None]:
    """Summarise per-client accuracies of one global model on each client's own test part.

    Args:
        accuracy: shape (N,), in 0..1; NaN for a client without test data, which is left out.
        rare: bool (N,): the clients counted as rare.

    Returns:
        ``client_accuracy_mean`` (unweighted), ``_min``, ``_worst10pct`` (mean of the worst max(1, ⌈0.1 n⌉)), ``_std``
        (n in the denominator), ``_jain`` (Jain et al. 1984; None when all are zero) and ``rare_client_accuracy`` (None
        without rare clients). All None when no client has test data.
    """
    known = ~np.isnan(accuracy)
    values = np.sort(accuracy[known])
    if not len(values):
        names = ("mean", "min", "worst10pct", "std", "jain")
        return {**{f"client_accuracy_{name}": None for name in names}, "rare_client_accuracy": None}
    rare_values = accuracy[known & rare]
    return {
        "client_accuracy_mean": float(values.mean()),
        "client_accuracy_min": float(values[0]),
        "client_accuracy_worst10pct": float(values[: max(1, ceil(0.1 * len(values)))].mean()),
        "client_accuracy_std": float(values.std()),
        "client_accuracy_jain": jain_index(values),
        "rare_client_accuracy": float(rare_values.mean()) if len(rare_values) else None,
    }


def fairness(excess_risk: np.ndarray) -> float | None:
    """FAA, fairness via agent-awareness: the largest difference of excess risks between two clients; smaller is fairer.

    It does not punish a client whose data are noisy (FOCUS paper, Definition 3.1). Clients of unknown risk (NaN) are left out.
    """
    known = excess_risk[~np.isnan(excess_risk)]
    return float(known.max() - known.min()) if len(known) else None


def adjusted_rand_index(groups: np.ndarray, belongs: np.ndarray) -> float:
    """How well the clusters found agree with the true groups: 1 is exactly, 0 what chance gives (Hubert and Arabie 1985).

    Args:
        groups: true group of each client, int (n,).
        belongs: how much each client belongs to each cluster, (n, G); it is counted where it belongs most. NaN is not at all.
    """
    from sklearn.metrics import adjusted_rand_score  # a second of imports, paid by those who use it

    return float(adjusted_rand_score(groups, np.nan_to_num(belongs, nan=-1).argmax(1)))


def cvar(losses: np.ndarray, alpha: float, probabilities: np.ndarray | None = None) -> float:
    """CVaR, the mean of the worst ``alpha`` of the losses: min_β β + E(loss − β)₊/α (FedeRage paper, eq. 10).

    A loss on the boundary counts with the part of its probability that is needed to fill α, so that ties and tails of no
    whole number of losses come out as the minimum does.

    Args:
        losses: shape (n,), n ≥ 1, finite.
        alpha: tail fraction in (0, 1].
        probabilities: shape (n,), ≥ 0, summing to 1; None weighs all alike.

    Raises:
        ValueError: anything else.
    """
    return float(_at_quantile(losses, alpha, probabilities)[1])


def value_at_risk(losses: np.ndarray, alpha: float, probabilities: np.ndarray | None = None) -> float:
    """The smallest minimising β of ``cvar``: the (1 − α)-quantile, the smallest loss that α or less lies above."""
    return float(_at_quantile(losses, alpha, probabilities)[0])


def _at_quantile(losses: np.ndarray, alpha: float, probabilities: np.ndarray | None) -> tuple[float, float]:
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha={alpha} is not allowed: must be a number in (0, 1]")
    values = np.asarray(losses, float)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError("CVaR needs at least one loss, and all of them finite")
    mass = np.full(len(values), 1 / len(values)) if probabilities is None else np.asarray(probabilities, float)
    if mass.shape != values.shape or (mass < 0).any() or not np.isclose(mass.sum(), 1):
        raise ValueError("CVaR needs one probability per loss, none below 0, summing to 1")
    order = np.argsort(values)
    values, mass = values[order], mass[order]
    above = np.append(np.cumsum(mass[:0:-1])[::-1], 0.0)  # P(loss ranked higher)
    quantile = values[np.argmax(above <= alpha * (1 + 1e-12))]  # 0.1 + 0.1 + 0.1 is a little more than 0.3
    return quantile, quantile + float(mass @ np.maximum(values - quantile, 0)) / alpha


def jain_index(values: np.ndarray) -> float | None:
    """(Σx)² / (n Σx²), in [1/n, 1]; None when every value is zero."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else None
