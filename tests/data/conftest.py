"""A data set small enough to count by hand."""

from collections.abc import Callable, Sequence

import pytest
import torch

from fedrage_flwr.data import Dataset, Split

MakeDataset = Callable[..., Dataset]


def make_dataset(
    labels: Sequence[int],
    test_labels: Sequence[int] = (),
    num_classes: int | None = None,
    rarest_classes: tuple[int, ...] | None = None,
) -> Dataset:
    def split(values: Sequence[int]) -> Split:
        return Split(torch.zeros((len(values), 1, 1, 1), dtype=torch.uint8), torch.tensor(values, dtype=torch.int64))

    count = max(labels) + 1 if num_classes is None else num_classes
    return Dataset("tiny", split(labels), split(test_labels), count, (0.0,), (1.0,), 255.0, rarest_classes)


@pytest.fixture
def tiny() -> MakeDataset:
    return make_dataset
