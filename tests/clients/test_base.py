"""What a client refuses to work with, and what it says of itself."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from clients import CLIENTS
from clients.base import write_settings
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.parts import WorkspaceFactory, make_grid, make_local_model, make_strategy, prepare_run
from fedrage_flwr.records import SLACK, to_arrays, to_record
from fedrage_flwr.settings import lookup
from fedrage_flwr.words import choices

BETA = {"value": np.array(0.5, np.float32)}


def ask(federation, settings, train_config, **records):
    content = RecordDict({"arrays": federation.start, **{name: to_record(arrays) for name, arrays in records.items()}})
    content["config"] = ConfigRecord({**train_config(settings), "server-round": 1})
    (reply,) = federation.grid.send_and_receive([Message(content, next(iter(federation.grid.get_node_ids())), "train")])
    return reply.error.reason if reply.has_error() else None


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ({"beta": BETA}, None),
        ({}, "the message lacks the record beta"),
        ({"beta": {"value": np.zeros(1, np.float32)}}, "record beta: value has shape (1,), expected ()"),
        ({"beta": {"value": np.array(0.5)}}, "record beta: value has dtype float64, expected float32"),
        ({"beta": {**BETA, "more": np.zeros(1)}}, "record beta: unexpected ['more']"),
        ({"beta": {"value": np.array(np.nan, np.float32)}}, "record beta: value is not finite"),
        ({"beta": BETA, "more": {"x": np.zeros(SLACK)}}, "the message is too large"),
    ],
)
def test_records_beside_the_model_are_checked_like_the_model(
    federation, federage_settings, train_config, records, problem
):
    found = ask(federation([[0.0]]), federage_settings(), train_config, **records)
    assert found is None if problem is None else problem in found


@pytest.mark.parametrize("word", choices("strategy"))
def test_a_client_says_whether_it_keeps_state(word):
    """Two rounds of every algorithm; what is found in the contexts afterwards is what ``keeps_state`` promises."""
    config = validate(
        compose_config(
            [f"strategy={word}", "num_clients=3", "rare_clients=1", "partition=iid", "model=softmax", "ram=full"]
        )
    )
    prepared = prepare_run(config)
    factory = WorkspaceFactory(config, prepared.dataset, prepared.partition)
    grid = make_grid(config, factory, prepared.device)
    strategy = make_strategy(config, prepared.manager)

    def model(k):
        arrays = to_arrays(to_record(make_local_model(config, prepared.dataset, prepared.device, k).arrays()))
        return to_record({name: array + np.float32(k) for name, array in arrays.items()})  # softmax always starts alike

    start = strategy.initial_arrays(model)
    train_config = ConfigRecord({"seed": 0, **write_settings(config.client)})
    strategy.start(grid, start, 2, train_config=train_config, manager=prepared.manager)
    assert bool(grid.client_states()) == lookup(CLIENTS, config.client.name).keeps_state
