"""What .info says is what a run then does; nothing is written."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.info import cost_lines, main
from fedrage_flwr.rehearsal import Costs, evaluations, rehearse
from fedrage_flwr.run import prepare_run


@pytest.mark.parametrize("strategy", ["federage", "scaffold", "ditto", "oracle"])
def test_bytes_a_round_are_those_of_the_run(tmp_path, monkeypatch, capsys, simulate, strategy):
    overrides = [f"strategy={strategy}", "num_rounds=4", "num_clients=12"]
    _, summary = simulate(*overrides)
    monkeypatch.chdir(tmp_path / "run0")
    before = sorted((tmp_path / "run0").iterdir())
    main(overrides)
    page = capsys.readouterr().out
    up, down = f"{summary['bytes_up_per_round']:,.0f}", f"{summary['bytes_down_per_round']:,.0f}"
    assert f"{up} up, {down} down, for 3 participants" in page
    assert f"name: {strategy}" in page
    assert "digits: 1,352 + 445 examples, 1×8×8, 10 classes" in page
    assert sorted((tmp_path / "run0").iterdir()) == before


def test_participants_that_vary_count_with_their_mean(capsys):
    main(["strategy=fedavg", "ram=bernoulli", "ram.probability=0.5", "num_rounds=40", "num_clients=10"])
    page = capsys.readouterr().out
    mean = 5 / (1 - 0.5**10)  # a round with nobody is drawn again
    model = 4 * (64 * 200 + 200 + 200 * 10 + 10)
    assert f"{mean * model:,.0f} up" in page
    assert "never seen" in page


def test_nobody_there_is_said_and_no_cost_is_invented():
    prepared = prepare_run(validate(compose_config(["num_rounds=5"])))
    prepared.manager.law.sample = lambda round: np.empty(0, np.int64)
    costs = rehearse(prepared)
    assert costs is None
    assert cost_lines(prepared, costs) == [("costs", "none measured: no reply could be used in 5 rounds")]


@pytest.mark.parametrize(("rounds", "every"), [(300, 10), (25, 10), (10, 3), (3, 2), (12, 1)])
def test_evaluations_are_counted_as_the_callback_makes_them(simulate, rounds, every):
    from fedrage_flwr.callbacks import LAST_ROUNDS

    config = replace(validate(compose_config([])), num_rounds=rounds, eval_every=every)
    done = [r for r in range(1, rounds + 1) if not (r % every and r <= rounds - LAST_ROUNDS)]
    assert evaluations(config) == len(done)


def test_the_time_is_rounds_and_evaluations():
    config = replace(validate(compose_config([])), num_rounds=100, eval_every=50)
    costs = Costs(rounds=3, bytes_up=1, bytes_down=1, participant_seconds=0.5, evaluation_seconds=2.0)
    # 100 rounds of 3 · 0.5 s; rounds 50 and 91..100, and the average model: 12 evaluations of 2 s
    assert costs.total_seconds(config, 3) == pytest.approx(150 + 24)


def test_nearest_name_and_no_flags():
    with pytest.raises(UserError, match=r"did you mean ram\.epsilon\?"):
        main(["ram.epsilom=1"])
    with pytest.raises(UserError, match=r"usage: python -m fedrage_flwr\.info"):
        main(["--help"])


def test_the_configuration_is_resolved(capsys):
    main(["num_rounds=2"])
    assert not re.search(r"\$\{", capsys.readouterr().out)
