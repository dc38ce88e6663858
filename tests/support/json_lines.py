"""Rows as `land files` takes them, and files of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

T0 = 1_750_000_000_000
ABSENT = object()


def half(offset: int = 1, **changed: Any) -> dict[str, Any]:
    row = {
        "broker_name": "b",
        "queue_id": 0,
        "queue_offset": offset,
        "commit_log_offset": offset * 512,
        "born_timestamp": T0,
        "store_timestamp": T0 + 1,
        "body": base64.b64encode(b"body").decode(),
        "properties": {"UNIQ_KEY": f"k{offset}", "PGROUP": "g", "REAL_TOPIC": "T", "REAL_QID": "3"},
    }
    return {name: value for name, value in (row | changed).items() if value is not ABSENT}


def op(offset: int = 1, body: str | None = "1", **changed: Any) -> dict[str, Any]:
    row = {
        "broker_name": "b",
        "queue_id": 0,
        "queue_offset": offset,
        "tag": "d",
        "body": body,
        "outcome": "COMMIT",
        "born_timestamp": T0 + 5,
        "store_timestamp": T0 + 5,
    }
    return {name: value for name, value in (row | changed).items() if value is not ABSENT}


def lines(path: Path, *rows: Mapping[str, Any] | str) -> str:
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)
