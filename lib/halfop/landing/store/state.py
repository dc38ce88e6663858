"""One landing of a store: its options, and what it has found and written so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from halfop.columns.lives import Lives
from halfop.landing import lost
from halfop.landing.again import Again
from halfop.landing.staged import Staging
from halfop.rocketmq.names import GATEWAY_FILE
from halfop.warehouse.progress import GATEWAY
from halfop.warehouse.tables import Warehouse

SOURCE = "STORE"


@dataclass(frozen=True)
class StoreRequest:
    """The options of `land store`; `op_lag` is the setting."""

    path: str
    broker_name: str
    op_lag: timedelta
    known_until: datetime | None = None
    skip_corrupt: bool = False
    wait: timedelta = timedelta(0)
    accept_rewind: bool = False
    again: tuple[Again, ...] = ()


@dataclass
class StoreLanding:
    """One landing; `root` is the store's folder on a local disk, `landed_at` its instant in epoch microseconds."""

    warehouse: Warehouse
    request: StoreRequest
    root: str
    landed_at: int
    lost: lost.Ranges
    staging: Staging
    lives: Lives
    written: dict[str, int] = field(default_factory=dict)

    @property
    def broker(self) -> str:
        """The name of the broker's current life."""
        return self.lives.current

    @property
    def source(self) -> str:
        """The store's source in landing_progress: producers of a gateway's are asked by our own runs."""
        return GATEWAY if (Path(self.root) / GATEWAY_FILE).exists() else SOURCE
