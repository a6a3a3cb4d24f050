"""Every mistake is one line that names the value and what is allowed."""

from dataclasses import fields, is_dataclass

import pytest
from omegaconf import OmegaConf

from fedrage_flwr.config import TABLES, compose_config, validate
from fedrage_flwr.errors import UserError
from fedrage_flwr.parts import prepare_run
from fedrage_flwr.words import choices, conf_dir


def line(*overrides: str) -> str:
    with pytest.raises(UserError) as error:
        validate(compose_config(overrides))
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("client.alpha=0", ["client.alpha=0", "a number in (0, 1]"]),
        ("client.alpha=-0.1", ["client.alpha=-0.1", "(0, 1]"]),
        ("client.alpha=1.5", ["client.alpha=1.5", "(0, 1]"]),
        ("client.alpha=nan", ["client.alpha=nan", "(0, 1]"]),
        ("client.gamma=2", ["client.gamma=2", "[0, 1]"]),
        ("client.lr=0", ["client.lr=0", "(0, ∞)"]),
        ("client.local_steps=0", ["client.local_steps=0", "an integer in [1, ∞)"]),
        ("client.local_steps=2.5", ["client.local_steps=2.5", "an integer"]),
        ("client.beta_init=-1", ["client.beta_range=[0.0, 100.0]", "client.beta_init=-1"]),
        ("client.alfa=0.2", ["client.alfa", "did you mean client.alpha?"]),
        ("num_round=3", ["num_round", "did you mean num_rounds?"]),
        ("strategy=fedragee", ["strategy=fedragee", "did you mean federage?", "fedavg"]),
        ("ram=rar", ["ram=rar", "did you mean rare?"]),
        ("strategy=null", ["strategy=null: no such strategy", "federage"]),
        ("strategy=[1,2]", ["strategy=[1,2]: one strategy, not a list", "federage"]),
        ("+ram=[uniform]", ["+ram=[uniform]: one ram, not a list", "full, "]),
        ("experiment/tuned=[1,2]", ["experiment/tuned=[1,2]: a list of something else than names"]),
        ("ram=3", ["ram=3: no such ram", "rare"]),
        ("~strategy=7", ["strategy"]),
        ("dataset=cifar", ["dataset=cifar", "did you mean cifar10?"]),
        ("seed=one", ["seed='one'", "an integer"]),
        ("seed=007", ["seed='007'", "an integer"]),
        ("seed=-1", ["seed=-1", "an integer in [0,"]),
        ("device=gpu", ["device='gpu'", "one of auto, cpu, cuda"]),
        ("ram.clients_per_round=0", ["ram.clients_per_round=0", "[1, ∞)"]),
        ("rare_clients=31", ["rare_clients=31", "at most num_clients=30"]),
        ("node_wait_s=null", ["node_wait_s=null", "a number"]),
        ("backend.name=cloud", ["backend.name='cloud'", "inline, ray"]),
        ("seed=1,2", ["seed=1,2", "add -m"]),
        ("client=5", ["client=5", "section"]),
        ("+client.colour=red", ["client.colour", "no such key"]),
        ("seed", ["seed", "cannot be read"]),
        ("ram=weighted", ["ram.weights"]),
        ("model.hidden=ten", ["model.hidden='ten'", "a list, each an integer"]),
    ],
)
def test_mistakes(override, parts):
    text = line(override)
    assert all(part in text for part in parts), text


def test_o22_a_value_with_commas_is_shown_quoted():
    assert """'model.name="alpha=0.5,seed=1"'""" in line("model.name=alpha=0.5,seed=1")


def test_o22_numbers():
    config = validate(compose_config(["client.lr=1e-3", "client.alpha=0.10", "client.gamma=1"]))
    assert (config.client.lr, config.client.alpha, config.client.gamma) == (0.001, 0.1, 1.0)


def test_o22_a_switch_that_is_text_is_refused():
    assert "ram.clients_per_round='on'" in line("ram.clients_per_round=on")


@pytest.mark.parametrize("group", sorted(set(TABLES) - {"client"}))
def test_every_name_in_a_table_can_be_typed_and_the_other_way_round(group):
    assert choices(group) == sorted(TABLES[group])


def test_the_key_that_is_wrong_is_named_whatever_stands_beside_it():
    assert line("model=mlp", "model.hiden=[3]").startswith("model.hiden=[3]: no such key; did you mean model.hidden?")


def test_a_key_without_a_default_is_asked_for():
    assert line("ram=weighted") == "ram.weights has no default and must be given: ram.weights=…"


NEEDS = {  # what has no default
    "file": ["dataset.path=mine.npz"],
    "custom": ["model.path=package.module:Class"],
    "private": ["dataset.classes=[cat,dog]", "dataset.input_shape=[4]"],
}


@pytest.mark.parametrize("group", ["strategy", "backend", "model", "dataset", "partition", "logger"])
def test_every_choice_validates_as_it_stands(group):
    for word in choices(group):
        config = validate(compose_config([f"{group}={word}", *NEEDS.get(word, [])]))
        assert getattr(config, group).name == word


def test_the_files_hold_every_default():
    """A key that is typed but not in conf/ would have a hidden default."""
    config = validate(compose_config([]))
    cfg = compose_config([])
    for section in fields(config):
        value = getattr(config, section.name)
        names = {field.name for field in fields(value)} if is_dataclass(value) else set()
        assert names <= set(cfg[section.name] if names else ())


def test_a_strategy_file_shares_one_base():
    base = OmegaConf.load(conf_dir() / "strategy" / "_base.yaml")
    for word in choices("strategy"):
        config = validate(compose_config([f"strategy={word}"]))
        assert (config.client.local_steps, config.client.batch_size) == (
            base.client.local_steps,
            base.client.batch_size,
        )


def test_compile_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    config = validate(compose_config(["engine.compile=true", "device=cpu"]))
    with pytest.raises(UserError, match=r"engine.compile=true: torch.compile needs a C\+\+ compiler"):
        prepare_run(config)


@pytest.mark.parametrize("override", ["strategy=\n", "seed=\n"])
def test_a_line_break_that_was_typed_makes_no_second_line(override):
    with pytest.raises(UserError) as caught:
        compose_config([override])
    assert "\n" not in str(caught.value)


def test_a_name_that_is_no_text_is_one_line():
    with pytest.raises(UserError, match=r"strategy\.name=\[\]: must be one of afl, "):
        validate(compose_config(["strategy.name=[]"]))
