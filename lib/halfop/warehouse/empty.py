"""A warehouse without any table is refused: most likely the place is a wrong one."""

from __future__ import annotations

from halfop.frame.errors import InputRefused
from halfop.settings.home import launcher
from halfop.warehouse.tables import NO_TABLE, Warehouse

_READ = ("half_messages", "op_messages", "landing_progress", "decisions", "runs", "rejected")


def refuse_empty(warehouse: Warehouse) -> None:
    """Raises InputRefused if the warehouse has none of the tables that a reader looks at."""
    if all(warehouse.version(name) == NO_TABLE for name in _READ):
        hint = f"name another with --warehouse, or land messages first ({launcher()} land --help)"
        raise InputRefused(warehouse.root, None, "no table of halfop is there", hint)
