"""Rows for check_deliveries on their way to the table, while the gateway goes on asking."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timezone

import pytest
from halfop.gateway.core.effects import Delivery
from halfop.gateway.upkeep import Deliveries

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def row(n: int) -> Delivery:
    return Delivery(str(n), "gw", "group", "SENT", AT)


def ids(rows: Sequence[Delivery]) -> list[str]:
    return [each.request_id for each in rows]


def numbers(*found: int) -> list[str]:
    return [str(n) for n in found]


class Table:
    """A table to which rows come while it is written, and that is not there, or fails, as often as `fails` says."""

    def __init__(self, deliveries: Deliveries, *meanwhile: Delivery, fails: int = 0) -> None:
        self._deliveries, self._meanwhile, self._fails = deliveries, list(meanwhile), fails
        self.tried, self.rows = list[list[str]](), list[str]()

    async def append(self, rows: Sequence[Delivery]) -> bool:
        self.tried.append(ids(rows))
        for each in self._meanwhile:
            self._deliveries.put(each)
        self._meanwhile = []
        self._fails -= 1
        if self._fails >= 0:
            if self._fails % 2:
                raise OSError("no disk")
            return False
        self.rows += ids(rows)
        return True

    def write(self) -> None:
        asyncio.run(self._deliveries.write(self.append))


def test_rows_that_come_while_others_are_written_are_written_next() -> None:
    deliveries = Deliveries()
    table = Table(deliveries, row(2), row(3))
    for n in (0, 1):
        deliveries.put(row(n))
    for _ in range(3):
        table.write()
    assert table.tried == [numbers(0, 1), numbers(2, 3)]


def test_rows_that_cannot_be_written_are_tried_again_in_order() -> None:
    deliveries = Deliveries()
    table = Table(deliveries, fails=2)
    deliveries.put(row(0))
    with pytest.raises(OSError, match="no disk"):
        table.write()
    for n in (1, 2):
        deliveries.put(row(n))
        table.write()
    table.write()
    assert table.tried == [numbers(0), numbers(0, 1), numbers(0, 1, 2)]


def test_the_oldest_of_too_many_go_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    deliveries = Deliveries(3)
    table = Table(deliveries)
    for n in range(6):
        deliveries.put(row(n))
    table.write()
    assert table.rows == numbers(3, 4, 5)
    assert "3 rows of check_deliveries were dropped" in caplog.text


@pytest.mark.parametrize(("fails", "lost"), [(0, 0), (1, 2)])
def test_rows_that_go_while_they_are_written_are_lost_only_if_that_fails(
    caplog: pytest.LogCaptureFixture, fails: int, lost: int
) -> None:
    deliveries = Deliveries(3)
    table = Table(deliveries, row(3), row(4), fails=fails)
    for n in range(3):
        deliveries.put(row(n))
    for _ in range(3):
        table.write()
    assert table.rows == (numbers(2, 3, 4) if fails else numbers(0, 1, 2, 3, 4))
    assert (f"{lost} rows of check_deliveries were dropped" in caplog.text) == bool(lost)
    assert caplog.text.count("dropped") == bool(lost)
