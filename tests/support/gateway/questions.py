"""Questions as runs leave them for a gateway, and what it writes of them, in tables with the columns of schemas/."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from halfop.gateway.producer import StoredHalf
from halfop.landing.fields import Field
from halfop.warehouse.schema import table

from support.gateway.gateways import NAME

ON_S3 = {"conditional_put": "etag"}
_SECONDS = 30.0


def append(root: Path | str, name: str, *rows: Mapping[str, Any]) -> None:
    """Appends to a table, which this makes if it is not there; a row lacks what is null."""
    options = ON_S3 if str(root).startswith("s3:") else None
    schema = pa.schema([(column.name, Field(column.name, column.type).arrow) for column in table(name).columns])
    filled = pa.Table.from_pylist(list(rows), schema=schema)
    write_deltalake(f"{root}/{name}", filled, mode="append", storage_options=options)


def make_deliveries(root: Path | str) -> None:
    """Makes the table in which a gateway writes what became of questions, as a run does."""
    append(root, "check_deliveries")


def ask_for(root: Path | str, sent: StoredHalf, group: str, run_id: int, **other: Any) -> str:
    """Asks about a half message, as a run does; returns the question's id."""
    row = {
        "request_id": f"{run_id}-{sent.queue_offset}-{sent.physical_offset}",
        "broker_name": NAME,
        "producer_group": group,
        "real_topic": sent.topic,
        "tran_state_table_offset": sent.queue_offset,
        "commit_log_offset": sent.physical_offset,
        "run_id": run_id,
        "requested_at": datetime.now(timezone.utc),
    } | other
    append(root, "check_requests", row)
    return str(row["request_id"])


def outcomes(root: Path | str, done: Callable[[list[tuple[str, str]]], bool]) -> list[tuple[str, str]]:
    """What became of questions, once it is as wanted: each row's question and outcome, in the order of their times."""
    options = ON_S3 if str(root).startswith("s3:") else None
    end = time.monotonic() + _SECONDS
    while True:
        deliveries = DeltaTable(f"{root}/check_deliveries", storage_options=options).to_pyarrow_table()
        found = [(row["request_id"], row["outcome"]) for row in deliveries.sort_by("at").to_pylist()]
        if done(found):
            return found
        assert time.monotonic() < end, found
        time.sleep(0.05)
