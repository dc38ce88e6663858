"""Pages as a browser sees them, and figures with everything in them that a report can show."""

from __future__ import annotations

from datetime import datetime, timezone
from html.parser import HTMLParser
from typing import Any

from halfop.planning.run import Clock
from halfop.report.figures import Figures, RunFigures
from pyspark.sql import Row

from support.messages import NOW

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
_AT_MILLIS = int(AT.timestamp() * 1000)
HOSTILE = ("plain", "</script><script>x()</script>", "--it's \"$(id)`id`\\", "\x1b[2J\u202e<img src=x onerror=y()>")


class Tags(HTMLParser):
    """The elements and attributes' names that a browser would see, and the text between."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.said: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(f"{tag} {name}" for name, _ in attrs)}

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    def handle_comment(self, data: str) -> None:
        self.found.add("a comment")


def hanging_rows(number: int) -> list[Row]:
    """Hanging messages, born a minute apart, of four groups and brokers; every second is discarded."""
    return [
        Row(
            broker_name=HOSTILE[n % 4],
            queue_id=0,
            queue_offset=n,
            producer_group=HOSTILE[n % 4],
            real_topic="T" if n % 3 else None,
            decision="DISCARD" if n % 2 else "CHECK",
            reason="EXPIRED" if n % 2 else "TIMEOUT",
            check_times=1,
            born_timestamp=_AT_MILLIS - (number - n) * 60_000,
        )
        for n in range(number)
    ]


def many_hang(number: int) -> Figures:
    run = RunFigures(1, AT, AT, AT, {})
    tables = {"half_messages": number, "op_messages": 0}
    return Figures(last=1, planned=1, runs=[run], tables=tables, found={"hanging": hanging_rows(number)})


def everything(name: str, number: int = 3, runs: int = 2) -> Figures:
    """Figures of everything there can be, with one text for every name."""
    counts = {
        f"{what}.{name}": number for what in ("COMMIT", "ROLLBACK", "CHECK", "WAIT", "DISCARD", "REJECT", "SUPERSEDED")
    }
    made = [RunFigures(n + 1, AT, AT, AT, counts) for n in range(runs)]
    made[-1] = made[-1]._replace(closed=None)
    key = {"broker_name": name, "queue_id": 0, "queue_offset": number, "uniq_key": name}
    about = {**key, "producer_group": name, "real_topic": name, "reason": name, "check_times": 3}
    about |= {
        "born_timestamp": 2**62,
        "decided_at": NOW,
        "age": number,
        "decision": "CHECK",
        "resumed": None,
        "written": True,
    }
    reject = {
        **key,
        "kind": "OP",
        "reason": name,
        "nth": 1,
        "run_id": None,
        "rejected_at": NOW,
        "detail": name,
        "half_offset": 1,
    }
    place = {"n": number, "percentiles": [number] * 3, "most": number}
    group = {"producer_group": name, "open": number, "silent": 1, "discarded": 1, "oldest": 2**62, "most_asked": 2}
    ages = [
        {"age": n, "decision": "WAIT", "reason": name, "n": number, "asked": 1, "oldest": 2**62} for n in range(-1, 8)
    ]
    rows: dict[str, list[dict[str, Any]]] = {
        "open_by_age": [*ages, {**ages[0], "decision": "EARLY_OP"}],
        "oldest_open": [about],
        "open_groups": [group] * 12,
        "silent_groups": [group] * 12,
        "latency": [{"place": None, **place}, {"place": 0, **place}],
        "topics": [{"real_topic": name, "n": number}, {"real_topic": None, "n": 1}],
        "asked": [{"decision": "COMMIT", "reason": "CHECK", "n": number}],
        "discard_reasons": [{"reason": name, "n": number}],
        "hanging": [about, {**about, "producer_group": None, "reason": None, "born_timestamp": None}],
        "discards": [about, {**about, "resumed": True}, {**about, "written": False}],
        "reject_reasons": [{"kind": "OP", "reason": name, "n": number}, {"kind": "OP", "reason": "CONFLICT", "n": 1}],
        "rejects": [reject, {**reject, "reason": "CONFLICT"}],
    }
    late = [Clock(name, 0, None, None, None)] * 10
    return Figures(
        last=runs,
        planned=runs,
        closed=False,
        runs=made,
        late=late,
        tables={"half_messages": number, "op_messages": number},
        found={what: [Row(**row) for row in each] for what, each in rows.items()},
    )
