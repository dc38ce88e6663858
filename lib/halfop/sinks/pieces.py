"""Rows in pieces that fit into memory, with their bodies without compression.

A few compressed bytes can stand for very many, so that those of one batch can be more than an Arrow column holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from halfop.rocketmq.message import COMPRESSED, FLAGS, decompressed

PLAIN, PLAIN_FLAG = "plain_body", "plain_flag"
_MOST_BYTES = 64 << 20  # of a piece's bodies; one that is larger is a piece of its own

Columns = Mapping[str, pa.Array]


def whole_piece(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """The rows as one piece, with their bodies as they are."""
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def plain_pieces(rows: pa.RecordBatch) -> Iterator[Columns]:
    """All rows, in their order, in pieces that also have bodies without compression, and the flags that say so.

    Both are as they landed if there is none, or if it cannot be undone.
    """
    bodies, flags = rows["body"], pc.fill_null(rows["sys_flag"], 0)
    is_compressed = pc.not_equal(pc.bit_wise_and(flags, COMPRESSED), 0)
    if not pc.any(is_compressed).as_py():
        yield whole_piece(rows) | {PLAIN: bodies, PLAIN_FLAG: flags}
        return
    sizes = pc.fill_null(pc.binary_length(bodies), 0).to_pylist()
    first, left, undone = 0, _MOST_BYTES, list[bytes | None]()
    for n, body in enumerate(_undone(bodies, flags, is_compressed)):
        size = sizes[n] if body is None else len(body)
        if undone and size > left:
            yield _piece(rows.slice(first, n - first), undone)
            first, left, undone = n, _MOST_BYTES, []
        undone.append(body)
        left -= size
    yield _piece(rows.slice(first), undone)


def _undone(bodies: pa.Array, flags: pa.Array, is_compressed: pa.Array) -> Iterator[bytes | None]:
    for body, flag, mine in zip(bodies, flags, is_compressed.to_pylist(), strict=True):
        yield decompressed(body.as_py(), flag.as_py()) if mine and body.is_valid else None


def _piece(rows: pa.RecordBatch, undone: Sequence[bytes | None]) -> Columns:
    flags, found = pc.fill_null(rows["sys_flag"], 0), pa.array(undone, pa.binary())
    without = pc.bit_wise_and(flags, pa.scalar(~FLAGS, pa.int32()))
    plain = {PLAIN: pc.coalesce(found, rows["body"]), PLAIN_FLAG: pc.if_else(pc.is_valid(found), without, flags)}
    return whole_piece(rows) | plain
