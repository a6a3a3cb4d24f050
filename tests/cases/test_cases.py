"""Cases of the list that belong to no single module, and the list itself."""

import json
import logging
import re
import sys
import threading
import tomllib
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from fedrage_flwr import command, figures
from fedrage_flwr.config import register_resolvers
from fedrage_flwr.errors import UserError
from fedrage_flwr.grids.ray import _import_ray
from fedrage_flwr.results import Table, versions, write_summary
from fedrage_flwr.training import draw_batches

REPOSITORY = Path(__file__).resolve().parents[2]
README = Path(__file__).with_name("README.md")


@pytest.fixture
def _own_logging():
    """Hydra replaces the root logger's handlers; put them back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def named_tests():
    """Case number → files with tests named after it."""
    found = defaultdict(set)
    for path in (REPOSITORY / "tests").rglob("test_*.py"):
        for match in re.finditer(r"def test((?:_o\d\d)+)_", path.read_text(encoding="utf-8")):
            for case in re.findall(r"o\d\d", match[1]):
                found[case].add(str(path.relative_to(REPOSITORY / "tests")))
    return found


def test_the_list_accounts_for_all_thirty_cases():
    """Each case has a row; the row names exactly the files that have tests of it."""
    rows = dict(re.findall(r"^\| (O\d\d) \|.*\| (.*) \|$", README.read_text(encoding="utf-8"), re.MULTILINE))
    assert sorted(rows) == [f"O{number:02d}" for number in range(1, 31)]
    found = named_tests()
    for case, places in rows.items():
        assert set(re.findall(r"`([a-z_/0-9]+\.py)`", places)) == found[case.lower()], case


def test_o17_no_batch_is_a_remainder():
    """33 examples in batches of 32: every batch has 32; a single example is trained alone."""
    rng = np.random.default_rng(0)
    assert [draw_batches(rng, n, 32, 5).shape for n in (33, 32, 1)] == [(5, 32), (5, 32), (5, 1)]


@pytest.mark.usefixtures("_own_logging")
def test_o21_a_job_that_raises_leaves_its_traceback_in_its_own_log(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["-m", "seed=0,1,2", "num_rounds=1", "hydra.sweep.dir=sweep"]
    monkeypatch.setattr(sys, "argv", ["fedrage_flwr", *words])
    real = command.run

    def fragile(prepared, folder):
        if prepared.config.seed == 1:
            raise RuntimeError("boom")
        return real(prepared, folder)

    monkeypatch.setattr(command, "run", fragile)
    assert command.main(words) == 1
    jobs = sorted(path for path in (tmp_path / "sweep").iterdir() if path.is_dir())
    assert [(job / "summary.json").exists() for job in jobs] == [True, False, True]
    logs = [(job / "run.log").read_text() for job in jobs]
    assert ["Traceback" in log and "RuntimeError: boom" in log for log in logs] == [False, True, False]
    assert "RuntimeError: boom" in capsys.readouterr().err


def test_o21_slashes_make_no_nested_folder():
    register_resolvers()
    assert OmegaConf.create({"subdir": "0_${slug:'data=a/b,seed=1'}"}).subdir == "0_data=a_b,seed=1"


def test_o22_inner_quotes_make_text_of_commas_and_equal_signs():
    assert OverridesParser.create().parse_override('run_name="alpha=0.5,seed=1"').value() == "alpha=0.5,seed=1"


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (["classes=[0,1],[2,3]"], [["classes=[0,1]"], ["classes=[2,3]"]]),
        (
            ["strategy=fedavg,scaffold", "seed=range(3)"],
            [[f"strategy={s}", f"seed={k}"] for s in ("fedavg", "scaffold") for k in range(3)],
        ),
    ],
)
def test_o22_how_many_jobs_a_sweep_has(words, jobs):
    (batch,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(words), max_batch_size=None)
    assert batch == jobs


def test_o24_figures_need_no_display_and_no_main_thread(simulate, monkeypatch):
    for name in ("DISPLAY", "MPLBACKEND"):
        monkeypatch.delenv(name, raising=False)
    folder, summary = simulate("num_rounds=2")
    thread = threading.Thread(target=command.draw_figures, args=(folder, summary))
    thread.start()
    thread.join()
    assert {path.name for path in (folder / "figures").iterdir()} >= {"accuracy.png", "clients.png"}


def test_o24_a_figure_that_fails_costs_one_warning(simulate, monkeypatch, capsys, caplog):
    folder, summary = simulate("num_rounds=2")

    def broken(*arguments):
        raise RuntimeError("no fonts")

    monkeypatch.setattr(figures, "draw", broken)
    with caplog.at_level(logging.WARNING):
        command.draw_figures(folder, summary)
    assert capsys.readouterr().err == "warning: the figures could not be drawn (no fonts)\n"
    assert (folder / "summary.json").exists()


def test_o24_numbers_that_are_not_finite_survive_tables_and_json(tmp_path):
    table = Table(tmp_path / "t.csv", ["round", "loss"])
    table.add({"round": 3, "loss": float("nan")})
    table.close()
    assert pd.read_csv(tmp_path / "t.csv")["loss"].isna().tolist() == [True]
    write_summary(tmp_path / "s.json", {"loss": float("nan"), "list": [float("inf"), 1.0]})
    text = (tmp_path / "s.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"loss": None, "list": [None, 1.0]}


def test_o28_old_pythons_and_old_flowers_are_out_of_range():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"].startswith(">=3.11")
    assert any(word.startswith("flwr") and ">=1.42" in word for word in project["dependencies"])


def test_o28_without_ray_the_line_names_supported_pythons(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"backend=ray: Ray is not installed.*3\.11.*backend=inline"):
        _import_ray()


def test_o28_versions_are_in_the_record():
    assert {"python", "flwr", "ray", "torch", "numpy"} <= versions().keys()
