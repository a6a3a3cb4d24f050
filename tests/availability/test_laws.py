"""What every law promises: the name table, the configuration files, draws that depend on seed and round alone, refusals."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from pydantic import TypeAdapter, ValidationError

from fedrage_flwr.availability import LAWS
from fedrage_flwr.availability.base import Probabilities
from fedrage_flwr.errors import UserError
from fedrage_flwr.settings import lookup

CONF = Path(__file__).parents[2] / "conf" / "ram"
SETTINGS: dict[str, dict[str, Any]] = {  # N = 6, two of them rare
    "bernoulli": {"probability": 0.4, "rare_probability": 0.1, "probabilities": None},
    "exponential": {"tau": 2.0, "clients_per_round": 3},
    "full": {},
    "inclusion": {"probabilities": None, "rare_probability": 0.1, "clients_per_round": 3},
    "markov": {"on_rate": 0.3, "off_rate": 0.4},
    "natural": {"deadline_s": 10.0, "enough": None, "min_sites": 1, "required_sites": []},
    "rare": {"epsilon": 0.2, "clients_per_round": 3},
    "subsets": {"subsets": [[0, 1], [2, 3, 4], [5]], "probabilities": [0.3, 0.5, 0.2]},
    "trace": {"slot_s": None, "unknown": "off", "clients_per_round": 2, "clients": "first"},
    "uniform": {"clients_per_round": 3},
    "weighted": {"weights": [1, 2, 3, 0, 5, 6], "clients_per_round": 3},
}


@pytest.fixture(params=sorted(SETTINGS.keys() - {"natural"}))  # which nobody draws
def law_of_seed(request: pytest.FixtureRequest, make_law: Any, tmp_path: Path) -> Any:
    settings = dict(SETTINGS[request.param])
    if request.param == "trace":
        np.save(tmp_path / "trace.npy", np.ones((7, 6)))
        settings["path"] = str(tmp_path / "trace.npy")
    return lambda seed: make_law(request.param, 6, rare_clients=2, seed=seed, **settings)


def test_tables_agree() -> None:
    assert set(SETTINGS) == set(LAWS)
    assert {path.stem for path in CONF.glob("*.yaml")} >= set(LAWS)


def test_draws_are_sorted_ids(law_of_seed: Any) -> None:
    law = law_of_seed(3)
    for round_ in range(50):
        ids = law.sample(round_)
        assert ids.dtype == np.int64
        assert (np.diff(ids) > 0).all()
        assert ids.size == 0 or (ids[0] >= 0 and ids[-1] < 6)


def test_a_draw_depends_on_seed_and_round_alone(law_of_seed: Any) -> None:
    forwards = [law_of_seed(3).sample(r).tolist() for r in range(40)]
    law = law_of_seed(3)
    assert [law.sample(r).tolist() for r in reversed(range(40))] == forwards[::-1]
    other = [law_of_seed(4).sample(r).tolist() for r in range(40)]
    assert (other != forwards) or len(law.sample(0)) == 6  # "full" has one draw only


def test_saved_state_restores_the_draws(law_of_seed: Any) -> None:
    law, resumed = law_of_seed(3), law_of_seed(3)
    law.sample(5)
    resumed.load_state_dict(law.state_dict())
    assert [law.sample(r).tolist() for r in range(6, 30)] == [resumed.sample(r).tolist() for r in range(6, 30)]


def test_probabilities_are_sane_and_read_only(law_of_seed: Any) -> None:
    law = law_of_seed(3)
    inclusion, marginals = law.inclusion(), law.marginals()
    assert marginals.values.sum() == pytest.approx(1, abs=1e-12)
    assert ((inclusion.values >= 0) & (inclusion.values <= 1)).all()
    assert inclusion.values.dtype == marginals.values.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        inclusion.values[0] = 1


def test_probabilities_copy_what_they_are_given() -> None:
    values = np.ones(2)
    held = Probabilities(values, exact=True)
    values[0] = 7
    assert held.values.tolist() == [1, 1]


@pytest.mark.parametrize("name", sorted(LAWS))
def test_configuration_file(name: str, make_law: Any) -> None:
    """Its keys are the fields of the settings; with the mandatory ones (???) given it is valid, and builds with N = 30."""
    config: dict[str, Any] = dict(OmegaConf.to_container(OmegaConf.load(CONF / f"{name}.yaml")))  # type: ignore[arg-type]
    settings = lookup(LAWS, name).Settings
    assert list(config) == [field.name for field in fields(settings)]
    assert config["name"] == name
    if "???" in config.values():
        return
    TypeAdapter(settings).validate_python(config)
    law = make_law(rare_clients=3, num_clients=30, **config)
    assert law.sample(1).size or name == "markov"


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("uniform", "clients_per_round", 0),
        ("rare", "epsilon", 0),
        ("rare", "epsilon", 1.5),
        ("exponential", "tau", 0),
        ("inclusion", "rare_probability", -0.1),
        ("bernoulli", "probabilities", [0.5, 1.1]),
        ("markov", "on_rate", 0),
        ("markov", "off_rate", 1),
        ("weighted", "weights", [1, -1]),
        ("subsets", "subsets", [[0, -1]]),
    ],
)
def test_ranges_are_in_the_annotations(name: str, key: str, value: Any) -> None:
    settings = lookup(LAWS, name).Settings
    TypeAdapter(settings).validate_python({"name": name, **SETTINGS[name]})
    with pytest.raises(ValidationError):
        TypeAdapter(settings).validate_python({"name": name, **SETTINGS[name], key: value})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("uniform", {"clients_per_round": 7}, "ram.clients_per_round=7 must be at most num_clients=6"),
        ("rare", {"clients_per_round": 7}, "ram.clients_per_round=7 must be at most num_clients=6"),
        (
            "weighted",
            {"clients_per_round": 6},
            "ram.clients_per_round=6 must be at most the number of positive weights=5",
        ),
        (
            "weighted",
            {"weights": [1, 2, 3]},
            "ram.weights=[1, 2, 3] has 3 entries, must have num_clients=6",
        ),
        (
            "weighted",
            {"weights": [1, 2, 3, 4, 5, np.inf]},
            "ram.weights[5]=inf must be a finite number, at least 0",
        ),
        (
            "inclusion",
            {"probabilities": [0.5] * 6, "clients_per_round": 2},
            "ram.probabilities=[0.5, 0.5, 0.5, 0.5, 0.5, …] sums to 3, must sum to ram.clients_per_round=2",
        ),
        (
            "inclusion",
            {"probabilities": [0.5, 0.5, 1.0, 1.0]},
            "ram.probabilities=[0.5, 0.5, 1.0, 1.0] has 4 entries, must have num_clients=6",
        ),
        (
            "inclusion",
            {"probabilities": [1.5, 0.5, 1.0, 0, 0, 0]},
            "ram.probabilities[0]=1.5 must be between 0 and 1",
        ),
        (
            "inclusion",
            {"rare_probability": None},
            "ram.rare_probability=null must be a number when ram.probabilities=null",
        ),
        (
            "inclusion",
            {"rare_probability": 1.0, "clients_per_round": 1},
            "ram.rare_probability=1.0 leaves -1 of ram.clients_per_round=1 to the 4 other clients, must leave 0 to 4",
        ),
        (
            "inclusion",
            {"rare_probability": 0.0, "clients_per_round": 5},
            "ram.rare_probability=0.0 leaves 5 of ram.clients_per_round=5 to the 4 other clients, must leave 0 to 4",
        ),
        (
            "bernoulli",
            {"probability": 0.0, "rare_probability": None},
            "ram.probability=0.0 leaves every client at 0; at least one must be positive",
        ),
        (
            "bernoulli",
            {"probabilities": [0, 0, 0, 0, 0, 0]},
            "ram.probabilities=[0, 0, 0, 0, 0, …] leaves every client at 0; at least one must be positive",
        ),
        ("markov", {"on_rate": [0.5]}, "ram.on_rate=[0.5] has 1 entries, must have num_clients=6"),
        (
            "markov",
            {"off_rate": [0.5, 0, 0.5, 0.5, 0.5, 0.5]},
            "ram.off_rate=[0.5, 0, 0.5, 0.5, 0.5, …] must be above 0 for every client",
        ),
        (
            "subsets",
            {"subsets": [[0], [6], [1]]},
            "ram.subsets[1]=[6] must hold ids from 0 to 5 (num_clients=6)",
        ),
        ("subsets", {"subsets": [[0], [], [1]]}, "ram.subsets[1]=[] must name at least one client"),
        ("subsets", {"subsets": [[0], [2, 2], [1]]}, "ram.subsets[1]=[2, 2] must name each client once"),
        (
            "subsets",
            {"probabilities": [0.5, 0.5]},
            "ram.probabilities=[0.5, 0.5] has 2 entries, must have one for each of the 3 ram.subsets",
        ),
        (
            "subsets",
            {"probabilities": [0.5, 0.5, 0.5]},
            "ram.probabilities=[0.5, 0.5, 0.5] sums to 1.5, must sum to 1",
        ),
    ],
)
def test_refusals(make_law: Any, name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        make_law(name, 6, rare_clients=2, **(SETTINGS[name] | changes))
    assert str(refusal.value) == message


def test_more_rare_clients_than_clients(make_law: Any) -> None:
    with pytest.raises(UserError) as refusal:
        make_law("rare", 2, rare_clients=3, epsilon=0.2, clients_per_round=1)
    assert str(refusal.value) == "rare_clients=3 must be at most num_clients=2"


def test_a_state_of_other_clients(make_law: Any) -> None:
    law = make_law("markov", 6, on_rate=0.5, off_rate=0.5)
    with pytest.raises(ValueError, match="holds 2 clients, not num_clients=6"):
        law.load_state_dict({"round": np.array(3), "on": np.ones(2, dtype=np.bool_)})
