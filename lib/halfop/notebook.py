"""Opens a warehouse in a notebook: a session, and the tables as views for SQL."""

from __future__ import annotations

import os

from halfop.frame.errors import HalfopError
from halfop.settings.home import checkout, launcher
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.schema import OF_A_TOPIC, table_names
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import NO_TABLE, Warehouse

# A query at the end of a cell shows its rows.
_SHOWN = {"spark.sql.repl.eagerEval.enabled": "true", "spark.sql.repl.eagerEval.truncate": "80"}


def open_warehouse(root: str | None = None) -> Warehouse:
    """Returns the named warehouse, else the configured one, or the demo's while that is empty; tables become views."""
    settings = load_settings(None, [] if root is None else [f"warehouse={root}"])
    spark = spark_session("notebook", **_SHOWN)
    places = [settings.warehouse_root] + ([f"{settings.warehouse_root}/demo"] if root is None else [])
    for warehouse in (KernelWarehouse(spark, place) for place in places):
        if warehouse.version("decisions") != NO_TABLE:
            _make_views(warehouse)
            return warehouse
    raise HalfopError(
        f"no run has decided anything in {places[0]} yet: {_first_steps()}, "
        "open_warehouse('/path/or/uri') opens another"
    )


def _first_steps() -> str:
    if checkout(os.environ) is None:  # the demo's sample is only there
        return f"{launcher()} land --help shows how to begin"
    return f"{launcher()} demo makes a warehouse to look at"


def _make_views(warehouse: Warehouse) -> None:
    """Makes a view of each table, also of those that no run has written yet."""
    for name in table_names():
        if name != OF_A_TOPIC:
            warehouse.read(name).createOrReplaceTempView(name)
