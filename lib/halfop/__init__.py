"""Transactional (half) messages of RocketMQ, reconciled as sets on Spark and Delta.

A name is imported when it is first used: a job without Spark imports no PySpark by this.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfop.api.ends import PlannedEnds as PlannedEnds
    from halfop.api.halfop import Halfop as Halfop
    from halfop.api.opening import open as open
    from halfop.explain.explain import Explained as Explained
    from halfop.follow import Cycle as Cycle
    from halfop.follow import CycleFailed as CycleFailed
    from halfop.frame.errors import HalfopError as HalfopError
    from halfop.frame.errors import InputRefused as InputRefused
    from halfop.frame.errors import LostRows as LostRows
    from halfop.frame.errors import PartsFailed as PartsFailed
    from halfop.frame.errors import TransientError as TransientError
    from halfop.frame.errors import UsageError as UsageError
    from halfop.frame.errors import WarehouseBusy as WarehouseBusy
    from halfop.frame.summary import Summary as Summary
    from halfop.frame.summary import WithRows as WithRows
    from halfop.landing.again import Again as Again
    from halfop.simulation.simulate import Simulated as Simulated
    from halfop.warehouse.damage import DamagedTable as DamagedTable
    from halfop.warehouse.given import spark_conf as spark_conf

__version__ = "0.2.0.dev0"

_MODULES = {
    "api.ends": ("PlannedEnds",),
    "api.halfop": ("Halfop",),
    "api.opening": ("open",),
    "explain.explain": ("Explained",),
    "follow": ("Cycle", "CycleFailed"),
    "frame.errors": (
        *("HalfopError", "InputRefused", "LostRows", "PartsFailed", "TransientError", "UsageError", "WarehouseBusy"),
    ),
    "frame.summary": ("WithRows", "Summary"),
    "landing.again": ("Again",),
    "simulation.simulate": ("Simulated",),
    "warehouse.damage": ("DamagedTable",),
    "warehouse.given": ("spark_conf",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_PLACES)  # noqa: PLE0605 - the names above

if not TYPE_CHECKING:  # a type checker knows the names above, and so finds a wrong one

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"halfop.{_PLACES[name]}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("pyspark", "py4j", "delta"):
                raise
            why = f"halfop.{name} needs Spark: pip install 'halfop[spark]'"
            raise ModuleNotFoundError(why, name=error.name) from error

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])
