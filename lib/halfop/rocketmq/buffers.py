"""Values and slices out of bytes: one by one, or at many positions at once.

A layout is a NamedTuple: its fields stand in bytes one after the other, each with its code in `struct`, which NumPy
knows, too. It is declared once, and `struct_of` and `dtype_of` follow from it.
"""

from __future__ import annotations

import re
from mmap import mmap
from struct import Struct, calcsize
from typing import Annotated, Any, get_args, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]
Readable = bytes | bytearray | memoryview | mmap | Bytes


I4 = Annotated[int, "i"]
U4 = Annotated[int, "I"]
I8 = Annotated[int, "q"]


def codes(layout: type) -> dict[str, str]:
    """Returns the codes of a layout's fields by their names, in their order."""
    hints = get_type_hints(layout, include_extras=True)
    return {name: get_args(hint)[1] for name, hint in hints.items()}


def struct_of(layout: type, *names: str) -> Struct:
    """Returns what reads and writes a layout; with names, these of its fields, and no bytes after them."""
    every = codes(layout)
    parts = [code if name in names else f"{calcsize(code)}x" for name, code in every.items()]
    last = max((place for place, name in enumerate(every) if name in names), default=0)
    return Struct(">" + "".join(parts[: last + 1] if names else every.values()))


def dtype_of(layout: type) -> np.dtype[Any]:
    """Returns a layout as NumPy reads it."""
    return np.dtype([(name, f">{code}") for name, code in codes(layout).items()])


def as_bytes(buffer: Readable) -> Bytes:
    return np.frombuffer(buffer, np.uint8)


def gather(buffer: Bytes, positions: Longs, dtype: Any) -> NDArray[Any]:
    """The values of `dtype` at the positions; all must be within the buffer."""
    size = np.dtype(dtype).itemsize  # as plain bytes: seven times as fast as with fields
    every: NDArray[Any] = np.ndarray((max(len(buffer) - size + 1, 0),), f"V{size}", buffer, strides=(1,))
    return every[positions].view(dtype)


def cut(buffer: Bytes, starts: Longs | Ints, lengths: Longs | Ints) -> pa.BinaryArray:
    """Copies of a buffer's slices, which must ascend and not overlap."""
    n = len(starts)
    offsets = np.zeros(2 * n + 1, np.int32)  # slice, gap, slice, gap …
    offsets[0:-1:2] = starts
    offsets[1::2] = starts + lengths
    offsets[-1] = offsets[-2] if n else 0
    both = pa.BinaryArray.from_buffers(pa.binary(), 2 * n, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    return both.take(pa.array(np.arange(0, 2 * n, 2, dtype=np.int32)))


# For searches in whole texts; the type's bounds come on top.
WHOLE_NUMBER = "[+-]?[0-9]+"
# Leading zeros may be many, and Python reads no more than some thousand digits.
_SIGN_AND_DIGITS = re.compile(r"([+-]?)0*([0-9]{1,19})")


def parse_int(text: str | None) -> int | None:
    """Returns the number that Integer.parseInt gives; None if it throws."""
    return _parsed(text, 31)


def parse_long(text: str | None) -> int | None:
    """Returns the number that Long.parseLong gives; None if it throws."""
    return _parsed(text, 63)


def _parsed(text: str | None, bits: int) -> int | None:
    if text and len(text) <= bits * 3 // 10 and text.isascii() and text.isdecimal():  # as nearly all
        return int(text)
    match = _SIGN_AND_DIGITS.fullmatch(text or "")
    if match is None:
        return None
    number = int(match[2]) * (-1 if match[1] == "-" else 1)
    return number if -(2**bits) <= number < 2**bits else None
