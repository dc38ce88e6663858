"""Answers for brokers that nobody reaches, because their messages land by files: op rows, which the next run reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, Key
from halfop.ending.endings import Clerk, Ending, Endings, State
from halfop.ending.plan import Row
from halfop.landing.instant import next_instant
from halfop.landing.progress import instant
from halfop.landing.tables import RESOLVE
from halfop.planning.ranges import covers, ranges_of
from halfop.rocketmq.names import END_TAG
from halfop.warehouse.lock import hold
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import all_of, equal

_OPS = "op_messages"
_WAIT = timedelta(minutes=10)  # for a landing
# Above every offset of a broker: what a producer has answered counts first, if a run sees both.
FIRST_OFFSET = 2**62


def land_answers(warehouse: Warehouse, rows: Sequence[Row], made: datetime, clerk: Clerk, endings: Endings) -> None:
    """Lands an op row for each transaction that has none of ours yet; a reconcile then decides.

    A second call after a kill writes the same rows, of the plan's instant `made`, so they count once.
    """
    with hold(warehouse, "landing", _WAIT):
        warehouse.make(_OPS)
        answered = _answered(warehouse, rows)
        todo = [row for row in rows if row.key not in answered]
        endings.record([clerk.ending(row, "INTENDED", sent=row.places[-1]) for row in todo])
        at = next_instant(warehouse)
        warehouse.append_rows(_OPS, [_op(row, made) | {"landed_at": instant(at)} for row in todo])
    sent = [clerk.ending(row, "SENT", "an op row has landed: a reconcile decides", sent=row.places[-1]) for row in todo]
    others = [row for row in rows if row.key in answered]
    endings.record(sent + [_before(clerk, row, answered[row.key]) for row in others])


def _before(clerk: Clerk, row: Row, outcome: str) -> Ending:
    """The record of a half message whose op row has landed before: that stands, also if another plan made it."""
    state: State = "SENT" if outcome == row.kind else "ENDED_MEANWHILE"
    return clerk.ending(row, state, f"an op row with {outcome} had landed", sent=row.places[-1])


def _answered(warehouse: Warehouse, rows: Sequence[Row]) -> dict[Key, str]:
    """The outcomes of half messages for which an op row of ours has landed."""
    keys = warehouse.frame([row.key for row in rows], KEY_COLUMNS)
    near = covers(ranges_of(keys, "queue_offset"), "half_offset")
    if near is None:
        return {}
    ops = warehouse.read(_OPS, where=all_of(near, equal("source", RESOLVE)))
    named = ops.select("broker_name", "queue_id", F.col("half_offset").alias("queue_offset"), "outcome")
    found = named.join(keys, HALF_KEY, "left_semi").collect()
    return {Key(*(row[name] for name in Key._fields)): row["outcome"] for row in found}


def _op(row: Row, made: datetime) -> dict[str, object]:
    live = row.places[-1]
    header = {"producer_group": row.producer_group, "uniq_key": row.uniq_key, "commit_log_offset": live[1]}
    return {
        "broker_name": row.key.broker_name,
        "queue_id": row.key.queue_id,
        "queue_offset": FIRST_OFFSET + live.queue_offset,
        "item": 0,
        "tag": END_TAG,
        "body": str(live.queue_offset),
        "half_offset": live.queue_offset,
        "outcome": row.kind,
        "from_check": True,
        "born_timestamp": made,
        "store_timestamp": made,
        "tran_state_table_offset": live.queue_offset,
        "source": RESOLVE,
        **header,
    }
