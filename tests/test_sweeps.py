"""What the jobs of a parallel sweep share, and what they bring home."""

import os
import pickle

import numpy as np
import pytest
import torch

from fedrage_flwr import sweeps
from fedrage_flwr.config import compose_config, validate
from fedrage_flwr.data import load_dataset
from fedrage_flwr.errors import UserError
from fedrage_flwr.sweeps import Failure, goal, load_shared, refuse_ray_in_ray, shared_data


def refuse_to_load(settings):
    raise AssertionError("it is there already")


@pytest.mark.parametrize(
    "words", [("dataset=digits",), ("dataset=linear_gaussian",), ("dataset=digits", "dataset.rarest_classes=[3]")]
)
def test_the_second_job_maps_what_the_first_one_decoded(words):
    settings = validate(compose_config(words)).dataset
    wanted = load_dataset(settings)
    with shared_data():
        load_shared(settings, load_dataset)
        found = load_shared(settings, refuse_to_load)
        for split in ("train", "test"):
            for name in ("inputs", "labels"):
                assert torch.equal(getattr(getattr(found, split), name), getattr(getattr(wanted, split), name))
        for name in ("name", "num_classes", "mean", "std", "scale", "rarest_classes", "loss"):
            assert getattr(found, name) == getattr(wanted, name), name
        for name in ("train_owner", "test_owner", "groups"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        folder = os.environ[sweeps.FOLDER]
    assert not os.path.exists(folder)
    assert sweeps.FOLDER not in os.environ


def test_other_settings_are_another_data_set():
    one, other = (
        validate(compose_config(["dataset=linear_gaussian", f"dataset.seed={seed}"])).dataset for seed in (0, 1)
    )
    with shared_data():
        first, second = (load_shared(settings, load_dataset) for settings in (one, other))
        assert not torch.equal(first.train.inputs, second.train.inputs)


def test_outside_a_sweep_nothing_is_shared():
    settings = validate(compose_config([])).dataset
    assert load_shared(settings, lambda s: s) is settings


def test_a_failure_notes_itself_where_it_arrives(monkeypatch):
    parcel = pickle.dumps(Failure("folder", "reason"))
    monkeypatch.setattr(sweeps, "failures", {})
    pickle.loads(parcel)
    assert sweeps.failures == {"folder": "reason"}


def test_the_goal_is_the_accuracy_or_with_real_targets_the_loss():
    assert goal({"accuracy_mean_last10": 0.5, "loss": 3.0}) == 0.5
    assert goal({"accuracy_mean_last10": None, "loss": 3.0}) == 3.0


def test_ray_actors_in_every_job_are_refused():
    with pytest.raises(UserError, match="backend=ray with hydra/launcher=joblib"):
        refuse_ray_in_ray("joblib", "ray")
    refuse_ray_in_ray("joblib", "inline")
    refuse_ray_in_ray("basic", "ray")
