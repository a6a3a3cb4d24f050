"""What a run says at its end: ``summary.json``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedrage_flwr.callbacks import Evaluate, Totals
from fedrage_flwr.metrics import adjusted_rand_index
from fedrage_flwr.parts import Prepared
from fedrage_flwr.results import peak_rss_mb, versions
from strategies.base import BaseStrategy


def summarise(
    prepared: Prepared, evaluate: Evaluate, totals: Totals, averaged: Mapping[str, float], seconds: float
) -> dict[str, Any]:
    """Return what every run says.

    Args:
        averaged: accuracies of averaged models, by the name they are to have.
        seconds: wall time, that before a stop included.
    """
    config = prepared.config
    words = ("strategy", "dataset", "partition", "ram", "model", "backend")
    last: Mapping[str, float | None] = evaluate.last
    accuracies = evaluate.last_accuracies()
    measures = ("client_accuracy_min", "client_accuracy_worst10pct", "client_accuracy_std", "rare_client_accuracy")
    further = (
        "faa",
        "held_out_faa",
        "excess_risks_below_zero",
        *(["loss"] if np.isnan(averaged["polyak_accuracy"]) else []),
        *prepared.metrics,
    )
    return {
        **{word: getattr(config, word).name for word in words},
        "seed": config.seed,
        "num_clients": config.num_clients,
        "num_rounds": config.num_rounds,
        "rounds_done": totals.rounds,
        "accuracy_mean_last10": _known(float(np.mean(accuracies))),
        "accuracy_std_last10": _known(float(np.std(accuracies))),
        **{name: _known(value) for name, value in averaged.items()},
        **{name: last[name] for name in (*measures, *further) if name in last},
        "bytes_up_per_round": totals.bytes_up / totals.rounds,
        "bytes_down_per_round": totals.bytes_down / totals.rounds,
        "rejected_replies": totals.unusable,
        "rounds_per_second": totals.rounds / totals.seconds if totals.seconds else None,
        "wall_seconds": seconds,
        "peak_rss_mb": peak_rss_mb(),
        "versions": versions(),
    }


def _known(value: float) -> float | None:
    """None for what there is not: real targets know no accuracy."""
    return None if np.isnan(value) else value


def group_recovery(prepared: Prepared, strategy: BaseStrategy, evaluate: Evaluate) -> dict[str, float]:
    """How well a method that looks for groups of clients found them at the last evaluation, where they are known."""
    groups, last = prepared.partition.groups, evaluate.last_evaluation
    columns = [last.extra[name] for name in strategy.assignment_columns() if name in last.extra] if last else []
    if groups is None or last is None or not columns:
        return {}
    training = last.clients < prepared.config.num_clients
    belongs = np.stack(columns, 1)[training]
    return {"adjusted_rand_index": adjusted_rand_index(groups[last.clients[training]], belongs)}
