"""Everything that the tables have about a transaction, looked up by its half keys.

All look-ups carry literal keys in columns whose bounds Delta keeps, so that files which cannot hold them are skipped.
Rows that are the same run after run come back as one row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from halfop.columns.copies import grouped, linked
from halfop.columns.keys import HALF_KEY, QUEUE, Key, as_key, key_of, millis
from halfop.explain.life import CONTENT, MessageLife, Rows, by_clock, is_op
from halfop.frame.errors import InputRefused
from halfop.frame.units import duration, exact
from halfop.planning.run import Clock, Run, clocks
from halfop.rocketmq.names import HALF_TOPICS
from halfop.rules.halves import read_copies
from halfop.runs.record import found_run
from halfop.warehouse.erasures import erasures
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.schema import REJECTED
from halfop.warehouse.spark_errors import READ_ERRORS, removed_file
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.upkeep import trimmed_before
from halfop.warehouse.where import Where, all_of, any_of, equal, one_of

MOST = 100  # half messages under one UNIQ_KEY
NO_TIME = "no time has passed for the queue yet"
_NOT_KEPT = "not kept any more"
_ROUNDS = 5  # from copy to copy; one or two are usual
_SHOWN_QUEUES = 8
# decisions that agree in these are one row
_FOLDED = ["decision", "reason", "check_times", "op_queue_offset", "superseded_by", "copy_offset", "resumed_at"]
_FOLDED += ["superseded_by_broker", "superseded_by_queue", "copy_broker", "copy_queue"]


def find(warehouse: Warehouse, wanted: str) -> tuple[list[MessageLife], bool]:
    """Returns the transactions that a half key or UNIQ_KEY names, and whether there are more than `MOST`."""
    key = as_key(wanted)
    found = look_up(warehouse, {key}) if key else []
    if found:
        return found, False
    tables = ["half_messages"]
    if trimmed_before(warehouse, None) is not None or erasures(warehouse) is not None:
        tables.append("decisions")
    named = [warehouse.read(name, where=equal("uniq_key", wanted)).select(HALF_KEY) for name in tables]
    rows = reduce(DataFrame.unionByName, named).distinct().limit(MOST + 1).collect()
    if not rows:
        raise _unknown(warehouse, wanted)
    return look_up(warehouse, {key_of(row) for row in rows[:MOST]}), len(rows) > MOST


def _unknown(warehouse: Warehouse, wanted: str) -> InputRefused:
    """The refusal; it names the half keys that have landed, so that a typing error shows."""
    progress = [row for row in progress_rows(warehouse) if row["topic"] in HALF_TOPICS]
    spans = [
        f"{row['broker_name']}/{row['queue_id']}/{row['first_offset']} to {(row['next_offset'] or 1) - 1}"
        for row in sorted(progress, key=lambda row: (row["broker_name"], row["queue_id"]))[:_SHOWN_QUEUES]
    ]
    landed = f"half messages have landed from {', from '.join(spans)}" if spans else "no half message has landed"
    hint = "give BROKER/QUEUE/OFFSET of the half queue, or the message's UNIQ_KEY (its transaction id) in full; "
    return InputRefused(warehouse.root, None, f"nothing is known of {wanted}", hint + landed)


def look_up(warehouse: Warehouse, keys: Collection[Key]) -> list[MessageLife]:
    """Returns the transactions that these half messages and their copies belong to; none of an unknown key."""
    decisions, groups = _decided(warehouse, set(keys))
    every = {key for group in groups for key in group}
    halves, ops, requests = _halves(warehouse, every), _ops(warehouse, every), _requests(warehouse, every)
    deliveries, rejects = _deliveries(warehouse, requests), _rejects(warehouse, every, ops)
    resumes = _rows(warehouse, "resumes", _among(every), *HALF_KEY, "owner", millis("resumed_at"))
    of_ending = ("plan_id", "kind", "origin", "state", "remark", "by", millis("at"))
    endings = _rows(warehouse, "endings", _among(every), *HALF_KEY, *of_ending)
    of_erasure = ("plan_id", "table_name", "rows", "by", millis("at"))
    erased = _rows(warehouse, "erasures", _among(every), *HALF_KEY, *of_erasure)
    made, queue_clocks = [MessageLife(group) for group in groups], QueueClocks(warehouse)
    for life in made:
        life.decisions, life.halves, life.ops = (_of(life, rows) for rows in (decisions, halves, ops))
        life.requests, life.resumes, life.endings = (_of(life, rows) for rows in (requests, resumes, endings))
        life.erasures = _of(life, erased)
        mine = {row["request_id"] for row in life.requests}
        life.deliveries = [row for row in deliveries if row["request_id"] in mine]
        life.rejects = [row for row in rejects if _is_about(row, life)]
        life.keys = _standing_last(life)
        life.finals, life.discards = _finals(warehouse, life), _broker_discards(warehouse, life)
        life.clocks = _clocks(queue_clocks, life)
    return [life for life in made if any((life.decisions, life.halves, life.ops, life.rejects, life.resumes))]


def _of(life: MessageLife, rows: Rows) -> Rows:
    return [row for row in rows if key_of(row) in life.keys]


def _standing_last(life: MessageLife) -> list[Key]:
    """The keys; of copies on several brokers the one whose decision stands comes last."""
    last = life.last
    if last is None or len({key.broker_name for key in life.keys}) == 1:
        return life.keys
    return sorted(life.keys, key=lambda key: key == key_of(last))


# ---- rows of each table ----


def _among(keys: Iterable[Key], offset: str = "queue_offset", queue: str = "queue_id") -> Where:
    """The rows under one of these keys."""
    return any_of(
        [
            all_of(equal("broker_name", key.broker_name), equal(queue, key.queue_id), equal(offset, key.queue_offset))
            for key in sorted(keys)
        ]
    )


def _rows(warehouse: Warehouse, table: str, where: Where, *columns: Column | str) -> Rows:
    return warehouse.read(table, where=where).select(*columns).collect()


def _decided(warehouse: Warehouse, keys: set[Key]) -> tuple[Rows, list[list[Key]]]:
    """Decisions on these half messages and their copies, and the keys of each transaction."""
    rows: Rows = []
    for _ in range(_ROUNDS):
        rows = _decisions(warehouse, keys)
        found = keys | {copy for row in rows for copy in linked(row)}
        if found == keys:
            break
        keys = found
    return rows, grouped(keys, rows)


def _decisions(warehouse: Warehouse, keys: Collection[Key]) -> Rows:
    """One row for a decision that was the same run after run."""
    rows = warehouse.read("decisions", where=_among(keys)).withColumn("copies", read_copies())
    folded = rows.groupBy(*HALF_KEY, *_FOLDED).agg(
        F.count("*").alias("times"),
        F.min("run_id").alias("run_from"),
        F.max("run_id").alias("run_upto"),
        F.unix_millis(F.min("decided_at")).alias("at"),
        F.unix_millis(F.max("decided_at")).alias("until"),
        F.unix_millis(F.max("last_checked_at")).alias("last_checked_at"),
        F.array_distinct(F.flatten(F.collect_list("copies"))).alias("copies"),
        *[F.max_by(c, "run_id").alias(c) for c in (*CONTENT, "check_immunity")],
    )
    return _with_millis(folded, "resumed_at").orderBy("run_from", *HALF_KEY).collect()


def _with_millis(rows: DataFrame, *columns: str) -> DataFrame:
    return rows.withColumns({name: F.unix_millis(name) for name in columns})


def _once(rows: DataFrame, same: list[str], *more: Column) -> DataFrame:
    """Equal rows once, with how often they landed, and when first."""
    folded = rows.groupBy(*same, "born_timestamp", "store_timestamp").agg(
        F.count("*").alias("times"), F.unix_millis(F.min("landed_at")).alias("landed_at"), *more
    )
    return _with_millis(folded, "born_timestamp", "store_timestamp")


def _halves(warehouse: Warehouse, keys: Collection[Key]) -> Rows:
    texts = ["uniq_key", "producer_group", "real_topic", "real_queue_id", "born_host", "check_immunity"]
    landed = [F.any_value(c).alias(c) for c in ("landed_check_times", "landed_wait")]
    size = F.any_value(F.length("body")).alias("bytes")
    rows = warehouse.read("half_messages", where=_among(keys))
    once = _once(rows, [*HALF_KEY, "commit_log_offset", *texts], size, *landed)
    return once.orderBy(*HALF_KEY, "landed_at").collect()


def _ops(warehouse: Warehouse, keys: Collection[Key]) -> Rows:
    """Ops, under the half keys that they name."""
    same = [*QUEUE, "half_offset", "queue_offset", "item", "source", "tag", "outcome", "from_check", "producer_group"]
    rows = _once(warehouse.read("op_messages", where=_among(keys, "half_offset")), same)
    named = {"op_offset": F.col("queue_offset"), "queue_offset": F.col("half_offset")}
    return rows.withColumns(named).collect()


def _requests(warehouse: Warehouse, keys: Collection[Key]) -> Rows:
    """Questions, under the keys of their half messages."""
    key = [F.col("half_queue_id").alias("queue_id"), F.col("tran_state_table_offset").alias("queue_offset")]
    about = ("request_id", "run_id", "check_times", "producer_group")
    where = _among(keys, "tran_state_table_offset", "half_queue_id")
    return _rows(warehouse, "check_requests", where, "broker_name", *key, *about)


def _deliveries(warehouse: Warehouse, requests: Rows) -> Rows:
    """Deliveries of these questions."""
    if not requests:
        return []
    asked = one_of("request_id", sorted({row["request_id"] for row in requests}))
    about = ("request_id", "outcome", "client", "remark", "answered_after", millis("at"))
    return _rows(warehouse, "check_deliveries", asked, *about)


def _rejects(warehouse: Warehouse, keys: Collection[Key], ops: Rows) -> Rows:
    """Rejected halves and resumes under their keys, rejected ops under the ops' own offsets."""
    places = {Key(row["broker_name"], row["queue_id"], row["op_offset"]) for row in ops}
    about = [(("HALF", "RESUME"), keys), (("OP",), places)]
    wanted = [all_of(equal("kind", kind), _among(of_kind)) for kinds, of_kind in about if of_kind for kind in kinds]
    rows = warehouse.read(REJECTED, where=any_of(wanted))
    place = [*HALF_KEY, "item", "half_offset"]
    return rows.select("kind", "reason", *place, "detail", "run_id", millis("rejected_at")).collect()


def _is_about(reject: Row, life: MessageLife) -> bool:
    if reject["kind"] != "OP":
        return key_of(reject) in life.keys
    return any(is_op(reject, op) for op in life.ops)


def _finals(warehouse: Warehouse, life: MessageLife) -> Rows:
    """The broker's final messages, by the places of the half messages in its log."""
    logs = {(r["broker_name"], r["commit_log_offset"]) for r in life.halves if r["commit_log_offset"] is not None}
    if not logs:
        return []
    named = [all_of(equal("broker_name", name), equal("prepared_transaction_offset", at)) for name, at in sorted(logs)]
    place = ["topic", "queue_id", "queue_offset", "prepared_transaction_offset"]
    rows = warehouse.read("final_messages", where=any_of(named))
    return rows.select(*place, millis("store_timestamp"), millis("landed_at")).distinct().collect()


def _broker_discards(warehouse: Warehouse, life: MessageLife) -> Rows:
    """The broker's discard records: they name no half message, so they are found by its UNIQ_KEY and born time."""
    half = life.half
    if half is None or half["uniq_key"] is None or half["born_timestamp"] is None:
        return []
    brokers = one_of("broker_name", sorted({key.broker_name for key in life.keys}))
    born = equal("born_timestamp", half["born_timestamp"] * 1000)
    rows = warehouse.read("broker_discards", where=all_of(brokers, equal("uniq_key", half["uniq_key"]), born))
    return rows.select("check_times", millis("store_timestamp"), millis("landed_at")).distinct().collect()


# ---- queue clocks ----


@dataclass
class QueueClocks:
    """Queue clocks as runs had them, by the versions that each run had pinned; reads each run once."""

    warehouse: Warehouse
    _pinned: dict[int, tuple[Run, list[Clock]] | None] = field(default_factory=dict)

    def text(self, run_id: int, key: Key, born: int | None) -> str:
        """Returns the clock of the key's queue in a run and the age by it, as the rules of the run had them."""
        if run_id not in self._pinned:
            self._pinned[run_id] = self._read(run_id)
        pinned = self._pinned[run_id]
        if pinned is None:
            return _NOT_KEPT
        run, known = pinned
        clock = queue_clock(known, key, run.now)
        if clock is None:
            return NO_TIME
        at = round(clock.timestamp() * 1000)
        return exact(at) + ("" if born is None else f", age {duration(at - born)}")

    def _read(self, run_id: int) -> tuple[Run, list[Clock]] | None:
        found = found_run(self.warehouse, run_id)
        if found is None:
            return None
        run, _ = found
        try:
            return run, clocks(progress_rows(self.warehouse, run.inputs["landing_progress"]))
        except READ_ERRORS as error:
            if removed_file(error) is None:
                raise
            return None


def queue_clock(known: list[Clock], key: Key, now: datetime) -> datetime | None:
    """Returns the earlier of now and known until; None if no time has passed yet. A queue without a row is known."""
    mine = [clock for clock in known if clock[:2] == key[:2]]
    if not mine:
        return now
    return None if mine[0].known_until is None else min(now, mine[0].known_until)


def _clocks(queue_clocks: QueueClocks, life: MessageLife) -> dict[int, str]:
    """The clock by which lines 5 to 11 of the rules decided, in the first and the last run of each row."""
    born = life.half["born_timestamp"] if life.half else None
    runs = {row[name] for row in filter(by_clock, life.decisions) for name in ("run_from", "run_upto")}
    return {run_id: queue_clocks.text(run_id, life.keys[-1], born) for run_id in sorted(runs)}
