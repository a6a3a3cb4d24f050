"""Lazy arrays are Flower's arrays, and means are means."""

import pickle
from io import BytesIO

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedrage_flwr.records import (
    SLACK,
    LazyArray,
    mismatch,
    nbytes,
    non_finite,
    oversize,
    payload_bytes,
    to_arrays,
    to_record,
    weighted_mean,
)
from fedrage_flwr.training import as_tensor

ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array(3, np.int64),
    np.array(0.5),
    np.zeros((0, 2), np.float16),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
def test_bytes_are_those_of_flower(array):
    lazy, plain = LazyArray(array), Array(array)
    assert (lazy.dtype, lazy.shape, lazy.stype, lazy.data) == (plain.dtype, plain.shape, plain.stype, plain.data)
    assert lazy == plain
    assert (pickle.loads(pickle.dumps(lazy)).numpy() == array).all()


def test_o30_a_lazy_array_crosses_the_wire():
    """Flower takes records apart into chunks and puts them together again; more than one chunk here."""
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    big = np.arange(2_000_000, dtype=np.float32)
    content = RecordDict({"arrays": to_record({"w": big})})
    objects = get_all_nested_objects(content)
    assert len(objects) > 4
    wire = {object_id: thing.deflate() for object_id, thing in objects.items()}
    received = inflate_object_from_contents(content.object_id, wire)
    assert (received["arrays"]["w"].numpy() == big).all()


def test_what_is_read_cannot_be_written():
    array = to_arrays(to_record({"w": np.ones(2)}))["w"]
    with pytest.raises(ValueError, match="read-only"):
        array += 1


def test_a_read_only_array_is_shared_with_torch_without_a_copy(recwarn):
    source = np.arange(3.0)
    source.flags.writeable = False
    tensor = as_tensor(source)
    assert tensor.data_ptr() == source.ctypes.data
    assert tensor.tolist() == [0, 1, 2]
    assert not [w for w in recwarn if "writ" in str(w.message)]


def test_bytes_are_counted_without_headers():
    record = to_record({"w": np.zeros((3, 4), np.float32), "n": np.array(1, np.int64)})
    assert nbytes(record) == 3 * 4 * 4 + 8
    assert payload_bytes(RecordDict({"a": record, "b": record})) == 2 * nbytes(record)


def test_o30_bytes_of_a_large_model_need_no_memory():
    """300 million float32 parameters and as much again: 2,400,000,000 bytes."""
    shape_only = ArrayRecord()
    shape_only["w"] = Array("float32", (300_000_000,), "numpy.ndarray", b"")
    assert payload_bytes(RecordDict({"arrays": shape_only, "control": shape_only})) == 2_400_000_000


def test_mismatch_says_what():
    expected = to_record({"w": np.zeros(2, np.float32)})
    assert mismatch(to_record({"w": np.ones(2, np.float32)}), expected) is None
    assert mismatch(to_record({"w": np.ones(3, np.float32)}), expected) == "w has shape (3,), expected (2,)"
    assert mismatch(to_record({"w": np.ones(2)}), expected) == "w has dtype float64, expected float32"


def test_non_finite_ignores_integers():
    assert non_finite({"n": np.array([1]), "w": np.array([1.0])}) is None
    assert non_finite({"w": np.array([1.0, np.inf])}) == "w is not finite"


def test_sums_are_in_double_precision():
    """In float32, 1 + 2⁻²⁵ is 1; the mean of 2²⁵ halves' worth of it is not lost in float64."""
    tiny = np.float32(2.0**-25)
    replies = [{"w": np.array([v], np.float32)} for v in (1.0, tiny, tiny, -1.0)]
    assert weighted_mean(replies)["w"][0] == np.float32(2 * 2.0**-25 / 4)


def test_weights_that_sum_to_zero():
    with pytest.raises(ValueError, match="sum to zero"):
        weighted_mean([{"w": np.ones(1)}], [0])
    with pytest.raises(ValueError, match="sum to zero"):
        weighted_mean([])


def test_torch_and_numpy_scalars_keep_their_shape():
    mean = weighted_mean([{"b": torch.tensor(v).numpy()} for v in (1.0, 2.0)])["b"]
    assert (mean.shape, mean.dtype, float(mean)) == ((), np.float32, 1.5)


def lying(shape=(2,), dtype="float32", stype="numpy.ndarray", content=None):
    """An array as it comes over the wire; what it declares need not be what it holds."""
    buffer = BytesIO()
    np.save(buffer, np.zeros(2, np.float32) if content is None else content)
    return ArrayRecord({"w": Array(dtype=dtype, shape=shape, stype=stype, data=buffer.getvalue())})


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (lying(), None),
        (lying(content=np.zeros(3, np.float32)), "w declares (2,) float32, but its bytes are (3,) float32"),
        (lying(content=np.zeros(2)), "w declares (2,) float32, but its bytes are (2,) float64"),
        (lying(content=np.array([None, None])), "w declares (2,) float32, but its bytes are (2,) object"),
        (lying(stype="pickle"), "w is serialised as 'pickle', expected 'numpy.ndarray'"),
        (lying(shape=(3,)), "w has shape (3,), expected (2,)"),
    ],
)
def test_the_bytes_must_be_what_an_array_declares(record, problem):
    assert mismatch(record, to_record({"w": np.zeros(2, np.float32)})) == problem


def test_bytes_that_are_cut_or_padded_or_no_array_are_told_before_they_are_decoded():
    expected = to_record({"w": np.zeros(2, np.float32)})
    whole = lying()["w"].data
    for data, found in ((whole[:-1], 7), (whole + b"\0", 9)):
        record = ArrayRecord({"w": Array("float32", (2,), "numpy.ndarray", data)})
        assert mismatch(record, expected) == f"w has {found} bytes of data, expected 8"
    record = ArrayRecord({"w": Array("float32", (2,), "numpy.ndarray", b"no array at all")})
    assert "w cannot be read" in mismatch(record, expected)


def test_a_message_may_not_be_much_larger_than_what_is_expected_in_it():
    expected = [to_record({"w": np.zeros(10, np.float32)})]
    padding = ArrayRecord([np.zeros((SLACK + 40) // 8 + 1)])
    assert oversize(RecordDict({"arrays": expected[0]}), expected) is None
    assert "at most 1,048,616 expected" in oversize(RecordDict({"padding": padding}), expected)
    assert "expected" in oversize(RecordDict({"config": ConfigRecord({"text": "x" * (SLACK + 41)})}), expected)
