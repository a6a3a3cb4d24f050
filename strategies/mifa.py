"""MIFA, memory-augmented impatient federated averaging (Gu, Huang, Zhang & Huang, NeurIPS 2021).

    G_i ← θ_i − θ̂                            for i ∈ S^t; the others keep the G_i they sent last
    θ̂   ← θ̂ + (η_g/N) Σ_{i=1..N} G_i

| code | paper |
| --- | --- |
| ``memory["update7"]`` | G_7, the last change of client 7 (the authors divide it by η); none before it was seen: zero |
| ``memory["sum"]`` | Σ_i G_i in float64, moved by new minus old: a round costs |S| models, not N |
| ``server_lr`` | η_g; the paper has 1, for its G_i and its step hold the learning rate, which is constant here |
| ``initial`` | ``no_wait``: unknown G_i are zero; ``wait``: one full round first |

MIFA deliberately keeps old contributions: absent clients are averaged too, with what they sent last. Under a RAM nobody can make
all clients answer in one round, so ``wait`` lets the first round last until each was seen, as the authors' public code does: θ̂
stays where it is, the changes gathered all belong to it (a client seen again replaces its own), and the first step is
FedAvg's with all N. With rare clients that takes long; ``no_wait`` starts at once with steps that are too short, by the
share of clients still unseen.

The server holds up to N models, said in the log at the start.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from flwr.app import ArrayRecord

from fedrage_flwr.records import nbytes, to_arrays
from fedrage_flwr.rounds import Update
from strategies.base import BaseStrategy, StrategySettings

MUCH = 1e9  # bytes of memory that deserve a warning

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MIFASettings(StrategySettings):
    """Settings of MIFA."""

    initial: Literal["no_wait", "wait"]

    def __post_init__(self) -> None:
        self.refuse_server_optimizer(step_size=True)


class MIFA(BaseStrategy):
    """The plain mean over all N clients of the last change each has sent.

    Aims at: Σ f_i/N whatever the RAM, as long as each client comes now and then.
    Stores: a model per client, N in all, on the server.
    Must know: N, and who is who.
    """

    Settings = MIFASettings

    def initial_records(self, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
        """None; says what the memory will cost."""
        size = self.num_clients * nbytes(arrays)
        log.log(
            logging.WARNING if size > MUCH else logging.INFO,
            "mifa remembers the last update of every client: up to %d × %d = %d bytes on the server",
            self.num_clients, nbytes(arrays), size,
        )  # fmt: skip
        return {}

    def reduce(self, updates: Sequence[Update]) -> ArrayRecord:
        """Remember, then step by the mean of all that is remembered."""
        for update in updates:
            self._remember(update)
        if self.settings.initial == "wait" and self.remembered() < self.num_clients:
            return self.broadcast["arrays"]
        before, mean = to_arrays(self.broadcast["arrays"]), self.mean(updates, "arrays")
        for name, total in self.memory["sum"].items():
            mean[name] = np.asarray(before[name] + total / self.num_clients).astype(mean[name].dtype)
        return self.server_step(mean)

    def remembered(self) -> int:
        """How many clients have been seen."""
        return sum(name.startswith("update") for name in self.memory)

    def _remember(self, update: Update) -> None:
        before, after = to_arrays(self.broadcast["arrays"]), to_arrays(update.records["arrays"])
        fresh = {name: after[name] - before[name] for name in self.parameter_names(before)}
        stale, sums = self.memory.get(f"update{update.client}", {}), self.memory.get("sum", {})
        self.memory["sum"] = {
            name: np.asarray(sums.get(name, 0.0) + change.astype(np.float64) - stale.get(name, 0.0))
            for name, change in fresh.items()
        }
        self.memory[f"update{update.client}"] = fresh
