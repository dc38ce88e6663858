"""Compressed bodies: what sysFlag says of them, and how they are undone."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pyarrow as pa

COMPRESSED, _TYPE_MASK = 0x1, 0x700
FLAGS = COMPRESSED | _TYPE_MASK
_LZ4, _ZSTD = 0x100, 0x200


def decompressed(body: bytes, sys_flag: int) -> bytes:
    """The body as the producer gave it; one that is not what its flag says stays as it is."""
    if not sys_flag & COMPRESSED:
        return body
    try:
        return _UNDO.get(sys_flag & _TYPE_MASK, zlib.decompress)(body)
    except (zlib.error, pa.ArrowException, OSError, EOFError):
        return body


def _by(codec: str) -> Callable[[bytes], bytes]:
    def undo(body: bytes) -> bytes:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            content: bytes = stream.read()
        return content

    return undo


_UNDO = {_LZ4: _by("lz4"), _ZSTD: _by("zstd")}
