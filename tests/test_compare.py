"""Columns, intervals and differences by hand."""

import json

import pytest
from omegaconf import OmegaConf

from fedrage_flwr.compare import difference_rows, differing_settings, find_runs, group, interval, main, measure_rows
from fedrage_flwr.errors import UserError


@pytest.fixture
def write_run(tmp_path):
    def write(name, seed, accuracy, lr=0.1, finished=True, **more):
        folder = tmp_path / name
        (folder / ".hydra").mkdir(parents=True)
        OmegaConf.save(
            {"seed": seed, "client": {"lr": lr, "weights": [1, 2]}, "ram": None}, folder / ".hydra/config.yaml"
        )
        if finished:
            summary = {"seed": seed, "strategy": "fedavg", "accuracy_mean_last10": accuracy, "versions": {"torch": "2"}}
            (folder / "summary.json").write_text(json.dumps({**summary, **more}))
        return folder

    return write


def test_interval_by_hand():
    assert interval([0.5]) == (0.5, None)
    mean, half = interval([1.0, 2.0, 3.0])  # standard error 1/√3, t_{.975, 2} = 4.30265
    assert mean == 2
    assert half == pytest.approx(4.30265 / 3**0.5, rel=1e-5)


def test_runs_that_differ_in_the_seed_alone_are_one_column(tmp_path, write_run):
    write_run("sweep/0", 1, 0.5)
    write_run("sweep/1", 0, 0.7)
    write_run("sweep/2", 0, 0.8, lr=0.2)
    columns, remarks = group(find_runs(tmp_path / "sweep")[0])
    assert [[run.seed for run in column.runs] for column in columns] == [[0, 1], [0]]
    assert remarks == []
    assert differing_settings(columns) == [["client.lr", "0.1", "0.2"]]


def test_differences_are_taken_seed_by_seed(tmp_path, write_run):
    for seed, (a, b) in enumerate([(0.10, 0.20), (0.50, 0.62), (0.90, 0.98)]):
        write_run(f"a/{seed}", seed, a)
        write_run(f"b/{seed}", seed, b, lr=0.2)
    write_run("b/9", 9, 0.0, lr=0.2)  # a seed that only b has
    columns, _ = group(find_runs(tmp_path)[0])
    # differences .10, .12, .08: mean .10, half-width 4.30265 · .02/√3; the runs themselves vary twenty times as much
    assert difference_rows(columns) == [["accuracy_mean_last10", "+10.00 ± 4.97 pp"]]
    assert measure_rows(columns)[0][1] == "50.00 ± 99.37 %"


def test_a_null_measure_is_an_empty_cell_and_other_versions_are_a_difference(tmp_path, write_run):
    write_run("a", 0, 0.5, faa=None)
    write_run("b", 0, 0.5, faa=0.25, versions={"torch": "3"})
    columns, _ = group(find_runs(tmp_path)[0])
    assert differing_settings(columns) == [["versions.torch", "2", "3"]]
    assert ["faa", "", "0.25"] in measure_rows(columns)
    assert [row[0] for row in difference_rows(columns)] == ["accuracy_mean_last10"]


def test_what_is_left_out_is_said(tmp_path, write_run, capsys):
    write_run("a", 0, 0.5)
    write_run("again", 0, 0.5)
    write_run("cut", 1, 0.5, finished=False)
    main([str(tmp_path), str(tmp_path / "a")])  # the same folder twice is no second run
    page = capsys.readouterr().out
    assert "cut: not finished, left out" in page
    assert "again: same settings and seed as" in page
    assert page.count("left out") == 2


@pytest.mark.parametrize("arguments", [[], ["--help"], ["nowhere"]])
def test_mistakes_are_one_line(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"usage: python -m fedrage_flwr\.compare A B"):
        main(arguments)


def test_a_run_cut_short_is_named(tmp_path, write_run):
    write_run("cut", 1, 0.5, finished=False)
    with pytest.raises(UserError, match="cut: not finished"):
        main([str(tmp_path)])
