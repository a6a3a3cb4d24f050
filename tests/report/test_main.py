"""The command: where its files go, and one line for what it cannot do."""

import shutil

import pytest

from fedrage_flwr.errors import UserError
from fedrage_flwr.report.__main__ import main
from fedrage_flwr.tune import Trial, Trials


@pytest.fixture
def recorded(tmp_path, record_run):
    folder = tmp_path / "table1"
    for seed in range(4):
        record_run(folder, "fedavg", seed, [0.5 + 0.1 * (seed > 1) + 0.001 * (step % 2) for step in range(12)])
    return folder


def test_the_report_goes_beside_the_first_folder_or_where_it_is_told(recorded, tmp_path, capsys):
    main([str(recorded)])
    assert "## Test accuracy" in capsys.readouterr().out
    assert (recorded / "report" / "tables" / "accuracy.tex").is_file()
    other = tmp_path / "other"
    shutil.copytree(recorded, other / "copy")
    main([str(recorded), "--out", str(tmp_path / "out"), str(other)])  # the same four runs, met twice
    out = capsys.readouterr().out
    assert "(4 seeds, 12 rounds, 0 trials)" in out
    assert out.count("left out") == 4
    accuracy = "tables/accuracy.csv"
    assert (tmp_path / "out" / accuracy).read_text() == (recorded / "report" / accuracy).read_text()


def test_a_method_against_itself(recorded, record_run, tmp_path, capsys):
    main(["--aa", str(recorded)])
    cells = [cell.strip() for cell in capsys.readouterr().out.splitlines()[4].split("|")[1:-1]]
    assert cells == ["fashion_mnist, skewed", "fedavg", "4", "3", "33.3", "0"]
    record_run(tmp_path / "few", "fedavg", 0, [0.5] * 10)
    with pytest.raises(UserError, match="no cell of four seeds or more"):
        main(["--aa", str(tmp_path / "few")])


def test_the_audit_of_a_tuning(recorded, tmp_path, capsys):
    trials = Trials(tmp_path / "tuning" / "fashion_mnist_mlp_inclusion_fedavg.csv")
    trials.add(
        Trial(0, "plan", 1, 1000, 30, "client.lr=0.005 strategy.server_lr=0.5", 0.5, 0.6, 0.4, 1.0, "ok")
    )  # fmt: skip
    main(["--tuning", str(tmp_path / "tuning"), str(recorded)])
    assert "running" in capsys.readouterr().out
    assert (tmp_path / "tuning" / "report" / "tables" / "tuning_chosen.md").is_file()


@pytest.mark.parametrize(
    "words", [[], ["--out"], ["--out", "x"], ["folder", "--out"], ["--aa"], ["--aa", "--tuning", "x"], ["--html", "x"]]
)
def test_the_usage_is_one_line(words):
    with pytest.raises(UserError, match=r"^usage: python -m fedrage_flwr.report \[--out DIR\] FOLDER"):
        main(words)
