"""The benchmarks' rows have the columns of the tables: a column that is added to a table must not stop them."""

from __future__ import annotations

import runpy

import pytest
from halfop.warehouse.tables import Warehouse
from support.places import ROOT

GENERATE = ROOT / "bench" / "generate.py"


@pytest.mark.parametrize("name", ["half_messages", "op_messages"])
def test_the_rows_of_benchmarks_have_the_columns_of_their_table(warehouse: Warehouse, name: str) -> None:
    made = runpy.run_path(str(GENERATE))
    rows = made[name](warehouse.spark, made["Stretch"](0, 100))
    assert warehouse.in_form(name, rows).count() >= 90
