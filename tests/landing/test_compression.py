"""Bodies that producers compressed: landed as they are, and delivered plain where the user wants it."""

from __future__ import annotations

import logging
import zlib
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq import message
from halfop.rocketmq.message import decompressed
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import Settings
from halfop.settings.topics import TopicSettings
from halfop.sinks import pieces
from halfop.sinks.projections import About, Form, projected_each
from halfop.upkeep.values import _Remaking
from halfop.values.reading import Reading
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.schema import table
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from support import rows as r
from support.brokers import store_writer as w
from support.messages import KNOWN, NOW, RULES, half, ops

TEXT = b"a body that is well worth to be compressed, " * 20
COMPRESSED, LZ4, ZSTD, ZLIB, COMMITTED = 0x1, 0x100, 0x200, 0x300, 0x8


def by(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(TEXT)
    content: bytes = sink.getvalue().to_pybytes()
    return content


BODIES = [
    (COMPRESSED, zlib.compress(TEXT)),  # 4.x says no type
    (COMPRESSED | ZLIB, zlib.compress(TEXT)),
    (COMPRESSED | LZ4, by("lz4")),
    (COMPRESSED | ZSTD, by("zstd")),
]


@pytest.mark.parametrize(("flag", "body"), BODIES)
def test_each_kind_is_undone(flag: int, body: bytes) -> None:
    assert decompressed(body, flag) == TEXT


@pytest.mark.parametrize("flag", [flag for flag, _ in BODIES])
@pytest.mark.parametrize("body", [b"", b"no such stream", *(body[:-9] for _, body in BODIES)])
def test_what_is_not_what_its_flag_says_is_not_undone(flag: int, body: bytes) -> None:
    assert decompressed(body, flag) in (None, b"", TEXT)


@pytest.mark.parametrize(("flag", "body"), BODIES)
def test_a_body_that_swells_beyond_measure_stays(monkeypatch: pytest.MonkeyPatch, flag: int, body: bytes) -> None:
    monkeypatch.setattr(message, "_MOST_BYTES", len(TEXT) - 1)
    assert decompressed(body, flag) is None


@pytest.mark.thorough
@pytest.mark.parametrize("plain", [True, False])
def test_they_are_delivered_plain_only_where_the_user_wants_it(
    spark: SparkSession, warehouse: KernelWarehouse, tmp_path: Path, plain: bool
) -> None:
    store = w.Store(tmp_path / "store")
    bodies = [*BODIES, (0, b"as it is"), (COMPRESSED | LZ4, b"not what its flag says")]
    for n, (flag, body) in enumerate(bodies):
        place = store.append(w.half(n, sys_flag=flag, body=body))
        store.append(w.final(n, place))
    store.append(w.op("".join(f"{n}," for n in range(len(bodies)))))
    land_store(warehouse, StoreRequest(str(store.root), "broker-a", timedelta(0)), logging.getLogger("halfop.test"))
    landed = {row["queue_offset"]: (row["sys_flag"], bytes(row["body"])) for row in warehouse.rows("half_messages")}
    assert landed == dict(enumerate(bodies))

    topics = TopicSettings(layout="single", decompress=plain)
    reconcile(warehouse, Request(Settings(topics=topics), datetime.now(timezone.utc)))
    rows = warehouse.read("real_topics").collect()
    found = {row["half_queue_offset"]: (row["sys_flag"], bytes(row["body"])) for row in rows}
    as_landed = {n: (flag | COMMITTED, body) for n, (flag, body) in enumerate(bodies)}
    if plain:
        as_landed |= dict.fromkeys(range(len(BODIES)), (COMMITTED, TEXT))
    assert found == as_landed


# ---- in pieces: a batch of small bodies can swell to more than memory, or an Arrow column, holds ----

AT_MOST = 2 * len(TEXT)
MIXED = [BODIES[0], (0, b"as it is"), (COMPRESSED, None), *BODIES[1:], (None, b"y" * AT_MOST), (COMPRESSED, b"z")] * 2
WITHOUT = [TEXT, b"as it is", None, TEXT, TEXT, TEXT, b"y" * AT_MOST, b"z"] * 2
TEXT_VALUES = Reading("text", "", "", pa.string())


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_MOST_BYTES", AT_MOST)


def landed(struct: StructType) -> pa.RecordBatch:
    given = [{"broker_name": "b", "queue_offset": n, "sys_flag": f, "body": b} for n, (f, b) in enumerate(MIXED)]
    return pa.RecordBatch.from_pylist(given, schema=arrow_schema(struct))


def all_of(found: list[pa.RecordBatch], column: str) -> list[object]:
    """The cells of a column, of which no batch has too many bytes."""
    assert len(found) > len(MIXED) // 3
    for each in found:
        assert len(each) == 1 or pc.sum(pc.binary_length(each[column])).as_py() <= AT_MOST
    return [cell for each in found for cell in each[column].to_pylist()]


@pytest.mark.usefixtures("spark", "small_pieces")
@pytest.mark.parametrize("plain", [True, False])
def test_rows_of_all_tables_come_in_pieces(plain: bool) -> None:
    rows = landed(table("half_messages").struct)
    numbers = pa.array([n % 2 for n in range(len(rows))], pa.int32())
    rows = rows.append_column("number", numbers).append_column("op_queue_offset", pa.nulls(len(rows), pa.int64()))
    struct, forms = table("real_topic").struct, {0: Form("COMMIT"), 1: Form("COMMIT", TEXT_VALUES, "value_1")}
    kind = pa.struct([*arrow_schema(struct), ("value_1", pa.string()), ("value_error", pa.string())])
    found = [*projected_each(rows, "number", kind, forms, About(1, 2, plain, {}, True))]
    valued = [each for each in found if each["number"].to_pylist()[0] == 1]
    bodies = {row["half_queue_offset"]: row["body"] for each in found for row in each.to_pylist()}
    assert bodies == dict(enumerate(WITHOUT if plain else [body for _, body in MIXED]))
    texts = [row["value_1"] for each in valued for row in each.to_pylist()]
    assert texts == [body and body.decode() for body in WITHOUT[1::2]]
    assert len(valued) > 2


@pytest.mark.usefixtures("spark", "small_pieces")
def test_values_are_made_again_in_pieces() -> None:
    rows = landed(table("real_topic").struct)
    found = [*_Remaking(TEXT_VALUES)(rows)]
    assert all_of(found, "value") == [body and body.decode() for body in WITHOUT]
    assert pa.Table.from_batches(found).select(rows.schema.names) == pa.Table.from_batches([rows])


@pytest.mark.usefixtures("small_pieces")
def test_few_messages_are_written_in_pieces(warehouse: KernelWarehouse) -> None:
    halves = [half(n) for n in range(len(BODIES))]
    cells = [r.half_cells(h, NOW) | {"sys_flag": f, "body": b} for h, (f, b) in zip(halves, BODIES, strict=True)]
    r.land(warehouse, [], ops("COMMIT", *range(len(BODIES))), NOW, KNOWN)
    r.append(warehouse, "half_messages", cells)
    assert r.run(warehouse, RULES, NOW, layout="per_topic").status == 0
    assert [bytes(row["body"]) for row in warehouse.rows("topics/T")] == [TEXT] * len(BODIES)
    assert len(warehouse.listed("topics/T")) == 2
