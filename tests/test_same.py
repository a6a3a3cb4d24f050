"""Two runs are the same if every file is, but for what a clock or a machine writes."""

import json

import pytest

from fedrage_flwr.same import differences, main


@pytest.fixture
def write_run(tmp_path):
    def write(name, accuracy="0.5", seconds="0.1", wall=1.0, **more):
        folder = tmp_path / name
        (folder / "checkpoint").mkdir(parents=True)
        (folder / "rounds.csv").write_text(f"round,round_seconds,accuracy\n1,{seconds},{accuracy}\n")
        (folder / "summary.json").write_text(json.dumps({"seed": 0, "wall_seconds": wall}))
        for file, text in {"run.log": name, "checkpoint/x": name, **more}.items():
            (folder / file).write_text(text)
        return folder

    return write


def test_times_logs_and_checkpoints_do_not_count(write_run, capsys):
    first, second = write_run("a"), write_run("b", seconds="0.2", wall=2.0)
    assert differences(first, second) == []
    assert main([str(first), str(second)]) == 0
    assert capsys.readouterr().out == "the same\n"


def test_a_number_and_a_file_of_one_run_only_do(write_run, capsys):
    first, second = write_run("a"), write_run("b", accuracy="0.6", extra="x")
    assert differences(first, second) == ["extra", "rounds.csv"]
    assert main([str(first), str(second)]) == 1
    assert capsys.readouterr().out == "differs: extra\ndiffers: rounds.csv\n"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_anything_but_two_runs_is_refused(tmp_path, capsys, count):
    assert main([str(tmp_path)] * count) == 1
    assert "give the folders of two runs" in capsys.readouterr().err
