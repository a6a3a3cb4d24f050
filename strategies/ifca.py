"""IFCA, the server half (Ghosh et al., NeurIPS 2020, Algorithm 1, model averaging): the hard sibling of FOCUS.

    θ_j ← mean of the θ̃_i of those that chose j        a cluster that nobody chose keeps its model

The mean is uniform, as everywhere here. G models travel down, one model and the number of its cluster up.
"""

from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedrage_flwr.clusters import split
from fedrage_flwr.records import array_record, to_arrays, to_record
from fedrage_flwr.rounds import Update
from strategies.clusters import ClusteredStrategy


class Ifca(ClusteredStrategy):
    """Every client belongs to the one cluster it chose.

    Aims at: Σ_e min_m f_e(w_m): G models, each for the clients it fits best; under a RAM frequent clients count more.
    Stores: nothing.
    Must know: G, the number of clusters.
    """

    def sends(self) -> Mapping[str, ArrayRecord]:
        """One model, under its own names, and the number of its cluster."""
        one = split(to_arrays(self.broadcast["arrays"]))[0]
        return {"arrays": to_record(one), "cluster": to_record({"value": np.array(0)})}

    def problem(self, content: RecordDict) -> str | None:
        """As the base class; the cluster must be one of those there are."""
        found = super().problem(content)
        record = array_record(content, "cluster")
        if found or record is None:
            return found
        cluster = int(to_arrays(record)["value"])
        clusters = len(split(to_arrays(self.broadcast["arrays"])))
        return None if 0 <= cluster < clusters else f"record cluster: {cluster} is outside 0..{clusters - 1}"

    def shares(self, update: Update) -> np.ndarray:
        """1 at the cluster chosen."""
        chosen = to_arrays(update.records["cluster"])["value"]
        return np.asarray(np.arange(self.settings.num_clusters) == chosen, np.float64)

    def model_of(self, update: Update, cluster: int) -> dict[str, np.ndarray]:
        """θ̃_i; of weight 0 in every other cluster."""
        return to_arrays(update.records["arrays"])
