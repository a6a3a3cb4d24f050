"""FOCUS, the server half: M-step of an EM over soft clusters (FOCUS paper, Algorithm 1, eq. 6; symbols: the client half).

    w_m ← Σ_{e∈S} π_em θ_em / Σ_{e∈S} π_em        with the π of this round; below 1e-30 the cluster keeps w_m

G models travel both ways, and G numbers π_e up. The theory assumes full participation, equal weights and a start near the
centres. With one cluster this is agnostic FedAvg to the bit.
"""

from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedrage_flwr.clusters import count, split
from fedrage_flwr.records import array_record, to_arrays, to_record
from fedrage_flwr.rounds import Update
from strategies.clusters import ClusteredStrategy


class Focus(ClusteredStrategy):
    """Every client belongs to every cluster, by its π.

    Aims at: Σ_e log Σ_m π_em exp(−f_e(w_m)): G models, each for the clients it fits; under a RAM frequent clients count more.
    Stores: π of each client, on the client.
    Must know: G, the number of clusters; clients keep state between rounds.
    """

    columns = ("pi_max",)
    progress = ("pi_max",)

    def sends(self) -> Mapping[str, ArrayRecord]:
        """The models received, trained, and π_e."""
        arrays = self.broadcast["arrays"]
        return {"arrays": arrays, "pi": to_record({"value": np.zeros(count(arrays))})}

    def problem(self, content: RecordDict) -> str | None:
        """As the base class; π must be a distribution as well."""
        found = super().problem(content)
        record = array_record(content, "pi")
        if found or record is None:
            return found
        pi = to_arrays(record)["value"]
        return None if (pi >= 0).all() and abs(pi.sum() - 1) <= 1e-6 else "record pi: not a distribution over clusters"

    def shares(self, update: Update) -> np.ndarray:
        """π_e."""
        return to_arrays(update.records["pi"])["value"]

    def model_of(self, update: Update, cluster: int) -> dict[str, np.ndarray]:
        """θ_em."""
        return split(to_arrays(update.records["arrays"]))[cluster]
