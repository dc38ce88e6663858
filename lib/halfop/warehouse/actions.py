"""Data files on their way into a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class DataFile:
    """A Parquet file lying in its table's folder, not yet part of the table. A partition's values are booleans."""

    path: str
    size: int
    modified: int
    stats: str | None
    partition: Mapping[str, Any] = field(default_factory=dict)
