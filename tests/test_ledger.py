"""What becomes of every site, and which promises fail a run."""

import pandas as pd
import pytest
from flwr.app import ArrayRecord

from fedrage_flwr.availability.natural import Natural
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.errors import UserError
from fedrage_flwr.ledger import Ledger
from fedrage_flwr.rounds import Outcome, Round, Update


def manager(seen, **changes):
    settings = {"name": "natural", "deadline_s": 5.0, "enough": None, "min_sites": 1, "required_sites": [], **changes}
    made = RandomAccessClientManager(Natural(Natural.Settings(**settings), 4, 0, 0), 4, node_wait_s=0.1)
    made._node_of = {site: 100 + site for site in seen}
    return made


def finished(number, averaged, late=()):
    outcomes = [*(Outcome(i, "averaged") for i in averaged), *(Outcome(i, "late", "no reply in time") for i in late)]
    updates = [Update(i, {}, {}) for i in averaged]
    return Round(number, ArrayRecord(), {}, outcomes, updates, {}, 0, 0, 0.0)


def two_rounds(folder, **changes):
    ledger = Ledger(folder, manager([0, 1, 2], **changes), 4)
    ledger.after_round(finished(1, [0, 1], late=[2]))
    ledger.after_round(finished(2, [1]))
    return ledger


def test_every_site_has_a_row_in_every_round(tmp_path):
    two_rounds(tmp_path)
    rows = pd.read_csv(tmp_path / "ledger.csv").groupby("round")["status"].apply(list).to_dict()
    assert rows == {
        1: ["averaged", "averaged", "late", "never_seen"],
        2: ["absent", "averaged", "absent", "never_seen"],
    }


def test_estimates_by_hand(tmp_path):
    """Round 1: {0, 1}, a half each; round 2: {1}, all of it. So p = (1/4, 3/4, 0, 0)."""
    summary = two_rounds(tmp_path).summary()
    assert summary["marginals_estimated"] == [0.25, 0.75, 0.0, 0.0]
    assert summary["never_contributed"] == [2, 3]
    assert summary["late_replies"] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"min_sites": 2}, None),
        ({"min_sites": 3}, "ram.min_sites=3: only 2 sites have ever contributed"),
        ({"required_sites": [0, 1]}, None),
        ({"required_sites": [1, 2]}, "site 2 has never contributed"),
    ],
)
def test_promises(tmp_path, terms, problem):
    found = two_rounds(tmp_path, **terms).failure()
    assert found is None if problem is None else problem in found


def test_what_stands_behind_a_checkpoint_is_forgotten(tmp_path):
    ledger = Ledger(tmp_path, manager([0]), 4)
    ledger.after_round(finished(1, [0]))
    state = ledger.state_dict()
    ledger.after_round(finished(2, [0]))
    ledger.table.close()
    again = Ledger(tmp_path, manager([0]), 4, resumed=True)
    again.load_state_dict(state)
    again.after_round(finished(2, [1]))
    assert pd.read_csv(tmp_path / "ledger.csv").set_index(["round", "site"])["status"].to_dict()[2, 1] == "averaged"
    assert again.contributions.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_sites": 5}, "ram.min_sites=5 must be at most num_clients=4"),
        ({"enough": 5}, "ram.enough=5 must be at most num_clients=4"),
        ({"required_sites": [4]}, r"ram.required_sites=\[4\] must be partition ids in 0..3"),
    ],
)
def test_terms_that_cannot_be_kept_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        manager([], **changes)
