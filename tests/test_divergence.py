"""A run that goes nowhere ends early and says what to try."""

import numpy as np
import pytest
from flwr.app import ArrayRecord

from clients.fedavg import FedAvgClient
from fedrage_flwr.callbacks import Evaluate, StopWhenDiverged
from fedrage_flwr.command import print_summary
from fedrage_flwr.errors import UserError
from fedrage_flwr.evaluation import Evaluation, _pool
from fedrage_flwr.rounds import Round

NAN = float("nan")


def test_a_loss_above_the_bound_ends_the_run_with_advice(simulate):
    with pytest.raises(UserError) as error:
        simulate("strategy=fedavg", "client.lr=0.2", "max_loss=1.5", "num_rounds=5", "partition=iid")
    assert "ended after round 1: the training loss is" in str(error.value)
    assert "max_loss=1.5; the steps are too large: try client.lr=0.02" in str(error.value)


def test_a_test_loss_above_the_bound_ends_the_run_with_advice(simulate):
    """The first batch is met by the initial model, with a loss of about log 10; one long step later the model is far away."""
    job = ("strategy=fedavg", "partition=iid", "client.local_steps=1", "client.lr=1000", "max_loss=5", "num_rounds=3")
    with pytest.raises(
        UserError, match=r"round 1: the test loss is [\d.e+]+, above max_loss=5; .*try client\.lr=1e\+02"
    ):
        simulate(*job)


@pytest.mark.parametrize(
    ("train", "test", "says"),
    [
        (2.0, 3.0, None),
        (3.5, 4.0, "the training loss is 3.5, above max_loss=3"),
        (2.0, 3.5, "the test loss is 3.5, above max_loss=3"),
        (2.0, NAN, "the test loss is not finite"),
        (2.0, float("inf"), "the test loss is not finite"),
        (NAN, 1.0, "the training loss is not finite"),
        (2.0, None, None),  # not evaluated, or nobody has test data
        (None, None, None),
    ],
)
def test_both_losses_are_held_to_the_bound(train, test, says):
    metrics = {} if train is None else {"train-loss": train}
    round = Round(7, ArrayRecord(), {}, [], [], metrics, 0, 0, 0.0, {"loss": test})
    StopWhenDiverged(3.0).after_round(round)
    assert round.stop == (says and f"ended after round 7: {says}")


@pytest.mark.parametrize(
    ("answers", "loss"),
    [
        ({0: {"num-examples": 0.0}}, None),
        ({}, None),
        ({0: {"num-examples": 2.0, "accuracy": 0.5, "loss": NAN}}, NAN),
        ({0: {"num-examples": 2.0, "accuracy": 0.5, "loss": 4.0}, 1: {"num-examples": 0.0}}, 4.0),
    ],
)
def test_no_test_data_is_not_divergence(answers, loss):
    class Tables:
        def add_clients(self, round: int, evaluation: Evaluation) -> None:
            """Not looked at."""

    round = Round(1, ArrayRecord(), {}, [], [], {}, 0, 0, 0.0)
    Evaluate(lambda arrays, number: _pool(answers), 1, 1, np.zeros(2, bool), Tables()).after_round(round)
    assert (
        round.evaluation["loss"] is None
        if loss is None
        else np.array_equal(round.evaluation["loss"], loss, equal_nan=True)
    )


def test_the_final_table_says_that_clients_failed(simulate, monkeypatch, capsys):
    job = ("strategy=fedavg", "num_rounds=2", "partition=iid", "ram=full", "num_clients=4", "rare_clients=1")
    folder, summary = simulate(*job)
    print_summary(summary, folder)
    assert "NOT AVERAGED" not in capsys.readouterr().out
    train = FedAvgClient.train

    def fails_for_client_2(self):
        if self.task.data.partition == 2:
            raise RuntimeError("boom")
        return train(self)

    monkeypatch.setattr(FedAvgClient, "train", fails_for_client_2)
    folder, summary = simulate(*job)
    print_summary(summary, folder)
    text = " ".join(capsys.readouterr().out.split())
    assert "NOT AVERAGED 2 replies failed, came late or were rejected: see participation.csv" in text
    assert (folder / "participation.csv").read_text().count("failed,RuntimeError: boom") == 2


def test_numbers_that_overflow_are_told_from_other_failures(simulate):
    with pytest.raises(UserError, match=r"not finite.*try client\.lr=1e\+29.*κ · client\.lr = 5\.5 · 1e\+30"):
        simulate("client.lr=1e30", "max_empty_rounds=2", "num_rounds=5")


@pytest.mark.parametrize(
    ("overrides", "warned"),
    [
        ((), False),  # κ η = 5.5 · 0.02
        (("client.gamma=1", "client.alpha=0.02"), True),  # 50 · 0.02
        (("client.lr=0.2",), True),  # 5.5 · 0.2
        (("client.gamma=0", "client.lr=0.2"), False),  # κ = 1
    ],
)
def test_large_tail_steps_are_announced(simulate, capsys, overrides, warned):
    simulate(*overrides, "num_rounds=1")
    assert (
        "warning: a step on a tail batch has the effective size κ · client.lr =" in capsys.readouterr().err
    ) == warned
