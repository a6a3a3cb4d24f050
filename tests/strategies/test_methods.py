"""The table of docs/methods.md: complete, current, and true of what the methods do on quadratics.

Three clients with f_i(θ) = ½(θ − a_i)², a = 0, 0, 10; one or two arrive, the third rarely. The law's table gives
p = (0.45, 0.45, 0.1): the p-mean is 1, the plain mean 10/3.
"""

from pathlib import Path

import numpy as np
import pytest

from fedrage_flwr.availability.subsets import Subsets
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.methods import facts, source, table
from fedrage_flwr.records import to_arrays
from fedrage_flwr.settings import lookup
from strategies import STRATEGIES

CENTRES = [[0.0], [0.0], [10.0]]
LAW = {(0,): 0.3, (1,): 0.3, (0, 1): 0.2, (0, 2): 0.1, (1, 2): 0.1}
P = np.array([0.45, 0.45, 0.1])
P_MEAN, PLAIN_MEAN = 1.0, 10 / 3


def by_aim(beginning):
    return sorted(name for name in STRATEGIES if facts(name)["Aims at"].startswith(beginning))


def long_average(federation, settings_of, train_config, name, rounds):
    strategy, client = settings_of(name, lr=0.05, local_steps=1)
    chosen = lookup(STRATEGIES, name)
    server = chosen(strategy, client, 3, **({"marginals": P} if chosen.told_marginals else {}))
    law = Subsets(Subsets.Settings("subsets", [list(s) for s in LAW], list(LAW.values())), 3, 0, 0)
    path = []
    watcher = type(
        "W", (), {"after_round": lambda self, round: path.append(float(to_arrays(round.arrays)["theta"][0]))}
    )()
    three = federation(CENTRES)
    manager = RandomAccessClientManager(law, 3, 1.0)
    server.start(
        three.grid, three.start, rounds, train_config=train_config(client), manager=manager, callbacks=[watcher]
    )
    return np.mean(path[rounds // 3 :])


def test_every_method_says_what_it_does():
    for name in STRATEGIES:
        assert set(facts(name)) == {"Aims at", "Stores", "Must know"}
        assert all(fact.endswith(".") for fact in facts(name).values())
    assert source("federage").startswith("FedeRage paper")


def test_the_page_is_current():
    page = Path(__file__).resolve().parents[2] / "docs" / "methods.md"
    assert page.read_text(encoding="utf-8") == table(), "python -m fedrage_flwr.methods > docs/methods.md"


def test_the_law_is_what_it_says():
    assert sum(LAW.values()) == pytest.approx(1)
    np.testing.assert_allclose([sum(q / len(s) for s, q in LAW.items() if i in s) for i in range(3)], P)


@pytest.mark.parametrize("name", by_aim("Σ p_i f_i"))
def test_methods_that_aim_at_the_p_mean(federation, settings_of, train_config, name):
    """Within 0.35 of the p-mean, 2.3 away from the plain mean: the average of 1,200 rounds has a deviation below 0.1."""
    assert long_average(federation, settings_of, train_config, name, 1800) == pytest.approx(P_MEAN, abs=0.35)


@pytest.mark.parametrize("name", by_aim("Σ f_i/N"))
def test_methods_that_aim_at_the_plain_mean(federation, settings_of, train_config, name):
    """Within 0.7 of the plain mean, 2.3 away from the p-mean."""
    assert long_average(federation, settings_of, train_config, name, 1800) == pytest.approx(PLAIN_MEAN, abs=0.7)


def test_both_aims_have_methods():
    assert {"fedavg", "fedprox", "ditto", "fedavg_ema"} <= set(by_aim("Σ p_i f_i"))
    assert {"scaffold", "mifa", "fedau", "fedawe", "oracle"} == set(by_aim("Σ f_i/N"))
