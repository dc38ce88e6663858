"""Makes tests take the ways by Spark, which rows too many for this process take."""

from __future__ import annotations

import pytest
from halfop.warehouse import reading, tables
from halfop.warehouse.reading import Limits

# no row is few
BY_SPARK = Limits(files=-1, bytes=-1, rows=-1)
READERS = ["files", "connector"]


def read_by_spark(monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    """Makes Spark read tables: the files that Delta's log lists, or, as beside a listener, by Delta's connector."""
    monkeypatch.setattr(reading, "FEW", BY_SPARK)
    if reader == "connector":
        monkeypatch.setattr(tables, "goes_past_spark", lambda _: False)
