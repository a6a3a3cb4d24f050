"""A node's memory on disk: found again after a restart, rolled back with the server, never half-written."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from clients.base import write_settings
from fedrage_flwr.client_app import app
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.node import write_job
from fedrage_flwr.node_state import NodeState
from fedrage_flwr.parts import make_local_model, prepare_run
from fedrage_flwr.records import to_arrays, to_record

EXPERIMENT = "0" * 32


def state(folder, round, every=10):
    return NodeState(folder, {"experiment-id": EXPERIMENT, "checkpoint-every": every, "server-round": round}, 3)


def keep(folder, round, value, every=10):
    here = state(folder, round, every)
    here.restore()
    here.commit(RecordDict({"control": to_record({"w": np.array([value])})}))


def value(record_dict):
    return float(to_arrays(record_dict["control"])["w"][0])


def test_the_last_participation_is_found(tmp_path):
    assert not state(tmp_path, 1).restore()
    keep(tmp_path, 2, 2.0)
    keep(tmp_path, 5, 5.0)
    assert value(state(tmp_path, 9).restore()) == 5.0


def test_an_earlier_round_rolls_back(tmp_path):
    for round in (2, 5, 7):
        keep(tmp_path, round, float(round))
    assert value(state(tmp_path, 5).restore()) == 2.0
    assert value(state(tmp_path, 9).restore()) == 2.0  # what came after is gone for good


def test_as_many_files_as_the_server_can_go_back(tmp_path):
    """Checkpoints every 4 rounds; in round 14 the newest are of rounds 12 and 8: the state after 8 and all later ones stay."""
    for round in range(1, 15):
        keep(tmp_path, round, float(round), every=4)
    kept = sorted(int(path.stem) for path in tmp_path.rglob("*.npz"))
    assert kept == list(range(8, 15))


def test_a_damaged_file_is_no_new_beginning(tmp_path):
    keep(tmp_path, 2, 2.0)
    path = next(tmp_path.rglob("*.npz"))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match="is damaged"):
        state(tmp_path, 3).restore()


@pytest.mark.parametrize("name", ["../../etc", "", "0" * 31, "G" * 32])
def test_no_path_comes_from_a_message(tmp_path, name):
    with pytest.raises(ValueError, match="experiment-id"):
        NodeState(tmp_path, {"experiment-id": name, "checkpoint-every": 1, "server-round": 1}, 0)


def test_a_restarted_node_answers_as_one_that_was_never_away(tmp_path):
    """SCAFFOLD's c_i: three rounds in one process, and the same with an empty Context before the third."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    config = validate(compose_config(["strategy=scaffold", "num_clients=4", "rare_clients=1", "partition=iid"]))
    prepared = prepare_run(config)
    arrays = make_local_model(config, prepared.dataset, prepared.device).arrays()
    control = {name: np.zeros_like(array) for name, array in arrays.items()}

    def answer(round, context):
        record = ConfigRecord({
            "seed": 0, **write_settings(config.client), **write_job(config),
            "experiment-id": EXPERIMENT, "checkpoint-every": 10, "server-round": round,
        })  # fmt: skip
        content = RecordDict({"arrays": to_record(arrays), "control": to_record(control), "config": record})
        reply = app(Message(content, 1, "train"), context)
        return {name: to_arrays(reply.content[name]) for name in reply.content.array_records}

    def node(folder):
        config = {"partition-id": 2, "num-partitions": 4, "state-dir": str(folder)}
        return Context(1, 1, config, RecordDict(), {})

    there = node(tmp_path / "a")
    expected = [answer(round, there) for round in (1, 2, 3)][-1]
    for round in (1, 2, 3):
        found = answer(round, node(tmp_path / "b"))
    for name, content in expected.items():
        for key, array in content.items():
            np.testing.assert_array_equal(found[name][key], array)
    fresh = answer(3, node(tmp_path / "c"))
    assert any(
        (fresh[name][key] != array).any() for name, content in expected.items() for key, array in content.items()
    )
