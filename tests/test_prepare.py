"""Files of private data: made from folders, tables and texts, and refused by name where they do not fit."""

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.data.partition.local import Local
from fedrage_flwr.data.private import Private, read_private
from fedrage_flwr.errors import UserError
from fedrage_flwr.prepare import main


def settings(**changes):
    values = {"name": "private", "classes": ["a", "b"], "input_shape": [2], "mean": [0.0], "std": [1.0], "scale": 1.0}
    return Private.Settings(**{**values, **changes})


def save(path, **changes):
    arrays = {
        "inputs": np.ones((3, 2), np.float32), "labels": np.array([0, 1, 1]), "classes": np.array(["a", "b"]),
        "mean": np.array([0.0]), "std": np.array([1.0]), "scale": np.array(1.0),
    }  # fmt: skip
    np.savez(path, **{**arrays, **changes})
    return path


def test_a_folder_of_class_folders(tmp_path):
    for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (8, 6), colour).save(tmp_path / "images" / name / "one.png")
    assert main(["images", str(tmp_path / "images"), str(tmp_path / "site.npz"), "--size", "3", "4"]) == 0
    arrays = read_private(tmp_path / "site.npz")
    assert arrays["inputs"].shape == (2, 3, 3, 4)
    assert arrays["classes"].tolist() == ["blue", "red"]
    assert arrays["inputs"][arrays["labels"] == 1][0, :, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table(tmp_path, suffix):
    frame = pd.DataFrame({"x": [1.0, 2.0], "kind": ["b", "a"], "y": [3, 4]})
    frame.to_csv(tmp_path / "t.csv", index=False) if suffix == ".csv" else frame.to_parquet(tmp_path / "t.parquet")
    command = [
        "table",
        str(tmp_path / f"t{suffix}"),
        str(tmp_path / "site.npz"),
        "--label",
        "kind",
        "--classes",
        "a",
        "b",
        "c",
    ]
    assert main(command) == 0
    arrays = read_private(tmp_path / "site.npz")
    assert arrays["inputs"].tolist() == [[1, 3], [2, 4]]
    assert arrays["labels"].tolist() == [1, 0]
    assert arrays["classes"].tolist() == ["a", "b", "c"]


def test_texts(tmp_path):
    pd.DataFrame({"review": ["good", "bad bad"], "stars": [5, 1]}).to_csv(tmp_path / "t.csv", index=False)
    command = ["text", str(tmp_path / "t.csv"), str(tmp_path / "site.npz"), "--label", "stars", "--text", "review"]
    assert main([*command, "--dimension", "16"]) == 0
    arrays = read_private(tmp_path / "site.npz")
    assert arrays["inputs"].shape == (2, 16)
    np.testing.assert_allclose(np.linalg.norm(arrays["inputs"], axis=1), 1)
    assert arrays["classes"].tolist() == ["1", "5"]


@pytest.mark.parametrize("classes", [["a", "b"], ["T-shirt/top", "true"], ["0", "it's, [odd]"]])
def test_what_is_printed_describes_the_file(tmp_path, capsys, classes):
    pd.DataFrame({"x": [1.0, 2.0], "kind": classes}).to_csv(tmp_path / "t.csv", index=False)
    main(["table", str(tmp_path / "t.csv"), str(tmp_path / "site.npz"), "--label", "kind", "--classes", *classes])
    words = shlex.split(capsys.readouterr().out.split("the run needs: ")[1])
    config = validate(compose_config(words))
    assert list(config.dataset.classes) == classes
    assert len(Private(config.dataset).load_file(tmp_path / "site.npz").train) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ["b", "a"]}, "classes is .'a', 'b'. in the file, but the run has dataset.classes=.'b', 'a'."),
        ({"input_shape": [3]}, "input_shape is .2. in the file"),
        ({"mean": [0.5]}, "mean is .0.0. in the file"),
        ({"scale": 255.0}, "scale is 1.0 in the file"),
    ],
)
def test_a_mismatch_is_refused_by_name(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        Private(settings(**changes)).load_file(save(tmp_path / "site.npz"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": np.ones((0, 2), np.float32), "labels": np.zeros(0, np.int64)}, "holds no example"),
        ({"labels": np.array([0, 1, 2])}, "labels go from 0 to 2; there are 2 classes"),
        ({"inputs": np.full((3, 2), np.nan, np.float32)}, "NaN or infinity"),
        ({"inputs": np.ones((3, 2))}, "float64"),
        ({"inputs": np.array([{}, {}, {}])}, "cannot be read"),  # an object array: pickle
        ({"owners": np.array([0, 1, 0])}, "cannot be read .*clients"),
        (
            {"owners": np.array([0, 1]), "clients": np.array(["x", "y"])},
            r"owners are int64 \(2,\); must be int64 \(3,\)",
        ),
        (
            {"owners": np.array([0, 2, 0]), "clients": np.array(["x", "y", "z"])},
            "owners must be 0 to 2, each at least once",
        ),
    ],
)
def test_a_file_that_cannot_be_trained_on_is_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read_private(save(tmp_path / "site.npz", **changes))


def test_an_absent_file_says_how_to_make_one():
    with pytest.raises(UserError, match=r"python -m fedrage_flwr\.prepare"):
        read_private(Path("nowhere.npz"))


def test_the_split_of_a_node_is_disjoint_whole_and_its_own():
    local = Local(Local.Settings(name="local", seed=0, validation_fraction=0.1, test_fraction=0.2))
    parts = local.split(50, 1, 3).clients
    assert [len(part) for part in (parts[1].test, parts[1].validation, parts[1].train)] == [10, 4, 36]
    assert sorted(np.concatenate([parts[1].test, parts[1].validation, parts[1].train])) == list(range(50))
    assert not len(parts[0].train) + len(parts[2].train)
    assert local.split(50, 2, 3).clients[2].test.tolist() != parts[1].test.tolist()
