"""``dataset=file``: what ``prepare`` writes is what a simulation trains on."""

import numpy as np
import pandas as pd
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


def table_command(path):
    return ["table", str(path.with_suffix(".csv")), str(path), "--label", "kind"]


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


@pytest.fixture
def of_clients(tmp_path):
    """Seven rows of client 10, three of client 2; of client 10 the rows 1, 4, 6 are of class b and come last."""
    whose = [10, 10, 2, 10, 10, 2, 10, 2, 10, 10]
    kinds = "abbababaaa"
    rows = [f"{k},{whose[k]},{kinds[k]}" for k in range(10)]
    (tmp_path / "t.csv").write_text("\n".join(["x,ward,kind", *rows]))
    command = ["table", str(tmp_path / "t.csv"), str(tmp_path / "t.npz"), "--label", "kind", "--client", "ward"]
    assert main(command) == 0
    return tmp_path / "t.npz"


def test_examples_stay_with_their_clients(of_clients):
    data = load_dataset(settings(of_clients, "dataset.test_every=3"))
    assert data.input_shape == (1,)  # neither the label nor the client is an input
    # client 0 is ward 2, in the order of classes 5 and 7 (a), 2 (b): the third is 2; client 1 is ward 10: 0 3 8 9 (a), 1 4 6 (b)
    assert data.test.inputs[:, 0].tolist() == [2, 4, 8]
    assert data.test_owner.tolist() == [0, 1, 1]
    assert data.train.inputs[:, 0].tolist() == [0, 1, 3, 5, 6, 7, 9]
    assert data.train_owner.tolist() == [1, 1, 1, 0, 1, 0, 1]


def test_clients_of_a_table_run_and_other_partitions_are_refused(of_clients, simulate):
    words = ["dataset=file", f"dataset.path={of_clients}", "dataset.test_every=3", "num_clients=2", "ram=full"]
    more = ["rare_clients=0", "partition.validation_fraction=0", "num_rounds=2"]
    folder, _ = simulate(*words, *more, "partition=natural")
    rows = pd.read_csv(folder / "clients.csv")
    assert rows.groupby("client")["examples"].first().tolist() == [1, 2]
    with pytest.raises(UserError, match=r"come with their clients; type partition=natural num_clients=2"):
        simulate(*words, *more, "partition=iid")


def test_the_words_for_a_simulation_are_printed(of_clients, capsys):
    assert main([*table_command(of_clients), "--client", "ward"]) == 0
    out = capsys.readouterr().out
    assert "2 clients of 3 to 7 examples, numbered from 2 to 10" in out
    assert f"in a simulation: dataset=file dataset.path={of_clients} partition=natural num_clients=2" in out
    assert "dataset=private" not in out


def test_a_client_column_that_is_not_there_is_one_line(of_clients, capsys):
    assert main([*table_command(of_clients), "--client", "site"]) == 1
    assert "lacks the column site; it has x, ward, kind" in capsys.readouterr().err
