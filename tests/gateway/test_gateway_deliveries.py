"""Rows for check_deliveries between the thread that asks and the one that writes tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from threading import Thread

import pytest
from halfop.gateway.deliveries import Deliveries
from halfop.gateway.tables import Delivery

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def row(n: int) -> Delivery:
    return Delivery(str(n), "gw", "group", "SENT", AT)


def test_no_row_is_lost_between_two_threads() -> None:
    deliveries, written, number = Deliveries(), list[Delivery](), 50_000

    def put() -> None:
        for n in range(number):
            deliveries.put(row(n))

    def append(rows: Sequence[Delivery]) -> bool:
        written.extend(rows)
        return True

    loop = Thread(target=put)
    loop.start()
    while loop.is_alive():
        deliveries.write(append)
    deliveries.write(append)
    assert [each.request_id for each in written] == [str(n) for n in range(number)]


def test_rows_that_cannot_be_written_are_tried_again_in_order() -> None:
    deliveries, tried = Deliveries(), list[list[str]]()

    def fail(rows: Sequence[Delivery]) -> bool:
        tried.append([each.request_id for each in rows])
        if len(tried) == 1:
            raise OSError("no disk")
        return len(tried) == 3

    deliveries.put(row(0))
    with pytest.raises(OSError, match="no disk"):
        deliveries.write(fail)
    for n in (1, 2):
        deliveries.put(row(n))
        deliveries.write(fail)
    deliveries.write(fail)
    assert tried == [["0"], ["0", "1"], ["0", "1", "2"]]


def test_the_oldest_of_too_many_go_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    deliveries, kept = Deliveries(3), list[Delivery]()
    deliveries.put(row(0))
    deliveries.write(lambda rows: False)
    for n in range(1, 6):
        deliveries.put(row(n))

    def append(rows: Sequence[Delivery]) -> bool:
        kept.extend(rows)
        return True

    deliveries.write(append)
    assert [each.request_id for each in kept] == ["3", "4", "5"]
    assert "3 rows of check_deliveries were dropped" in caplog.text
