"""The warehouse's tables as a process without Spark reaches them, by delta-rs.

Its commits to a local disk are hard links, and to S3 conditional PUTs, as halfop's own are: of two writers one tries
again. So the gateway holds no lock.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake

REQUESTS, DELIVERIES, PROGRESS = "check_requests", "check_deliveries", "landing_progress"
_INSTANT = pa.timestamp("us", tz="UTC")
_DELIVERY = pa.schema(
    [
        ("request_id", pa.string()),
        ("broker_name", pa.string()),
        ("producer_group", pa.string()),
        ("outcome", pa.string()),
        ("at", _INSTANT),
        ("answered_after", pa.int64()),
        ("client", pa.string()),
        ("remark", pa.string()),
    ]
)
_ASKED_FOR = ["request_id", "producer_group", "tran_state_table_offset", "commit_log_offset", "run_id", "requested_at"]
# maintain alone removes what a table has had
_NO_CLEANUP = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


class CheckRequest(NamedTuple):
    """A row of check_requests: a question that a run has asked for."""

    request_id: str
    group: str
    queue_offset: int
    physical_offset: int
    run_id: int
    requested_at: datetime


class Delivery(NamedTuple):
    """A row of check_deliveries, without the broker's name."""

    request_id: str
    producer_group: str
    outcome: str
    at: datetime
    answered_after: int | None = None
    client: str | None = None
    remark: str | None = None


class Tables:
    """The tables of a warehouse that a gateway reads and writes. For one thread."""

    def __init__(self, root: str, broker_name: str) -> None:
        self._root, self._broker_name = _as_delta_rs_has_it(root), broker_name
        self._options = {"conditional_put": "etag"} if self._root.startswith("s3://") else None
        self._open: dict[str, DeltaTable] = {}
        self._last_run: int | None = None

    def new_requests(self, young: timedelta) -> list[CheckRequest]:
        """The rows that have come since the last call, oldest first; at first those that are younger than `young`."""
        table, before = self._table(REQUESTS), self._version(REQUESTS)
        if table is None:
            return []
        table.update_incremental()
        if table.version() == before and self._last_run is not None:
            return []
        wanted = ds.field("broker_name") == self._broker_name
        if self._last_run is None:
            wanted &= ds.field("requested_at") > pa.scalar(now() - young, _INSTANT)
        else:
            wanted &= ds.field("run_id") > self._last_run
        rows = table.to_pyarrow_dataset().to_table(columns=_ASKED_FOR, filter=wanted, use_threads=False).to_pylist()
        found = [CheckRequest(*row.values()) for row in rows if None not in row.values()]
        found.sort(key=lambda each: each.run_id)
        self._last_run = max([self._last_run or -1, *(each.run_id for each in found)])
        return found

    def delivered_since(self, since: datetime) -> set[str]:
        """The ids of questions that were sent since then."""
        table = self._table(DELIVERIES)
        if table is None:
            return set()
        table.update_incremental()
        sent = (ds.field("outcome") == "SENT") & (ds.field("broker_name") == self._broker_name)
        wanted = sent & (ds.field("at") >= pa.scalar(since, _INSTANT))
        rows = table.to_pyarrow_dataset().to_table(columns=["request_id"], filter=wanted, use_threads=False)
        return set(rows["request_id"].to_pylist())

    def append(self, rows: Sequence[Delivery]) -> bool:
        """Appends to check_deliveries, by one commit; returns False if a run has not made the table yet."""
        table = self._table(DELIVERIES)
        if table is None:
            return False
        known = [row._asdict() | {"broker_name": self._broker_name} for row in rows]
        write_deltalake(
            table,
            pa.Table.from_pylist(known, schema=_DELIVERY),
            mode="append",
            commit_properties=CommitProperties(max_commit_retries=100),
            post_commithook_properties=_NO_CLEANUP,
        )
        table.update_incremental()
        return True

    def landed(self) -> Mapping[tuple[str, int], int]:
        """The offset after the last that has landed, by topic and queue of this broker."""
        table = self._table(PROGRESS)
        if table is None:
            return {}
        table.update_incremental()
        columns = ["topic", "queue_id", "next_offset"]
        mine = ds.field("broker_name") == self._broker_name
        found: dict[tuple[str, int], int] = {}
        for row in table.to_pyarrow_dataset().to_table(columns=columns, filter=mine, use_threads=False).to_pylist():
            topic, queue, offset = row.values()
            if offset is not None:
                found[topic, queue] = max(offset, found.get((topic, queue), 0))
        return found

    def _table(self, name: str) -> DeltaTable | None:
        if name not in self._open:
            path = f"{self._root}/{name}"
            if not DeltaTable.is_deltatable(path, self._options):
                return None
            self._open[name] = DeltaTable(path, storage_options=self._options)
        return self._open[name]

    def _version(self, name: str) -> int | None:
        return self._open[name].version() if name in self._open else None


def now() -> datetime:
    """The time, as tables have it."""
    return datetime.now(timezone.utc)


def _as_delta_rs_has_it(root: str) -> str:
    scheme, colon, rest = root.partition(":")
    if colon and scheme in ("s3a", "s3n"):
        return f"s3:{rest}"
    return os.path.abspath(f"/{rest.lstrip('/')}") if colon and scheme == "file" else root
