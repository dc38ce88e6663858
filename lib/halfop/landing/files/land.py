"""`land files`: checks all rows first, then commits in an order in which a killed landing can be started again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.lives import Life, all_lives
from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary
from halfop.landing import progress
from halfop.landing.again import Again
from halfop.landing.files import landed_files, rewound
from halfop.landing.files.check import Checked, checked, first_lines, refuse_bad, rejects
from halfop.landing.files.on_server import ServerFiles
from halfop.landing.files.own_life import LandingContext
from halfop.landing.files.sources import InputFile, InputFiles, are_few, complete, known_by_ops
from halfop.landing.files.taking import SOURCE, Taking, take
from halfop.landing.identity import reused_queues
from halfop.landing.progress import Queue, next_instant
from halfop.landing.rewind import HINT
from halfop.landing.staged import remove_left
from halfop.landing.table_rows import TABLES
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.lock import hold, hold_rejected
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.schema import REJECTED, completed
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import equal
from halfop.wording import warn_of

_BAD_ROW = ["reason", "detail", "sha256"]
_CORRECTED_FIRST = "--accept-rewind finds by all rows where a life begins: correct these or leave them out"


@dataclass(frozen=True)
class FilesRequest:
    """The options of `land files`."""

    halves: Sequence[str] = ()
    ops: Sequence[str] = ()
    known_until: datetime | None = None
    skip_bad: bool = False
    wait: timedelta = timedelta(0)
    accept_rewind: bool = False
    again: tuple[Again, ...] = ()


def land_files(warehouse: Warehouse, request: FilesRequest, log: logging.Logger) -> Summary:
    """Lands files, each once. Nothing is written before all of them are checked; InputRefused names what was found."""
    summary = Summary("land")
    with summary.shown_in_failure():
        with summary.phase("find"):
            files = _find(warehouse, request)
        small = warehouse.for_few_rows() if are_few(files) else nullcontext()
        with hold(warehouse, "landing", request.wait), small:
            _Landing(warehouse, request, log, summary).land(files)
    return summary


def _find(warehouse: Warehouse, request: FilesRequest) -> list[InputFile]:
    found = ServerFiles(warehouse) if isinstance(warehouse, SparkWarehouse) else InputFiles(warehouse.spark)
    files = found.find("half", request.halves) + found.find("op", request.ops)
    both = {f.uri for f in files if f.kind == "half"} & {f.uri for f in files if f.kind == "op"}
    if both:
        raise InputRefused(min(both), None, "named by --half and by --op", "a file holds half rows or op rows")
    return found.hashed(files)


class _Landing:
    def __init__(self, warehouse: Warehouse, request: FilesRequest, log: logging.Logger, summary: Summary) -> None:
        self._warehouse, self._request, self._log, self._summary = warehouse, request, log, summary

    def land(self, files: Sequence[InputFile]) -> None:
        remove_left(self._warehouse)
        landed_at = next_instant(self._warehouse)
        known_files = landed_files.already_landed(self._warehouse, files)
        if self._request.accept_rewind:
            self._accept(files, known_files, landed_at)
            known_files = {file: at for file, at in known_files.items() if not self._lands_again(file, at, landed_at)}
        old = [] if self._request.again else [f for f in files if f in known_files]
        new = [f for f in files if f not in old]
        for file in old:
            self._log.debug("skipped, it has landed: %s", file.shown)
        self._stamp = self._stamped(landed_at)
        with self._summary.phase("check"):
            taken = take(self._warehouse, new, self._stamp)
        with closing(taken):
            with self._summary.phase("check"):
                kinds = checked(taken.found)
                self._count_read(old, kinds)
                self._refuse(kinds, taken)
                self._refuse_absent(taken)
                made = self._progress(kinds, old)
            made = self._write(kinds, taken, made, landed_at)
            with self._summary.phase("record"):
                self._record(new, kinds, taken, landed_at)
        self._summarize(made)

    def _stamped(self, landed_at: int) -> LandingContext:
        lives = {each.broker_name: each for each in all_lives(progress_rows(self._warehouse))}
        return LandingContext(landed_at, lives, self._request.again)

    def _accept(self, files: Sequence[InputFile], landed: Collection[InputFile], landed_at: int) -> None:
        """Begins new lives of brokers whose rows differ from what has landed.

        A bad row may be the first that differs: it would be of the old life when it lands, corrected, so it is refused.
        """
        context = self._stamped(landed_at)
        parts = [[f for f in files if (f in landed) == is_old] for is_old in (False, True)]
        with (
            closing(take(self._warehouse, parts[0], context)) as new,
            closing(take(self._warehouse, parts[1], context)) as old,
        ):
            kinds = checked([*new.found, *old.found])
            self._count_read((), kinds)
            for each in kinds:
                refuse_bad(each.kind, [*new.found, *old.found], _CORRECTED_FIRST)
            accepted = rewound.accept(self._warehouse, new, old, landed_at)
        for name, differs in accepted.items():
            begin = "the first row that differs" if differs else "the end of what has landed"
            self._warn(f"--accept-rewind: from {begin} on, rows land under {name}")
        if not accepted:
            self._warn("--accept-rewind: nothing differs from what has landed; nothing was to be accepted")

    def _lands_again(self, file: InputFile, landed: int, landed_at: int) -> bool:
        """Returns whether a file landed with reused keys, before the lives of these rows had begun."""
        context = self._stamped(landed_at)
        lives = [life.name for each in context.lives.values() for life in each.later if _begun(life) > landed]
        if not lives:
            return False
        with closing(take(self._warehouse, [file], context)) as taken:
            return rewound.lands_again(self._warehouse, taken, lives)

    # ---- what is there ----

    def _refuse(self, kinds: Sequence[Checked], taken: Taking) -> None:
        for each in kinds:
            for doubt in each.doubts():
                self._warn(doubt)
        for each in () if self._request.skip_bad else kinds:
            refuse_bad(each.kind, taken.found)
        ended = {name for lives in self._stamp.lives.values() for name in lives.names[:-1]}
        queues = {queue for each in kinds for queue in each.spans if queue.broker_name not in ended}
        reused = reused_queues(self._warehouse, queues)
        if reused:
            named = ", ".join(f"{q.broker_name}/{q.queue_id}" for q in reused)
            problem = "KEY_REUSED: the broker was rebuilt under its old name"
            raise InputRefused(named, None, problem, f"{HINT}; nothing has landed")

    def _refuse_absent(self, taken: Taking) -> None:
        """Raises InputRefused for a range of --again that the files do not have."""
        there = {each for found in taken.found for each in found.ranges}
        for each in self._request.again:
            if each not in there:
                named = f"--again {each}"
                raise InputRefused(named, None, "the files have no row in that range; nothing has landed")

    def _progress(self, kinds: Sequence[Checked], old: Sequence[InputFile]) -> progress.QueueProgress:
        """Returns the progress before anything is written; without --known-until, no time passes yet."""
        spans = {each.kind: each.spans for each in kinds}
        halves, ops, known = spans.get("half", {}), spans.get("op", {}), self._request.known_until
        if known is None:
            return progress.QueueProgress(halves, ops, dict.fromkeys({*halves, *ops}))
        queues = {*halves, *ops, *self._queues_of(old)} or self._all_of_files()
        if not queues:
            self._warn("--known-until moves no queue: the files are empty, and none has landed from files")
        return progress.QueueProgress(halves, ops, dict.fromkeys(queues, progress.micros(known)))

    def _known(self, made: progress.QueueProgress) -> progress.QueueProgress:
        """Returns the progress when all has been written."""
        found = complete(self._warehouse, made.queues, made.ops, self._stamp.lives)
        made = replace(made, complete=found)
        if self._request.known_until is not None:
            return replace(made, known_until=self._of_all_lives(made.known_until))
        for queue, each in sorted(found.items()):
            if each.highest is not None:
                self._warn(
                    f"op {each.next_offset} of {queue.broker_name}/{queue.queue_id} has not landed, but later ones "
                    "have: time passes only up to the op before it. Land it, or give --known-until T if none is missing"
                )
        return replace(made, known_until=self._of_all_lives(known_by_ops(made.halves, found)))

    def _of_all_lives(self, known: Mapping[Queue, int | None]) -> dict[Queue, int | None]:
        """Time that passes for a broker's current life passes for its earlier ones, too."""
        names = {each.current: each.names[:-1] for each in self._stamp.lives.values()}
        earlier = {Queue(name, q.queue_id): at for q, at in known.items() for name in names.get(q.broker_name, ())}
        return {**known, **earlier}

    def _queues_of(self, old: Sequence[InputFile]) -> set[Queue]:
        """The queues of files that have landed: a landing that is started again gives --known-until for them too."""
        with closing(take(self._warehouse, old, self._stamp)) as taken:
            return {queue for each in taken.found for queue in each.spans}

    def _all_of_files(self) -> set[Queue]:
        """The queues that landed from files, or by a user's own pipeline: ops of others land from elsewhere."""
        known = progress.sources(self._warehouse).items()
        return {Queue(broker, queue) for (broker, topic, queue), source in known if _is_of_files(topic, source)}

    # ---- the commits, in their order ----

    def _write(
        self, kinds: Sequence[Checked], taken: Taking, made: progress.QueueProgress, landed_at: int
    ) -> progress.QueueProgress:
        warehouse, summary = self._warehouse, self._summary
        with summary.phase("progress"):
            progress.add_missing(warehouse, progress.rows_before(made, landed_at), SOURCE)
        for each in kinds:
            with summary.phase(each.kind):
                if each.spans:
                    warehouse.make(TABLES[each.kind])
                    taken.append(each.kind)
                summary.rows_written[TABLES[each.kind]] = each.good.total()
        with summary.phase("progress"):
            if made.queues:
                made = self._known(made)
                progress.move(warehouse, progress.rows_after(made, landed_at), SOURCE)
        return made

    def _record(self, new: Sequence[InputFile], kinds: Sequence[Checked], taken: Taking, landed_at: int) -> None:
        if bad := sum(each.bad.total() for each in kinds):
            with hold_rejected(self._warehouse):
                self._reject(_rejected(self._warehouse, new, taken, landed_at))
            self._summary.rows_written["rejected"] = bad
            warn_of(self._log, "this landing", self._summary, rejects(taken.found))
        if new and not self._request.again:  # a range is not the file: all else of a new one has yet to land
            landed_files.record(self._warehouse, new, kinds, landed_at)
        if new:
            self._summary.extra["files_landed"] = len(new)

    def _reject(self, rows: DataFrame) -> None:
        """Rejects each row of a file once: a landing that was killed before it was recorded may have written them."""
        self._warehouse.make("rejected")
        written = self._warehouse.read("rejected", where=equal("kind", "INPUT")).select(_BAD_ROW)
        self._warehouse.commit("rejected", rows.join(written, _BAD_ROW, "left_anti"))

    # ---- the summary ----

    def _count_read(self, old: Sequence[InputFile], kinds: Sequence[Checked]) -> None:
        self._summary.rows_read = {TABLES[each.kind]: each.read for each in kinds}
        bad = sum(each.bad.total() for each in kinds)
        self._summary.extra |= {"files_landed": 0, "files_skipped": len(old), "bad_rows": bad}

    def _summarize(self, made: progress.QueueProgress) -> None:
        known = progress.known_until(self._warehouse, made.queues)
        self._warn_of_future(known)
        self._summary.extra["known_until"] = progress.summary_of(known)

    def _warn_of_future(self, known: Iterable[int | None]) -> None:
        newest = progress.instant(max((k for k in known if k is not None), default=None))
        if newest is not None and newest > datetime.now(timezone.utc):
            self._warn(f"known until {newest.isoformat()}: that lies in the future")

    def _warn(self, text: str) -> None:
        self._log.warning(text)
        self._summary.notes.append(text)


def _is_of_files(topic: str | None, source: str | None) -> bool:
    return topic in (*HALF_TOPICS, *OP_TOPICS, None) and source in (None, SOURCE)


def _begun(life: Life) -> int:
    """A life without an instant is older than all that landed."""
    return progress.micros(life.begun_at) if life.begun_at else 0


def _rejected(warehouse: Warehouse, files: Iterable[InputFile], taken: Taking, landed_at: int) -> DataFrame:
    """The bad rows as rows of `rejected`."""
    of = {file.uri: file for file in files}
    places = [(of[uri], at, line) for (uri, at), line in first_lines(taken.found).items() if uri in of]
    first = [(file.uri, at, file.shown, file.sha256, line) for file, at, line in places]
    pieces = warehouse.frame(first, "file STRING, block BIGINT, shown STRING, sha256 STRING, first_line BIGINT")
    line = (F.col("first_line") + F.col("place")).cast("string")
    bad = taken.bad().join(F.broadcast(pieces), ["file", "block"])
    return completed(
        REJECTED,
        bad.select(
            F.lit("INPUT").alias("kind"),
            *("reason", "broker_name", "queue_id", "queue_offset", "item", "half_offset", "sha256"),
            F.concat_ws(": ", F.concat_ws(":", "shown", line), "detail").alias("detail"),
            F.timestamp_micros(F.lit(landed_at)).alias("rejected_at"),
        ),
    )
