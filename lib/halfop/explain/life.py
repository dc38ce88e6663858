"""The life of one transaction, looked up in every table by its half keys.

All look-ups carry literal keys in columns whose bounds Delta keeps, so that files which cannot hold them are skipped.
Rows that are the same run after run come back as one row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE, Key, as_key
from halfop.columns.values import millis
from halfop.explain.links import Rows, grouped, key_of, linked
from halfop.explain.questions import deliveries, requests
from halfop.explain.queue_clocks import QueueClocks
from halfop.frame.errors import InputRefused
from halfop.frame.units import exact
from halfop.rocketmq.names import HALF_TOPIC
from halfop.rules.halves import read_copies
from halfop.rules.reasons import Reason
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.schema import REJECTED
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import Where, all_of, any_of, equal, one_of

MOST = 100  # half messages under one UNIQ_KEY
_ROUNDS = 5  # from copy to copy; one or two are usual
_SHOWN_QUEUES = 8
_BY_BROKER = (Reason.BROKER_DISCARDED.name, Reason.LOST_BY_BROKER.name)
# decisions that agree in these are one row
_FOLDED = ["decision", "reason", "check_times", "op_queue_offset", "superseded_by", "copy_offset", "resumed_at"]
_FOLDED += ["superseded_by_broker", "superseded_by_queue", "copy_broker", "copy_queue"]


@dataclass
class Life:
    """One transaction: its half keys, of which the last stands for it, and all rows about it."""

    keys: list[Key]
    halves: Rows = field(default_factory=list)
    decisions: Rows = field(default_factory=list)
    ops: Rows = field(default_factory=list)
    requests: Rows = field(default_factory=list)
    deliveries: Rows = field(default_factory=list)
    rejects: Rows = field(default_factory=list)
    resumes: Rows = field(default_factory=list)
    endings: Rows = field(default_factory=list)
    finals: Rows = field(default_factory=list)
    discards: Rows = field(default_factory=list)
    clocks: dict[int, str] = field(default_factory=dict)  # its queue's clock in runs that left it open or discarded it

    @property
    def last(self) -> Row | None:
        """The decision that stands."""
        own = [row for row in self.decisions if row["decision"] not in ("SUPERSEDED", "EARLY_OP")] or self.decisions
        return max(own, key=lambda row: row["run_upto"], default=None)

    def place(self, key: Key) -> str:
        """The offset of a copy, or its whole key if copies are on several brokers."""
        return str(key.queue_offset) if len({each.broker_name for each in self.keys}) == 1 else str(key)

    @property
    def half(self) -> Row | None:
        """The half message that stands for it."""
        return max(self.halves, key=lambda row: (row["store_timestamp"] or 0, row["queue_offset"]), default=None)


def find(warehouse: Warehouse, wanted: str) -> tuple[list[Life], bool]:
    """Returns the transactions that a half key or UNIQ_KEY names, and whether there are more than `MOST`."""
    key = as_key(wanted)
    found = look_up(warehouse, {key}) if key else []
    if found:
        return found, False
    half_messages = warehouse.read("half_messages", where=equal("uniq_key", wanted))
    rows = half_messages.select(HALF_KEY).distinct().limit(MOST + 1).collect()
    if not rows:
        raise _unknown(warehouse, wanted)
    return look_up(warehouse, {key_of(row) for row in rows[:MOST]}), len(rows) > MOST


def _unknown(warehouse: Warehouse, wanted: str) -> InputRefused:
    """The refusal; it names the half keys that have landed, so that a typing error shows."""
    progress = [row for row in progress_rows(warehouse) if row["topic"] == HALF_TOPIC]
    spans = [
        f"{row['broker_name']}/{row['queue_id']}/{row['first_offset']} to {(row['next_offset'] or 1) - 1}"
        for row in sorted(progress, key=lambda row: (row["broker_name"], row["queue_id"]))[:_SHOWN_QUEUES]
    ]
    landed = f"half messages have landed from {', from '.join(spans)}" if spans else "no half message has landed"
    hint = "give BROKER/QUEUE/OFFSET of the half queue, or the message's UNIQ_KEY (its transaction id) in full; "
    return InputRefused(warehouse.root, None, f"nothing is known of {wanted}", hint + landed)


# ---- looking up ----


def look_up(warehouse: Warehouse, keys: Collection[Key]) -> list[Life]:
    """Returns the transactions that these half messages and their copies belong to; none of an unknown key."""
    decisions, groups = _decided(warehouse, set(keys))
    everything = {key for group in groups for key in group}
    halves = _halves(warehouse, everything)
    ops = _ops(warehouse, everything)
    asked = requests(warehouse, _among(everything, "tran_state_table_offset", "half_queue_id"))
    delivered, resumes = deliveries(warehouse, {row["request_id"] for row in asked}), _resumes(warehouse, everything)
    endings = _endings(warehouse, everything)
    rejects = _rejects(warehouse, everything, ops)
    made, queue_clocks = [Life(group) for group in groups], QueueClocks(warehouse)
    for life in made:
        life.decisions, life.halves, life.ops = (_of(life, rows) for rows in (decisions, halves, ops))
        life.requests, life.resumes, life.endings = (_of(life, rows) for rows in (asked, resumes, endings))
        mine = {row["request_id"] for row in life.requests}
        life.deliveries = [row for row in delivered if row["request_id"] in mine]
        life.rejects = [row for row in rejects if _rejects_about(row, life)]
        life.keys = _standing_last(life)
        life.finals, life.discards = _finals(warehouse, life), _broker_discards(warehouse, life)
        life.clocks = _clocks(queue_clocks, life)
    return [life for life in made if any((life.decisions, life.halves, life.ops, life.rejects, life.resumes))]


def _standing_last(life: Life) -> list[Key]:
    """The keys; of copies on several brokers the one whose decision stands comes last."""
    last = life.last
    if last is None or len({key.broker_name for key in life.keys}) == 1:
        return life.keys
    return sorted(life.keys, key=lambda key: key == key_of(last))


def _clocks(queue_clocks: QueueClocks, life: Life) -> dict[int, str]:
    """The clock by which lines 5 to 11 of the rules decided, in the first and the last run of each row."""
    born = life.half["born_timestamp"] if life.half else None
    runs = {row[name] for row in filter(by_clock, life.decisions) for name in ("run_from", "run_upto")}
    return {run_id: queue_clocks.text(run_id, life.keys[-1], born) for run_id in sorted(runs)}


def by_clock(row: Row) -> bool:
    """Returns whether one of the lines 5 to 11 made this decision: those look at the queue clock."""
    return row["decision"] in ("CHECK", "WAIT", "DISCARD") and row["reason"] not in _BY_BROKER


def _of(life: Life, rows: Rows) -> Rows:
    return [row for row in rows if key_of(row) in life.keys]


def _among(keys: Iterable[Key], offset: str = "queue_offset", queue: str = "queue_id") -> Where:
    """The rows under one of these keys."""
    return any_of(
        [
            all_of(equal("broker_name", key.broker_name), equal(queue, key.queue_id), equal(offset, key.queue_offset))
            for key in sorted(keys)
        ]
    )


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
    about = [F.any_value(c).alias(c) for c in ("uniq_key", "producer_group", "real_topic", "check_immunity")]
    copies = F.array_distinct(F.flatten(F.collect_list("copies")))
    folded = rows.groupBy(*HALF_KEY, *_FOLDED).agg(
        F.count("*").alias("times"),
        F.min("run_id").alias("run_from"),
        F.max("run_id").alias("run_upto"),
        F.unix_millis(F.min("decided_at")).alias("at"),
        F.unix_millis(F.max("decided_at")).alias("until"),
        F.unix_millis(F.max("last_checked_at")).alias("last_checked_at"),
        copies.alias("copies"),
        *about,
    )
    return folded.withColumn("resumed_at", F.unix_millis("resumed_at")).orderBy("run_from", *HALF_KEY).collect()


def _halves(warehouse: Warehouse, keys: Collection[Key]) -> Rows:
    """Equal rows once, with how often they landed."""
    texts = ["uniq_key", "producer_group", "real_topic", "real_queue_id", "born_host", "check_immunity"]
    rows = warehouse.read("half_messages", where=_among(keys))
    same = [*HALF_KEY, "commit_log_offset", *texts, "born_timestamp", "store_timestamp"]
    folded = rows.groupBy(same).agg(
        F.count("*").alias("times"),
        F.unix_millis(F.min("landed_at")).alias("landed_at"),
        F.any_value(F.length("body")).alias("bytes"),
        *[F.any_value(c).alias(c) for c in ("landed_check_times", "landed_wait")],
    )
    return _with_millis(folded, "born_timestamp", "store_timestamp").orderBy(*HALF_KEY, "landed_at").collect()


def _with_millis(rows: DataFrame, *columns: str) -> DataFrame:
    return rows.withColumns({name: F.unix_millis(name) for name in columns})


def _ops(warehouse: Warehouse, keys: Collection[Key]) -> Rows:
    """Ops, under the half keys that they name."""
    rows = warehouse.read("op_messages", where=_among(keys, "half_offset"))
    same = [*QUEUE, "half_offset", "queue_offset", "item", "source", "tag", "outcome", "from_check"]
    equal = rows.groupBy(*same, "producer_group", "born_timestamp", "store_timestamp")
    folded = equal.agg(F.count("*").alias("times"), F.unix_millis(F.min("landed_at")).alias("landed_at"))
    found = _with_millis(folded, "born_timestamp", "store_timestamp").withColumn("op_offset", F.col("queue_offset"))
    return found.withColumn("queue_offset", F.col("half_offset")).orderBy("op_offset", "item").collect()


def _resumes(warehouse: Warehouse, keys: Collection[Key]) -> Rows:
    rows = warehouse.read("resumes", where=_among(keys))
    return rows.select(*HALF_KEY, "owner", millis("resumed_at")).orderBy("resumed_at").collect()


def _endings(warehouse: Warehouse, keys: Collection[Key]) -> Rows:
    rows = warehouse.read("endings", where=_among(keys))
    about = ["plan_id", "kind", "origin", "state", "remark", "by"]
    return rows.select(*HALF_KEY, *about, millis("at")).orderBy("at").collect()


def _rejects(warehouse: Warehouse, keys: Collection[Key], ops: Rows) -> Rows:
    """Rejected halves and resumes under their keys, rejected ops under the ops' own offsets."""
    places = {Key(row["broker_name"], row["queue_id"], row["op_offset"]) for row in ops}
    about = [(("HALF", "RESUME"), keys), (("OP",), places)]
    wanted = [all_of(equal("kind", kind), _among(of_kind)) for kinds, of_kind in about if of_kind for kind in kinds]
    rows = warehouse.read(REJECTED, where=any_of(wanted))
    place = [*HALF_KEY, "item", "half_offset"]
    return rows.select("kind", "reason", *place, "detail", "run_id", millis("rejected_at")).collect()


def _rejects_about(row: Row, life: Life) -> bool:
    if row["kind"] != "OP":
        return key_of(row) in life.keys
    return any(_is_op(row, op) for op in life.ops)


def _is_op(row: Row, op: Row) -> bool:
    """Returns whether a reject is about this item of an op message, which may name many half messages."""
    place = (*(op[c] for c in QUEUE), op["op_offset"], op["item"])
    same_item = tuple(row[c] for c in (*QUEUE, "queue_offset", "item")) == place
    return same_item and row["half_offset"] in (None, op["queue_offset"])


def _finals(warehouse: Warehouse, life: Life) -> Rows:
    """The broker's final messages, by the places of the half messages in its log."""
    logs = {(r["broker_name"], r["commit_log_offset"]) for r in life.halves if r["commit_log_offset"] is not None}
    if not logs:
        return []
    named = [(equal("broker_name", name), equal("prepared_transaction_offset", place)) for name, place in sorted(logs)]
    rows = warehouse.read("final_messages", where=any_of([all_of(*each) for each in named]))
    place = ["topic", "queue_id", "queue_offset", "prepared_transaction_offset"]
    return (
        rows.select(*place, millis("store_timestamp"), millis("landed_at"))
        .distinct()
        .orderBy("store_timestamp")
        .collect()
    )


def _broker_discards(warehouse: Warehouse, life: Life) -> Rows:
    """The broker's discard records: they name no half message, so they are found by its UNIQ_KEY and born time."""
    half = life.half
    if half is None or half["uniq_key"] is None or half["born_timestamp"] is None:
        return []
    brokers = one_of("broker_name", sorted({key.broker_name for key in life.keys}))
    born = equal("born_timestamp", half["born_timestamp"] * 1000)
    rows = warehouse.read("broker_discards", where=all_of(brokers, equal("uniq_key", half["uniq_key"]), born))
    columns: list[str | Column] = ["check_times", millis("store_timestamp"), millis("landed_at")]
    return rows.select(*columns).distinct().orderBy("store_timestamp").collect()


def about(life: Life) -> Mapping[str, str]:
    """Returns what is known of the message itself, by name."""
    row = life.half or life.last
    known = {} if row is None else row.asDict()
    born = known.get("born_timestamp")
    found = {
        "UNIQ_KEY": known.get("uniq_key"),
        "group": known.get("producer_group"),
        "topic": known.get("real_topic"),
        "born": None if born is None else f"{exact(born)} by the producer's clock",
        "from": known.get("born_host"),
        "bytes": None if known.get("bytes") is None else f"{known['bytes']:,}",
        "copies": ", ".join(life.place(key) for key in life.keys) if len(life.keys) > 1 else None,
    }
    return {name: value for name, value in found.items() if value is not None}
