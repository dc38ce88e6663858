"""The line that says what has landed."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from pathlib import Path

import pytest
from halfop.frame.summary import Summary
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.landed import log_landed, no_rows
from halfop.warehouse.kernel import KernelWarehouse
from support.json_lines import half, lines


def test_an_empty_file_and_time_that_passes_are_not_nothing(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    def said(*paths: str, until: datetime | None = None) -> str:
        request = FilesRequest(paths, known_until=until)
        return no_rows(land_files(warehouse, request, logging.getLogger("tests.landed")))

    until = datetime(2025, 6, 15, 15, tzinfo=timezone.utc)
    (tmp_path / "empty.jsonl").touch()
    assert said(str(tmp_path / "empty.jsonl"), until=until) == "no row in 1 new file"
    said(lines(tmp_path / "h.jsonl", half(1)))
    assert said(str(tmp_path / "empty.jsonl"), until=until) == "1 queue known until 2025-06-15 15:00:00"
    (tmp_path / "another.jsonl").touch()
    both = "no row in 1 new file; 1 queue known until 2025-06-15 15:00:00"
    assert said(str(tmp_path / "another.jsonl"), until=until) == both
    assert said(lines(tmp_path / "h.jsonl", half(1))) == "nothing new"


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (
            {"op_messages": 20, "half_messages": 1_234, "final_messages": 0},
            "landed: 1,234 half_messages, 20 op_messages",
        ),
        ({"half_messages": 0}, "landed: nothing new"),
        ({}, "landed: nothing new"),
    ],
)
def test_what_has_landed_is_logged(caplog: pytest.LogCaptureFixture, rows: dict[str, int], line: str) -> None:
    log, summary = logging.getLogger("tests.landed"), Summary("land", rows_written=rows)
    with caplog.at_level(logging.INFO, log.name):
        log_landed(summary, log)
    assert [record.getMessage() for record in caplog.records] == [line]
