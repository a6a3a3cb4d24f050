"""What .info says is what a run then does; nothing is written."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.info import cost_lines, main
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.rehearsal import Costs, evaluations, rehearse


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


PRIVATE = ("dataset=private", "partition=local", "dataset.classes=[cat,dog]", "dataset.input_shape=[3,8,8]")


@pytest.mark.parametrize("data", [("partition=iid",), PRIVATE])
def test_of_real_sites_nothing_is_said_that_nobody_knows(capsys, data):
    main(["ram=natural", "num_clients=4", "rare_clients=1", "strategy=fedavg", "model=softmax", "ram.enough=2", *data])
    page = " ".join(capsys.readouterr().out.split())
    assert "P(i∈S), p_i not known beforehand" in page
    assert "whichever of the 4 sites are connected; 1 at least" in page
    assert "when 2 have answered, or after 600 s" in page
    model = 4 * (3 * 8 * 8 * 2 + 2 if data == PRIVATE else 64 * 10 + 10)
    assert f"{model:,} up, {model:,} down for each site" in page
    assert ("examples" in page.partition("Data and model")[2].partition("Devices")[0]) == (data != PRIVATE)
    assert "on average" not in page


def test_sites_that_a_law_draws_have_its_probabilities(capsys):
    main([*PRIVATE, "num_clients=4", "rare_clients=0", "ram=uniform", "ram.clients_per_round=2", "model=softmax"])
    page = " ".join(capsys.readouterr().out.split())
    assert "0.5 over 4 clients, exact" in page
    assert "time not known" in page


def test_an_oracle_of_real_sites_is_refused():
    with pytest.raises(UserError, match="ram=natural: who will be there is not known beforehand"):
        main(["ram=natural", "strategy=oracle"])
