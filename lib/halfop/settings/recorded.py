"""Settings as a run records them: one line, which later versions read, too."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

# A group's null in a record is a limit that was not given: earlier versions recorded it so.
_NO_LIMIT = "no limit"


def as_line(settings: dict[str, Any], unlimited: Collection[str]) -> str:
    """Returns one stable line, in which groups that are asked without a limit differ from the others."""
    for group in unlimited:
        settings["rules"]["groups"][group]["checks_a_run"] = _NO_LIMIT
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))


def of_line(text: str) -> Any:
    """Returns what was recorded; a run of an older version stays as it was, without limits that it could not have."""
    recorded = json.loads(text)
    if isinstance(recorded, dict) and isinstance(rules := recorded.get("rules"), dict):
        _restore_limits(rules.get("groups", {}))
    return recorded


def _restore_limits(groups: Mapping[str, dict[str, object]]) -> None:
    for own in groups.values():
        limit = own.pop("checks_a_run", None)
        if limit is not None:
            own["checks_a_run"] = None if limit == _NO_LIMIT else limit
