"""FedeRage, the server half (FedeRage paper, Algorithm 2, lines 5-8).

    (θ̂, β̂) = (1/|S^t|) Σ_{i∈S^t} (θ_i, β_i)

The server learns nothing about who is rare: it averages what arrives, and one scalar more than FedAvg travels each way.
"""

import numpy as np
from flwr.app import ArrayRecord

from fedrage_flwr.records import to_record
from strategies.base import BaseStrategy


class FedeRage(BaseStrategy):
    """The plain mean of the pairs (θ, β)."""

    columns = ("beta", "step_weight_mean", "tail_share")
    progress = ("beta",)

    def initial_records(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """β₀."""
        return {"beta": to_record({"value": np.array(self.client.beta_init, np.float32)})}
