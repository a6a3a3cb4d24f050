"""Tuning: what is selected, what is tried beyond an edge, and that a cut tuning goes on."""

import csv
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.search import Budget, Space
from fedrage_flwr.tune import Cell, Trial, Trials, best, scores, tune

REPOSITORY = Path(__file__).resolve().parents[1]


def row(
    trial: int, everyone: float, participants: float = 0.0, seed: int = 0, rounds: int = 1, status: str = "ok"
) -> Trial:
    return Trial(trial, "plan", 1, seed, rounds, f"x={trial}", everyone, participants, 0.99 - everyone, 1.0, status)


TABLE = [row(0, 0.5, 0.9), row(1, 0.8, 0.7), row(2, 0.0, 0.0, status="diverged"), row(3, 0.8, 0.8)]


def test_selection_by_each_mode_never_by_test_accuracy():
    assert best(TABLE, "all", 3) == [1, 3, 0]  # 1 and 3 are equal: the earlier one; test accuracies rise the other way
    assert best(TABLE, "participants", 3) == [0, 3, 1]
    assert best(reversed(TABLE), "all", 4) == [1, 3, 0, 2]


def test_scores_weigh_all_clients_alike_or_by_participation(tmp_path):
    """Rounds 11 to 20 count; client 0 took part three times, client 1 once, client 2 never; client 3 was held out."""
    accuracy = {0: 0.9, 1: 0.5, 2: 0.1, 3: 1.0}
    rows = [(round, client, value) for round in (11, 20) for client, value in accuracy.items()]
    rows += [(10, client, 0.0) for client in accuracy]
    (tmp_path / "clients.csv").write_text(
        "round,client,accuracy\n" + "".join(f"{r},{c},{a + (0.1 if r == 20 else -0.1)}\n" for r, c, a in rows)
    )
    (tmp_path / "participation.csv").write_text("round,client\n1,0\n2,0\n3,1\n4,0\n")
    everyone, participants = scores(tmp_path, 3, 20)
    assert everyone == pytest.approx((0.9 + 0.5 + 0.1) / 3, abs=1e-6)
    assert participants == pytest.approx((3 * 0.9 + 0.5) / 4, abs=1e-6)


class FakeCell:
    """Trials on one axis whose score is known, so that the whole search can be followed by hand."""

    def __init__(self, values, score, num_rounds=100, rarest=1.0):
        self.space = Space({"x": tuple(values)}, {}, None)
        self.points = self.space.trials()
        self.planned = len(self.points)
        self.config = SimpleNamespace(num_rounds=num_rounds)
        self.rarest = rarest
        self.score = score
        self.ran: dict[tuple[int, int, int], Trial] = {}

    def allowed(self, point):
        return point["x"] <= 64

    def run(self, trial, rung, seed, rounds):
        score = self.score(self.points[trial]["x"], seed, rounds)
        return self.ran.setdefault((trial, seed, rounds), row(trial, score, score, seed, rounds))

    def counts(self):
        return {key: sum(ran[1:] == key for ran in self.ran) for key in {ran[1:] for ran in self.ran}}


BUDGET = Budget(first_share=0.3, min_participations=15, kept=2, finalists=2, seeds=[7, 8, 9], extra_trials=2)


def test_the_rungs_run_all_then_the_best_then_the_finalists_on_more_seeds():
    cell = FakeCell([1, 2, 4, 8], lambda x, seed, rounds: 1 - abs(x - 4) / 10)
    assert tune(cell, BUDGET) == {"all": 2, "participants": 2}
    assert cell.counts() == {(7, 30): 4, (7, 100): 2, (8, 100): 2, (9, 100): 2}
    assert {trial for trial, _, rounds in cell.ran if rounds == 100} == {1, 2}  # x = 2 and x = 4


def test_the_mean_over_seeds_decides():
    cell = FakeCell([1, 2, 4, 8], lambda x, seed, rounds: {2: 0.5, 4: 0.6 if seed == 7 else 0.3}.get(x, 0.1))
    assert tune(cell, BUDGET)["all"] == 1  # x = 4 leads on the first seed; means 0.4 and 0.5


def test_a_rare_client_forbids_early_dropping():
    cell = FakeCell([1, 2, 4, 8], lambda x, seed, rounds: 1 - abs(x - 4) / 10, rarest=0.1)  # 15/0.1 = 150 > 100 rounds
    tune(cell, BUDGET)
    assert cell.counts() == {(7, 100): 4, (8, 100): 2, (9, 100): 2}


def test_a_best_trial_at_the_edge_is_followed_as_far_as_the_budget_goes():
    cell = FakeCell([1, 2, 4], lambda x, seed, rounds: x / 100)
    assert tune(cell, BUDGET)["all"] == 4
    assert [point["x"] for point in cell.points] == [1, 2, 4, 8, 16]  # two more, and no third


def test_what_a_setting_does_not_allow_is_not_tried():
    cell = FakeCell([16, 32, 64], lambda x, seed, rounds: x / 100)
    assert tune(cell, BUDGET)["all"] == 2
    assert [point["x"] for point in cell.points] == [16, 32, 64]


def test_an_edge_met_on_the_second_rung_is_followed_there():
    cell = FakeCell(
        [1, 2, 4], lambda x, seed, rounds: (x / 10 if x < 8 else 0) if rounds == 100 else 1 - abs(x - 3) / 10
    )
    tune(cell, BUDGET)
    assert [point["x"] for point in cell.points] == [1, 2, 4, 8]  # not better than 4: no further
    assert (3, 7, 30) not in cell.ran
    assert (3, 7, 100) in cell.ran


def test_an_edge_met_on_the_last_rung_is_followed_there_on_all_seeds():
    """x = 2 leads on the first seed; the means are 0.50 and 0.55 for x = 2 and 4, then 0.6 for 8 and 0.2 for 16."""

    def score(x, seed, rounds):
        first, further = {1: (0.1, 0.1), 2: (0.7, 0.4), 4: (0.65, 0.5), 8: (0.6, 0.6), 16: (0.2, 0.2)}[x]
        return first if seed == 7 else further

    cell = FakeCell([1, 2, 4], score)
    assert tune(cell, BUDGET) == {"all": 3, "participants": 3}
    assert [point["x"] for point in cell.points] == [1, 2, 4, 8, 16]
    assert {(3, seed, 100) for seed in (7, 8, 9)} <= cell.ran.keys()
    assert (3, 7, 30) not in cell.ran


def test_rows_are_found_again_and_half_a_row_is_forgotten(tmp_path):
    path = tmp_path / "sub" / "trials.csv"
    trials = Trials(path)
    for entry in TABLE:
        trials.add(entry)
    with path.open("a") as file:
        file.write("4,plan,1,0,1,x=4,0.7")
    again = Trials(path)
    assert list(again.rows.values()) == TABLE
    assert again.find(1, 0, 1, "x=1") == TABLE[1]
    assert again.find(4, 0, 1, "x=4") is None
    assert path.read_text().endswith("ok\n")
    with pytest.raises(UserError, match="trial 1 had x=1, now it is x=5"):
        again.find(1, 0, 1, "x=5")


def test_a_row_is_of_one_setting_alone(tmp_path, monkeypatch):
    """Another model has another table; what else is typed stands in the row, but for what changes no digit."""
    monkeypatch.chdir(tmp_path)
    words = ["dataset=digits", "ram=full", "strategy=fedavg", "num_rounds=2"]
    settings = "client.lr=0.005 strategy.server_lr=0.5"
    known = Trial(0, "plan", 1, 1000, 2, settings, 0.5, 0.5, None, 1.0, "ok")
    Trials(tmp_path / "results" / "tuning" / "digits_mlp_full_fedavg.csv").add(known)
    assert Cell([*words, "checkpoint_every=1"]).run(0, 1, 1000, 2) == known
    with pytest.raises(
        UserError, match=f"trial 0 had {settings}, now it is {settings} client.local_steps=1 num_clients=12"
    ):
        Cell([*words, "num_clients=12", "client.local_steps=1"]).run(0, 1, 1000, 2)
    other = Cell([*words, "model=softmax", "num_clients=12"]).run(0, 1, 1000, 2)
    assert other.settings == f"{settings} num_clients=12"
    assert len((tmp_path / "results" / "tuning" / "digits_softmax_full_fedavg.csv").read_text().splitlines()) == 2


SMALL = {"fedavg": "axes:\n  lr: [0.1, 0.3, 50.0]\nsettings:\n  client.lr: ${lr}\n"}
CELL = ["strategy=fedavg", "dataset=digits", "ram=uniform", "num_clients=6", "rare_clients=2", "num_rounds=40"]


@pytest.fixture
def home(tmp_path):
    """A copy of the project with a small search."""
    for name in ("fedrage_flwr", "strategies", "clients", "conf"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "conf" / "experiment" / "tuning"
    for name, text in SMALL.items():
        (folder / f"{name}.yaml").write_text(text)
    budget = {**OmegaConf.load(folder / "_budget.yaml"), "kept": 1, "finalists": 1, "seeds": [7, 8], "extra_trials": 0}
    OmegaConf.save(OmegaConf.create(budget), folder / "_budget.yaml")
    return tmp_path


def test_a_killed_tuning_goes_on_and_its_choice_is_picked_up(home):
    """Three trials of 15/0.5 = 30 rounds, one goes on to 40, one run on the second seed: five rows, each once."""
    words = [sys.executable, "-m", "fedrage_flwr.tune", *CELL]
    with subprocess.Popen(words, cwd=home, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "trial 0" in process.stdout.readline()
        process.kill()
    table = home / "results" / "tuning" / "digits_mlp_uniform_fedavg.csv"
    before = table.read_text()
    done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert table.read_text().startswith(before)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(r["trial"], r["rung"], r["seed"], r["rounds"]) for r in rows] == [
        ("0", "1", "7", "30"), ("1", "1", "7", "30"), ("2", "1", "7", "30"), ("1", "2", "7", "40"), ("1", "3", "8", "40"),
    ]  # fmt: skip
    assert float(rows[2]["score_all"]) < float(rows[1]["score_all"])
    for mode in ("", "participants"):
        chosen = OmegaConf.load(home / "conf" / "experiment" / "tuned" / mode / "digits_mlp_uniform_fedavg.yaml")
        assert chosen.client.lr == 0.3


def test_tuned_settings_are_picked_by_the_words_of_the_cell(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "conf", tmp_path / "conf")
    for name, lr in (("digits_mlp_full_fedavg", 0.125), ("participants/digits_mlp_full_fedavg", 0.25)):
        path = tmp_path / "conf" / "experiment" / "tuned" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# @package _global_\ntuned: {{note: by hand}}\nclient: {{lr: {lr}}}\n")
    monkeypatch.setattr("fedrage_flwr.config.conf_dir", lambda: tmp_path / "conf")
    cell = ["dataset=digits", "ram=full", "strategy=fedavg"]
    config = validate(compose_config(["experiment=table1", *cell]))
    assert (config.client.lr, config.tuned.note) == (0.125, "by hand")
    assert validate(compose_config(["experiment=table1", *cell, "client.lr=0.5"])).client.lr == 0.5
    assert validate(compose_config(["experiment=table1_participants", *cell])).client.lr == 0.25
    assert validate(compose_config(["experiment=table1", *cell[:2], "strategy=scaffold"])).tuned.note is None


def test_where_nothing_was_tuned_the_run_says_so(simulate, capsys):
    words = ["experiment=table1", "dataset=digits", "ram=full", "num_rounds=1", "strategy=fedavg"]
    simulate(*words)
    words_to_tune = "python -m fedrage_flwr.tune dataset=digits model=mlp ram=full strategy=fedavg"
    line = f"warning: not tuned, the method's defaults are used; to tune: {words_to_tune}"
    assert line in capsys.readouterr().err
    simulate(*words, "experiment/tuned=none")
    assert "not tuned" not in capsys.readouterr().err


def test_an_experiment_wins_over_the_defaults_and_is_overridden_by_what_is_typed():
    assert validate(compose_config(["experiment=table1"])).num_rounds == 10000
    assert validate(compose_config(["experiment=table1", "num_rounds=7"])).num_rounds == 7
