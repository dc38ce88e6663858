"""`land files`: checks all rows first, then commits in an order in which a killed landing can be started again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.frame.errors import InputRefused
from halfop.frame.nearest import did_you_mean
from halfop.frame.summary import Summary
from halfop.landing import progress
from halfop.landing.columns.fields import NEAR, known_names
from halfop.landing.columns.halves import completed
from halfop.landing.columns.op_items import items
from halfop.landing.files import landed_files
from halfop.landing.files.check import Checked, check, refuse_bad
from halfop.landing.files.rows import Rows
from halfop.landing.files.sources import InputFile, InputFiles, are_few
from halfop.landing.identity import reused_queues
from halfop.landing.instant import next_instant
from halfop.landing.queues import Queue
from halfop.landing.tables import TABLES
from halfop.warehouse.lock import hold, hold_rejected
from halfop.warehouse.rejected import in_form
from halfop.warehouse.tables import Warehouse


@dataclass(frozen=True)
class FilesRequest:
    """The options of `land files`."""

    halves: Sequence[str] = ()
    ops: Sequence[str] = ()
    known_until: datetime | None = None
    skip_bad: bool = False
    wait: timedelta = timedelta(0)


@dataclass(frozen=True)
class _Part:
    """All new files of one kind, read and checked."""

    rows: Rows
    checked: Checked


def land_files(warehouse: Warehouse, request: FilesRequest, log: logging.Logger) -> Summary:
    """Lands files, each once. Nothing is written before all of them are checked; InputRefused names what was found."""
    summary = Summary("land")
    with summary.phase("find"):
        files = _find(warehouse, request)
    small = warehouse.for_few_rows() if warehouse.past_spark and are_few(files) else nullcontext()
    with hold(warehouse, "landing", request.wait), small:
        _Landing(warehouse, request, log, summary).land(files)
    return summary


def _find(warehouse: Warehouse, request: FilesRequest) -> list[InputFile]:
    found = InputFiles(warehouse.spark)
    files = found.find("half", request.halves) + found.find("op", request.ops)
    both = {f.uri for f in files if f.kind == "half"} & {f.uri for f in files if f.kind == "op"}
    if both:
        raise InputRefused(min(both), None, "named by --half and by --op", "a file holds half rows or op rows")
    return found.hashed(files)


class _Landing:
    def __init__(self, warehouse: Warehouse, request: FilesRequest, log: logging.Logger, summary: Summary) -> None:
        self._warehouse, self._request, self._log, self._summary = warehouse, request, log, summary

    def land(self, files: Sequence[InputFile]) -> None:
        known_files = landed_files.already_landed(self._warehouse, files)
        old = [f for f in files if f in known_files]
        new = [f for f in files if f not in known_files]
        for file in old:
            self._log.debug("skipped, it has landed: %s", file.shown)
        with self._summary.phase("check"):
            parts = self._parts(new)
            self._refuse(parts)
            made = self._progress(parts, old)
        landed_at = next_instant(self._warehouse)
        self._write(parts, made, landed_at)
        with self._summary.phase("record"):
            self._record(new, parts, landed_at)
        self._summarize(new, old, parts, made)

    # ---- what is there ----

    def _parts(self, files: Iterable[InputFile]) -> list[_Part]:
        by_kind = {kind: [f for f in files if f.kind == kind] for kind in TABLES}
        rows = [Rows(self._warehouse.spark, kind, of_kind) for kind, of_kind in by_kind.items() if of_kind]
        return [_Part(each, checked) for each, checked in zip(rows, check(rows), strict=True)]

    def _refuse(self, parts: Sequence[_Part]) -> None:
        for part in parts:
            self._warn_of_unknown(part.checked)
        for part in () if self._request.skip_bad else parts:
            refuse_bad(part.rows, part.checked)
        reused = reused_queues(self._warehouse, {queue for part in parts for queue in part.checked.spans})
        if reused:
            named = ", ".join(f"{q.broker_name}/{q.queue_id}" for q in reused)
            problem = "KEY_REUSED: the broker was rebuilt under its old name"
            raise InputRefused(named, None, problem, "give it a new broker name; nothing has landed")

    def _warn_of_unknown(self, checked: Checked) -> None:
        for name in sorted(checked.unknown):
            meant = did_you_mean(name, known_names(checked.kind), NEAR)
            self._warn(f"column {name} of {checked.kind} rows is unknown and not landed{meant}")

    def _progress(self, parts: Sequence[_Part], old: Sequence[InputFile]) -> progress.QueueProgress:
        spans = {part.checked.kind: part.checked.spans for part in parts}
        halves, ops, known = spans.get("half", {}), spans.get("op", {}), self._request.known_until
        if known is None:
            return progress.QueueProgress(halves, ops, progress.known_by_ops(halves, ops))
        queues = {*halves, *ops, *self._queues_of(old)}
        return progress.QueueProgress(halves, ops, dict.fromkeys(queues or self._all_queues(), progress.micros(known)))

    def _queues_of(self, old: Iterable[InputFile]) -> set[Queue]:
        """The queues of files that have landed: a landing that is started again gives --known-until for them too."""
        return {queue for part in self._parts(old) for queue in part.checked.spans}

    def _all_queues(self) -> set[Queue]:
        return {Queue(broker, queue) for broker, _, queue in progress.queues(self._warehouse)}

    # ---- the commits, in their order ----

    def _write(self, parts: Sequence[_Part], made: progress.QueueProgress, landed_at: int) -> None:
        warehouse, summary = self._warehouse, self._summary
        with summary.phase("progress"):
            progress.add_missing(warehouse, progress.rows_before(made, landed_at))
        for part in parts:
            kind = part.checked.kind
            with summary.phase(kind):
                if part.checked.spans:
                    _append(warehouse, TABLES[kind], _table_rows(part, landed_at))
        with summary.phase("progress"):
            if made.queues:
                progress.move(warehouse, progress.rows_after(made, landed_at))

    def _record(self, new: Sequence[InputFile], parts: Sequence[_Part], landed_at: int) -> None:
        for part in parts:
            if part.checked.bad.total():
                with hold_rejected(self._warehouse):
                    self._reject(_rejected(part.rows, landed_at))
        if new:
            landed_files.record(self._warehouse, new, [part.checked for part in parts], landed_at)

    def _reject(self, rows: DataFrame) -> None:
        """Rejects each row once: a landing that was killed before it was recorded may have written them."""
        written = self._warehouse.read("rejected").where(F.col("kind") == "INPUT").select("reason", "detail")
        _append(self._warehouse, "rejected", rows.join(written, ["reason", "detail"], "left_anti"))

    # ---- the summary ----

    def _summarize(
        self, new: Sequence[InputFile], old: Sequence[InputFile], parts: Iterable[_Part], made: progress.QueueProgress
    ) -> None:
        known = progress.known_until(self._warehouse, made.queues)
        self._warn_of_future(known)
        checked = {TABLES[part.checked.kind]: part.checked for part in parts}
        bad = sum(each.bad.total() for each in checked.values())
        self._summary.rows_read = {name: each.read for name, each in checked.items()}
        written = {name: each.good.total() for name, each in checked.items()}
        self._summary.rows_written = written | ({"rejected": bad} if bad else {})
        self._summary.extra = {
            "files_landed": len(new),
            "files_skipped": len(old),
            "bad_rows": bad,
            "known_until": progress.summary_of(known),
        }

    def _warn_of_future(self, known: Iterable[int | None]) -> None:
        newest = progress.instant(max((k for k in known if k is not None), default=None))
        if newest is not None and newest > datetime.now(timezone.utc):
            self._warn(f"known until {newest.isoformat()}: that lies in the future")

    def _warn(self, text: str) -> None:
        self._log.warning(text)
        self._summary.notes.append(text)


def _append(warehouse: Warehouse, name: str, rows: DataFrame) -> None:
    warehouse.make(name)
    warehouse.append(name, rows)


def _table_rows(part: _Part, landed_at: int) -> DataFrame:
    rows = part.rows.frame.where(F.col("problem").isNull()) if part.checked.bad.total() else part.rows.frame
    made = completed(rows) if part.checked.kind == "half" else items(rows).withColumn("source", F.lit("FILES"))
    return made.withColumn("landed_at", F.timestamp_micros(F.lit(landed_at)))


def _rejected(rows: Rows, landed_at: int) -> DataFrame:
    path = F.url_decode(F.replace(F.regexp_replace("file", r"\Afile:/+", "/"), F.lit("+"), F.lit("%2B")))
    where = F.concat_ws(":", path, F.col("line").cast("string"))
    bad = rows.bad().select(
        F.lit("INPUT").alias("kind"),
        F.col("problem.reason").alias("reason"),
        *("broker_name", "queue_id", "queue_offset"),
        *(["item", "half_offset"] if rows.kind == "op" else [F.col("queue_offset").alias("half_offset")]),
        F.concat_ws(": ", where, "problem.detail").alias("detail"),
        F.timestamp_micros(F.lit(landed_at)).alias("rejected_at"),
    )
    return in_form(bad)
