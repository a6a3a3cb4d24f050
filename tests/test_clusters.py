"""Names of several models in one record."""

import numpy as np
import pytest

from fedrage_flwr.clusters import count, join, split


def test_join_and_split_are_inverse():
    models = [{"0.weight": np.array([float(m)]), "0.bias": np.array([-float(m)])} for m in range(11)]
    arrays = join(enumerate(models))
    assert list(arrays)[:2] == ["cluster0.0.weight", "cluster0.0.bias"]
    assert split(arrays) == models
    assert count(arrays) == 11


def test_numbers_with_a_gap_are_refused():
    with pytest.raises(KeyError):
        split({"cluster0.w": np.zeros(1), "cluster2.w": np.zeros(1)})
