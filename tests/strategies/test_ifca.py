"""IFCA's server half by hand, and its identity with FedAvg."""

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict
from safetensors.numpy import load_file

from fedrage_flwr.records import to_arrays, to_record
from strategies.clusters import ClusterSettings
from strategies.ifca import Ifca


@pytest.fixture
def ifca(fedavg_settings):
    client = fedavg_settings(name="ifca", lr=0.5)
    return Ifca(ClusterSettings("ifca", "sgd", 1.0, 0.9, 0.99, 1e-3, 3, "distinct"), client, 3)


def start(*values):
    return to_record({f"cluster{m}.theta": np.array([v], np.float32) for m, v in enumerate(values)})


def test_one_round_by_hand(federation, ifca, train_config):
    """Clients at 0, 2 and 9, models 1, 8 and 100, one step of ½. Clients 0 and 1 choose model 0 and send ½ and 1½, mean 1;
    client 2 takes model 1 to 8½. Nobody chose the third."""
    three = federation([[0.0], [2.0], [9.0]])
    result = ifca.start(three.grid, start(1, 8, 100), 1, train_config=train_config(ifca.client))
    assert [array.item() for array in to_arrays(result.arrays).values()] == [1, 8.5, 100]


@pytest.mark.parametrize("cluster", [-1, 3])
def test_a_cluster_there_is_not_is_rejected(federation, ifca, train_config, cluster):
    three = federation([[0.0], [2.0], [9.0]])
    list(ifca.configure_train(1, start(1, 8, 100), train_config(ifca.client), three.grid))
    content = RecordDict({"arrays": three.start, "cluster": to_record({"value": np.array(cluster)})})
    content["metrics"] = MetricRecord({})
    assert ifca.problem(content) == f"record cluster: {cluster} is outside 0..2"


def test_one_cluster_is_fedavg_to_the_bit_and_one_model_travels_up(simulate):
    job = ("num_rounds=5", "client.lr=0.05")
    fedavg, _ = simulate("strategy=fedavg", *job)
    one, _ = simulate("strategy=ifca", "strategy.num_clusters=1", *job)
    expected, found = load_file(fedavg / "model.safetensors"), load_file(one / "model.safetensors")
    assert found.keys() == {f"cluster0.{name}" for name in expected}
    assert all((array == found[f"cluster0.{name}"]).all() for name, array in expected.items())


def test_bytes(simulate):
    """Three participants: each receives three models, and sends one and a number of 8 bytes."""
    _, summary = simulate("strategy=ifca", "strategy.initialisation=distinct", "num_rounds=2")
    model = 4 * (64 * 200 + 200 + 200 * 10 + 10)
    assert summary["bytes_down_per_round"] == 3 * 3 * model
    assert summary["bytes_up_per_round"] == 3 * (model + 8)
