"""Faults put into a topic's table by hand, each with the findings that it must cause."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from support.histories.events import Event, Meant

Found = set[tuple[str, str]]


def plant(topic: Path, events: Iterable[Event]) -> Found:
    """A row removed, one doubled, one changed, one of a rolled back message, one of nobody's."""
    rolled_back = next(event.key for event in events if isinstance(event, Meant) and event.outcome == "ROLLBACK")
    rows = DeltaTable(str(topic)).to_pyarrow_table()
    keys = rows["transaction_id"].to_pylist()
    removed = _without_a_row(topic)
    doubled, changed = [n for n, key in enumerate(keys) if key != removed][:2]
    wrong = rows.slice(changed, 1)
    _append(topic, rows.slice(doubled, 1))
    _append(topic, _with(_with(wrong, "half_queue_offset", -1), "body", b"changed"))
    for key in (rolled_back, "nobody's"):
        _append(topic, _with(wrong, "transaction_id", key))
    return {
        *(("LOST", removed), ("ABORTED", removed), ("DUPLICATED", keys[doubled])),
        *(("CHANGED", keys[changed]), ("DUPLICATED", keys[changed])),
        *(("ROLLED_BACK", rolled_back), ("CHANGED", rolled_back), ("PHANTOM", "nobody's")),
    }


def _without_a_row(topic: Path) -> str:
    """Replaces a file by one without its first row; returns that row's UNIQ_KEY."""
    table = DeltaTable(str(topic))
    path = Path(table.file_uris()[0].removeprefix("file://"))
    rows = pq.read_table(path)
    removed = {"path": path.name, "deletionTimestamp": int(time.time() * 1000), "dataChange": True}
    (topic / "_delta_log" / f"{table.version() + 1:020}.json").write_text(json.dumps({"remove": removed}) + "\n")
    _append(topic, rows.slice(1))
    return str(rows["transaction_id"][0])


def _with(row: pa.Table, name: str, value: object) -> pa.Table:
    place = row.schema.get_field_index(name)
    return row.set_column(place, row.schema.field(name), pa.array([value], row.schema.field(name).type))


def _append(topic: Path, rows: pa.Table) -> None:
    if len(rows):
        write_deltalake(str(topic), rows, mode="append")
