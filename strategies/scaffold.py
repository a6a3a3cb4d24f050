"""SCAFFOLD, the server half (Karimireddy et al., ICML 2020, Algorithm 1, lines 16-17).

    θ̂ ← θ̂ + (η_g/|S|) Σ_{i∈S} (θ_i − θ̂)
    c ← c + (1/N) Σ_{i∈S} (c_i⁺ − c_i)          N clients in all, not |S|

| code | paper |
| --- | --- |
| record ``control``, down | c, zero at first |
| record ``control``, up | Δc_i = c_i⁺ − c_i |
| ``server_lr`` | η_g |
| ``num_clients`` | N |

Under option II a reply says Δc_i twice: Δc_i = −c + (θ̂ − θ_i)/(K η_θ). With ``compact_uplink`` clients send θ_i alone and the
server works Δc_i out, which halves the uplink. Where it goes wrong in public: adding c_i⁺ instead of the change, dividing
by |S|, starting c from the weights.

c is the mean of all N c_i after every round, whoever took part, as long as each change a client made has been counted. A
reply that is rejected or late may be one that was made and not counted; ``rejected_replies`` of a run's summary counts them.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.rounds import Update
from strategies.base import BaseStrategy, StrategySettings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScaffoldSettings(StrategySettings):
    """Settings of SCAFFOLD's server."""

    compact_uplink: bool  # conf/strategy/scaffold.yaml hands it on to the clients, who do the leaving out

    def __post_init__(self) -> None:
        self.refuse_server_optimizer(step_size=True)


class Scaffold(BaseStrategy):
    """The plain mean of θ_i, and a control variate for every trainable parameter.

    Aims at: Σ f_i/N whatever the RAM.
    Stores: a control variate per client (on the client) and one on the server, each of the model's size.
    Must know: N; clients keep state between rounds.
    """

    Settings = ScaffoldSettings

    def initial_records(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """c = 0."""
        first = to_arrays(arrays)
        return {"control": to_record({name: np.zeros_like(first[name]) for name in self.parameter_names(first)})}

    def sends(self) -> Mapping[str, ArrayRecord]:
        """θ_i, and Δc_i unless it is left to the server."""
        return {"arrays": self.broadcast["arrays"]} if self.client.compact_uplink else self.broadcast

    def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
        """θ̂ + η_g mean_S(Δθ_i); c + (1/N) Σ_S Δc_i."""
        arrays, before = self.server_step(self.mean(updates, "arrays")), to_arrays(self.records["control"])
        changes = [self._control_change(update) for update in updates]
        control = {
            name: np.asarray(c + sum(change[name] for change in changes) / self.num_clients).astype(c.dtype)
            for name, c in before.items()
        }
        self.records = {"control": to_record(control)}
        return arrays

    def _control_change(self, update: Update) -> dict[str, np.ndarray]:
        """Δc_i in float64, as sent or worked out."""
        if not self.client.compact_uplink:
            return {name: a.astype(np.float64) for name, a in to_arrays(update.records["control"]).items()}
        start, end = to_arrays(self.broadcast["arrays"]), to_arrays(update.records["arrays"])
        travel = self.client.local_steps * self.client.lr  # K η_θ: every client takes all H steps
        return {
            name: (start[name].astype(np.float64) - end[name]) / travel - c
            for name, c in to_arrays(self.records["control"]).items()
        }

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """As in the base class; says so when c may have ceased to be the mean of the c_i."""
        result = super().aggregate_train(server_round, replies)
        uncounted = [outcome.client for outcome in self.outcomes if outcome.outcome in ("rejected", "late")]
        if uncounted:
            clients = ", ".join(map(str, uncounted))
            log.warning("round %d: control variates of clients %s may have moved without c", server_round, clients)
        return result
