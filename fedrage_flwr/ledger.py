"""The participation ledger of real sites: for each round and site what became of it, so that none is lost in silence.

A federation that drops healthy sites while the run reports success is worse than one that fails.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.results import Table
from fedrage_flwr.rounds import Round

COLUMNS = ("round", "site", "status", "reason")

log = logging.getLogger(__name__)


class Ledger:
    """Writes ledger.csv: one row per round and site, those not asked included.

    ``status`` is averaged, rejected, failed or late for a site that was asked; absent for one that was not connected (or not
    drawn by a synthetic law); never_seen for one that has not been connected since the server started.

    Args:
        folder: the run's folder.
        manager: knows who has been seen.
        num_sites: N.
        resumed: go on with the file that is there.
    """

    def __init__(self, folder: Path, manager: RandomAccessClientManager, num_sites: int, resumed: bool = False) -> None:
        self._manager, self._sites = manager, num_sites
        self.table = Table(folder / "ledger.csv", COLUMNS, resumed)
        self.contributions = np.zeros(num_sites, np.int64)
        self.late = np.zeros(num_sites, np.int64)
        self._shares = np.zeros(num_sites)  # Σ over rounds of 1{i ∈ S}/|S|
        self._rounds = 0  # rounds with a contribution

    def after_round(self, round: Round) -> None:
        """Append the rows of one round."""
        asked = {outcome.client: outcome for outcome in round.outcomes}
        counts: Counter[str] = Counter()
        for site in range(self._sites):
            outcome = asked.get(site)
            missing = "absent" if site in self._manager.seen else "never_seen"
            status, reason = (outcome.outcome, outcome.reason) if outcome else (missing, "")
            self.table.add({"round": round.number, "site": site, "status": status, "reason": reason})
            counts[status] += 1
        self.table.flush()
        shown = ", ".join(f"{number} {status.replace('_', ' ')}" for status, number in counts.items())
        log.info("round %d: sites %s; %.1f s", round.number, shown, round.seconds)
        arrived = [update.client for update in round.updates]
        self.contributions[arrived] += 1
        self.late[[client for client, outcome in asked.items() if outcome.outcome == "late"]] += 1
        if arrived:
            self._shares[arrived] += 1 / len(arrived)
            self._rounds += 1

    def summary(self) -> dict[str, Any]:
        """What the summary says of the sites; the marginals are estimates of p_i = E[1{i ∈ S}/|S|]."""
        never = np.flatnonzero(self.contributions == 0).tolist()
        if never:
            log.warning("NEVER CONTRIBUTED: sites %s", ", ".join(map(str, never)))
        return {
            "contributions": self.contributions.tolist(),
            "late_replies": self.late.tolist(),
            "never_contributed": never,
            "node_problems": list(self._manager.problems),
            "marginals_estimated": (self._shares / self._rounds).tolist() if self._rounds else None,
        }

    def failure(self) -> str | None:
        """Say which promise about the sites a finished run has broken; None if none."""
        terms = self._manager.law.terms
        if terms is None:
            return None
        contributed = int((self.contributions > 0).sum())
        if contributed < terms.min_sites:
            return f"ram.min_sites={terms.min_sites}: only {contributed} sites have ever contributed; see ledger.csv"
        never = [site for site in terms.required_sites if not self.contributions[site]]
        if never:
            return f"ram.required_sites={list(terms.required_sites)}: site {never[0]} has never contributed; see ledger.csv"
        return None

    def state_dict(self) -> dict[str, Any]:
        """See ``checkpoint.Stateful``."""
        return {
            "position": self.table.position(), "contributions": self.contributions.copy(), "late": self.late.copy(),
            "shares": self._shares.copy(), "rounds": self._rounds,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``checkpoint.Stateful``."""
        self.table.cut(state["position"])
        self.contributions, self.late = state["contributions"].copy(), state["late"].copy()
        self._shares, self._rounds = state["shares"].copy(), state["rounds"]
