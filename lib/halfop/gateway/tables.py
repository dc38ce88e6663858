"""The warehouse's tables as a process without Spark reaches them, by delta-rs.

Its commits to a local disk are hard links, and to S3 conditional PUTs, as halfop's own are: of two writers one tries
again. So the gateway holds no lock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake

from halfop.frame.errors import HalfopError
from halfop.frame.trouble import make_durable
from halfop.gateway.core.effects import CheckRequest, Delivery
from halfop.gateway.whole_tables import Durable, LogLife, refuse_missing
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.warehouse.damage import TableOnDisk
from halfop.warehouse.disk import LocalDisk, local_folder

REQUESTS, DELIVERIES, PROGRESS = "check_requests", "check_deliveries", "landing_progress"
_TABLES_OF = {HALF_TOPIC: "half_messages", OP_TOPIC: "op_messages"}
_INSTANT = pa.timestamp("us", tz="UTC")
_ASKED_FOR = ["request_id", "broker_name", "producer_group", "real_topic"]
_ASKED_FOR += ["tran_state_table_offset", "commit_log_offset", "run_id", "requested_at"]
_PROGRESS = ["broker_name", "topic", "queue_id", "next_offset"]
_NO_RUN = -1
# maintain alone removes what a table has had
_NO_CLEANUP = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


class SentBefore(NamedTuple):
    """Questions that were sent: their requests' ids, and the last instant by broker and place of the half message."""

    requests: frozenset[str]
    at: Mapping[tuple[str, int], datetime]


NOTHING_SENT = SentBefore(frozenset(), {})


class Landing(NamedTuple):
    """A life of this broker, and the offset after the last that has landed of it, by topic and queue.

    `cuts`: where lives after the first begin, by topic and queue, then by life.
    """

    life: int
    offsets: Mapping[tuple[str, int], int]
    cuts: Mapping[tuple[str, int], Mapping[int, int]] = MappingProxyType({})


class Tables:
    """The tables of a warehouse that a gateway reads and writes. For one thread.

    A gateway whose log was rewound has had several lives, as a broker has: later ones' rows are of `name~2`, `name~3`.
    """

    def __init__(self, root: str, broker_name: str) -> None:
        self._later = f"{broker_name}~"
        self._root = local_folder(root) or re.sub(r"\As3[an]:", "s3:", root)  # as delta-rs has it
        mine = rf"\A{re.escape(broker_name)}(~[0-9]+)?\z"
        self._mine = pc.match_substring_regex(ds.field("broker_name"), pattern=mine)
        self._is_local = "://" not in self._root
        self._options = {"conditional_put": "etag"} if self._root.startswith("s3://") else None
        self._open: dict[str, DeltaTable] = {}
        self._last_run: int | None = None
        self._durable = Durable()
        self._read: int | None = None  # the version of check_requests that was read last

    def new_requests(self, young: timedelta) -> list[CheckRequest]:
        """The rows that have come since the last call, oldest first; at first those that are younger than `young`."""
        table = self._table(REQUESTS)
        if table is None:
            self._last_run = _NO_RUN if self._last_run is None else self._last_run
            return []
        table.update_incremental()
        if table.version() == self._read:
            return []
        rows = table.to_pyarrow_dataset()
        if self._last_run is None:
            wanted = ds.field("requested_at") > pa.scalar(now() - young, _INSTANT)
            last = _last_run(rows.to_table(columns=["run_id"], filter=self._mine, use_threads=False))
        else:
            wanted, last = ds.field("run_id") > self._last_run, self._last_run
        asked = rows.to_table(columns=_ASKED_FOR, filter=self._mine & wanted, use_threads=False)
        self._read, self._last_run = table.version(), max(last, _last_run(asked))
        found = [CheckRequest(*row.values()) for row in asked.to_pylist() if None not in row.values()]
        return sorted(found, key=lambda each: each.run_id)

    def sent_since(self, since: datetime) -> SentBefore:
        """The questions that were sent since then."""
        deliveries, requests = self._newest(DELIVERIES), self._newest(REQUESTS)
        if deliveries is None or requests is None:
            return NOTHING_SENT
        wanted = (ds.field("outcome") == "SENT") & (ds.field("at") >= pa.scalar(since, _INSTANT))
        rows = deliveries.to_table(columns=["request_id", "at"], filter=self._mine & wanted, use_threads=False)
        at = dict(zip(rows["request_id"].to_pylist(), rows["at"].to_pylist(), strict=True))
        asked = requests.to_table(
            columns=["request_id", "broker_name", "commit_log_offset"],
            filter=self._mine & ds.field("request_id").isin(pa.array(at, pa.string())),
            use_threads=False,
        )
        last: dict[tuple[str, int], datetime] = {}
        for request, name, place in zip(*(column.to_pylist() for column in asked.columns), strict=True):
            last[name, place] = max(at[request], last.get((name, place), at[request]))
        return SentBefore(frozenset(at), last)

    def append(self, rows: Sequence[Delivery]) -> bool:
        """Appends to check_deliveries, by a durable commit; returns False if a run has not made the table yet."""
        table = self._table(DELIVERIES)
        if table is None:
            return False
        table.update_incremental()
        known, before = [row._asdict() for row in rows], table.version()
        write_deltalake(
            table,
            pa.Table.from_pylist(known, schema=pa.schema(table.schema().to_arrow())),
            mode="append",
            commit_properties=CommitProperties(max_commit_retries=100),
            post_commithook_properties=_NO_CLEANUP,
        )
        table.update_incremental()
        if self._is_local:  # delta-rs leaves it to the disk when its commits are durable
            written_by = TableOnDisk(LocalDisk(), f"{self._root}/{DELIVERIES}").written_by
            make_durable(chain.from_iterable(map(written_by, range(before + 1, table.version() + 1))))
        return True

    def landed(self) -> Landing:
        """How far the newest life has landed: an earlier one's offsets were other messages after its cut."""
        progress = self._newest(PROGRESS)
        if progress is None:
            return Landing(1, {})
        columns = [name for name in (*_PROGRESS, "cut_offset") if name in progress.schema.names]
        lives: dict[int, dict[tuple[str, int], int]] = {}
        cuts: dict[tuple[str, int], dict[int, int]] = {}
        for row in progress.to_table(columns=columns, filter=self._mine, use_threads=False).to_pylist():
            number, queue = self._life(row["broker_name"]), (row["topic"], row["queue_id"])
            of = lives.setdefault(number, {})
            of[queue] = max(row["next_offset"] or 0, of.get(queue, 0))
            if row.get("cut_offset") is not None:
                cuts.setdefault(queue, {})[number] = row["cut_offset"]
        newest = max(lives, default=1)
        return Landing(newest, lives.get(newest, {}), cuts)

    def _life(self, name: str) -> int:
        return int(name.removeprefix(self._later)) if name.startswith(self._later) else 1

    def refuse_missing(self, landed: Landing, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Raises HalfopError unless all messages of these queues are in the tables, and durable if the disk is local.

        A range is of offsets, by topic and queue. `maintain` trims from the oldest on, so the first ones may lack if it
        has trimmed.
        """
        for (topic, queue), span in ranges.items():
            table = self._table(_TABLES_OF[topic])
            if table is None:
                raise HalfopError(f"{_TABLES_OF[topic]} is not there: no file of the log is removed")
            table.update_incremental()
            if (erased := self._table("erasures") if topic == HALF_TOPIC else None) is not None:
                erased.update_incremental()
            refuse_missing(table, self._lives(landed, (topic, queue)), queue, span, erased)
        if self._is_local:
            for each in (*_TABLES_OF.values(), PROGRESS):
                self._durable.make(f"{self._root}/{each}")

    def _lives(self, landed: Landing, queue: tuple[str, int]) -> list[LogLife]:
        """All lives, with their cuts in a queue; without a cut all of it is the life's own."""
        cuts, numbers = landed.cuts.get(queue, {}), range(1, landed.life + 1)
        return [LogLife(self._later + str(n) if n > 1 else self._later[:-1], n, cuts.get(n, 0)) for n in numbers]

    def _newest(self, name: str) -> ds.Dataset | None:
        table = self._table(name)
        if table is None:
            return None
        table.update_incremental()
        return table.to_pyarrow_dataset()

    def _table(self, name: str) -> DeltaTable | None:
        if name not in self._open:
            path = f"{self._root}/{name}"
            if not DeltaTable.is_deltatable(path, self._options):
                return None
            self._open[name] = DeltaTable(path, storage_options=self._options)
        return self._open[name]


def _last_run(rows: pa.Table) -> int:
    """The last run of the rows."""
    last = pc.max(rows["run_id"]).as_py()
    return _NO_RUN if last is None else int(last)


def now() -> datetime:
    """The time, as tables have it."""
    return datetime.now(timezone.utc)
