"""RocketMQ's recorded cases as the model's rows.

tests/data/oracle/TIMEOUT-CHECKMAX-HOURS/ holds half messages that must end as RocketMQ decided them. Messages that it
left undecided, or decided by a fault that the rules remove, land beside them and are not in expected.jsonl.
surprises.jsonl holds those faults, a case each, and surprises.expected.jsonl RocketMQ's own record of them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.places import DATA

from model.reference import Decision, Half, Key, Op, Settings
from model.strategies import op_rows

NOW = 1_750_000_000_000  # the instant at which RocketMQ looked at every case
HOUR = 3_600_000

_FOLDER = DATA / "oracle"


@dataclass(frozen=True)
class Expected:
    """RocketMQ's decision on one half message; `reason` is None if more than one reason leads to that decision."""

    key: Key
    decision: str
    reason: str | None

    def agrees(self, decided: Decision | None) -> bool:
        if decided is None or decided.decision != self.decision:
            return False
        return self.reason is None or self.reason == decided.reason


@dataclass(frozen=True)
class Recorded:
    """A case as RocketMQ met it, and `broker`: its decision on each half message, by offset."""

    name: str
    halves: list[Half]
    ops: list[Op]
    broker: dict[int, str]


def surprises() -> dict[str, Recorded]:
    """The recorded cases in which RocketMQ's decision is a fault or hard to foresee, by name; every op is a commit."""
    cases, results = (list(_lines(_FOLDER / f"surprises.{name}")) for name in ("jsonl", "expected.jsonl"))
    found = [_recorded(case, result) for case, result in zip(cases, results, strict=True)]
    return {each.name: each for each in found}


def folders() -> list[Path]:
    """The cases' folders, one for each combination of settings."""
    return sorted(path for path in _FOLDER.iterdir() if path.is_dir())


def wrong(folder: Path, decided: Mapping[Key, Decision]) -> list[tuple[Expected, Decision | None]]:
    """The cases that came out otherwise than RocketMQ decided them, or not at all."""
    found = [(case, decided.get(case.key)) for case in expected(folder)]
    return [(case, decision) for case, decision in found if not case.agrees(decision)]


def settings(folder: Path) -> Settings:
    timeout, check_max, hours = (int(part) for part in folder.name.split("-"))
    # a broker asks about all of them in one round
    return Settings(timeout, check_max, check_interval=0, file_reserved_time=hours * HOUR, checks_a_run=None)


def halves(folder: Path) -> list[Half]:
    return [half_of(line) for line in _lines(folder / "half.jsonl")]


def ops(folder: Path) -> list[Op]:
    return [op for line in _lines(folder / "op.jsonl") for op in _ops(line)]


def expected(folder: Path) -> list[Expected]:
    lines = _lines(folder / "expected.jsonl")
    return [
        Expected((line["broker_name"], 0, line["queue_offset"]), line["decision"], line["reason"]) for line in lines
    ]


def half_of(line: dict[str, Any]) -> Half:
    """The half message of a JSON line as `land files` takes it."""
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
        prepared_offset=properties.get("TRAN_PREPARED_QUEUE_OFFSET"),
    )


def _ops(line: dict[str, Any]) -> list[Op]:
    queue = (line["broker_name"], line["queue_id"])
    born, store = line["born_timestamp"], line["store_timestamp"]
    return op_rows(queue, line["queue_offset"], line["body"], [line["outcome"]], born, tag=line["tag"], store=store)


def _recorded(case: dict[str, Any], result: dict[str, Any]) -> Recorded:
    broker = {d["queue_offset"]: d["decision"] for d in result["decisions"] if "copy_of" not in d}
    halves = [half_of(_landed(case["case"], line) | _of_half(line)) for line in case["half"]]
    ops = [op for line in case["op"] for op in _ops(_landed(case["case"], line) | {"outcome": "COMMIT"})]
    return Recorded(case["case"], halves, ops, broker)


def _landed(broker: str, line: dict[str, Any]) -> dict[str, Any]:
    """A line with ages as one that lands, with instants."""
    ages = {"born_timestamp": line["born_age_ms"], "store_timestamp": line.get("store_age_ms", line["born_age_ms"])}
    return line | {"broker_name": broker, "queue_id": 0} | {name: NOW - age for name, age in ages.items()}


def _of_half(line: dict[str, Any]) -> dict[str, Any]:
    key = {"UNIQ_KEY": line["uniq_key"]}
    return {"commit_log_offset": line["queue_offset"] * 512, "body": "", "properties": line["properties"] | key}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)
