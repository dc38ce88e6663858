"""The model's rows in a warehouse and back: what has landed, one run over it, and what the run wrote."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

import pyarrow as pa
from halfop.frame.summary import Summary
from halfop.rocketmq.names import topics_of
from halfop.runs.reconcile import Request, reconcile
from halfop.settings import model as s
from halfop.settings.topics import TopicSettings
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.schema import table
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import equal
from model import reference as m
from model.strategies import op_columns, properties
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from support.warehouses import LANDED, with_tables

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Cells = tuple[Any, ...]
Layout = Literal["per_topic", "single"]
_NONE = (None, None)


def millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def instant(number: int) -> datetime:
    return EPOCH + millis(number)


# ---- what lands ----


def land(
    warehouse: Warehouse,
    halves: Iterable[m.Half],
    ops: Iterable[m.Op],
    at: int,
    known_until: Mapping[m.Queue, int | None] | None = None,
    *,
    finals: Iterable[m.Final] = (),
    discards: Iterable[m.BrokerDiscard] = (),
    sources: Mapping[str, str] | None = None,
    forgets_after: Mapping[m.Queue, int] | None = None,
) -> None:
    """One landing, as the land jobs leave it. A queue that is not in `known_until` gets no landing_progress row."""
    halves, ops, known = list(halves), list(ops), known_until or {}
    with_tables(warehouse, *LANDED)
    _append_new(warehouse, "final_messages", [final_cells(final, at) for final in finals])
    _append_new(warehouse, "broker_discards", [discard_cells(discard, at) for discard in discards])
    append(warehouse, "half_messages", [half_cells(half, at) for half in halves])
    append(warehouse, "op_messages", [op_cells(op, at) for op in ops])
    append(warehouse, PROGRESS, progress_cells(halves, at, known, sources or {}, forgets_after or {}))


def progress_cells(
    halves: Iterable[m.Half],
    at: int,
    known_until: Mapping[m.Queue, int | None],
    sources: Mapping[str, str],
    forgets_after: Mapping[m.Queue, int],
) -> list[dict[str, Any]]:
    """The rows of landing_progress with which a landing ends."""
    of_halves = spans(halves)
    forgets = {queue: after * 1000 for queue, after in forgets_after.items()}
    progress = [
        (broker, topic, queue, *span, until, at, sources.get(broker, "FILES"), forgets.get((broker, queue)))
        for (broker, queue), until in known_until.items()
        for topic, span in zip(topics_of(queue), (of_halves.get((broker, queue), _NONE), _NONE), strict=True)
    ]
    names = ["broker_name", "topic", "queue_id", "first_offset", "next_offset", "known_until", "landed_at", "source"]
    names += ["forgets_after"]
    return [dict(zip(names, cells, strict=True)) for cells in progress]


def op_cells(op: m.Op, landed_at: int) -> dict[str, Any]:
    return op_columns(op) | {"source": op.source, "life": op.life or None, "landed_at": landed_at}


def final_cells(final: m.Final, landed_at: int) -> dict[str, Any]:
    return {
        "broker_name": final.broker,
        "prepared_transaction_offset": final.prepared_transaction_offset,
        "topic": final.topic,
        "queue_id": final.queue,
        "queue_offset": final.offset,
        "uniq_key": final.uniq_key,
        "store_timestamp": final.store,
        "landed_at": landed_at,
    }


def discard_cells(discard: m.BrokerDiscard, landed_at: int) -> dict[str, Any]:
    return {
        "broker_name": discard.broker,
        "queue_id": discard.queue,
        "queue_offset": discard.offset,
        "uniq_key": discard.uniq_key,
        "producer_group": discard.group,
        "born_timestamp": discard.born,
        "check_times": discard.check_times,
        "store_timestamp": discard.store,
        "landed_at": landed_at,
    }


def deliver(
    warehouse: Warehouse, questions: Iterable[tuple[int, m.Key]], at: int, outcome: str = "SENT", often: int = 1
) -> None:
    """What a gateway says of questions, each named by its run and half key."""
    asked = {
        (row["run_id"], (row["broker_name"], row["half_queue_id"], row["tran_state_table_offset"])): row
        for row in warehouse.rows("check_requests")
    }
    found = [asked[question] for question in questions]
    named = [{c: row[c] for c in ("request_id", "broker_name", "producer_group")} for row in found]
    append(warehouse, "check_deliveries", [row | {"outcome": outcome, "at": at} for row in named] * often)


def _append_new(warehouse: Warehouse, name: str, rows: list[dict[str, Any]]) -> None:
    """To a table that only real brokers fill."""
    if rows:
        with_tables(warehouse, name)
        append(warehouse, name, rows)


def resume(warehouse: Warehouse, keys: Iterable[m.Key], at: int) -> None:
    with_tables(warehouse, *LANDED)
    append(warehouse, "resumes", [resume_cells(key, at) for key in keys])


def resume_cells(key: m.Key, at: int) -> dict[str, Any]:
    names = ["broker_name", "queue_id", "queue_offset"]
    return dict(zip(names, key, strict=True)) | {"resumed_at": at, "owner": "tests"}


def append(warehouse: Warehouse, name: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        with warehouse.for_few_rows():
            warehouse.commit(name, frame(warehouse, name, rows))


def frame(warehouse: Warehouse, name: str, rows: list[dict[str, Any]]) -> DataFrame:
    """Rows of a table, given as dicts: absent columns are null, instants are epoch milliseconds."""
    given = set(table(name).given)
    struct = StructType([field for field in table(name).struct if field.name in given])
    return in_memory(warehouse.spark, struct, rows)


def in_memory(spark: SparkSession, struct: StructType, rows: list[dict[str, Any]]) -> DataFrame:
    """The same with the columns of a schema; the rows are in memory."""
    instants = [f.name for f in struct if isinstance(f.dataType, TimestampType)]
    cells = [row | {name: row[name] * 1000 for name in instants if row.get(name) is not None} for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(cells, schema=arrow_schema(struct)))


def half_cells(half: m.Half, landed_at: int) -> dict[str, Any]:
    return {
        "broker_name": half.broker,
        "queue_id": half.queue,
        "queue_offset": half.offset,
        "commit_log_offset": half.commit_log_offset,
        "offset_msg_id": f"{half.commit_log_offset:032X}",
        "uniq_key": half.uniq_key,
        "producer_group": half.group,
        "real_topic": half.real_topic,
        "real_queue_id": m.small_number(half.real_qid),
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": half.born,
        "born_host": "127.0.0.1:1",
        "store_timestamp": half.store,
        "store_host": "127.0.0.1:2",
        "reconsume_times": 0,
        "body": bytearray(half.body),
        "properties": properties(half),
        "landed_at": landed_at,
    }


def spans(halves: Iterable[m.Half]) -> dict[m.Queue, tuple[int, int]]:
    """The first and the next offset of each half queue."""
    offsets: dict[m.Queue, list[int]] = defaultdict(list)
    for half in halves:
        offsets[half.broker, half.queue].append(half.offset)
    return {queue: (min(of), min(max(of) + 1, m.LONG_MAX)) for queue, of in offsets.items()}


# ---- a run ----


def settings(rules: m.Settings, layout: Layout = "single") -> s.Settings:
    """`single`, one table for all real topics, is the fewest commits a run."""
    return s.Settings(
        rules=s.RuleSettings(
            transaction_timeout=millis(rules.transaction_timeout),
            transaction_check_max=rules.check_max,
            transaction_check_interval=millis(rules.check_interval),
            file_reserved_time=millis(rules.file_reserved_time),
            ask=rules.ask,
            watch_for=millis(rules.watch_for),
            checks_a_run=rules.checks_a_run,
            count=rules.count,
            groups={name: _group(given) for name, given in rules.groups.items()},
            topics={name: s.RuleOverride(**_override(given)) for name, given in rules.topics.items()},
        ),
        topics=TopicSettings(layout=layout),
    )


def _group(given: m.Override) -> s.GroupOverride:
    own = {} if given.checks_a_run == "unset" else {"checks_a_run": given.checks_a_run}
    return s.GroupOverride.model_validate(_override(given) | own)


def _override(given: m.Override) -> dict[str, Any]:
    timeout = None if given.transaction_timeout is None else millis(given.transaction_timeout)
    return {"transaction_timeout": timeout, "transaction_check_max": given.check_max}


def run(
    warehouse: Warehouse, rules: m.Settings, now: int, max_rows: int | None = None, layout: Layout = "single"
) -> Summary:
    summary = reconcile(warehouse, Request(settings(rules, layout), instant(now), max_rows, allow_future=True))
    assert summary.status == 0, summary
    return summary


# ---- what runs wrote ----


def decisions(warehouse: Warehouse, run_id: int) -> list[m.Decision]:
    """The rows of one run, EARLY_OP as the model words it."""
    return as_decisions(collected(warehouse.read("decisions", where=equal("run_id", run_id))), run_id)


def as_decisions(rows: Iterable[Row | dict[str, Any]], run_id: int) -> list[m.Decision]:
    """Returns decision rows as the model words them, in the order of their keys."""
    return sorted(
        (
            m.Decision(
                run_id,
                _key(row),
                row["decision"],
                row["reason"],
                row["check_times"] or 0,
                row["last_checked_at"],
                row["op_queue_offset"],
                row["superseded_by"],
            )
            for row in rows
        ),
        key=lambda decision: (decision.key, decision.op_offset or 0),
    )


def delivered(warehouse: Warehouse) -> Counter[m.Delivered]:
    return Counter(
        m.Delivered(
            row["run_id"],
            (row["broker_name"], row["half_queue_id"], row["half_queue_offset"]),
            row["topic"],
            row["queue_id"],
            bytes(row["body"]),
            row["transaction_id"],
            row["prepared_transaction_offset"],
            row["born_timestamp"],
            row["store_timestamp"],
            row["op_queue_offset"],
        )
        for row in collected(warehouse.read("real_topics"))
    )


def discards(warehouse: Warehouse) -> Counter[m.Discarded]:
    rows = collected(warehouse.read("trans_check_max_time"))
    return Counter(m.Discarded(row["run_id"], _key(row), row["reason"], row["check_times"]) for row in rows)


def requests(warehouse: Warehouse) -> Counter[m.CheckRequest]:
    return Counter(
        m.CheckRequest(
            row["run_id"],
            (row["broker_name"], row["half_queue_id"], row["tran_state_table_offset"]),
            row["producer_group"],
            row["real_topic"],
            row["real_queue_id"],
            row["uniq_key"],
            row["commit_log_offset"],
            row["check_times"],
        )
        for row in collected(warehouse.read("check_requests"))
    )


REJECTED = ["kind", "reason", "broker_name", "queue_id", "queue_offset", "item", "half_offset"]


def rejected(warehouse: Warehouse) -> Counter[Cells]:
    """(kind, reason, broker, queue, offset, item, half offset), and how many rows say so."""
    return Counter(tuple(row[name] for name in REJECTED) for row in collected(warehouse.read("rejected")))


def _key(row: Row | dict[str, Any]) -> m.Key:
    return row["broker_name"], row["queue_id"], row["queue_offset"]


def collected(rows: DataFrame) -> list[Row]:
    """Returns the rows with their instants as epoch milliseconds."""
    instants = [f.name for f in rows.schema if f.dataType.typeName() == "timestamp"]
    return rows.withColumns({name: F.unix_millis(name) for name in instants}).collect()
