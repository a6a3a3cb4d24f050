"""Digits, the float conversion, the configuration files, and what importing the package costs."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from pydantic import TypeAdapter

from fedrage_flwr.data import DATASETS, PARTITIONS, Dataset, Split, load_dataset, prepare
from fedrage_flwr.data.digits import Digits
from fedrage_flwr.settings import lookup

ROOT = Path(__file__).parents[2]


def digits() -> Dataset:
    return load_dataset(Digits.Settings("digits", None))


def test_digits_split_is_stratified_and_complete() -> None:
    from sklearn.datasets import load_digits

    dataset, bunch = digits(), load_digits()
    assert dataset.input_shape == (1, 8, 8)
    assert dataset.train.inputs.dtype == torch.uint8
    counts = np.bincount(bunch.target)
    assert torch.bincount(dataset.test.labels).tolist() == (counts // 4).tolist()
    assert torch.bincount(dataset.train.labels).tolist() == (counts - counts // 4).tolist()
    both = torch.cat([dataset.train.inputs, dataset.test.inputs]).reshape(-1, 64).numpy()
    labels = torch.cat([dataset.train.labels, dataset.test.labels]).numpy()
    ours = sorted(map(tuple, np.column_stack([both, labels]).tolist()))
    assert ours == sorted(map(tuple, np.column_stack([bunch.data, bunch.target]).astype(int).tolist()))


def test_digits_without_the_bundled_file_come_from_load_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    direct = digits()
    monkeypatch.setattr("fedrage_flwr.data.digits.find_spec", lambda name: None)
    other = digits()
    assert torch.equal(direct.train.inputs, other.train.inputs)
    assert torch.equal(direct.test.labels, other.test.labels)


def test_digits_are_normalised_over_the_training_split() -> None:
    dataset = digits()
    values = dataset.to_float(dataset.train.inputs)
    assert abs(values.mean().item()) < 1e-3
    assert abs(values.std().item() - 1) < 1e-3
    prepare(Digits.Settings("digits", None))  # nothing to do, nothing raised


def test_to_float_is_per_channel_for_any_leading_dimensions() -> None:
    empty = Split(torch.zeros((0, 2, 1, 2), dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))
    dataset = Dataset("two channels", empty, empty, 2, (0.5, 0.0), (0.5, 2.0), 100.0)
    inputs = torch.tensor([[[100, 0]], [[100, 50]]], dtype=torch.uint8)
    expected = torch.tensor([[[1.0, -1.0]], [[0.5, 0.25]]])
    assert torch.equal(dataset.to_float(inputs), expected)
    stacked = inputs.expand(3, 4, 2, 1, 2)
    assert torch.equal(dataset.to_float(stacked), expected.expand(3, 4, 2, 1, 2))
    assert dataset.to_float(inputs).dtype == torch.float32


def test_to_float_leaves_float_inputs_alone() -> None:
    empty = Split(torch.zeros((0, 1), dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))
    inputs = torch.ones(3, 1)
    Dataset("flat", empty, empty, 2, (0.5,), (0.5,), 1.0).to_float(inputs)
    assert torch.equal(inputs, torch.ones(3, 1))


@pytest.mark.parametrize(("group", "word"), [("dataset", w) for w in DATASETS] + [("partition", w) for w in PARTITIONS])
def test_configuration_files_fill_the_settings(group: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDRAGE_DATA", raising=False)
    config: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / group / f"{word}.yaml"), resolve=True)
    if word == "private":  # what has no default
        config.update(classes=["cat", "dog"], input_shape=[4])
    kind = lookup({"dataset": DATASETS, "partition": PARTITIONS}[group], word).Settings
    assert set(config) == {field.name for field in fields(kind)}
    assert TypeAdapter(kind).validate_python(config).name == word
    assert config.get("root", "data") == "data"


def test_the_package_imports_nothing_heavy() -> None:
    heavy = ("torchvision", "sklearn", "pandas", "PIL", "filelock")
    code = f"import fedrage_flwr.data, sys; assert not [m for m in {heavy} if m in sys.modules], sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
