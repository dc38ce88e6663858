"""The line that says what has landed."""

from __future__ import annotations

import logging
from typing import cast

import pytest
from halfop.frame.summary import Summary
from halfop.jobs.land import landed
from halfop.warehouse.tables import Warehouse


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
        assert landed(lambda _: summary, cast(Warehouse, None), log) is summary
    assert [record.getMessage() for record in caplog.records] == [line]
