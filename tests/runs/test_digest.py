"""A run's digest, against the same rows counted one by one."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from halfop.planning.digest import LATENCIES, Digest, Latency
from halfop.runs.verify import verify
from halfop.warehouse import reading
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from support import rows as r
from support.messages import KNOWN, NOW, RULES, half, ops
from support.seeds import SEED
from support.ways import BY_SPARK, by_connector

AT = datetime(2025, 6, 15, 15, 6, 40, 123_456, timezone.utc)
RUN = 7


def decided(chance: random.Random) -> dict[str, Any]:
    born = AT - timedelta(microseconds=chance.randrange(-(10**6), 10**11))
    return {
        "run_id": chance.choice([RUN, RUN, RUN, RUN - 1]),
        "open": False,
        "decision": chance.choice(["COMMIT", "COMMIT", "ROLLBACK", "EARLY_OP"]),
        "reason": chance.choice(["PRODUCER", "CHECK", None]),
        "broker_name": chance.choice(["a", "b"]),
        "queue_id": chance.choice([0, 1]),
        "queue_offset": chance.randrange(2**53, 2**53 + 100),
        "real_topic": chance.choice(["T1", "T2", None]),
        "half_landed_at": chance.choice([AT, AT - timedelta(days=1), None]),
        "copy_offset": chance.choice([None, None, 3]),
        "copy_broker": None,
        "copy_queue": None,
        "repeated": chance.choice([True, False, None]),
        "born_timestamp": chance.choice([born, born, None]),
    }


def counted(rows: list[dict[str, Any]], at: datetime | None) -> dict[str, Any]:
    """The digest of these rows."""
    committed = [row for row in rows if row["decision"] == "COMMIT"]
    millis = [(int(at.timestamp() * 1_000), row["born_timestamp"]) for row in committed if at and row["born_timestamp"]]
    took = [max(now - int(born.timestamp() * 1_000_000) // 1_000, 0) for now, born in millis]
    topics = [row["real_topic"] for row in committed if row["real_topic"]]
    born = [int(row["born_timestamp"].timestamp() * 1_000_000) // 1_000 for row in committed if row["born_timestamp"]]
    within = tuple(sum(each <= bound * 1_000 for each in took) for bound in LATENCIES)
    places = [(row["broker_name"], row["queue_id"], row["half_landed_at"], row) for row in committed]
    offsets: dict[Any, list[int]] = {}
    for *place, row in places:
        offset = row["queue_offset"] if row["copy_offset"] is None else row["copy_offset"]
        offsets.setdefault(tuple(place), []).append(offset)
    return {
        "totals": {d: n for d in ("COMMIT", "EARLY_OP", "ROLLBACK") if (n := sum(r["decision"] == d for r in rows))},
        "repeated": any(row["repeated"] for row in committed),
        "by_copy": any(row["copy_offset"] is not None for row in committed),
        "topics": {topic: topics.count(topic) for topic in sorted(set(topics))},
        "oldest": min(born, default=None),
        "latency": Latency(within, len(took), round(sum(took) / 1_000, 3)) if took else Latency(),
        "ranges": {(*place, min(each), max(each)) for place, each in offsets.items()},
    }


def shown(digest: Digest) -> dict[str, Any]:
    ranges = {
        (each.broker_name, each.queue_id, _instant(each.landed_at), each.low, each.high)
        for each in digest.ranges(["COMMIT"])
    }
    return {
        "totals": digest.totals,
        "repeated": digest.repeated(["COMMIT"]),
        "by_copy": digest.by_copy(["COMMIT"]),
        "topics": digest.topics,
        "oldest": digest.oldest(["COMMIT"]),
        "latency": digest.latency,
        "ranges": ranges,
    }


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)


@pytest.mark.parametrize("way", ["here", "workers", "Spark"])
@pytest.mark.parametrize("at", [AT + timedelta(seconds=3), None], ids=["timed", "untimed"])
def test_a_digest_counts_the_run_s_rows(
    warehouse: Warehouse, way: str, at: datetime | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(SEED)
    warehouse.make("decisions")
    every = []
    for _ in range(3):
        rows = [decided(chance) for _ in range(50)]
        every += [row for row in rows if row["run_id"] == RUN]
        warehouse.commit("decisions", rows)
    if way != "here":
        monkeypatch.setattr(reading, "FEW", BY_SPARK)
    if way == "Spark":
        by_connector(monkeypatch)
    found, wanted = shown(Digest.of(warehouse, RUN, at)), counted(every, at)
    assert found == wanted


def test_a_digest_of_nothing(warehouse: Warehouse) -> None:
    warehouse.make("decisions")
    assert Digest.of(warehouse, RUN).totals == {}


def test_a_row_without_a_whole_key_stops_no_run(warehouse: KernelWarehouse) -> None:
    """A user's own pipeline has written it: nothing can name it, so it has no body to write."""
    r.land(warehouse, [half(0), half(1)], ops("COMMIT", 0), NOW, KNOWN)
    for name in ("broker_name", "queue_id", "queue_offset"):
        r.append(warehouse, "half_messages", [r.half_cells(half(5), NOW) | {name: None}])
    for now in (NOW, NOW + 100_000):
        r.run(warehouse, RULES, now)
    assert {row["half_queue_offset"] for row in warehouse.rows("real_topics")} == {0}
    assert verify(warehouse, 1)[0].status == verify(warehouse, 2)[0].status == 0
