"""The warehouse that a job works on."""

from __future__ import annotations

from collections.abc import Callable

from halfop.frame.errors import InputRefused
from halfop.settings.home import launcher
from halfop.settings.model import Settings
from halfop.warehouse.session import set_sync, spark_session
from halfop.warehouse.tables import NO_TABLE, Warehouse


def opened(app: str, settings: Settings, later: list[Callable[[], None]], **conf: str) -> Warehouse:
    """Returns the warehouse that the settings name, refused if it is damaged.

    `later` gets the upkeep of its logs, for after the job's result.
    """
    warehouse = opened_as_it_is(app, settings, later, **conf)
    warehouse.log.sound.refuse_damaged_tables(warehouse.root)
    return warehouse


def opened_as_it_is(app: str, settings: Settings, later: list[Callable[[], None]], **conf: str) -> Warehouse:
    """Returns the warehouse, though it may be damaged."""
    spark = spark_session(app, **conf)
    set_sync(spark, settings.disk.sync)
    warehouse = Warehouse(spark, settings.warehouse_root)
    warehouse.log.defer_upkeep()
    later.append(warehouse.log.upkeep)
    return warehouse


_READ = ("half_messages", "op_messages", "landing_progress", "decisions", "runs", "rejected")


def refuse_empty(warehouse: Warehouse) -> None:
    """Raises InputRefused if the warehouse has none of the tables that a reader looks at."""
    if all(warehouse.version(name) == NO_TABLE for name in _READ):
        hint = f"name another with --warehouse, or land messages first ({launcher()} land --help)"
        raise InputRefused(warehouse.root, None, "no table of halfop is there", hint)
