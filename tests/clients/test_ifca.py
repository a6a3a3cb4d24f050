"""IFCA's client half by hand, on f(θ) = ½ (θ − a)²."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedrage_flwr.records import to_arrays, to_record


@pytest.fixture
def ask(federation, fedavg_settings, train_config):
    def ask(*models, kind="train"):
        one = federation([[3.0]])
        arrays = {f"cluster{m}.theta": np.array([value], np.float32) for m, value in enumerate(models)}
        config = ConfigRecord({**train_config(fedavg_settings(name="ifca", lr=0.5)), "server-round": 1})
        content = RecordDict({"arrays": to_record(arrays), "config": config})
        (reply,) = one.grid.send_and_receive([Message(content, next(iter(one.grid.get_node_ids())), kind)])
        assert not reply.has_error(), reply.error
        return reply.content

    return ask


@pytest.mark.parametrize(
    ("models", "cluster", "trained"),
    [((0, 5), 1, 4), ((2, 5), 0, 2.5), ((1, 5), 0, 2), ((1e30, 9), 1, 6), ((7,), 0, 5)],
)
def test_it_trains_the_nearest_model(ask, models, cluster, trained):
    """One step of ½ goes half the way to 3. Of equals the first; a loss that is not finite is the largest."""
    content = ask(*models)
    assert to_arrays(content["cluster"])["value"] == cluster
    assert {name: array.tolist() for name, array in to_arrays(content["arrays"]).items()} == {"theta": [trained]}


def test_evaluation_says_where_the_client_belongs(ask):
    assert ask(0, 9, 4, kind="evaluate")["metrics"]["pi"] == [0, 0, 1]
