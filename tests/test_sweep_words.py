"""What is typed for a sweep is checked before its first job begins; the jobs are those that Hydra makes."""

import pytest
from hydra.types import RunMode

from fedrage_flwr import sweep_words
from fedrage_flwr.config import compose_config
from fedrage_flwr.errors import UserError
from fedrage_flwr.sweep_words import check_words, split_words


def section(*words):
    return compose_config(words, RunMode.MULTIRUN).hydra


def line(*words: str) -> str:
    with pytest.raises(UserError) as error:
        check_words(section(*words))
    text = str(error.value)
    assert "\n" not in text
    return text


def test_a_word_that_does_not_exist_is_named_with_the_nearest_one():
    text = line("strategy=fedavg,fedragee", "num_rounds=2")
    assert text.startswith("strategy=fedragee: no such strategy; did you mean federage?; known: afl,")


def test_words_of_an_experiment_that_sweeps_are_checked_too():
    assert line("experiment=table1", "ram=uniform,inclusio").startswith(
        "ram=inclusio: no such ram; did you mean inclus"
    )


def test_a_key_that_one_job_lacks_is_named_with_the_words_that_have_it():
    text = line("strategy=federage,scaffold", "client.gamma=0.3,0.4")
    assert text == "client.gamma=0.3: no such key with these words; it goes with strategy=federage"


def test_a_key_that_the_default_lacks_can_be_typed_as_the_error_says():
    with pytest.raises(
        UserError, match=r"goes with strategy=focus, strategy=ifca; .*'strategy\.num_clusters=choice\(2"
    ):
        section("strategy=focus,ifca", "strategy.num_clusters=2")
    hydra = section("strategy=focus,ifca", "strategy.num_clusters=choice(2)")
    check_words(hydra)
    assert split_words(hydra) == [[f"strategy={name}", "strategy.num_clusters=2"] for name in ("focus", "ifca")]


def test_a_tuner_is_given_no_word_that_does_not_exist():
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    words = ("hydra/sweeper=optuna", "client.lr=interval(0.01,0.1)")
    assert "did you mean fedprox?" in line(*words, "strategy=fedavg,fedprx")
    check_words(section(*words, "strategy=fedavg,fedprox"))


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("strategy=glob(nobody*)",), "there is no job in this sweep"),
        (("client.lr=interval(0,1)",), "INTERVAL_SWEEP; give values with commas between them"),
    ],
)
def test_a_sweep_without_jobs_is_refused(words, part):
    assert part in line(*words)


def test_jobs_that_differ_in_values_alone_are_composed_once(monkeypatch):
    """A third of a second each: a sweep over hundreds of seeds would wait for minutes."""
    composed, subdir = [], "hydra.sweep.subdir=${hydra.job.num}_${strategy.name}"
    monkeypatch.setattr(sweep_words, "compose_config", composed.append)
    check_words(section("seed=range(100)", "strategy=fedavg,scaffold", "client.lr=0.1,0.2", subdir))
    assert [job[:3] for job in composed] == [[subdir, "seed=0", f"strategy={name}"] for name in ("fedavg", "scaffold")]
