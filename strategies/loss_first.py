"""What q-FFL, AFL, Δ-FL and TERM share: the server weighs clients by F_i(θ̂), their loss at the model it sent."""

from collections.abc import Sequence

import numpy as np
from flwr.app import MetricRecord, RecordDict

from fedrage_flwr.rounds import Update
from strategies.base import BaseStrategy

LOSS = "initial-loss"


class LossFirst(BaseStrategy):
    """Averaging that needs the metric ``initial-loss`` of every reply (``client.name=loss_first`` sends it)."""

    columns = ("initial_loss",)
    progress = ("initial_loss",)

    def losses(self, updates: Sequence[Update]) -> np.ndarray:
        """F_i(θ̂), float64, shape (|S|,)."""
        return np.array([update.metrics[LOSS] for update in updates], np.float64)

    def problem(self, content: RecordDict) -> str | None:
        """As in the base class; a reply without the loss is unusable too."""
        metrics = content.get("metrics")
        if not isinstance(metrics, MetricRecord) or not isinstance(metrics.get(LOSS), int | float):
            return f"metric {LOSS} is missing"
        return super().problem(content)
