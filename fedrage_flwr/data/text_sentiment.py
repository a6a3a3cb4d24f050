"""``dataset=text_sentiment``: is a text positive? Agents in two domains, long film reviews and single sentences.

Two tables in ``dataset.root``, parquet or CSV, with the columns ``text``, ``label`` (0 or 1) and, where the source has an
official split, ``split`` (train or test); without it every fourth example of a class, in file order, is for testing.

Features are words hashed into ``dimension`` counters, scaled to norm 1: a fixed function of one text. TF-IDF would have to
be fitted on the texts of all clients. They are kept as sparse arrays in ``dataset.cache``.
"""

import hashlib
import logging
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from fedrage_flwr.cache import cache_folder, replace_file
from fedrage_flwr.data.dataset import Dataset, DatasetSettings, Split
from fedrage_flwr.data.owners import deal_iid, group_of_agents
from fedrage_flwr.errors import UserError, one_line
from fedrage_flwr.randomness import Stream, generator
from fedrage_flwr.settings import Ge, Interval

log = logging.getLogger(__name__)

SOURCES = (
    "https://ai.stanford.edu/~amaas/data/sentiment/ (reviews), "
    "https://archive.ics.uci.edu/dataset/331/sentiment+labelled+sentences (sentences)"
)
SUFFIXES = (".parquet", ".csv")
TEST_EVERY = 4
VERSION = b"1"  # of the features

Arrays = dict[str, npt.NDArray[Any]]


class TextSentiment:
    """Domain 0 are the reviews, domain 1 the sentences."""

    @dataclass(frozen=True)
    class Settings(DatasetSettings):
        """See ``conf/dataset/text_sentiment.yaml``."""

        name: Literal["text_sentiment"]
        root: str
        reviews: str
        sentences: str
        groups: list[Annotated[int, Ge(1)]]
        dimension: Annotated[int, Interval(ge=2, le=2**16)]
        cache: str
        seed: Annotated[int, Ge(0)]

        def __post_init__(self) -> None:
            if len(self.groups) != 2:
                raise ValueError(
                    f"dataset.groups={list(self.groups)}: give two numbers, agents with reviews and agents with sentences"
                )

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.root = Path(settings.root).expanduser().absolute()

    def prepare(self) -> None:
        """Make sure both tables are there and the features are in the cache."""
        for table in self._tables():
            self._features(table)

    def load(self) -> Dataset:
        """Return the data set: inputs float32 (n, dimension), labels int64."""
        domains = [self._features(table) for table in self._tables()]
        groups = group_of_agents(self.settings.groups)
        splits, owners = [], []
        for draw, testing in enumerate((False, True)):
            inputs, labels, owner = [], [], []
            for group, arrays in enumerate(domains):
                rows = np.flatnonzero(arrays["testing"] == testing)
                rng = generator(self.settings.seed, Stream.DATASET, draw, group)
                inputs.append(_dense(arrays, rows, self.settings.dimension))
                labels.append(arrays["label"][rows])
                owner.append(deal_iid(len(rows), np.flatnonzero(groups == group), rng))
            splits.append(Split(torch.from_numpy(np.concatenate(inputs)), torch.from_numpy(np.concatenate(labels))))
            owners.append(np.concatenate(owner))
        return Dataset(
            name="text_sentiment",
            train=splits[0],
            test=splits[1],
            num_classes=2,
            mean=(0.0,),
            std=(1.0,),
            scale=1.0,
            train_owner=owners[0],
            test_owner=owners[1],
            groups=groups,
        )

    def _tables(self) -> list[Path]:
        return [self._find(name) for name in (self.settings.reviews, self.settings.sentences)]

    def _find(self, name: str) -> Path:
        for suffix in ("", *SUFFIXES):
            path = self.root / f"{name}{suffix}"
            if path.suffix in SUFFIXES and path.is_file():
                return path
        raise UserError(
            f"dataset=text_sentiment: {name}.parquet or .csv is missing in {self.root}: a table with the columns text, label "
            f"(0, 1) and perhaps split (train, test), made of {SOURCES}; name the folder with dataset.root=..., see docs/data.md"
        )

    def _features(self, table: Path) -> Arrays:
        key = hashlib.sha256(b"%s %d " % (VERSION, self.settings.dimension) + table.read_bytes()).hexdigest()[:32]
        path = cache_folder(self.settings.cache) / "text_sentiment" / f"{key}.npz"
        try:
            with np.load(path) as kept:
                return dict(kept)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # absent, or damaged
            arrays = hashed(table, self.settings.dimension)
        replace_file(path, lambda file: np.savez(file, allow_pickle=False, **arrays))
        return arrays


def hashed(table: Path, dimension: int) -> Arrays:
    """Return the features of a table as a sparse matrix by rows, with labels and which examples are for testing.

    Raises:
        UserError: the table cannot be read, or lacks a column, or holds other labels than 0 and 1.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    text, label, split = _read(table)
    matrix = HashingVectorizer(n_features=dimension, alternate_sign=False, dtype=np.float32).transform(
        [entry.replace("<br />", " ") for entry in text]
    )
    return {
        "data": matrix.data,
        "indices": matrix.indices.astype(np.int32),
        "indptr": matrix.indptr.astype(np.int64),
        "label": label,
        "testing": every_fourth(label) if split is None else split,
    }


def _read(table: Path) -> tuple[list[str], npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    import pandas as pd

    where = f"dataset=text_sentiment: {table}"
    try:
        frame = pd.read_parquet(table) if table.suffix == ".parquet" else pd.read_csv(table)
    except ImportError as error:
        raise UserError(f"{where}: parquet needs pyarrow (pip install pyarrow); or store it as CSV") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{where} cannot be read ({one_line(error)[:160]})") from error
    missing = {"text", "label"} - set(frame.columns)
    if missing:
        raise UserError(f"{where} lacks the column {min(missing)}; it has {', '.join(map(str, frame.columns))}")
    if frame["text"].isna().any() or not frame["label"].isin([0, 1]).all():
        raise UserError(f"{where}: every row needs a text and a label 0 or 1")
    split = None
    if "split" in frame.columns:
        if not frame["split"].isin(["train", "test"]).all():
            raise UserError(f"{where}: the column split may hold train and test only")
        split = (frame["split"] == "test").to_numpy(dtype=np.bool_)
    return frame["text"].astype(str).tolist(), frame["label"].to_numpy(dtype=np.int64), split


def every_fourth(label: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Mark examples 3, 7, 11, … of each class."""
    testing = np.zeros(len(label), dtype=np.bool_)
    for value in np.unique(label):
        testing[np.flatnonzero(label == value)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    return testing


def _dense(arrays: Arrays, rows: npt.NDArray[np.int64], dimension: int) -> npt.NDArray[np.float32]:
    """Rows of the sparse matrix, (len(rows), dimension)."""
    dense = np.zeros((len(rows), dimension), dtype=np.float32)
    for row, start, end in zip(dense, arrays["indptr"][rows], arrays["indptr"][rows + 1], strict=True):
        row[arrays["indices"][start:end]] = arrays["data"][start:end]
    return dense
