"""Named arrays on their way between server and clients, as Flower records.

``LazyArray`` is Flower's ``Array`` that keeps the ndarray and serialises only when a transport asks for bytes: in one
process nothing is copied, on the wire it is byte for byte what ``Array`` would have sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from math import prod
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.lib import format

SLACK = 2**20  # bytes: what headers, metrics and settings of a message may take beside its tensors
NUMPY_STYPE = "numpy.ndarray"  # flwr.common.constant.SType.NUMPY, the only serialisation Flower decodes

Arrays = Mapping[str, np.ndarray]


_name = lru_cache(str)
"""Of a dtype: numpy works it out anew each time."""


class LazyArray(Array):
    """An ``Array`` over an ndarray that must not be written to any more."""

    _ndarray: np.ndarray

    def __init__(self, ndarray: np.ndarray) -> None:
        view = ndarray.view()
        view.flags.writeable = False
        vars(self).update(dtype=_name(ndarray.dtype), shape=ndarray.shape, stype=NUMPY_STYPE, _ndarray=view)

    @property
    def data(self) -> bytes:  # type: ignore[override]  # a field of Array; nobody writes to it
        """The ``np.save`` bytes (no pickle), made on each request."""
        buffer = BytesIO()
        np.save(buffer, self._ndarray, allow_pickle=False)
        return buffer.getvalue()

    def numpy(self) -> np.ndarray:
        """Return a read-only view, without a copy."""
        return self._ndarray

    def deflate(self) -> bytes:
        """What goes over the wire, as an ``Array``: Flower writes the name of the class into it."""
        return Array(self._ndarray).deflate()

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyArray, (self._ndarray,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and self.data == other.data

    __hash__ = None  # type: ignore[assignment]  # as Array: a dataclass with eq


def to_record(arrays: Arrays) -> ArrayRecord:
    """Wrap named ndarrays without copying them."""
    record = ArrayRecord()
    for name, array in arrays.items():
        record[name] = LazyArray(array)
    return record


def to_arrays(record: ArrayRecord) -> dict[str, np.ndarray]:
    """Return the ndarrays of a record, read-only where no decoding was needed."""
    return {name: array.numpy() for name, array in record.items()}


def array_record(content: RecordDict, name: str) -> ArrayRecord | None:
    """Return a named array record of a message, or None (``content.array_records`` builds a dictionary at each use)."""
    record = content.get(name)
    return record if isinstance(record, ArrayRecord) else None


def payload_bytes(content: RecordDict) -> int:
    """Bytes of the tensors in all named records of a message."""
    return sum(nbytes(record) for record in content.values() if isinstance(record, ArrayRecord))


def nbytes(record: ArrayRecord) -> int:
    """Bytes of the tensors in a record; headers excluded."""
    return sum(np.dtype(array.dtype).itemsize * prod(array.shape) for array in record.values())


def wire_bytes(content: RecordDict) -> int:
    """Bytes of everything in a message, as it came: nothing is decoded."""
    return sum(
        sum(_stored_bytes(array) for array in record.values())
        if isinstance(record, ArrayRecord)
        else record.count_bytes()
        for record in content.values()
    )


def oversize(content: RecordDict, expected: Iterable[ArrayRecord]) -> str | None:
    """Say that a message is larger than the records expected in it account for; None if it is not."""
    size, allowed = wire_bytes(content), sum(nbytes(record) for record in expected) + SLACK
    return f"{size:,} bytes, at most {allowed:,} expected" if size > allowed else None


def _stored_bytes(array: Array) -> int:
    return array.numpy().nbytes if isinstance(array, LazyArray) else len(array.data)


def mismatch(record: ArrayRecord, expected: ArrayRecord) -> str | None:
    """Say in a few words how ``record`` departs from ``expected`` in names, shapes or dtypes; None if it does not.

    What an array declares is compared first, then what the header of its bytes says: nothing is decoded.
    """
    if record.keys() != expected.keys():
        missing, extra = sorted(expected.keys() - record.keys()), sorted(record.keys() - expected.keys())
        return "; ".join(f"{word} {names}" for word, names in (("missing", missing), ("unexpected", extra)) if names)
    for name, array in record.items():
        want = expected[name]
        if tuple(array.shape) != tuple(want.shape):
            return f"{name} has shape {tuple(array.shape)}, expected {tuple(want.shape)}"
        if array.dtype != want.dtype:
            return f"{name} has dtype {array.dtype}, expected {want.dtype}"
        lie = _misdeclared(array)
        if lie:
            return f"{name} {lie}"
    return None


def _misdeclared(array: Array) -> str | None:
    """Say how the bytes of an array depart from what it declares."""
    if isinstance(array, LazyArray):
        return None
    if array.stype != NUMPY_STYPE:
        return f"is serialised as {array.stype!r}, expected {NUMPY_STYPE!r}"
    stream = BytesIO(array.data)
    read_header = {(1, 0): format.read_array_header_1_0, (2, 0): format.read_array_header_2_0}
    try:
        shape, _, dtype = read_header[format.read_magic(stream)](stream)
    except (ValueError, KeyError) as error:
        return f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())})"
    if (shape, str(dtype)) != (tuple(array.shape), array.dtype):
        return f"declares {tuple(array.shape)} {array.dtype}, but its bytes are {shape} {dtype}"
    found, wanted = len(array.data) - stream.tell(), dtype.itemsize * prod(shape)
    return None if found == wanted else f"has {found} bytes of data, expected {wanted}"


def non_finite(arrays: Arrays) -> str | None:
    """Name the first array that holds a NaN or an infinity; None if all are finite."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"{name} is not finite"
    return None


def weighted_mean(replies: Sequence[Arrays], weights: Sequence[float] | None = None) -> dict[str, np.ndarray]:
    """Average arrays of equal names and shapes, summing in the order given.

    Args:
        replies: one mapping per client, in partition order.
        weights: one non-negative number per client, positive in sum; None weighs all alike.

    Returns:
        Arrays of the dtypes given. Sums are in float64. Integer arrays are counters, not quantities: the largest is kept.

    Raises:
        ValueError: no replies, or weights whose sum is not positive.
    """
    shares = [1.0] * len(replies) if weights is None else [float(weight) for weight in weights]
    total = sum(shares)
    if not total > 0:
        raise ValueError("nothing to average: the weights sum to zero")
    counted = [(reply, share) for reply, share in zip(replies, shares, strict=True) if share]  # 0 · NaN would be NaN
    return {name: _mean_of([(reply[name], share) for reply, share in counted], total) for name in replies[0]}


def _mean_of(terms: Sequence[tuple[np.ndarray, float]], total: float) -> np.ndarray:
    first = terms[0][0]
    if first.dtype.kind in "iub":
        return np.asarray(np.maximum.reduce([array for array, _ in terms]))
    acc = np.atleast_1d(first).astype(np.float64)  # a 0-d sum would be a scalar, which has no in-place form
    if terms[0][1] != 1.0:
        acc *= terms[0][1]
    for array, share in terms[1:]:
        acc += array if share == 1.0 else share * array.astype(np.float64)
    acc /= total
    return acc.astype(first.dtype).reshape(first.shape)
