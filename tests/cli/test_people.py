"""The end of a call for people: what was done, and what needs a look, with the command to look at it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from halfop.follow import Cycle, StepEnd
from halfop.frame.people import told
from halfop.frame.summary import Summary
from halfop.frame.trouble import Failure
from halfop.settings.model import Settings

_LANDED = Summary("land", rows_written={"half_messages": 1, "op_messages": 2_000, "rejected": 3, "landed_files": 2})
_LANDED.extra = {"rejected": {"HALF.KEY_REUSED": 1, "OP.REDUNDANT": 2}}
_RUN = Summary("reconcile", run_id=7, seconds={"plan": 1.5, "apply": 2.0}, notes=["finished run 6", "and more"])
_RUN.decisions = {"DISCARD": {"EXPIRED": 1}, "COMMIT": {"PRODUCER": 2, "CHECK": 1_000}}
_RUN.rows_written = {"topics": 1_002, "check_requests": 1}
_RUN.extra = {"open_messages": 3, "oldest_open_seconds": 7_260.0, "queues_behind": {"b/0": "never"}}
LOOK_AT_DISCARDS = [
    "  look at    1 discarded",
    '               ./spark-submit.sh sql "SELECT * FROM trans_check_max_time ORDER BY run_id DESC, discarded_at DESC"',
]
LOOK_AT_QUEUES = [
    "1 queue whose ops have not landed up to now",
    '               ./spark-submit.sh sql "SELECT * FROM landing_progress ORDER BY known_until"',
]
ENDS: dict[str, tuple[Summary, list[str]]] = {
    "nothing": (Summary("land"), ["land: done"]),
    "land": (
        _LANDED,
        [
            "land: done",
            "  landed     1 half message, 2,000 ops",
            "  look at    1 rejected as HALF.KEY_REUSED",
            "               ./spark-submit.sh sql \"SELECT * FROM rejected WHERE kind = 'HALF' "
            "AND reason = 'KEY_REUSED' ORDER BY rejected_at DESC\"",
        ],
    ),
    "run": (
        _RUN,
        [
            "reconcile, run 7: done in 3.5 s",
            "  decided    1,002 COMMIT, 1 DISCARD",
            "  delivered  1,002 messages",
            "  to ask     1 question",
            "  open       3 messages, the oldest for 2 h 1 min",
            *LOOK_AT_DISCARDS,
            *(f"{'' if number else ' ' * 13}{line}" for number, line in enumerate(LOOK_AT_QUEUES)),
            "  note       finished run 6",
            "             and more",
        ],
    ),
    "failed sinks": (
        Summary("reconcile", status=1, extra={"failed_sinks": {"topics/T\x1b": "the disk is full"}}),
        ["reconcile: ended with status 1", "  look at    topics/T\\x1b failed: the disk is full"],
    ),
    "examine": (
        Summary("examine", status=3, extra={"commands": ["./spark-submit.sh examine --repair"], "remains": ["x"]}),
        [
            "examine: ended with status 3",
            "  look at    to do next",
            "               ./spark-submit.sh examine --repair",
        ],
    ),
    "end": (
        Summary("end", status=5, extra={"endings": {"VERIFIED": 2, "FAILED": 1}}),
        [
            "end: ended with status 5",
            "  look at    1 not ended",
            '               ./spark-submit.sh sql "SELECT * FROM endings ORDER BY at DESC"',
        ],
    ),
    "audit": (
        Summary("audit", extra={"audit_id": "a-1", "findings": {"DELIVERED_TWICE": 2, "OTHER": 0}}),
        [
            "audit: done",
            "  look at    2 findings",
            "               ./spark-submit.sh sql \"SELECT * FROM audit WHERE audit_id = 'a-1'\"",
        ],
    ),
    "plan": (
        Summary("end", extra={"planned": 2, "plan": "/x/plan.jsonl"}),
        ["end: done", "  planned    2 ends", "  written    /x/plan.jsonl"],
    ),
    "resume": (Summary("resume", extra={"resumed": 1}), ["resume: done", "  resumed    1 message"]),
    "report": (Summary("report", extra={"path": "/x/report.html"}), ["report: done", "  written    /x/report.html"]),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_a_call(name: str) -> None:
    summary, lines = ENDS[name]
    assert told(summary, Settings()).splitlines() == lines


def test_the_end_of_a_cycle() -> None:
    cycle = Cycle(4, StepEnd(1.0, _LANDED), StepEnd(3.0, _RUN))
    lines = told(cycle.summary(), Settings()).splitlines()
    assert lines[0] == "follow 4, run 7: done in 4 s"
    assert lines[1] == "  landed     1 half message, 2,000 ops"
    assert "  open       3 messages, the oldest for 2 h 1 min" in lines
    assert [line for line in lines if "KEY_REUSED" in line and "1 rejected" in line]
    lossy = replace(_LANDED, extra=_LANDED.extra | {"bad_rows": 7, "lost_ranges": 2})
    owing = replace(_RUN, extra=_RUN.extra | {"owed": ["topics/T of run 7"]})
    lost = told(Cycle(6, StepEnd(1.0, lossy), StepEnd(3.0, owing)).summary(), Settings())
    assert "9 that could not land" in lost
    assert "not written yet, because it was parked: topics/T of run 7" in lost
    failed = Cycle(5, StepEnd(1.0, None, Failure(3, "no such file", False)), None)
    assert told(failed.summary(), Settings()).splitlines()[:2] == [
        "follow 5: ended with status 3 in 1 s",
        "  look at    land failed: no such file",
    ]


def test_commands_name_the_warehouse() -> None:
    lines = told(_RUN, Settings(warehouse="/w x")).splitlines()
    assert len([line for line in lines if line.endswith("DESC\" --warehouse '/w x'")]) == 1
