"""``dataset=file``: what ``prepare`` writes is what a simulation trains on."""

import numpy as np
import pytest

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.data import load_dataset, prepare
from fedrage_flwr.errors import UserError
from fedrage_flwr.prepare import main


@pytest.fixture
def table(tmp_path):
    """Ten rows; class a is 0, 1, 2, 5, 6, 9, class b 3, 4, 7, 8."""
    rows = [f"{k},{10 * k},{'ab'[k in (3, 4, 7, 8)]}" for k in range(10)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y,kind", *rows]))
    source, target = str(tmp_path / "t.csv"), tmp_path / "t.npz"
    assert main(["table", source, str(target), "--label", "kind", *["--mean", "1", "5", "--std", "2", "10"]]) == 0
    return target


def settings(path, *more):
    return validate(compose_config(["dataset=file", f"dataset.path={path}", *more])).dataset


def test_every_third_of_a_class_is_for_testing_in_the_order_of_the_file(table):
    data = load_dataset(settings(table, "dataset.test_every=3"))
    assert data.test.inputs[:, 0].tolist() == [2, 7, 9]  # a: the third and sixth, b: the third
    assert data.train.inputs[:, 0].tolist() == [0, 1, 3, 4, 5, 6, 8]
    assert data.test.labels.tolist() == [0, 1, 0]
    assert (data.num_classes, data.input_shape) == (2, (2,))
    np.testing.assert_allclose(data.to_float(data.test.inputs)[0], [(2 - 1) / 2, (20 - 5) / 10])


def test_it_runs(table, simulate):
    folder, summary = simulate(
        "dataset=file", f"dataset.path={table}", "dataset.test_every=2", "partition=iid", "num_clients=2", "ram=full",
        "rare_clients=0", "partition.validation_fraction=0", "num_rounds=2",
    )  # fmt: skip
    assert summary["dataset"] == "file"
    assert (folder / "model.safetensors").exists()


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(
        UserError, match=r"dataset\.path=.*cannot be read .*make it with python -m fedrage_flwr\.prepare"
    ):
        prepare(settings(tmp_path / "none.npz"))
