"""RocketMQ's recorded cases (tests/data/oracle/TIMEOUT-CHECKMAX-HOURS) as the model's rows."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model import Decision, Half, Key, Op, Settings
from strategies import op_rows

NOW = 1_750_000_000_000  # the instant at which RocketMQ looked at every case
HOUR = 3_600_000

_FOLDER = Path(__file__).parent / "data" / "oracle"


@dataclass(frozen=True)
class Expected:
    """What RocketMQ did with one half message; `reason` is None where what it did tells no reason."""

    key: Key
    decision: str
    reason: str | None

    def agrees(self, decided: Decision | None) -> bool:
        if decided is None or decided.decision != self.decision:
            return False
        return self.reason is None or self.reason == decided.reason


def folders() -> list[Path]:
    return sorted(_FOLDER.iterdir())


def settings(folder: Path) -> Settings:
    timeout, check_max, hours = (int(part) for part in folder.name.split("-"))
    return Settings(timeout, check_max, check_interval=0, file_reserved_time=hours * HOUR)


def halves(folder: Path) -> list[Half]:
    return [half(line) for line in _lines(folder / "half.jsonl")]


def ops(folder: Path) -> list[Op]:
    return [op for line in _lines(folder / "op.jsonl") for op in _ops(line)]


def expected(folder: Path) -> list[Expected]:
    lines = _lines(folder / "expected.jsonl")
    return [
        Expected((line["broker_name"], 0, line["queue_offset"]), line["decision"], line["reason"]) for line in lines
    ]


def half(line: dict[str, Any]) -> Half:
    """A JSON line as `land files` takes it."""
    properties = line["properties"]
    return Half(
        broker=line["broker_name"],
        queue=line["queue_id"],
        offset=line["queue_offset"],
        commit_log_offset=line["commit_log_offset"],
        uniq_key=properties.get("UNIQ_KEY"),
        group=properties.get("PGROUP"),
        real_topic=properties.get("REAL_TOPIC"),
        real_qid=properties.get("REAL_QID"),
        born=line["born_timestamp"],
        store=line["store_timestamp"],
        immunity=properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS"),
        check_times=properties.get("TRANSACTION_CHECK_TIMES"),
        body=base64.b64decode(line["body"]),
    )


def _ops(line: dict[str, Any]) -> list[Op]:
    queue = (line["broker_name"], line["queue_id"])
    born, store = line["born_timestamp"], line["store_timestamp"]
    return op_rows(queue, line["queue_offset"], line["body"], [line["outcome"]], born, tag=line["tag"], store=store)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)
