"""A reply fuzzer: client messages are mutated on their way, against every strategy. The server never crashes, and never
averages a bad one."""

import random

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from clients.base import write_settings
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.grids.base import error_reply
from fedrage_flwr.parts import WorkspaceFactory, make_grid, make_local_model, make_strategy, prepare_run
from fedrage_flwr.records import non_finite, to_arrays, to_record
from fedrage_flwr.words import choices

CPU = torch.device("cpu")
JOB = ("num_clients=5", "rare_clients=1", "partition=iid", "model.hidden=[4]", "client.local_steps=1", "ram=full")
ROUNDS = 40


def change_array(change):
    """A mutation of one array of one record that the server needs."""

    def mutate(content, needed, rng):
        record = rng.choice(needed)
        arrays = to_arrays(content[record])
        name = rng.choice(sorted(arrays))
        content[record] = to_record({**arrays, **change(name, arrays[name].copy(), rng)})

    return mutate


def spoil(value):
    def change(name, array, rng):
        flat = array.reshape(-1)
        flat[rng.randrange(flat.size)] = (
            value if array.dtype.kind == "f" else -7
        )  # a number of a cluster: there is none
        return {name: array}

    return change_array(change)


def drop_record(content, needed, rng):
    del content[rng.choice(needed)]


def drop_array(content, needed, rng):
    record = rng.choice(needed)
    arrays = to_arrays(content[record])
    arrays.pop(rng.choice(sorted(arrays)))
    content[record] = to_record(arrays)


def garble(content, needed, rng):
    """Bytes that are no array, under an honest header."""
    name = rng.choice(needed)
    record = ArrayRecord()
    for key, array in content[name].items():
        record[key] = Array(array.dtype, tuple(array.shape), "numpy.ndarray", rng.randbytes(50))
    content[name] = record


def other_kind(content, needed, rng):
    name = rng.choice(needed)
    del content[name]
    content[name] = MetricRecord({"value": 1.0})


def metric(value):
    def mutate(content, needed, rng):
        content["metrics"] = MetricRecord({**content["metrics"], "train-loss": value})

    return mutate


BAD = {
    "nan": spoil(np.nan),
    "infinity": spoil(-np.inf),
    "shape": change_array(lambda name, array, rng: {name: np.stack([array, array])}),
    "dtype": change_array(lambda name, array, rng: {name: array.astype(np.float16)}),
    "bytes": change_array(lambda name, array, rng: {name: np.zeros(array.shape, np.uint8)}),
    "more": change_array(lambda name, array, rng: {f"{name}.more": array}),
    "no record": drop_record,
    "no array": drop_array,
    "garbled": garble,
    "other kind": other_kind,
    "nan loss": metric(float("nan")),
    "infinite loss": metric(float("inf")),
}
ODD = {
    "no metrics": lambda content, needed, rng: content.pop("metrics"),
    "list": metric([1.0, 2.0]),
    "huge loss": metric(1e300),
    "negative loss": metric(-1.0),
    "further record": lambda content, needed, rng: content.update({"more": to_record({"a": np.ones(2)})}),
}


class Fuzz:
    """Mutates the reply of one client a round."""

    def __init__(self, strategy, rng):
        self.strategy, self.rng, self.round, self.done = strategy, rng, 0, []

    def __call__(self, messages, replies):
        self.round += 1
        victim = self.rng.randrange(len(replies))
        kind = self.rng.choice([*BAD, *ODD, "error"])
        client, message = messages[victim]
        assert not replies[victim].has_error(), replies[victim].error.reason
        if kind == "error":
            reply = error_reply(message, "boom")
        else:
            content = RecordDict(dict(replies[victim].content))
            ({**BAD, **ODD})[kind](content, sorted(self.strategy.sends()), self.rng)
            reply = Message(content, reply_to=message)
        self.done.append((client, kind))
        return [*replies[:victim], reply, *replies[victim + 1 :]]


@pytest.mark.parametrize("word", choices("strategy"))
def test_no_strategy_averages_a_bad_reply(word):
    config = validate(compose_config([*JOB, f"strategy={word}"]))
    prepared = prepare_run(config)
    strategy = make_strategy(config, prepared.manager)
    grid = make_grid(config, WorkspaceFactory(config, prepared.dataset, prepared.partition), CPU)
    fuzz, run_clients = Fuzz(strategy, random.Random(word)), grid.run_clients
    grid.run_clients = lambda messages: fuzz(messages, run_clients(messages))
    outcomes = []
    watcher = type("Watcher", (), {"after_round": lambda self, round: outcomes.append(list(round.outcomes))})()
    result = strategy.start(
        grid,
        strategy.initial_arrays(lambda k: to_record(make_local_model(config, prepared.dataset, CPU, k).arrays())),
        ROUNDS,
        train_config=ConfigRecord({"seed": 0, **write_settings(config.client)}),
        manager=prepared.manager,
        callbacks=[watcher],
    )
    assert len(outcomes) == ROUNDS == len(fuzz.done)
    for (client, kind), found in zip(fuzz.done, outcomes, strict=True):
        became = {outcome.client: outcome.outcome for outcome in found}
        if kind not in ODD:
            assert became.pop(client) == ("failed" if kind == "error" else "rejected"), kind
        else:
            became.pop(client)
        assert set(became.values()) == {"averaged"}, kind
    for arrays in (result.arrays, *strategy.records.values()):
        assert non_finite(to_arrays(arrays)) is None
