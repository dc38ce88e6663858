"""`end` at a gateway, which owns its half messages as a broker does: its answers, and what it shows of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from halfop.columns.keys import Key
from halfop.ending.owner import LandedEnds, Masters
from halfop.ending.plan import COMMIT, ROLLBACK, Kind, PlannedPlace, Row
from halfop.ending.sender import BrokerPart, Sender
from halfop.ending.table import Clerk, newest
from halfop.gateway.producer import Producer, StoredHalf
from halfop.rocketmq.wire.client import Broker as Asked
from halfop.rocketmq.wire.remoting import RemotingSettings
from support.ending_rows import Written
from support.gateway.clients import nothing
from support.gateway.gateways import NAME, RunningGateway, gateway

QUICK = RemotingSettings(connect_timeout=1, answer_timeout=5, give_up_after=5)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningGateway]:
    with gateway(tmp_path) as found:
        yield found


@pytest.fixture
def sent(running: RunningGateway) -> list[StoredHalf]:
    """Five half messages of a producer that has disconnected; it has ended the last two."""
    with Producer(running.address, "group", nothing) as producer:
        found = [producer.send("orders", b"x") for _ in range(5)]
        producer.end_surely(found[3], "COMMIT")
        producer.end_surely(found[4], "ROLLBACK")
    return found


def row(sent: StoredHalf, kind: Kind) -> Row:
    place = PlannedPlace(sent.queue_offset, sent.physical_offset)
    texts = (sent.transaction_id, "group", "orders", "WAIT", None)
    return Row(Key(NAME, 0, sent.queue_offset), kind, "KEY", None, *texts, (place,))


def end(running: RunningGateway, written: Written, rows: list[Row]) -> dict[int, str]:
    """The states of the rows by their offset, after another call that goes on from what is written."""
    known = newest(written.rows)
    part = BrokerPart(NAME, Masters(QUICK, broker=running.address), {0: LandedEnds()})
    Sender(part, Clerk("plan", max((each.at for each in written.rows), default=None)), written, known).end(rows)
    return {key.queue_offset: each.state for key, each in newest(written.rows).items()}


def delivered(running: RunningGateway) -> int:
    asked = Asked(running.address, QUICK)
    try:
        return sum(asked.max_offset("orders", queue) for queue in range(4))
    finally:
        asked.close()


def test_open_ones_end_and_ended_ones_do_not(running: RunningGateway, sent: list[StoredHalf], tmp_path: Path) -> None:
    kinds = [COMMIT, ROLLBACK, COMMIT, ROLLBACK, COMMIT]
    rows = [row(each, kind) for each, kind in zip(sent, kinds, strict=True)]
    written = Written(tmp_path / "endings")
    began = datetime.now(timezone.utc)
    states = end(running, written, rows)
    assert states == dict.fromkeys(range(3), "VERIFIED") | {3: "ENDED_MEANWHILE", 4: "ENDED_MEANWHILE"}
    assert datetime.now(timezone.utc) - began < timedelta(seconds=10), "no check of its own is waited for"
    assert delivered(running) == 3


@pytest.mark.parametrize("met", [True, False])
@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
def test_a_killed_call_goes_on(
    running: RunningGateway, sent: list[StoredHalf], tmp_path: Path, kind: Kind, met: bool
) -> None:
    if met:
        with Producer(running.address, "group", nothing) as other:
            other.end_surely(sent[0], "COMMIT")
            other.end_surely(sent[1], "ROLLBACK")
    rows, written = [row(each, kind) for each in sent[:2]], Written(tmp_path / "endings")
    written.record([Clerk("plan", None).ending(each, "INTENDED", sent=each.places[-1]) for each in rows])
    states = {0: "VERIFIED", 1: "VERIFIED"}
    otherwise = {1 if kind == COMMIT else 0: "ENDED_MEANWHILE"}
    assert end(running, written, rows) == (states | otherwise if met else states)
    assert delivered(running) == 1 + (1 if met else 2 * (kind == COMMIT))
