"""The audit of made-up tables of trials, by hand."""

import itertools
import math

import pandas as pd
import pytest

from fedrage_flwr.errors import UserError
from fedrage_flwr.report.cells import make_cells
from fedrage_flwr.report.tuning import (
    chosen_table,
    edges,
    expected_best,
    points,
    rank_correlation,
    ranks_table,
    read_tunings,
    reporting_table,
    trials_table,
)
from fedrage_flwr.search import read_space
from fedrage_flwr.tune import Trial, Trials

SPACE = read_space("fedprox")  # six step sizes, four μ: 24 trials
WORDS = [" ".join(SPACE.overrides(point)) for point in SPACE.trials()]


def settings(trial):
    lr = {24: 0.4, 25: 0.8}.get(trial)
    return WORDS[trial] if lr is None else f"client.lr={lr} client.mu=0.001"


def write(folder, rows):
    trials = Trials(folder / "digits_mlp_inclusion_fedprox.csv")
    for trial, rung, seed, rounds, everyone, participants in rows:
        origin = "plan" if trial < 24 else "edge"
        trials.add(
            Trial(trial, origin, rung, seed, rounds, settings(trial), everyone, participants, everyone / 2, 1.0, "ok")
        )


@pytest.fixture
def folder(tmp_path):
    """Scores rise with the number of the trial, for participants they fall; two kept, both run on three seeds."""
    first = [(trial, 1, 1000, 30, trial / 100, 1 - trial / 100) for trial in range(24)]
    second = [(trial, 2, 1000, 100, score, 1 - score) for trial, score in ((0, 0.3), (1, 0.31), (22, 0.5), (23, 0.6))]
    third = [
        (t, 3, seed, 100, s, 1 - s) for t, s in ((0, 0.3), (1, 0.4), (22, 0.9), (23, 0.6)) for seed in (1001, 1002)
    ]
    write(tmp_path, first + second + third)
    return tmp_path


def test_the_choice_is_that_of_the_tuning(folder):
    (tuning,) = read_tunings(folder)
    assert (tuning.dataset, tuning.ram, tuning.strategy) == ("digits", "inclusion", "fedprox")
    assert tuning.chosen("all") == 22  # (0.5 + 0.9 + 0.9)/3 against 0.6
    assert tuning.chosen("participants") == 0  # 0.7 against (0.69 + 0.6 + 0.6)/3
    everyone, participants = chosen_table([tuning]).to_dict("records")
    assert everyone["score %"] == pytest.approx(100 * (0.5 + 0.9 + 0.9) / 3, abs=0.01)
    assert (everyone["stage"], everyone["planned"], everyone["added"], everyone["trial"]) == ("chosen", 24, 0, 22)
    assert participants["edge"] == "lr = 0.005 (lower), mu = 0.001 (lower)"


def test_a_trial_added_beyond_the_edge_of_a_finalist_begins_on_the_second_rung(folder):
    write(folder, [(24, 2, 1000, 100, 0.95, 0.0), *((24, 3, seed, 100, 0.95, 0.0) for seed in (1001, 1002))])
    (tuning,) = read_tunings(folder)
    everyone, participants = chosen_table([tuning]).to_dict("records")
    assert (everyone["planned"], everyone["added"], everyone["trial"]) == (24, 1, 24)
    assert everyone["settings"] == "client.lr=0.4 client.mu=0.001"
    assert participants["trial"] == 0
    assert len(tuning.first) == 24


def test_a_trial_added_beyond_the_edge_of_the_choice_begins_on_the_last_rung(folder):
    """Its first seed is worse than both finalists'; the mean over the seeds decides."""
    write(folder, [(24, 3, seed, 100, 0.4 if seed == 1000 else 0.999, 0.0) for seed in (1000, 1001)])
    (tuning,) = read_tunings(folder)
    assert tuning.chosen("all") is None  # one of its seeds is still to come
    write(folder, [(24, 3, 1002, 100, 0.999, 0.0)])
    (tuning,) = read_tunings(folder)
    assert len(tuning.finals("all")) == 3
    assert (tuning.chosen("all"), tuning.chosen("participants")) == (24, 0)  # (0.4 + 0.999 + 0.999)/3 against 2.3/3


def test_while_it_runs_the_leader_of_the_first_rung_is_shown(tmp_path):
    write(tmp_path, [(trial, 1, 1000, 30, trial / 100, 0.5) for trial in range(10)])
    path = tmp_path / "digits_mlp_inclusion_fedprox.csv"
    whole = path.read_text()
    path.write_text(whole + "10,plan,1,10")  # a row that is being written
    (tuning,) = read_tunings(tmp_path)
    assert path.read_text() == whole + "10,plan,1,10"
    assert tuning.chosen("all") is None
    assert chosen_table([tuning]).loc[0, ["stage", "trial", "score %", "edge"]].tolist() == ["running", 9, 9.0, "no"]


def test_an_edge_that_was_extended_is_none_any_more(tmp_path):
    rows = [(trial, 1, 1000, 30, 0.1, 0.1) for trial in range(26)]
    write(tmp_path, rows)
    (tuning,) = read_tunings(tmp_path)
    found = points(tuning, SPACE)
    assert found[24] == {"lr": 0.4, "mu": 0.001}  # one step beyond 0.2, by the ratio of the outermost two
    assert found[25] == {"lr": 0.8, "mu": 0.001}
    assert edges(tuning, 24) == ["mu = 0.001 (lower)"]
    assert edges(tuning, 25) == ["lr = 0.8 (upper)", "mu = 0.001 (lower)"]
    assert edges(tuning, 10) == []  # lr 0.02, μ 0.1


def test_settings_that_are_not_of_the_space(tmp_path):
    trials = Trials(tmp_path / "digits_mlp_inclusion_fedprox.csv")
    trials.add(Trial(0, "plan", 1, 1000, 30, "client.lr=7 client.mu=7", 0.1, 0.1, None, 1.0, "ok"))
    with pytest.raises(
        UserError, match=r"trial 0, client.lr=7 client.mu=7, is not of conf/experiment/tuning/fedprox.yaml"
    ):
        chosen_table(read_tunings(tmp_path))


def test_what_else_was_typed_follows_the_point(tmp_path):
    trials = Trials(tmp_path / "digits_mlp_inclusion_fedprox.csv")
    words = " ".join(SPACE.overrides(SPACE.trials()[0]))
    trials.add(Trial(0, "plan", 1, 1000, 30, f"{words} client.local_steps=1", 0.1, 0.1, None, 1.0, "ok"))
    table = chosen_table(read_tunings(tmp_path))
    assert set(table["settings"]) == {f"{words} client.local_steps=1"}


def test_a_name_tells_the_model(folder, make_run):
    (folder / "digits_mlp_inclusion_fedprox.csv").rename(folder / "digits_softmax_inclusion_fedprox.csv")
    (tuning,) = read_tunings(folder)
    assert (tuning.dataset, tuning.model, tuning.ram, tuning.strategy) == ("digits", "softmax", "inclusion", "fedprox")
    note = {"tuned.note": "trial 22 of 24 + 0, validation accuracy 0.9 over all clients, 3 seeds, 100 rounds"}
    for model, count in (("softmax", 1), ("mlp", 0)):
        cells = make_cells([make_run("fedprox", 0, [0.8], note, dataset="digits", model=model)])
        assert len(reporting_table([tuning], cells)) == count


def test_bad_folders(tmp_path):
    with pytest.raises(UserError, match="no table of trials there"):
        read_tunings(tmp_path)
    (tmp_path / "digits_mlp_inclusion_fedavg.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"fedavg.csv: no table of trials"):
        read_tunings(tmp_path)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_expected_best_by_enumeration(count):
    scores = [0.3, 0.9, 0.1, 0.5, 0.5]
    draws = list(itertools.combinations(scores, count))
    assert expected_best(scores, count) == pytest.approx(sum(map(max, draws)) / len(draws))


def test_result_against_trials_spent(folder):
    row = trials_table(read_tunings(folder)).iloc[0]
    assert row["1"] == pytest.approx(11.5)  # the mean of 0, …, 23 %
    assert row["24"] == 23
    assert row["2"] == pytest.approx(50 / 3 - 1, abs=0.005)  # the larger of two of 1, …, 24 is 2·25/3 on average


def test_rank_correlations(folder):
    assert rank_correlation([1, 2, 3], [10, 20, 15]) == pytest.approx(0.5)  # 1 − 6·2/(3·8)
    assert rank_correlation([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1)
    assert math.isnan(rank_correlation([1, 2], [1, 2]))
    assert math.isnan(rank_correlation([1, 1, 1], [1, 2, 3]))
    everyone, participants = ranks_table(read_tunings(folder)).to_dict("records")
    assert everyone["with the other mode"] == -1
    assert (everyone["with test accuracy"], participants["with test accuracy"]) == (1, -1)
    assert (everyone["rung 1 and 2"], everyone["trials in rung 2"]) == (1, 4)
    assert everyone["first and further seeds"] == pytest.approx(0.8)  # ranks 1 2 3 4 and 1 2 4 3


def test_tuning_and_reporting_seeds(folder, make_run):
    tuned = {"fedavg": 0.7, "scaffold": 0.5}
    for strategy, score in tuned.items():
        lines = (folder / "digits_mlp_inclusion_fedprox.csv").read_text().splitlines()
        frame = pd.DataFrame([line.split(",") for line in lines[1:]], columns=lines[0].split(","))
        frame["score_all"] = score
        frame.to_csv(folder / f"digits_mlp_inclusion_{strategy}.csv", index=False)
    reported = {"fedavg": 0.6, "scaffold": 0.9, "fedprox": 0.8}
    note = {"tuned.note": "trial 22 of 24 + 0, validation accuracy 0.9 over all clients, 3 seeds, 100 rounds"}
    cells = make_cells(
        [make_run(name, 0, [value], note, dataset="digits", model="mlp") for name, value in reported.items()]
    )
    (row,) = reporting_table(read_tunings(folder), cells).to_dict("records")
    assert (row["mode"], row["methods"]) == ("all", "fedavg, fedprox, scaffold")
    assert row["tuned %"] == "70.00, 76.67, 50.00"
    assert row["rank correlation"] == pytest.approx(-0.5)  # ranks 2 3 1 and 1 2 3
