"""Checks that a running broker is the one that has landed under its name."""

from __future__ import annotations

from halfop.frame.errors import InputRefused
from halfop.landing.broker.messages import SOURCE
from halfop.landing.broker.sampling import Progress
from halfop.landing.cuts import place_of
from halfop.landing.identity import newest_half, reused_queues
from halfop.landing.progress import ProgressRow
from halfop.landing.queues import Queue
from halfop.landing.rewind import HINT
from halfop.rocketmq.batches import HALF
from halfop.rocketmq.names import HALF_TOPICS
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Chunk, QueueRange, pull
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.tables import Warehouse

_NAME_BEFORE = "broker-a"


def refuse_rebuilt(warehouse: Warehouse, name: str, broker: Broker, rows: Progress) -> None:
    """Raises InputRefused for a broker that was rebuilt under its old name: its newest half message is another."""
    reused = reused_queues(warehouse, {Queue(name, 0)})
    halves = [row for (topic, _), row in rows.items() if topic in HALF_TOPICS and row.next_offset]
    if reused or not all(_is_same(warehouse, broker, row) for row in halves):
        problem = f"KEY_REUSED: not the broker that has landed as {name}"
        raise InputRefused(broker.remote.address, None, problem, HINT)


def refuse_renamed(warehouse: Warehouse, address: str, name: str) -> None:
    """Raises InputRefused for a broker that is new by its own name, if an earlier version may have landed it.

    Earlier versions landed a broker of `--broker` under one name if no other was given: its messages would land again.
    """
    sources = {row["broker_name"]: row["source"] for row in progress_rows(warehouse)}
    if name not in sources and sources.get(_NAME_BEFORE) == SOURCE:
        problem = f"{name} has not landed yet, but {_NAME_BEFORE} has: earlier versions gave every broker that name"
        hint = f"give --broker-name {_NAME_BEFORE} if it is the same broker, --broker-name {name} if it is another one"
        raise InputRefused(address, None, problem, hint)


def _is_same(warehouse: Warehouse, broker: Broker, row: ProgressRow) -> bool:
    end = broker.max_offset(row.topic, row.queue_id)
    found = newest_half(warehouse, row, end)
    if found is None or end <= found[0]:
        return True  # the sample refuses a queue that ends too early
    newest, known = found
    asked = QueueRange(row.topic, row.queue_id, newest, newest + 1)
    there = [place_of(chain(one.data).records, HALF) for one in pull(broker, asked) if isinstance(one, Chunk)]
    return all(each is None or any(each.agrees(place) for place in known) for each in there)
