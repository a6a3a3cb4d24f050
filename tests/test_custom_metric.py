"""Measures of the user's own: by hand on known outputs, in a run, and what is refused before one."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.evaluation import ServerMeasure
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.records import to_record
from fedrage_flwr.training import LocalModel

SOURCE = """
def error_rate(outputs, targets):
    return (outputs.argmax(1) != targets).double().mean()

def accuracy(outputs, targets):
    return 1.0

def listed(outputs, targets):
    return [1, 2]

unnamed = type("F", (), {"__call__": lambda self, outputs, targets: 0.0})()
"""


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    (tmp_path / "my_measures_for_test.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def words(*names):
    return "evaluate.metrics=[" + ",".join(f"my_measures_for_test:{name}" for name in names) + "]"


def test_whole_test_set_and_each_client_by_hand():
    """Inputs are the outputs: margins 2, −4, 6, 0 for the true class; the client without examples has no value."""
    inputs = torch.tensor([[2.0, 0.0], [0.0, 4.0], [0.0, 6.0], [1.0, 1.0]])
    parts = [np.array([0, 2]), np.array([], np.int64), np.array([1])]

    def margin(outputs, targets):
        true = outputs.gather(1, targets[:, None])[:, 0]
        return (2 * true - outputs.sum(1)).mean()

    model = LocalModel(nn.Linear(2, 2, bias=False))
    targets = torch.tensor([0, 0, 1, 0])
    measure = ServerMeasure(model, inputs, targets, lambda x: x, parts, metrics={"margin": margin})
    found = measure(to_record({"weight": np.eye(2, dtype=np.float32)}))
    assert found.measures == {"margin": 1.0}
    np.testing.assert_array_equal(found.extra["margin"], [4.0, np.nan, -4.0])


def test_in_a_run_it_is_a_column_of_both_tables_and_in_the_summary(simulate):
    folder, summary = simulate(words("error_rate"), "num_rounds=12", "eval_every=4")
    rounds, clients = pd.read_csv(folder / "rounds.csv").dropna(subset="accuracy"), pd.read_csv(folder / "clients.csv")
    np.testing.assert_allclose(rounds["error_rate"], 1 - rounds["accuracy"])
    np.testing.assert_allclose(clients["error_rate"], 1 - clients["accuracy"])
    assert summary["error_rate"] == rounds["error_rate"].iloc[-1]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("evaluate.metrics=[error_rate]", "must be package.module:Name"),
        ("evaluate.metrics=['no_such_module:f']", "ModuleNotFoundError"),
        (words("missing"), "AttributeError"),
        (words("accuracy"), "there is a column accuracy already"),
        (words("error_rate", "error_rate"), "there is a column error_rate already"),
        (words("unnamed"), "must be a function with a name"),
        (words("listed"), r"fails on outputs \(4, 10\) and targets \(4,\): TypeError"),
    ],
)
def test_what_cannot_be_is_refused_before_the_run(typed, said):
    with pytest.raises(UserError, match=said) as refused:
        prepare_run(validate(compose_config([typed])))
    assert str(refused.value).startswith("evaluate.metrics=")
    assert "\n" not in str(refused.value)


def test_clients_that_predict_themselves_are_not_measured():
    with pytest.raises(UserError, match="strategy=ditto"):
        prepare_run(validate(compose_config(["strategy=ditto", words("error_rate")])))
