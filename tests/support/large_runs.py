"""A landing and a run of so many bytes that workers decide and write, by jobs as a user starts them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from halfop.warehouse.tables import Warehouse

from support.crash import ended, job
from support.json_lines import T0, lines, op
from support.kills import content
from support.seeds import SEED

ROWS = 21_000
TOPICS = ("T", "U", "V")
LANDED = ("half_messages", "op_messages", "landing_progress", "decisions")
_OPS = ("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")
_A_BATCH = 100


def write_backlog(folder: Path) -> Path:
    """Half messages with bodies of a kilobyte, in files `h.parquet` and `o.jsonl`. One in fifty has no op."""
    folder.mkdir(parents=True, exist_ok=True)
    chance, offsets = np.random.default_rng(SEED), np.arange(ROWS)
    given = [_properties(n) for n in range(ROWS)]
    born = pa.array(T0 * 1_000 + offsets * 1_000, pa.timestamp("us", tz="UTC"))
    rows = {
        "broker_name": pa.array(["b"] * ROWS),
        "queue_id": pa.array([0] * ROWS, pa.int32()),
        "queue_offset": offsets,
        "commit_log_offset": offsets * 2_048,
        "born_timestamp": born,
        "store_timestamp": born,
        "body": [chance.bytes(1_024) for _ in range(ROWS)],
        "properties": pa.array(given, pa.map_(pa.string(), pa.string())),
    }
    pq.write_table(pa.table(rows), folder / "h.parquet", row_group_size=5_000)
    batches = [range(first, first + _A_BATCH) for first in range(0, ROWS, _A_BATCH)]
    bodies = [",".join(str(each) for each in batch if each % 50) for batch in batches]
    lines(folder / "o.jsonl", *(op(n, body, outcome=_OPS[n % len(_OPS)]) for n, body in enumerate(bodies)))
    return folder


def _properties(offset: int) -> list[tuple[str, str]]:
    """One in five hundred cannot be delivered, so that the rules' own Columns decide it."""
    queue = "none" if offset % 500 == 7 else "3"
    given = {"UNIQ_KEY": f"k{offset}", "PGROUP": "g", "REAL_TOPIC": TOPICS[offset % 3], "REAL_QID": queue}
    return list(given.items())


def landed_and_decided(warehouse: str, given: str, *options: str) -> list[str]:
    """The ways that the run took; `options` are Spark's."""
    now = datetime.fromtimestamp(T0 / 1_000 + 100, timezone.utc).isoformat()
    done(
        *options, "land", "files", "--half", f"{given}/h.parquet", "--op", f"{given}/o.jsonl", "--warehouse", warehouse
    )
    said = done(*options, "reconcile", "--now", now, "--warehouse", warehouse)
    return list(json.loads(said.splitlines()[-1])["ways"].values())


def done(*arguments: str) -> str:
    status, said = ended(job(*arguments))
    assert status == 0, said
    return said


def everything(warehouse: Warehouse) -> dict[str, Counter[str]]:
    """All rows but for when they landed."""
    found = {name: warehouse.read(name).drop("landed_at", "half_landed_at").collect() for name in LANDED}
    return content(warehouse) | {name: Counter(str(row) for row in rows) for name, rows in found.items()}
