"""The warehouse's tables as a gateway reads and writes them: which questions are new, how far its log has landed."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable
from halfop.gateway.core.effects import Delivery
from halfop.gateway.producer import StoredHalf
from halfop.gateway.tables import NOTHING_SENT, Landing, Tables
from halfop.rocketmq.names import HALF_TOPIC
from support.gateway.questions import append, ask_for, make_deliveries

YOUNG = timedelta(seconds=60)
NAME = "gw"


def ago(seconds: float) -> datetime:
    return datetime.now(timezone.utc) - timedelta(seconds=seconds)


def asked_for(warehouse: Path, run_id: int, at: datetime, name: str = NAME) -> str:
    """Asks about a message of a broker of that name, as a run does; returns the question's id."""
    sent, mine = (
        StoredHalf("orders", "U", run_id, 100 * run_id),
        {"request_id": f"{name}-{run_id}", "broker_name": name},
    )
    return ask_for(warehouse, sent, "group", run_id, requested_at=at, **mine)


def new(tables: Tables) -> list[str]:
    return [each.request_id for each in tables.new_requests(YOUNG)]


def test_requests_from_before_its_start_are_not_taken_later_either(tmp_path: Path) -> None:
    for run in (1, 2, 3):
        asked_for(tmp_path, run, ago(3600))
    tables = Tables(str(tmp_path), NAME)
    assert new(tables) == []
    later = asked_for(tmp_path, 4, ago(0))
    assert (new(tables), new(tables)) == ([later], [])


def test_young_requests_from_before_its_start_are_taken(tmp_path: Path) -> None:
    asked_for(tmp_path, 1, ago(3600))
    young = asked_for(tmp_path, 2, ago(1))
    tables = Tables(str(tmp_path), NAME)
    assert (new(tables), new(tables)) == ([young], [])


def test_all_that_comes_after_its_start_is_new_however_long_its_run_took(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path), NAME)
    assert new(tables) == [], "there is no table yet"
    first = asked_for(tmp_path, 1, ago(3600))
    assert (new(tables), new(tables)) == ([first], [])
    second = asked_for(tmp_path, 2, ago(3600))
    assert (new(tables), new(tables)) == ([second], [])


def test_requests_of_its_later_lives_are_its_own(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path), NAME)
    mine = [asked_for(tmp_path, 1, ago(1), name) for name in (NAME, "gw~2", "gw~3")]
    for other in ("gw2", "gw-a", "other~2", "g", "gw~x", "gw~2~3"):
        asked_for(tmp_path, 1, ago(1), other)
    assert sorted(new(tables)) == sorted(mine)


def test_deliveries_have_the_name_of_their_request(tmp_path: Path) -> None:
    make_deliveries(tmp_path)
    tables = Tables(str(tmp_path), NAME)
    sent = [Delivery(name, name, "group", "SENT", ago(1)) for name in (NAME, "gw~2")]
    assert tables.append([*sent, Delivery("gw~3", "gw~3", "group", "FAILED", ago(1))])
    rows = DeltaTable(tmp_path / "check_deliveries").to_pyarrow_table().to_pylist()
    assert all(row["broker_name"] == row["request_id"] for row in rows)
    assert tables.sent_since(ago(10)) == NOTHING_SENT, "no run has asked"
    asked_for(tmp_path, 1, ago(1))
    assert tables.sent_since(ago(10)).requests == {NAME, "gw~2"}
    assert tables.sent_since(ago(-10)) == NOTHING_SENT


@pytest.mark.parametrize(
    ("rows", "landed"),
    [
        ([], Landing(1, {})),
        ([(NAME, 5), (NAME, 9), (NAME, None), ("gw2", 20), ("gw~x", 20)], Landing(1, {(HALF_TOPIC, 0): 9})),
        # what an earlier life's offsets were is not in this log any more
        ([(NAME, 9), ("gw~2", 3), ("gw~10", 4)], Landing(10, {(HALF_TOPIC, 0): 4})),
    ],
)
def test_how_far_the_newest_life_has_landed(
    tmp_path: Path, rows: list[tuple[str, int | None]], landed: Landing
) -> None:
    for name, offset in rows:
        row = {"broker_name": name, "topic": HALF_TOPIC, "queue_id": 0, "next_offset": offset}
        append(tmp_path, "landing_progress", row)
    assert Tables(str(tmp_path), NAME).landed() == landed


def test_deliveries_are_durable_as_soon_as_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut would leave an empty commit, which every job refuses."""
    synced, sync = list[str](), os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    table = tmp_path / "check_deliveries"
    make_deliveries(tmp_path)
    tables = Tables(str(tmp_path), NAME)
    for n in range(2):
        synced.clear()
        assert tables.append([Delivery(f"r{n}", NAME, "group", "SENT", ago(1))])
        commit = table / "_delta_log" / f"{n + 1:020}.json"
        actions = map(json.loads, commit.read_text().splitlines())
        data = [table / action["add"]["path"] for action in actions if "add" in action]
        assert [Path(each) for each in synced] == [*data, commit, table, table / "_delta_log"]
