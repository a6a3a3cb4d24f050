"""A run that goes nowhere ends early and says what to try."""

import pytest

from fedrage_flwr.errors import UserError


def test_a_loss_above_the_bound_ends_the_run_with_advice(simulate):
    with pytest.raises(UserError) as error:
        simulate("strategy=fedavg", "client.lr=0.2", "max_loss=1.5", "num_rounds=5", "partition=iid")
    assert "ended after round 1: the training loss is" in str(error.value)
    assert "max_loss=1.5; the steps are too large: try client.lr=0.02" in str(error.value)


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
