"""Compressed bodies: the flags that mark them, and how they are decompressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pyarrow as pa

COMPRESSED, _TYPE_MASK = 0x1, 0x700
FLAGS = COMPRESSED | _TYPE_MASK
_LZ4, _ZSTD = 0x100, 0x200
# A few compressed bytes can stand for any number; a broker takes 4 MiB as they come.
_MOST_BYTES = 128 << 20


def decompressed(body: bytes, sys_flag: int) -> bytes | None:
    """A compressed body as the producer gave it; None if it does not match its flag or is too large."""
    try:
        content = _UNDO.get(sys_flag & _TYPE_MASK, _inflated)(body)
    except (zlib.error, pa.ArrowException, OSError, EOFError):
        return None
    return None if len(content) > _MOST_BYTES else content


def _inflated(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(body, _MOST_BYTES + 1)
    if not stream.eof and len(content) <= _MOST_BYTES:
        raise EOFError
    return content


def _by(codec: str) -> Callable[[bytes], bytes]:
    def undo(body: bytes) -> bytes:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            content: bytes = stream.read(_MOST_BYTES + 1)
        return content

    return undo


_UNDO = {_LZ4: _by("lz4"), _ZSTD: _by("zstd")}
