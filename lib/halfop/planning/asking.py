"""For which brokers a run asks producers, and which it only watches, because their own check service asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from halfop.settings.model import Ask
from halfop.warehouse.progress import counting

_ASKS_BY_ITSELF = ("STORE", "BROKER")


def asks(ask: Ask, progress: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Returns whether halfop asks, by broker, for all brokers of landing_progress."""
    sources: dict[str, list[str | None]] = {}
    for row in progress:
        sources.setdefault(row["broker_name"], []).append(row["source"])
    return {broker: asks_at(ask, counting(found)) for broker, found in sorted(sources.items())}


def asks_at(ask: Ask, source: str | None = None) -> bool:
    """Returns whether halfop asks for a broker that landed so; None: by files, or by a user's own pipeline."""
    return source not in _ASKS_BY_ITSELF if ask == "auto" else ask
