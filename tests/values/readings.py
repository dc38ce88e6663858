"""Readings of bodies by a topic's setting, without a table."""

from __future__ import annotations

from typing import Any

from halfop.settings.topics import ValueSettings
from halfop.values.columns import form_of
from halfop.values.reading import Reading
from halfop.warehouse.schema import table


def values_setting(form: str, schema: str | None = None, message: str | None = None) -> ValueSettings:
    given: dict[str, Any] = {"format": form, "schema": schema, "message": message}
    return ValueSettings.model_validate(given)


def reading_of(form: str, schema: str | None = None, message: str | None = None) -> Reading:
    _, reading = form_of("orders", values_setting(form, schema, message), table("real_topic"))
    return reading
