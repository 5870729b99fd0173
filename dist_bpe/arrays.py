"""Numbers and bytes between Arrow and numpy, without pandas."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def of_numpy(values: Any) -> Any:
    """A numpy array of numbers as an Arrow array, without a copy.

    `pa.array` does the same after importing pandas, if it is installed: half a second a process. So does `pa.scalar`,
    and with it every function that is given a plain number.
    """
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def of_numbers(values: Sequence[int], kind: Any) -> Any:
    """Whole numbers as an Arrow array of a numpy type; see `of_numpy`.

    Raises:
        OverflowError: a number that the type cannot hold.
        TypeError: something that is no number.
    """
    return of_numpy(np.fromiter(values, kind, len(values)))


def to_numpy(array: Any) -> Any:
    """An Arrow array of whole numbers without nulls as a numpy array, without a copy or pandas: see `of_numpy`."""
    kind = array.type.to_pandas_dtype()
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * array.type.bit_width // 8)


def exact_sum(values: Any) -> int:
    """The sum of a numpy array of fewer than 2^32 uint64 numbers, also past 2^64 - 1."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFF_FFFF).sum())


def of_bytes(values: Sequence[bytes | None]) -> Any:
    """A list of bytes and None as a binary array, large if it has to be; see `of_numpy`."""
    parts = [value or b"" for value in values] if None in values else values
    data = b"".join(parts)  # type: ignore[arg-type]  # no None is left
    kind = pa.binary() if len(data) < 1 << 31 else pa.large_binary()
    offsets = np.zeros(len(parts) + 1, np.int32 if len(data) < 1 << 31 else np.int64)
    np.cumsum(np.fromiter(map(len, parts), offsets.dtype, len(parts)), out=offsets[1:])  # type: ignore[arg-type]
    valid = None
    if parts is not values:
        flags = np.fromiter((value is not None for value in values), bool, len(values))
        valid = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.Array.from_buffers(kind, len(parts), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def of_texts(values: Iterable[str | None]) -> Any:
    """Short texts as a string array; see `of_numpy`."""
    return of_bytes([None if value is None else value.encode() for value in values]).cast(pa.string())
