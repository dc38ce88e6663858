"""Makes tests take the ways by Spark, which rows too many for this process take."""

from __future__ import annotations

import pytest
from halfop.warehouse import reading
from halfop.warehouse.delta_log import Snapshot
from halfop.warehouse.reading import Limits

# no row is few
BY_SPARK = Limits(files=-1, bytes=-1, rows=-1)


def read_by_spark(monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    """Makes Spark read tables: the files that Delta's log lists, or by Delta's connector, which then writes, too."""
    monkeypatch.setattr(reading, "FEW", BY_SPARK)
    if reader == "connector":
        by_connector(monkeypatch)


def by_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every table one that takes more than its files to read and write, as one with a column mapping."""
    monkeypatch.setattr(Snapshot, "is_plain", lambda *_: False)
