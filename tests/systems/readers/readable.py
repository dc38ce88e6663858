"""A warehouse for readers that know no halfop, with all that a table goes through: typed values, a schema that grew,
a name that is not ASCII, erasure, maintenance, a layout and a change feed."""

from __future__ import annotations

import shutil

import pytest
from halfop.columns.keys import Key
from halfop.erasure.erase import erase, plan
from halfop.erasure.selection import ToErase
from halfop.frame.summary import Summary
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.settings.model import Settings
from halfop.upkeep import maintain as m
from halfop.upkeep.maintain import maintain
from halfop.warehouse.kernel import KernelWarehouse
from support import rows as r
from support.messages import KNOWN, NOW, QUEUE, half, one_of_each, ops

OLD = "订单"  # a topic of an older version, and its folder; RocketMQ allows no such name
_LAYOUT = ("topics.orders.cluster_by=committed_at,value.id", "topics.orders.change_feed=true")
_TRIMMED = load_settings(
    None, [*_LAYOUT, *(f"retention.{name}=0s" for name in ("verify", "files", "waits", "landed"))], {}
)
_FIRST = "id BIGINT, at TIMESTAMP, day DATE, price DECIMAL(9,2), items ARRAY<STRUCT<sku: STRING, n: INT>>"
_MORE = f"{_FIRST}, counts MAP<STRING, INT>, raw BINARY, `名` STRING"
_BODIES = (
    b'{"id":1,"at":"2026-01-31T09:30:00.123Z","day":"1969-12-31","price":-1.5,"items":[{"sku":"a","n":1},null]}',
    b'{"id":"no number"}',
    '{"counts":{"b":2,"a":1},"raw":"AAH/","名":"订单 😀"}'.encode(),
    b"",
)


def readable(warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lands and decides twice, erases a message, and maintains."""
    monkeypatch.setattr(m, "_MANY_FILES", 2)
    halves = [half(20 + n, "orders", body=body) for n, body in enumerate(_BODIES)]
    r.land(warehouse, halves[:2], ops("COMMIT", 20, 21), NOW - 1, KNOWN)
    one_of_each(warehouse)
    _run(warehouse, NOW, _FIRST)
    r.land(warehouse, [*halves[2:], half(40), half(41, "%RETRY%g")], ops("COMMIT", 22, 23, 40, 41), NOW + 1, KNOWN)
    _run(warehouse, NOW + 1, _MORE)
    _add_old(warehouse)
    _, planned = plan(warehouse, ToErase([Key(*QUEUE, 1)]))
    assert sum(each.rows for each in erase(warehouse, planned, Settings())[1]) > 1
    assert {m.COMPACT, m.TRIM, m.LAYOUT} <= {step.what for step in maintain(warehouse, _TRIMMED)[1]}


def _run(warehouse: KernelWarehouse, at: int, schema: str) -> Summary:
    values = ["topics.orders.value.format=json", f"topics.orders.value.schema={schema}"]
    given = [*values, "topics.layout=per_topic", "rules.transaction_check_max=1"]
    return reconcile(warehouse, Request(load_settings(None, given, {}), r.instant(at), allow_future=True))


def _add_old(warehouse: KernelWarehouse) -> None:
    shutil.copytree(f"{warehouse.root}/topics/T", f"{warehouse.root}/topics/{OLD}")
    warehouse.commit("topics_index", [{"topic": OLD, "directory": OLD, "run_id": 1, "created_at": NOW}])
