"""Brokers for which a run asks producers, or only watches, and those whose questions count when they are delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from halfop.settings.model import Ask, Count
from halfop.warehouse.progress import GATEWAY, counting

BROKERS_OWN = ("STORE", "BROKER")  # sources that are a broker, which asks by itself


def asks(ask: Ask, progress: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Returns whether halfop asks, by broker, for all brokers of landing_progress."""
    return {broker: asks_at(ask, source) for broker, source in sources(progress).items()}


def asks_at(ask: Ask, source: str | None = None) -> bool:
    """Returns whether halfop asks for a broker that landed so; None: by files, or by a user's own pipeline."""
    return source not in BROKERS_OWN if ask == "auto" else ask


def counts_delivered(count: Count, progress: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Returns whether a question counts only when it is delivered, by broker, for all brokers of landing_progress."""
    return {broker: counts_delivered_at(count, source) for broker, source in sources(progress).items()}


def counts_delivered_at(count: Count, source: str | None = None) -> bool:
    """Returns whether a question about a message of a broker that landed so counts only when it is delivered."""
    return source == GATEWAY if count == "auto" else count == "delivered"


def sources(progress: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    """Returns the source that counts of each broker; None: not one of halfop's landings."""
    every: dict[str, list[str | None]] = {}
    for row in progress:
        every.setdefault(row["broker_name"], []).append(row["source"])
    return {broker: counting(found) for broker, found in sorted(every.items())}
