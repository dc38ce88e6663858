"""Whether a run asks or only watches: it goes by what a broker was landed by, and `runs` records it."""

from __future__ import annotations

import pytest
from halfop.landing import progress
from halfop.landing.progress import ProgressRow
from halfop.planning.run import asks
from halfop.rocketmq.names import HALF_TOPIC
from halfop.runs.record import recorded
from halfop.warehouse.progress import TABLE, counting, progress_rows
from halfop.warehouse.tables import Warehouse
from model import reference as m
from support import rows as r
from support.halves import half_at

NOW, DAY = 1_750_000_000_000, 24 * 3_600_000
SOURCES = {"of files": "FILES", "of a store": "STORE", "of a broker": "BROKER"}
HALVES = [half_at((broker, 0), 0, NOW - 10_000) for broker in (*SOURCES, "of a pipeline")]
KNOWN = {(broker, 0): NOW for broker in SOURCES}


@pytest.mark.parametrize(
    ("ask", "watched"),
    [
        ("auto", {"of a store", "of a broker"}),
        (True, set()),
        (False, {*SOURCES, "of a pipeline"}),
    ],
)
def test_a_run_asks_by_what_each_broker_was_landed_by(warehouse: Warehouse, ask: m.Ask, watched: set[str]) -> None:
    r.land(warehouse, HALVES, [], NOW, KNOWN, sources=SOURCES)
    r.run(warehouse, m.Settings(ask=ask), NOW)
    waits = {d.key[0] for d in r.decisions(warehouse, 1) if d.reason == "BROKER_ASKS"}
    assert waits == watched
    assert recorded(warehouse, 1).asks == {broker: broker not in watched for broker in SOURCES}
    assert {request.key[0] for request in r.requests(warehouse)} == {half.broker for half in HALVES} - watched


def test_watching_ends(warehouse: Warehouse) -> None:
    rules = m.Settings(watch_for=DAY)
    r.land(warehouse, HALVES, [], NOW, dict.fromkeys(KNOWN, NOW + DAY), sources=SOURCES)
    for now, wanted in (
        (NOW + DAY - 10_001, "WAIT BROKER_ASKS"),
        (NOW + DAY - 10_000, "DISCARD END_NOT_SEEN"),
    ):
        run_id = r.run(warehouse, rules, now).run_id
        decided = {d.key[0]: f"{d.decision} {d.reason}" for d in r.decisions(warehouse, run_id or 0)}
        assert {decided["of a store"], decided["of a broker"]} == {wanted}
    assert {row.reason for row in r.discards(warehouse)} == {"END_NOT_SEEN"}


def test_a_store_that_lands_after_files_counts_before_its_messages_land(warehouse: Warehouse) -> None:
    """A landing writes missing rows before its messages, and moves them after."""
    row = ProgressRow("b", HALF_TOPIC, 0, None, None, 1, None)
    for source, asked in (("FILES", True), ("STORE", False), ("FILES", False)):
        progress.add_missing(warehouse, [row], source)
        assert asks("auto", progress_rows(warehouse)) == {"b": asked}
    assert len(warehouse.rows(TABLE)) == 2


def test_which_source_counts() -> None:
    assert counting([]) is None
    assert counting([None, "FILES"]) == "FILES"
    assert counting(["STORE", "FILES", "OTHER"]) == "STORE"
    assert counting(["GATEWAY", "BROKER", None]) == "GATEWAY"
