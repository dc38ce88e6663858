"""The tables that a run writes to beside `decisions`, and the rows of those that get whole messages.

Rows are made of Arrow columns, so a worker that reads files, a query of Spark's and this process write the same.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from halfop.planning.digest import Digest
from halfop.planning.run import Run, counts_delivered_at
from halfop.rocketmq import names
from halfop.rocketmq.message import COMPRESSED, FLAGS, decompressed
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.maps import without
from halfop.warehouse.rows import Stage
from halfop.warehouse.schema import REJECTED, TableSpec, comment, directories, table
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS
from halfop.warehouse.tables import Marker, Warehouse
from halfop.warehouse.where import Where

# The columns that each takes from the decision, besides the half message.
PAYLOAD = {"COMMIT": ["op_queue_offset"], "DISCARD": ["check_times", "reason"], "CHECK": ["check_times"]}

_SHARED = ["broker_name", "body", "commit_log_offset", "offset_msg_id", "uniq_key", "producer_group", "real_topic"]
_AS_STORED = ["born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times", "flag"]
_AS_LANDED = [*_AS_STORED, "tags", "keys"]
_PLACE = ["queue_id", "queue_offset", "real_queue_id", "sys_flag", "properties"]
HALF = [*_SHARED, *_AS_LANDED, *_PLACE, "landed_at"]
_KEPT_BACK = pa.array(names.NOT_DELIVERED)
_INSTANT = pa.timestamp("us", tz="UTC")

Columns = Mapping[str, pa.Array]


class About(NamedTuple):
    """The values of a run in its rows; `now` in epoch microseconds. `delivered`: see `Run`, and the rule for others."""

    run_id: int
    now: int
    decompress: bool
    delivered: Mapping[str, bool]
    others_delivered: bool

    @staticmethod
    def of(run: Run) -> About:
        others = counts_delivered_at(run.settings.rules.count)
        return About(run.run_id, run.now_micros, run.settings.topics.decompress, dict(run.delivered), others)

    def counts_later(self, brokers: pa.Array) -> pa.Array:
        """Returns 1 if a question does not count yet, 0 if the decision has counted it."""
        found = [self.delivered.get(broker, self.others_delivered) for broker in brokers.to_pylist()]
        return pa.array(found, pa.bool_()).cast(pa.int32())


def projected(rows: pa.RecordBatch, decision: str, about: About) -> dict[str, pa.Array]:
    """The columns of the table that gets messages decided so, from half messages with what the decision adds."""
    return _PROJECTIONS[decision](dict(zip(rows.schema.names, rows.columns, strict=True)), about)


def projected_each(rows: pa.RecordBatch, kind: pa.StructType, about: About) -> pa.StructArray:
    """The columns for rows of several decisions, in their order; a column that a row's decision lacks is null."""
    decisions = rows["decision"].cast(pa.string())
    parts, places = [], []
    for decision in decisions.unique().to_pylist():
        mine = np.flatnonzero(pc.equal(decisions, decision).to_numpy(zero_copy_only=False))
        of_mine = rows.take(pa.array(mine))
        columns = projected(of_mine, decision, about)
        nulls = {field.name: pa.nulls(len(mine), field.type) for field in kind}
        cells = [(nulls | columns)[field.name].cast(field.type) for field in kind]
        parts.append(pa.StructArray.from_arrays(cells, fields=list(kind)))
        places.append(mine)
    if not parts:
        return pa.array([], kind)
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(order))


# ---- each table's columns ----


def _committed(rows: Columns, about: About) -> dict[str, pa.Array]:
    body, flag = rows["body"], pc.fill_null(rows["sys_flag"], 0)
    if about.decompress:
        body, flag = _decompressed(body, flag)
    flag = pc.bit_wise_and(flag, pa.scalar(~names.TRANSACTION_TYPE_MASK, pa.int32()))
    return _same(rows, "broker_name", *_AS_LANDED, "op_queue_offset") | {
        "body": body,
        "topic": rows["real_topic"],
        "queue_id": rows["real_queue_id"],
        "sys_flag": pc.bit_wise_or(flag, pa.scalar(names.TRANSACTION_COMMIT, pa.int32())),
        "prepared_transaction_offset": rows["commit_log_offset"],
        "transaction_id": rows["uniq_key"],
        "properties": without(rows["properties"], _KEPT_BACK),
        "half_queue_id": rows["queue_id"],
        "half_queue_offset": rows["queue_offset"],
        **_by_run(len(body), about, "committed_at"),
    }


def _discarded(rows: Columns, about: About) -> dict[str, pa.Array]:
    as_landed = _same(rows, *HALF, "reason", "check_times")
    return as_landed | _by_run(len(rows["body"]), about, "discarded_at")


def _requested(rows: Columns, about: About) -> dict[str, pa.Array]:
    has_key = pc.not_equal(pc.fill_null(rows["uniq_key"], ""), "")
    return _same(rows, *_SHARED, *_AS_STORED, "real_queue_id", "sys_flag", "properties") | {
        "check_times": pc.add(rows["check_times"], about.counts_later(rows["broker_name"])),
        "request_id": _request_ids(rows, about.run_id),
        "msg_id": pc.if_else(has_key, rows["uniq_key"], rows["offset_msg_id"]),
        "half_queue_id": rows["queue_id"],
        "tran_state_table_offset": rows["queue_offset"],
        **_by_run(len(rows["body"]), about, "requested_at"),
    }


_PROJECTIONS = {"COMMIT": _committed, "DISCARD": _discarded, "CHECK": _requested}


def _same(rows: Columns, *columns: str) -> dict[str, pa.Array]:
    return {column: rows[column] for column in columns}


def _by_run(number: int, about: About, at: str) -> dict[str, pa.Array]:
    return {
        "run_id": pa.repeat(pa.scalar(about.run_id, pa.int64()), number),
        at: pa.repeat(pa.scalar(about.now, pa.int64()), number).cast(_INSTANT),
    }


def _request_ids(rows: Columns, run_id: int) -> pa.Array:
    """Returns the requests' ids, which are equal however often the run is replayed."""
    keys = zip(*(rows[c].to_pylist() for c in ("broker_name", "queue_id", "queue_offset")), strict=True)
    texts = ("/".join(map(str, (run_id, *key))) for key in keys)
    return pa.array([hashlib.sha256(text.encode()).hexdigest() for text in texts], pa.string())


# ---- cells ----


def _decompressed(bodies: pa.Array, flags: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Bodies and flags without compression; both unchanged if there is none, or if it cannot be undone."""
    undone = [
        decompressed(body.as_py(), flag) if body.is_valid and flag & COMPRESSED else None
        for body, flag in zip(bodies, flags.to_pylist(), strict=True)
    ]
    found = pa.array(undone, pa.binary())
    plain = pc.bit_wise_and(flags, pa.scalar(~FLAGS, pa.int32()))
    return pc.coalesce(found, bodies), pc.if_else(pc.is_valid(found), plain, flags)


# ---- the tables ----


log = logging.getLogger("halfop.reconcile")

SINK_APP = "halfop.sink"
SINK_TABLES = {"COMMIT": "topics", "DISCARD": "trans_check_max_time", "CHECK": "check_requests"}
WHOLE_TABLES = ("real_topics", "trans_check_max_time", "check_requests")
_MANY_NEW = 200
_SECONDS_A_TABLE, _FILES_A_TABLE = 0.03, 3  # on a local disk with two cores: bench/run topics
_COST = (
    "%d new topics: this run makes a table for each, which takes about %d s and %d files on a local disk, and more "
    "time elsewhere. Later runs put all topics into one table if they get topics.layout: single"
)
SINK_NAMES = ("topics/TOPIC", *WHOLE_TABLES, REJECTED)


@dataclass(frozen=True)
class Target:
    """A table that gets the `rows` messages decided so; of committed ones those of one topic, if each has its own."""

    decision: str
    path: str
    spec: TableSpec
    app: str
    rows: int
    topic: str = ""
    is_new: bool = False  # a topic that `topics_index` lacks

    @property
    def name(self) -> str:
        """The name that the summary shows and --park-sink takes."""
        return f"topics/{self.topic}" if self.topic else self.path


def make_sinks(warehouse: Warehouse) -> None:
    """Makes empty tables for readers, and for who asks. If one can't be made, only a run with rows for it fails."""
    for name in ("trans_check_max_time", "check_requests", "check_deliveries"):
        with suppress(*OPERATIONAL_ERRORS):
            warehouse.make(name)
    with suppress(*OPERATIONAL_ERRORS), hold_rejected(warehouse):
        warehouse.make(REJECTED)


def targets(warehouse: Warehouse, run: Run, digest: Digest) -> list[Target]:
    """The tables that get messages of the run."""
    found = _topics(warehouse, run, digest) if "COMMIT" in digest.counts else []
    others = [decision for decision in ("DISCARD", "CHECK") if decision in digest.counts]
    return found + [_whole_table(digest, decision, SINK_TABLES[decision]) for decision in others]


def _whole_table(digest: Digest, decision: str, name: str) -> Target:
    return Target(decision, name, table(name), f"{SINK_APP}.{name}", digest.totals[decision])


def _topics(warehouse: Warehouse, run: Run, digest: Digest) -> list[Target]:
    if run.settings.topics.layout == "single":
        return [_whole_table(digest, "COMMIT", "real_topics")]
    spec, app = table("real_topic"), f"{SINK_APP}.topic"
    known = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    new = directories(digest.topics, known)
    every = known | new
    return [
        Target("COMMIT", f"topics/{every[topic]}", replace(spec, comment=comment(topic)), app, n, topic, topic in new)
        for topic, n in digest.topics.items()
    ]


def index_topics(warehouse: Warehouse, run: Run, new: Sequence[Target]) -> None:
    """Writes the directories of new topics to `topics_index`, before a message goes there."""
    if len(new) >= _MANY_NEW:
        log.warning(_COST, len(new), math.ceil(len(new) * _SECONDS_A_TABLE), len(new) * _FILES_A_TABLE)
    if new:
        about = {"run_id": run.run_id, "created_at": run.now}
        named = sorted((target.topic, target.path.removeprefix("topics/")) for target in new)
        rows = [{"topic": topic, "directory": directory} | about for topic, directory in named]
        warehouse.commit("topics_index", rows, Marker(f"{SINK_APP}.topics_index", run.run_id))


@dataclass(frozen=True)
class WholeMessages:
    """The tables are known by numbers."""

    warehouse: Warehouse
    run: Run
    digest: Digest
    due: Mapping[int, Target]
    stage: Stage  # of the bodies

    def read(self, name: str, version: int | None, where: Where | None) -> DataFrame:
        return self.stage.take(self.warehouse.found(name, version, where).rows)

    @property
    def decisions(self) -> list[str]:
        return sorted({target.decision for target in self.due.values()})

    @property
    def payload(self) -> list[str]:
        """The columns of decisions that go into the tables."""
        return sorted({column for decision in self.decisions for column in PAYLOAD[decision]})

    @property
    def columns(self) -> list[str]:
        """The columns that the tables' rows are made of."""
        return [*HALF, "decision", *self.payload]

    @property
    def rows(self) -> int:
        return sum(self.digest.totals[decision] for decision in self.decisions)

    @property
    def a_table_a_topic(self) -> bool:
        return self.run.settings.topics.layout == "per_topic"

    @property
    def about(self) -> About:
        return About.of(self.run)
