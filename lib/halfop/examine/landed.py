"""Finds what landing tables have lost: ranges and files to land again, and rows of landing_progress."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.frame.summary import Summary
from halfop.landing import lost, progress
from halfop.landing.again import Again, kind_of
from halfop.landing.fields import LONG_MAX
from halfop.landing.files.landed_files import KEY
from halfop.landing.files.landed_files import TABLE as LANDED_FILES
from halfop.landing.files.sources import complete
from halfop.landing.lost import Range
from halfop.landing.progress import OffsetSpan, ProgressRow, Queue, QueueProgress, instant
from halfop.landing.table_rows import TABLES
from halfop.rocketmq.batches import DISCARD, FINAL, HALF, OP
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS
from halfop.warehouse.erasures import erasures
from halfop.warehouse.files import shown_path
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import COMMIT_LOG, progress_rows
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.schema import REJECTED
from halfop.warehouse.tables import NO_TABLE
from halfop.warehouse.upkeep import trimmed_before

_TABLES = {HALF: "half_messages", OP: "op_messages"}
_OF_TABLES = {"final_messages": FINAL, "broker_discards": DISCARD}
FILES = "FILES"
_OF_BROKERS = "source IS DISTINCT FROM 'RESOLVE'"


@dataclass(frozen=True)
class Gap:
    """Offsets that a table lacks though they had landed. Not `sure`: files may never have had them."""

    again: Again
    source: str
    sure: bool

    def __str__(self) -> str:
        unsure = "" if self.sure else ", unless the files never had them"
        return f"{self.again} has to land again ({self.source}){unsure}"


# ---- ranges ----


def gaps(warehouse: KernelWarehouse, damaged: Collection[str]) -> list[Gap]:
    """The ranges that have to land again.

    Half rows of files may have gaps anyway. Those are ranges only if `landed_files`, which has the number of rows of
    each file, is itself among the tables that were `damaged`.
    """
    found = list[Gap]()
    for kind, name in _TABLES.items():
        found += _of_queues(warehouse, kind, name, name in damaged, LANDED_FILES in damaged)
    return found + list(_listed(warehouse))


def _of_queues(warehouse: KernelWarehouse, kind: str, name: str, was_damaged: bool, uncounted: bool) -> Iterator[Gap]:
    topics = HALF_TOPICS if kind == HALF else OP_TOPICS
    rows = [row for row in progress_rows(warehouse) if row["topic"] in topics and row["next_offset"]]
    if not rows or ((version := warehouse.version(name)) == NO_TABLE and not was_damaged):
        return
    rows_there = warehouse.read(name)
    if kind == OP:
        rows_there = rows_there.where(_OF_BROKERS)
    there = rows_there.select(_owner(rows_there).alias("broker_name"), "queue_id", "queue_offset")
    erased = erasures(warehouse, None, name)
    there = (there if erased is None else there.unionByName(erased.select(*there.columns))).distinct()
    trimmed = version != NO_TABLE and trimmed_before(warehouse, version, name) is not None
    may_be_empty = trimmed and not was_damaged
    holes = _holes(there.dropna())
    for row in rows:
        sure = row["source"] != FILES or kind == OP
        queue = row["broker_name"], row["queue_id"]
        if queue not in holes and may_be_empty:
            continue
        for since, upto in _missing(row, holes.get(queue), trimmed):
            if sure or (was_damaged and uncounted) or upto == row["next_offset"]:
                again = Again(row["broker_name"], row["topic"], row["queue_id"], since, upto)
                yield from _without_known(warehouse, again, row["source"] or FILES, sure)


def _owner(rows: DataFrame) -> Column:
    """The name of the life that a row is of itself; an op's half message may be of an earlier one."""
    if "life" not in rows.columns:
        return F.col("broker_name")
    later = F.concat_ws("~", F.regexp_replace("broker_name", "~[0-9]+$", ""), F.col("life").cast("string"))
    return F.when(F.col("life").isNull(), F.col("broker_name")).otherwise(later)


def _holes(there: DataFrame) -> dict[tuple[str, int], tuple[int, int, list[tuple[int, int]]]]:
    """The first offset of each queue, the one after its last, and the ranges that are missing between."""
    queue = ["broker_name", "queue_id"]
    before = F.lag("queue_offset").over(Window.partitionBy(queue).orderBy("queue_offset"))
    gap = F.when(F.col("queue_offset") > F.col("before") + 1, F.struct(F.col("before") + 1, "queue_offset"))
    of_queue = there.withColumn("before", before).groupBy(queue)
    found = of_queue.agg(F.min("queue_offset"), F.max("queue_offset"), F.sort_array(F.collect_list(gap))).collect()
    return {(r[0], r[1]): (r[2], min(r[3] + 1, LONG_MAX), [(each[0], each[1]) for each in r[4]]) for r in found}


def _missing(
    row: Mapping[str, Any], holes: tuple[int, int, list[tuple[int, int]]] | None, trimmed: bool
) -> Iterator[tuple[int, int]]:
    """The ranges of a queue below its next offset that are not there."""
    first, end = row["first_offset"] or 0, row["next_offset"]
    if holes is None:
        yield from [(first, end)] if first < end else []
        return
    low, high, between = holes
    if first < low and not trimmed:
        yield first, min(low, end)
    yield from ((since, min(upto, end)) for since, upto in between if since < end and since >= first)
    if high < end:
        yield max(high, first), end


def _without_known(warehouse: KernelWarehouse, again: Again, source: str, sure: bool) -> Iterator[Gap]:
    """The range without those that are known as lost for good."""
    known = [r for r in lost.known(warehouse, again.broker_name).of_queues if (r.topic, r.queue) == again[1:3]]
    since = again.since
    for gone in sorted(known):
        if gone.since <= since < gone.upto:
            since = gone.upto
    if since < again.upto:
        yield Gap(again._replace(since=since), source, sure)


# ---- final messages and discard records ----

_CODE = "damaged"


def list_lost(warehouse: KernelWarehouse, damaged: Collection[str], at: int, summary: Summary) -> None:
    """Lists what tables of final messages and discards may have lost as lost ranges, so that no outcome follows.

    Their offsets have gaps anyway, so all of a queue may be missing until it has landed again.
    """
    kinds = {kind for name, kind in _OF_TABLES.items() if name in damaged}
    rows = [row for row in progress_rows(warehouse) if row["next_offset"]]
    for name in sorted({row["broker_name"] for row in rows}) if kinds else ():
        ranges = lost.known(warehouse, name)
        for row in rows:
            of_log = row["topic"] == COMMIT_LOG
            if row["broker_name"] == name and (of_log or kind_of(row["topic"]) in kinds):
                since, upto = row["first_offset"] or 0, row["next_offset"]
                ranges.add(Range(since, upto, row["topic"], row["queue_id"], at), _CODE, "its table was damaged")
        lost.record(warehouse, ranges, at, summary)


def _listed(warehouse: KernelWarehouse) -> Iterator[Gap]:
    """Listed ranges as queues to land again; a store's log by its half queue."""
    rows = progress_rows(warehouse)
    damaged = warehouse.read(REJECTED).where(F.col("detail").endswith(f"({_CODE})"))
    listed = {tuple(row) for row in damaged.select("broker_name", "range_topic", "queue_id").distinct().collect()}
    for name in sorted({each[0] for each in listed}):
        known = {(each.topic, each.queue): each for each in lost.known(warehouse, name).all}
        for row in (row for row in rows if row["broker_name"] == name and row["next_offset"]):
            if row["topic"] == COMMIT_LOG:
                continue
            place = (COMMIT_LOG, 0) if row["topic"] in HALF_TOPICS else (row["topic"], row["queue_id"])
            gone = known.get(place)
            if gone is not None and (name, *place) in listed:
                since = row["first_offset"] or 0 if place[0] == COMMIT_LOG else gone.since
                upto = row["next_offset"] if place[0] == COMMIT_LOG else gone.upto
                yield Gap(Again(name, row["topic"], row["queue_id"], since, upto), row["source"] or FILES, True)


# ---- landing_progress ----


def bring_back_progress(warehouse: KernelWarehouse, at: int) -> list[str]:
    """Writes rows of queues whose messages have landed further than landing_progress says; returns the queues.

    Of files the time of the ops up to a gap is known again; a broker's next landing says its own, and until then no
    time passes.
    """
    warehouse.make(PROGRESS)
    known = {(r["broker_name"], r["topic"], r["queue_id"]): r["next_offset"] for r in progress_rows(warehouse)}
    sources, halves, ops = _sources(warehouse), _landed(warehouse, "half_messages"), _landed(warehouse, "op_messages")
    whole = complete(warehouse, [each for each in ops if sources.get(each.broker_name, FILES) == FILES], ops, {})
    every = QueueProgress(halves, ops, {queue: each.newest for queue, each in whole.items()}, whole)
    made: dict[str, list[ProgressRow]] = {}
    for found in progress.rows_after(every, at):
        source = sources.get(found.broker_name, FILES)
        row = found if source == FILES else found._replace(next_offset=None, first_offset=None)
        if row[:3] not in known or (row.next_offset or 0) > (known[row[:3]] or 0):
            made.setdefault(source, []).append(row)
    for source, rows in made.items():
        progress.move(warehouse, rows, source)
    return sorted({f"{row.broker_name}/{row.queue_id}" for rows in made.values() for row in rows})


def _sources(warehouse: KernelWarehouse) -> dict[str, str]:
    """The source of each broker's messages, by landing_progress or else by its ops."""
    ops = warehouse.read("op_messages").where("source IS NOT NULL").groupBy("broker_name").agg(F.max("source"))
    found = {row[0]: row[1] for row in ops.collect() if row[1] != "RESOLVE"}
    return found | {r["broker_name"]: r["source"] for r in progress_rows(warehouse) if r["source"]}


def _landed(warehouse: KernelWarehouse, name: str) -> dict[Queue, OffsetSpan]:
    """The span of each queue, without the answers of `end`."""
    rows = warehouse.read(name).dropna(subset=HALF_KEY)
    rows = rows.where(_OF_BROKERS) if name == _TABLES[OP] else rows
    spans = rows.groupBy("broker_name", "queue_id").agg(F.min("queue_offset"), F.max("queue_offset")).collect()
    return {Queue(*row[:2]): OffsetSpan(row[2], row[3], 0) for row in spans}


# ---- files whose rows a table has lost: marked in landed_files, they land again as if they had not landed ----


_FILE = ("kind", "path")
_CONTENT = ("kind", "size", "sha256")


class LostFile(NamedTuple):
    """A file that has to land again, because its table has lost rows which landed from it, with so many contents."""

    kind: str
    path: str
    contents: int

    @property
    def shown(self) -> str:
        return shown_path(self.path)

    def __str__(self) -> str:
        before = ", with what it held before, too" if self.contents > 1 else ""
        return f"{self.shown} has to land again{before}: {TABLES[self.kind]} has lost rows that had landed from it"


def to_land_again(warehouse: KernelWarehouse) -> list[LostFile]:
    """The files that are marked as lost, and of which nothing has landed since, from whatever path."""
    is_mark = F.col("rows").isNull()
    same = Window.partitionBy(*_CONTENT)
    files = warehouse.read(LANDED_FILES).withColumn("landed", F.max(F.when(~is_mark, F.col("landed_at"))).over(same))
    marked = F.max(F.when(is_mark, F.col("landed_at")))
    found = files.groupBy(*_FILE).agg(marked.alias("marked"), F.max("landed").alias("landed"), _contents())
    return _files(found.where("marked > landed"))


def lost_files(warehouse: KernelWarehouse) -> list[LostFile]:
    """The files whose last landing has fewer rows in its table than it wrote, and that are not marked yet.

    Rows of a landing have its instant, so that rows which another one wrote again do not count.
    """
    return [file for kind in ("half", "op") for file in _lost_of_kind(warehouse, kind)]


def _lost_of_kind(warehouse: KernelWarehouse, kind: str) -> list[LostFile]:
    files = warehouse.read(LANDED_FILES).where(F.col("kind") == kind)
    written = files.groupBy("landed_at").agg(F.sum("rows").alias("written"))
    there = warehouse.read(TABLES[kind]).select("landed_at", F.lit(1).alias("rows"))
    erased = erasures(warehouse, None, TABLES[kind])
    there = there if erased is None else there.unionByName(erased.select("landed_at", "rows"))
    there = there.groupBy("landed_at").agg(F.sum("rows").alias("there"))
    few = written.join(there, "landed_at", "left").where("written > coalesce(there, 0)")
    newest = (F.max("landed_at").alias("landed_at"), F.max_by("rows", "landed_at").alias("rows"))
    contents = _not_trimmed(warehouse, TABLES[kind], files.groupBy(*_CONTENT).agg(*newest).where("rows > 0"))
    short = files.join(contents.join(few, "landed_at", "left_semi"), list(_CONTENT), "left_semi")
    return _files(files.join(short.select(*_FILE).distinct(), list(_FILE)).groupBy(*_FILE).agg(_contents()))


def _contents() -> Column:
    return F.countDistinct("size", "sha256").alias("contents")


def _files(rows: DataFrame) -> list[LostFile]:
    found = rows.select(*LostFile._fields).collect()
    return sorted(LostFile(row["kind"], row["path"], row["contents"]) for row in found)


def _not_trimmed(warehouse: KernelWarehouse, name: str, files: DataFrame) -> DataFrame:
    """Files whose rows no retention has taken out of the table."""
    version = warehouse.version(name)
    before = None if version == NO_TABLE else trimmed_before(warehouse, version, name)
    return files if before is None else files.where(F.unix_micros("landed_at") >= before)


def forget(warehouse: KernelWarehouse, files: Sequence[LostFile], at: int) -> None:
    """Marks files as lost, whatever content they landed with: what is at their paths lands again."""
    if files:
        asked = warehouse.frame([(file.path, file.kind) for file in files], "path STRING, kind STRING")
        known = warehouse.read(LANDED_FILES).join(asked, list(_FILE), "left_semi").select(*KEY).distinct().collect()
        warehouse.commit(LANDED_FILES, [row.asDict() | {"landed_at": instant(at)} for row in known])
