"""A checkpoint of Delta's log as its files have it. One in several files (V2) has a top file that names the others."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from halfop.warehouse.commit_file import Bad
from halfop.warehouse.disk import NOT_PARQUET

# Kinds of actions that name a file, and where they have its size.
ADD, SIDECAR = ("add", "size"), ("sidecar", "sizeInBytes")


def named(path: str, content: bytes, of: tuple[str, str]) -> dict[str, int]:
    """Returns the files that such actions in a checkpoint's file name, with their sizes; raises Bad if it is none."""
    if not content:
        raise Bad("is empty")
    action, size = of
    found = _of_json(content, action) if path.endswith(".json") else _of_parquet(content, action, size)
    return {each["path"]: each[size] for each in found if each is not None and each["path"] is not None}


def _of_json(content: bytes, action: str) -> list[dict[str, Any] | None]:
    try:
        return [json.loads(line).get(action) for line in content.splitlines()]
    except (ValueError, AttributeError):
        raise Bad("is cut off, or overwritten: not every line is an action of Delta's log") from None


def _of_parquet(content: bytes, action: str, size: str) -> list[dict[str, Any] | None]:
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
    except NOT_PARQUET:
        raise Bad("is no whole Parquet file") from None
    if action not in file.schema_arrow.names:
        return []
    rows = file.read(columns=[f"{action}.path", f"{action}.{size}"], use_threads=False)
    return list(rows[action].to_pylist())
