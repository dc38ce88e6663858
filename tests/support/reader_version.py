"""What Delta's logs ask of a reader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# as a server has it that gives new tables deletion vectors: Databricks, by default
VECTORS = {"spark.databricks.delta.properties.defaults.enableDeletionVectors": "true"}


def needs_more(root: str) -> set[str]:
    """Returns the tables below a folder that a reader of Delta's first version could not read."""
    return {
        name
        for name, action in actions(Path(root))
        if action.get("protocol", {}).get("minReaderVersion", 1) > 1
        or any(action.get(kind, {}).get("deletionVector") for kind in ("add", "remove"))
        or action.get("metaData", {}).get("configuration", {}).get("delta.enableDeletionVectors") == "true"
    }


def actions(root: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All actions of all tables' logs, with the table's name."""
    for commit in root.rglob("_delta_log/*.json"):
        for line in commit.read_text(encoding="utf-8").splitlines():
            yield str(commit.parents[1].relative_to(root)), json.loads(line)
