"""What FOCUS and IFCA share on the server: how clusters begin, and how well they are found."""

import json

import numpy as np
import pandas as pd
import pytest

from fedrage_flwr.availability.subsets import Subsets
from fedrage_flwr.callbacks import PolyakAverage
from fedrage_flwr.client_manager import RandomAccessClientManager
from fedrage_flwr.errors import UserError
from fedrage_flwr.metrics import adjusted_rand_index
from fedrage_flwr.records import to_arrays, to_record
from fedrage_flwr.rounds import Round
from strategies.clusters import ClusterSettings
from strategies.focus import Focus
from strategies.ifca import Ifca


def server(kind, num_clusters, initialisation, num_clients=3):
    settings = ClusterSettings("x", "sgd", 1.0, 0.9, 0.99, 1e-3, num_clusters, initialisation)
    return kind(settings, None, num_clients)


def random_model(k):
    return to_record({"w": np.random.default_rng(k).normal(size=2).astype(np.float32)})


def test_distinct_starts_are_different_models():
    arrays = to_arrays(server(Focus, 3, "distinct").initial_arrays(random_model))
    assert list(arrays) == ["cluster0.w", "cluster1.w", "cluster2.w"]
    assert (arrays["cluster0.w"] == to_arrays(random_model(0))["w"]).all()  # FedAvg's start
    assert len({array.tobytes() for array in arrays.values()}) == 3


def test_identical_starts_are_refused(simulate):
    with pytest.raises(UserError, match=r"distinct: this model has no random start.*initialisation=spread"):
        simulate("strategy=focus", "strategy.initialisation=distinct", "model=softmax")


def test_more_clusters_than_clients_are_refused():
    with pytest.raises(UserError, match=r"num_clusters=4.*at most num_clients=3"):
        server(Focus, 4, "spread")


def run(federation, kind, centres, subsets, settings, config, num_clusters=2):
    """Let fixed subsets arrive, one a round, until they are through; returns the server and the models after each round."""
    many = federation(centres)
    strategy, path = server(kind, num_clusters, "spread", len(centres)), []
    arrays = strategy.initial_arrays(lambda k: many.start)
    for subset in subsets:
        table = Subsets.Settings(name="subsets", subsets=[subset], probabilities=[1.0])
        manager = RandomAccessClientManager(Subsets(table, len(centres), 0, 0), len(centres), 1.0)
        arrays = strategy.start(many.grid, arrays, 1, train_config=config(settings), manager=manager).arrays
        path.append({name: array.tolist() for name, array in to_arrays(arrays).items()})
    return many, strategy, path


@pytest.mark.parametrize("kind", [Focus, Ifca])
def test_spread_collects_one_round_models_until_they_differ(federation, fedavg_settings, train_config, kind):
    """Clients at 4, 4 and 8, one a round, one step of ½ from 0: models 2, 2 and 4. Two equal ones are not two clusters, nor
    is the same client twice. With the third the clusters begin, at 2 and 4; nobody's π has moved until then."""
    settings = fedavg_settings(name=kind.__name__.lower(), lr=0.5)
    many, strategy, path = run(
        federation, kind, [[4.0], [4.0], [8.0]], [[0], [1], [0], [2], [2]], settings, train_config
    )
    assert path[:3] == [{"cluster0.theta": [0]}] * 3
    assert list(path[3]) == ["cluster0.theta", "cluster1.theta"]
    assert sorted(path[3].values()) == [[2], [4]]
    assert strategy.memory == {}
    for client in (0, 1):
        assert not many.grid.context(client).state
    assert sorted(path[4].values())[1] == [
        pytest.approx(6, abs=0.1)
    ]  # client 2 takes its cluster half the way from 4 to 8


def test_the_average_of_the_rounds_begins_with_the_clusters():
    """While the common start is broadcast alone there is nothing to average."""
    polyak = PolyakAverage(4)
    for number, models in enumerate([[9], [9], [1, 4], [2, 8]], 1):
        arrays = to_record({f"cluster{m}.w": np.array([value], np.float32) for m, value in enumerate(models)})
        polyak.after_round(Round(number, arrays, {}, [], [], {}, 0, 0, 0.0))
    average = to_arrays(polyak.records()["arrays"])
    assert {name: array.tolist() for name, array in average.items()} == {"cluster0.w": [1.5], "cluster1.w": [6]}
    assert polyak.second_half() is None  # its first half is not of these models


def test_adjusted_rand_index_by_hand():
    """Names do not matter; {a, a}, {b, b} against {a, b}, {a, b} is −½ (no pair agrees; Hubert and Arabie, eq. 5)."""
    shares = np.array([[0.1, 0.9], [0.4, 0.6], [1, 0], [1, np.nan]])
    assert adjusted_rand_index(np.array([0, 0, 1, 1]), shares) == 1
    assert adjusted_rand_index(np.array([0, 1, 0, 1]), shares) == pytest.approx(-0.5)


LINEAR = (
    "dataset=linear_gaussian", "partition=natural", "model=linear", "num_clients=9", "ram=full", "rare_clients=0",
    "num_rounds=12", "strategy.num_clusters=2",
)  # fmt: skip


@pytest.mark.parametrize("word", ["focus", "ifca"])
def test_the_groups_of_linear_agents_are_found(simulate, word):
    folder, summary = simulate(f"strategy={word}", *LINEAR)
    assert summary["adjusted_rand_index"] == 1
    assert json.loads((folder / "summary.json").read_text())["adjusted_rand_index"] == 1
    last = pd.read_csv(folder / "clients.csv").query("round == 12")
    np.testing.assert_allclose(last[["pi_0", "pi_1"]].sum(axis=1), 1)


def test_it_is_printed():
    from fedrage_flwr.command import _rows

    summary = {
        "accuracy_mean_last10": 0.5, "accuracy_std_last10": 0.1, "polyak_accuracy": 0.5, "client_accuracy_min": 0.1,
        "rare_client_accuracy": None, "bytes_up_per_round": 1, "bytes_down_per_round": 1, "rejected_replies": 0,
        "wall_seconds": 1.0, "rounds_per_second": 1.0, "adjusted_rand_index": 0.9541,
    }  # fmt: skip
    assert dict(_rows(summary))["clusters"].startswith("0.954 (adjusted Rand index")
