"""Runs held against what RocketMQ's own check service and end-transaction processor decided, case by case."""

from __future__ import annotations

from pathlib import Path

import pytest
import rows as r
from halfop.warehouse.tables import Warehouse
from oracle import NOW, expected, folders, halves, ops, settings


@pytest.mark.parametrize(
    "folder",
    [pytest.param(f, marks=[pytest.mark.slow] if n else [], id=f.name) for n, f in enumerate(folders())],
)
def test_decides_as_rocketmq_does(warehouse: Warehouse, folder: Path) -> None:
    landed = halves(folder)
    r.land(warehouse, landed, ops(folder), NOW, {(half.broker, half.queue): NOW for half in landed})
    r.run(warehouse, settings(folder), NOW)
    decided = {d.key: d for d in r.decisions(warehouse, 1) if d.decision != "EARLY_OP"}
    wrong = [(case, decided.get(case.key)) for case in expected(folder) if not case.agrees(decided.get(case.key))]
    assert wrong == []
