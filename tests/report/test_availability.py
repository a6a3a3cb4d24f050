"""Participation probabilities against enumeration of every subset or order."""

from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest

from fedrage_flwr.config import compose_config
from fedrage_flwr.errors import UserError
from fedrage_flwr.report.availability import main, table

SMALL = ["num_clients=6", "rare_clients=2", "ram.clients_per_round=2"]


def successive(weights, m):
    """P(i∈S) of successive sampling without replacement, order by order."""
    inclusion = np.zeros(len(weights))
    for order in permutations(range(len(weights)), m):
        probability, left = 1.0, sum(weights)
        for i in order:
            probability *= weights[i] / left
            left -= weights[i]
        inclusion[list(order)] += probability
    return inclusion


def test_every_regime_by_enumeration():
    found = table(SMALL)
    by_regime = {
        regime.partition(":")[0].partition(",")[0]: rows["p"].to_numpy() for regime, rows in found.groupby("regime")
    }
    uniform = sum(np.isin(np.arange(6), s) for s in combinations(range(6), 2)) / 15
    np.testing.assert_allclose(by_regime["uniform"], uniform / 2)
    np.testing.assert_allclose(by_regime["skewed"], [(2 - 0.01) / 4 / 2] * 4 + [0.0025] * 2, atol=1e-10)
    epsilon = compose_config(["ram=rare"]).ram.epsilon
    np.testing.assert_allclose(by_regime["ram=rare"], successive([1] * 4 + [epsilon] * 2, 2) / 2, atol=1e-9)
    tau = compose_config(["ram=exponential"]).ram.tau
    np.testing.assert_allclose(by_regime["ram=exponential"], successive(np.exp(-np.arange(6) / tau), 2) / 2, atol=1e-9)


def test_the_command_writes_what_it_draws(tmp_path):
    main([str(tmp_path / "out")])
    written = pd.read_csv(tmp_path / "out" / "probabilities.csv")
    assert len(written) == 4 * 30
    assert written.groupby("regime")["p"].sum().tolist() == pytest.approx([1] * 4, abs=1e-4)  # six digits are written
    skewed = written[written["regime"].str.startswith("skewed")]
    assert skewed["inclusion"].tolist() == pytest.approx([(3 - 0.015) / 27] * 27 + [0.005] * 3, rel=1e-5)
    for kind in ("pdf", "png"):
        assert (tmp_path / "out" / f"availability.{kind}").stat().st_size > 1000


def test_mistakes():
    with pytest.raises(UserError, match="usage"):
        main(["a", "b"])
    with pytest.raises(UserError, match="clients_per_round"):
        main(["ram.clients_per_round=99"])
