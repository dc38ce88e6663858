"""Bodies that producers compressed: landed as they are, and delivered plain where the user wants it."""

from __future__ import annotations

import logging
import zlib
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq import message
from halfop.rocketmq.message import decompressed
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import Settings
from halfop.settings.topics import TopicSettings
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from support.brokers import store_writer as w

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
