"""Transactions that business data says both of, COMMIT and ROLLBACK: a file beside the plan, for people."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from halfop.ending.plan import refuse_existing
from halfop.frame.errors import UsageError


def refused_beside(plan: str) -> str:
    """Returns the name of the file for what a plan refuses: `orders.refused.jsonl` for `orders.jsonl`."""
    path = Path(plan)
    return str(path.with_name(f"{path.stem}.refused{path.suffix}"))


def write_refused(rows: pa.Table, path: str) -> None:
    """Writes the rows to a new file, in the form of the plan."""
    refuse_existing(path)
    try:
        if path.endswith(".parquet"):
            pq.write_table(rows, path)
        else:
            Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--plan: {path} cannot be written: {error}") from error
