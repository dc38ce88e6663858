"""Warehouses that an older version wrote: work goes on in them, and columns that it did not know are added."""

from __future__ import annotations

import json
import logging
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import rows as r
import yaml
from build.kills import content, finished, prepare
from build.messages import NOW, QUEUE, half, one_of_each
from halfop.frame.summary import Summary
from halfop.landing import lost
from halfop.landing.files.land import FilesRequest, land_files
from halfop.runs.verify import verify
from halfop.warehouse import schema
from halfop.warehouse.progress import COMMIT_LOG
from halfop.warehouse.rejected import read_rejected
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType
from strategies import half_lines

OLD = Path(__file__).parent / "data" / "warehouse-0.1.tar.gz"
NEW = {"name": "came_later", "type": "STRING", "comment": "A column of tomorrow's version; it's \\ quoted"}
GROWN = ("half_messages", "topics_index")
ROW = {"topic": "T", "directory": "T", "run_id": 1, "created_at": r.instant(NOW)}


@pytest.mark.slow
def test_a_warehouse_of_the_first_version_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """The warehouse is as test_kills.prepare left it then: one run closed, more landed."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path / "old", filter="data")
    old, new = (tmp_path / name / "warehouse" for name in ("old", "new"))
    prepare(Warehouse(spark, str(new)))
    later = [column.name for column in schema.table("check_requests").columns if column.since != "1"]
    unlike = {"check_requests": later, "runs": ["asks", "counts_delivered", "inputs", "inputs_before", "rules_version"]}
    found, wanted = (content(finished(spark, folder), without=unlike) for folder in (old, new))
    assert found == wanted
    assert "msg_id" in later
    assert verify(Warehouse(spark, str(old)), 1)[0].status == 0


@pytest.mark.slow
def test_a_broker_of_the_first_version_begins_a_new_life(spark: SparkSession, tmp_path: Path) -> None:
    """Its tables know nothing of lives; 23 and 24 were open."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    warehouse = Warehouse(spark, str(tmp_path / "warehouse"))
    path = tmp_path / "half.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in half_lines([half(23, uniq_key="another")])))
    land_files(warehouse, FilesRequest([str(path)], accept_rewind=True), logging.getLogger("halfop.test"))
    found = finished(spark, Path(warehouse.root)).read("decisions").where("queue_offset >= 23").collect()
    last = {
        (row["broker_name"], row["queue_offset"]): row["reason"] for row in sorted(found, key=lambda r: r["run_id"])
    }
    assert last[QUEUE[0], 23] == last[QUEUE[0], 24] == "LOST_BY_BROKER"
    assert (f"{QUEUE[0]}~2", 23) in last


# kind, reason, queue offset and detail as version 0.1 wrote them: the item and half offset that they are read as
BEFORE_COLUMNS = {
    ("OP", "CONFLICT", 9, "item 1 names half offset 5, outcome ROLLBACK"): (1, 5),
    ("OP", "NO_OUTCOME", 9, "item 2, text +07, outcome none, stored 2025-06-15 15:06:40"): (2, 7),
    ("OP", "GARBAGE_OFFSET", 9, "item 3, text -7, outcome COMMIT, stored none"): (3, None),
    ("OP", "ILLEGAL_TAG", 9, "item 0, text 7, outcome COMMIT, stored none"): (0, None),
    ("OP", "NULL_BODY", 9, "item none, text none, outcome none, stored none"): (None, None),
    ("HALF", "BAD_REAL_TOPIC", 4, "uniq_key k4, group g, real topic a b"): (None, 4),
    ("RESUME", "OPEN", 3, "resumed by item 1 names half offset 5,  at 2025"): (None, 3),
    ("INPUT", "BAD_VALUE", 3, "file.json:3: item 1 names half offset 5, "): (None, None),
}


def range_of(since: int, upto: int, topic: str, queue: int, until: int | None) -> str:
    where = {"since": since, "upto": upto, "topic": topic, "queue": queue, "until": until}
    return json.dumps(where | {"code": "crc", "text": "record of 5 bytes"})


@pytest.fixture
def before_columns(spark: SparkSession, tmp_path: Path) -> Warehouse:
    """The warehouse of the first version, with more rejects of the kinds that it wrote."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    warehouse = Warehouse(spark, str(tmp_path / "warehouse"))
    rows: list[tuple[object, ...]] = [(*row[:2], "x", 0, *row[2:]) for row in BEFORE_COLUMNS]
    ranges = [range_of(10, 20, COMMIT_LOG, 0, None), range_of(10, 20, "T", 3, NOW * 1000)]
    rows += [("RANGE", lost.LOST, "y", queue, None, text) for queue, text in zip((0, 3), ranges, strict=True)]
    columns = "kind STRING, reason STRING, broker_name STRING, queue_id INT, queue_offset BIGINT, detail STRING"
    warehouse.frame(rows, columns).write.format("delta").mode("append").save(warehouse.path("rejected"))
    return warehouse


def test_rejects_of_the_first_version_have_the_later_columns(before_columns: Warehouse) -> None:
    rows = read_rejected(before_columns).where("broker_name = 'x'").collect()
    found = {tuple(row[c] for c in ("kind", "reason", "queue_offset", "detail")): row for row in rows}
    assert {key: (row["item"], row["half_offset"]) for key, row in found.items()} == BEFORE_COLUMNS
    [conflict] = read_rejected(before_columns).where("broker_name = 'b' AND kind = 'OP'").collect()
    assert (conflict["item"], conflict["half_offset"]) == (0, 5), "as the first version itself wrote it"


def test_ranges_that_the_first_version_lost_are_known_and_found_again(before_columns: Warehouse) -> None:
    known = lost.known(before_columns, "y")
    of_log, of_queue = lost.Range(10, 20), lost.Range(10, 20, "T", 3, NOW * 1000)
    assert known.all == [of_queue, of_log], "in the order of their topics"
    known.found(of_log, "it can be read now")
    known.add(lost.Range(30, 40, "T", 3, NOW * 1000), "hole", "deleted")
    known.add(of_queue._replace(until=None), "hole", "nobody knows how old")
    told = Summary("land")
    lost.record(before_columns, known, NOW * 1000, told)
    assert told.extra["rejected"] == {"RANGE.FOUND_RANGE": 1, "RANGE.LOST_RANGE": 2}
    in_order = [of_queue._replace(until=None), of_queue, lost.Range(30, 40, "T", 3, NOW * 1000)]
    assert lost.known(before_columns, "y").all == in_order
    [row] = read_rejected(before_columns).where(f"reason = '{lost.FOUND}'").collect()
    assert (row["range_from"], row["range_to"], row["range_topic"]) == (10, 20, COMMIT_LOG)
    assert row["detail"] == "commitlog from 10 to 20: it can be read now (repaired)"


@pytest.fixture
def grown() -> Iterator[None]:
    """Tomorrow's schemas."""
    texts = schema._texts()
    new = {name: yaml.safe_load(texts[name]) for name in GROWN}
    for spec in new.values():
        spec["columns"].append(NEW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "_texts", lambda: texts | {name: yaml.safe_dump(spec) for name, spec in new.items()})
        schema.table.cache_clear()
        yield
    schema.table.cache_clear()


@pytest.fixture
def written(warehouse: Warehouse) -> Warehouse:
    one_of_each(warehouse)
    warehouse.make(*GROWN)
    warehouse.append_rows_once("topics_index", [ROW], "test", 1)
    return warehouse


def test_new_columns(written: Warehouse, grown: None) -> None:
    """A table that Spark writes and one that Delta Kernel writes get them; both are read at an older version, too."""
    later = Warehouse(written.spark, written.root)
    later.make("half_messages")
    field = later.spark.read.format("delta").load(later.path("half_messages")).schema["came_later"]
    assert (field.dataType, field.metadata["comment"]) == (StringType(), NEW["comment"])
    assert {row["came_later"] for row in later.read("half_messages", 1).collect()} == {None}
    later.append_rows_once("topics_index", [ROW | {"came_later": "now", "run_id": 2}], "test", 2)
    assert {row["run_id"]: row["came_later"] for row in later.rows("topics_index")} == {1: None, 2: "now"}
