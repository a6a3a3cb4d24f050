"""The help page names everything that can be typed, in words, and its examples are real."""

import importlib.util
import shlex

import pytest

from fedrage_flwr.command import main
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.help import EXAMPLES, FURTHER, GROUPS, WIDTH, describe_file, help_page
from fedrage_flwr.words import choices, conf_dir


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_our_page_and_no_run(tmp_path, monkeypatch, capsys, flag):
    monkeypatch.chdir(tmp_path)
    assert main([flag]) == 0
    assert capsys.readouterr().out == help_page()
    assert list(tmp_path.iterdir()) == []


def test_every_group_and_word_is_there_with_a_description():
    assert {path.name for path in conf_dir().iterdir() if path.is_dir()} == set(GROUPS)
    page = help_page()
    for group in GROUPS:
        for word in choices(group):
            described = describe_file(conf_dir() / group / f"{word}.yaml")
            assert len(described) > 10, f"conf/{group}/{word}.yaml must begin with a comment that says what it is"
            assert described.count("(") == described.count(")"), f"{described} is cut off"
            assert f"\n    {word}" in page
            assert described.split()[0] in page
    assert max(map(len, page.splitlines())) <= WIDTH


def test_the_further_commands_can_be_run():
    for command, _ in FURTHER:
        assert f"\n  {command}" in help_page()
        assert importlib.util.find_spec(f"fedrage_flwr.{command.split()[0]}") is not None


def test_a_description_skips_directives_and_commands(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "# @package _global_\n# python -m fedrage_flwr x=1\n# What it is (Fig. 1). And more.\nname: x\n# not this\n"
    )
    assert describe_file(path) == "What it is (Fig. 1)"
    path.write_text("name: x\n# not this\n")
    assert describe_file(path) == ""


def test_defaults_are_marked_and_keys_listed():
    page = help_page()
    assert "    federage *" in page
    assert "    fedavg *" not in page
    assert "\n  num_rounds=300 " in page


@pytest.mark.parametrize("example", [line for line, _ in EXAMPLES])
def test_examples_compose(example):
    words = shlex.split(example)
    assert words[:2] == ["python", "-m"]
    overrides = [word for word in words[3:] if word != "-m"]
    single = [word.replace("range(2)", "0").split(",")[0] for word in overrides]
    validate(compose_config(single))
