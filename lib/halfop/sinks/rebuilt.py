"""Values that `maintain --values` made again: by which setting, and of which runs.

The commit that rewrites a topic's table has a number. A property of the table, set before it, says what the number
stands for; there are two such properties in turn, so that the last number keeps its own until a new one counts.
"""

from __future__ import annotations

import json

from halfop.settings.topics import ValueSettings
from halfop.warehouse.tables import Marker, Warehouse

_APP = "halfop.values"


def rebuilt_by(warehouse: Warehouse, path: str, run_id: int) -> ValueSettings | None:
    """Returns the setting by which the values of a run's rows were made again; None if the run made them."""
    number = warehouse.marker(path, _APP)
    if number < 1:
        return None
    about = json.loads(warehouse.properties(path)[_property(number)])
    return ValueSettings.model_validate(about["value"]) if run_id <= about["upto"] else None


def next_rebuild(warehouse: Warehouse, path: str, upto: int, setting: ValueSettings) -> tuple[Marker, dict[str, str]]:
    """Returns the marker of the next rewrite, of the rows of runs up to that one, and the property that goes before."""
    number = max(warehouse.marker(path, _APP), 0) + 1
    about = {"upto": upto, "value": setting.model_dump(mode="json", by_alias=True)}
    return Marker(_APP, number), {_property(number): json.dumps(about, sort_keys=True)}


def _property(number: int) -> str:
    return f"halfop.values.{number % 2}"
