"""A checkpoint is whole or not there, and nothing in it is executed."""

import json
import pickle

import numpy as np
import pytest
from flwr.app import ArrayRecord

from fedrage_flwr.checkpoint import Checkpoints, config_hash, files, pack, read, read_newest, unpack
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.records import to_record


class Part:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


@pytest.fixture
def written(tmp_path):
    """A folder with the checkpoints of the rounds given, each with a model and a part that hold the round's number."""
    config = validate(compose_config([]))
    (tmp_path / "checkpoint").mkdir()

    def write(*rounds):
        part = Part({})
        checkpoints = Checkpoints(tmp_path, config, {"part": part}, "cpu")
        for number in rounds:
            part.state = {"round": number, "sums": np.full((), number, np.float64)}
            checkpoints.save(number, to_record({"w": np.full(3, number, np.float32)}))
        return tmp_path / "checkpoint"

    return write


def test_every_kind_of_value_comes_back():
    state = {
        "none": None, "flag": True, "count": 3, "text": "1.weight", "list": [1, [2.5]], "third": 1 / 3, "0": {},
        "nan": float("nan"), "inf": -float("inf"), "arrays": {"a/b": np.arange(3), "scalar": np.array(2.0)},
        "a": {"b": np.array([True])},
    }  # fmt: skip
    tree, tensors = pack(state)
    back = unpack(json.loads(json.dumps(tree, allow_nan=False)), tensors)
    assert back.keys() == state.keys()
    assert np.isnan(back.pop("nan"))
    for name in ("none", "flag", "count", "text", "list", "third", "0", "inf"):
        assert (back[name], type(back[name])) == (state[name], type(state[name]))
    for name, array in state["arrays"].items():
        np.testing.assert_array_equal(back["arrays"][name], array)
    assert back["a"]["b"].dtype == bool


def test_paths_that_read_alike_are_kept_apart():
    tree, tensors = pack({"a/b": {"c": np.zeros(1)}, "a": {"b/c": np.ones(1)}})
    back = unpack(tree, tensors)
    assert (back["a/b"]["c"][0], back["a"]["b/c"][0]) == (0, 1)


def test_an_array_met_twice_is_stored_once():
    shared = np.arange(4.0)
    tree, tensors = pack({"one": shared, "two": shared})
    assert len(tensors) == 1
    assert unpack(tree, tensors)["two"] is shared


def test_the_newest_two_stay(written):
    folder = written(1, 2, 3)
    assert [path.name for path in files(folder)] == ["round-0000002.safetensors", "round-0000003.safetensors"]
    assert not list(folder.glob("*.partial"))


@pytest.mark.parametrize("size", [0.0, 0.01, 0.5, 0.99])
def test_o23_a_half_written_checkpoint_is_passed_over(written, size):
    """Model and parts are those of the round before, and the message names the file."""
    folder = written(6, 7)
    newest = files(folder)[-1]
    content = newest.read_bytes()
    newest.write_bytes(content[: int(size * len(content))])
    found, problems = read_newest(folder)
    assert (found.round, found.parts["part"]["round"], float(found.parts["part"]["sums"])) == (6, 6, 6.0)
    assert found.arrays["w"].tolist() == [6, 6, 6]
    assert [path.name for path in problems] == ["round-0000007.safetensors"]
    assert "round-0000007.safetensors cannot be read" in problems[newest]


def test_o23_a_partial_file_is_no_checkpoint(written):
    folder = written(6)
    (folder / "round-0000007.safetensors.partial").write_bytes(b"half")
    assert read_newest(folder)[0].round == 6
    written(8)
    assert not list(folder.glob("*.partial"))


def test_o23_metrics_configuration_and_numpy_scalars_load_safely(written):
    """What makes torch refuse a checkpoint is plain here."""
    folder = written()
    config = validate(compose_config([]))
    state = {"metric": np.float64(0.1), "count": np.int64(3), "nothing": np.float32("nan")}
    Checkpoints(folder.parent, config, {"part": Part(state)}, "cpu").save(1, ArrayRecord())
    found = read(files(folder)[0])
    assert (found.parts["part"]["metric"], found.parts["part"]["count"]) == (0.1, 3)
    assert np.isnan(found.parts["part"]["nothing"])
    assert validate_again(found.config) == config
    assert found.versions["device"] == "cpu"


def validate_again(values):
    from omegaconf import OmegaConf

    return validate(OmegaConf.create(values))


class Marker:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_o23_a_pickle_is_refused_and_not_run(written, tmp_path):
    folder = written(1)
    marker = tmp_path / "marker"
    for path in files(folder):
        path.write_bytes(pickle.dumps(Marker(marker)))
    with pytest.raises(UserError, match=r"holds no checkpoint .*: round-0000001\.safetensors cannot be read"):
        read_newest(folder)
    assert not marker.exists()


def test_a_changed_configuration_is_noticed(written):
    """The hash covers every value, in any order of keys."""
    assert config_hash({"a": 1, "b": [2]}) == config_hash({"b": [2], "a": 1}) != config_hash({"a": 1, "b": [3]})
    newest = files(written(1))[-1]
    newest.write_bytes(newest.read_bytes().replace(b'num_clients\\": 30', b'num_clients\\": 31'))
    with pytest.raises(ValueError, match="its configuration is not the one that was written"):
        read(newest)


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(UserError, match="it is empty"):
        read_newest(tmp_path)


def test_a_disk_that_is_full_is_one_line(written, monkeypatch):
    from fedrage_flwr import results

    folder = written(1)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results, "save_file", full)
    with pytest.raises(OSError, match=r"No space left on device: .*round-0000002.safetensors"):
        written(2)
    assert read_newest(folder)[0].round == 1
