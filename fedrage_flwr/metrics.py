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


def jain_index(values: np.ndarray) -> float | None:
    """(Σx)² / (n Σx²), in [1/n, 1]; None when every value is zero."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else None
