"""``make results-check``: equal to what is there, and any tampering found."""

import json
import shutil
from pathlib import Path

import pytest

from fedrage_flwr.errors import UserError
from fedrage_flwr.report.verdict import differences, main, make

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def made(tmp_path_factory, record_run):
    folder = tmp_path_factory.mktemp("made") / "results"
    for strategy, mean in (("fedavg", 0.6), ("federage", 0.8)):
        for seed in range(3):
            record_run(folder / "table1", strategy, seed, [mean + seed / 50 + step / 1000 for step in range(12)])
    shutil.copy(RESULTS / "claims.yaml", folder)
    make(folder, folder)
    return folder


@pytest.fixture
def results(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "results"))


def test_what_was_made_is_made_again(results, capsys):
    main(["--check", str(results)])
    assert "as made from the recorded runs" in capsys.readouterr().out
    assert (results / "table1" / "report" / "tables" / "accuracy.md").is_file()


def test_a_run_changed_after_the_fact_is_found(results):
    path = results / "table1" / "fashion_mnist_inclusion_federage_seed=0.csv"
    path.write_text(path.read_text().replace("0.805", "0.905"))  # one point on the mean of ten rounds
    assert "README.md differs" in differences(results)
    with pytest.raises(
        UserError, match=r"table1/report/tables/accuracy.md differs and \d+ more; to make all anew: make results"
    ):
        main(["--check", str(results)])


def test_a_number_changed_in_a_table_is_found(results):
    table = results / "table1" / "report" / "tables" / "spreads.csv"
    table.write_text(table.read_text().replace("82.65", "83.65"))
    assert differences(results) == ["table1/report/tables/spreads.csv differs"]
    table.unlink()
    assert differences(results) == ["table1/report/tables/spreads.csv is not there"]


def test_a_table_of_runs_that_are_gone_is_found(results):
    for path in (results / "table1").glob("*.json"):
        path.unlink()
    found = differences(results)
    assert "README.md differs" in found
    assert "table1/report/tables/accuracy.csv is made no more" in found


def test_a_verdict_changed_by_hand_is_found(results):
    page = results / "README.md"
    page.write_text(page.read_text().replace("**differs**", "**agrees**", 1))
    assert differences(results) == ["README.md differs"]


def test_a_run_that_cannot_be_read_is_one_line(results):
    path = next((results / "table1").glob("*.json"))
    content = json.loads(path.read_text())
    del content["config"]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"cannot be read as a recorded run \(KeyError: 'config'\)"):
        main([str(results)])
    with pytest.raises(UserError, match="usage"):
        main(["--chekc"])


def test_the_results_of_this_repository_are_as_made():
    assert differences(RESULTS) == []
