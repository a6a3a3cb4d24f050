"""Two tables of texts: what is read, how it is split and dealt, features by hand, and the cache."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedrage_flwr.data import load_dataset, prepare
from fedrage_flwr.data import text_sentiment as module
from fedrage_flwr.data.text_sentiment import TextSentiment, every_fourth
from fedrage_flwr.errors import UserError

REVIEWS = pd.DataFrame(
    {
        "text": ["good<br />good film", "bad film", "good", "bad bad bad", "fine film", "poor film"],
        "label": [1, 0, 1, 0, 1, 0],
        "split": ["train"] * 4 + ["test"] * 2,
    }
)
SENTENCES = pd.DataFrame({"text": [f"sentence {k}" for k in range(8)], "label": [0, 1] * 4, "domain": "x"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    REVIEWS.to_csv(tmp_path / "reviews.csv", index=False)
    SENTENCES.to_csv(tmp_path / "sentences.csv", index=False)
    return tmp_path


def settings(root: Path, **changes: Any) -> TextSentiment.Settings:
    values = {
        "name": "text_sentiment", "root": str(root), "reviews": "reviews", "sentences": "sentences", "groups": [3, 2],
        "dimension": 64, "cache": str(root / "cache"), "seed": 0,
    }  # fmt: skip
    return TextSentiment.Settings(**{**values, **changes})


def test_split_owners_and_groups(root: Path) -> None:
    """Reviews keep their split, 4 + 2; of four sentences of a class the fourth (rows 6 and 7) is for testing, 6 + 2."""
    dataset = load_dataset(settings(root))
    assert dataset.train.inputs.shape == (10, 64)
    assert dataset.train.inputs.dtype == torch.float32
    assert dataset.train.labels.tolist() == [1, 0, 1, 0] + [0, 1] * 3
    assert dataset.test.labels.tolist() == [1, 0, 0, 1]
    assert dataset.groups is not None
    assert dataset.train_owner is not None
    assert dataset.test_owner is not None
    assert dataset.groups.tolist() == [0, 0, 0, 1, 1]
    assert sorted(np.bincount(dataset.train_owner[:4], minlength=5).tolist()) == [0, 0, 1, 1, 2]
    assert np.bincount(dataset.train_owner[4:], minlength=5).tolist() == [0, 0, 0, 3, 3]
    assert set(dataset.test_owner[2:].tolist()) == {3, 4}
    assert (dataset.num_classes, dataset.input_shape) == (2, (64,))


def test_features_are_counts_scaled_to_norm_one(root: Path) -> None:
    """'good good film' is (2, 1)/√5 whatever words hash to; a tag is no word; 'good' alone shares the place."""
    inputs = load_dataset(settings(root)).train.inputs
    first, good = inputs[0], inputs[2]
    assert sorted(first[first > 0].tolist()) == pytest.approx([1 / 5**0.5, 2 / 5**0.5])
    assert good[good > 0].tolist() == [1.0]
    assert (first @ good).item() == pytest.approx(2 / 5**0.5)
    torch.testing.assert_close(inputs.norm(dim=1), torch.ones(10))


def test_features_do_not_depend_on_other_texts(root: Path) -> None:
    """No fitting across clients: without the other table's texts the same numbers come out."""
    before = load_dataset(settings(root)).train.inputs[:4]
    SENTENCES.assign(text="good good good").to_csv(root / "sentences.csv", index=False)
    assert torch.equal(load_dataset(settings(root)).train.inputs[:4], before)


def test_the_cache_is_used_and_a_damaged_one_is_made_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(settings(root))
    first = load_dataset(settings(root))
    kept = sorted((root / "cache" / "text_sentiment").iterdir())
    assert len(kept) == 2
    calls: list[Path] = []
    original = module.hashed
    monkeypatch.setattr(module, "hashed", lambda table, d: (calls.append(table), original(table, d))[1])
    assert torch.equal(load_dataset(settings(root)).train.inputs, first.train.inputs)
    assert calls == []
    kept[0].write_bytes(kept[0].read_bytes()[:50])
    assert torch.equal(load_dataset(settings(root)).train.inputs, first.train.inputs)
    assert len(calls) == 1
    load_dataset(settings(root, dimension=32))
    assert len(calls) == 3


def test_a_cache_that_cannot_be_written_does_no_harm(root: Path) -> None:
    (root / "file").write_text("")
    assert len(load_dataset(settings(root, cache=str(root / "file"))).train) == 10


def test_parquet_is_read_where_pyarrow_is_there(root: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install pyarrow")
    before = load_dataset(settings(root)).train.inputs
    REVIEWS.to_parquet(root / "reviews.parquet")
    (root / "reviews.csv").unlink()
    assert torch.equal(load_dataset(settings(root)).train.inputs, before)


def test_a_missing_file_says_where_to_get_it(root: Path) -> None:
    (root / "sentences.csv").unlink()
    with pytest.raises(UserError) as caught:
        prepare(settings(root))
    message = str(caught.value)
    assert "\n" not in message
    for part in ("dataset=text_sentiment: sentences.parquet", str(root), "archive.ics.uci.edu", "dataset.root="):
        assert part in message


@pytest.mark.parametrize(
    ("frame", "part"),
    [
        (REVIEWS.drop(columns="label"), "lacks the column label; it has text, split"),
        (REVIEWS.assign(label=2), "a text and a label 0 or 1"),
        (REVIEWS.assign(split="dev"), "split may hold train and test only"),
        (REVIEWS.assign(text=None), "a text and a label 0 or 1"),
    ],
)
def test_tables_that_do_not_fit(root: Path, frame: pd.DataFrame, part: str) -> None:
    frame.to_csv(root / "reviews.csv", index=False)
    with pytest.raises(UserError, match=part):
        prepare(settings(root))


def test_an_unreadable_table(root: Path) -> None:
    (root / "reviews.csv").write_bytes(b"")
    with pytest.raises(UserError, match=r"reviews.csv cannot be read"):
        prepare(settings(root))


def test_two_groups(root: Path) -> None:
    with pytest.raises(ValueError, match=r"dataset.groups=\[1, 2, 3\]"):
        settings(root, groups=[1, 2, 3])


def test_every_fourth_of_a_class() -> None:
    label = np.array([0, 0, 1, 0, 0, 1, 1, 1, 0])
    assert np.flatnonzero(every_fourth(label)).tolist() == [4, 7]
