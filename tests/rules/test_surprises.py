"""RocketMQ's ways that halfop does not have: its recorded surprises, and reports of its users by their issue's number.

Every case has a broker of its own, and all of them share three runs: at once, a second later and two hours later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from model import reference as m
from model.oracle import NOW, Recorded, surprises
from model.strategies import op_rows
from pyspark.sql import SparkSession
from support import rows as r
from support.rules.rule_words import HOUR, SECOND, half

RUNS = (NOW, NOW + SECOND, NOW + 2 * HOUR)
RULES = m.Settings(groups={"asked-once": m.Override(check_max=1)})
RECORDED = surprises()

Landed = m.Half | m.Op | m.Final
Wanted = str | Sequence[str]  # decision and reason; of each run, the first one first, "" where a run has no row


# ---- recorded of RocketMQ 5.3.3: its decision beside halfop's, by half offset ----


@dataclass(frozen=True)
class Surprise:
    """A recorded case: of each half message RocketMQ's decision and halfop's, and in one sentence why they differ.

    `copies`: which half message is the broker's copy of which. RocketMQ's record has a key of its own for each, and it
    does not have the original where that stood before the place from which the broker read.
    """

    name: str
    both: Mapping[int, tuple[str | None, Wanted]]
    why: str
    copies: Mapping[int, int] = field(default_factory=dict)
    group: str = "g"

    @property
    def halves(self) -> list[m.Half]:
        """The half messages as recorded, with the copies' originals and their keys."""
        found = {half.offset: half for half in RECORDED[self.name].halves}
        for copy, of in self.copies.items():
            found.setdefault(of, replace(found[copy], offset=of, check_times=None, prepared_offset=None))
            found[copy] = replace(found[copy], uniq_key=found[of].uniq_key, born=found[of].born)
        return [replace(half, group=self.group, commit_log_offset=half.offset * 512) for half in found.values()]


CHECKED, COMMITTED = ("checked", "CHECK TIMEOUT"), ("resolved", "COMMIT PRODUCER")
IMMUNE, PUT_BACK = ("waiting", "WAIT IMMUNE"), ("putback_immune", "WAIT IMMUNE")
HIDDEN_END, LATE_END = ("waiting", "COMMIT PRODUCER"), ("checked", "COMMIT PRODUCER")
OLD_COPY = (None, "SUPERSEDED")

SURPRISES = [
    Surprise(
        "young-stops-queue",
        {
            0: IMMUNE,
            1: HIDDEN_END,
            2: ("waiting", "DISCARD CHECKED_TOO_OFTEN"),
            3: ("waiting", "DISCARD EXPIRED"),
            4: IMMUNE,
        },
        "an immune message hides no other one",
    ),
    Surprise(
        "fresh-stops-queue",
        {0: ("waiting", "WAIT FRESH"), 1: HIDDEN_END, 2: ("waiting", "DISCARD CHECKED_TOO_OFTEN")},
        "a fresh message hides no other one",
    ),
    Surprise("own-immunity-does-not-stop", {0: PUT_BACK, 1: CHECKED}, "an immune message waits and is not put back"),
    Surprise(
        "discard-despite-op",
        {0: ("discarded", "COMMIT PRODUCER")},
        "every landed op counts before a message is given up",
    ),
    Surprise("expired-despite-op", {0: ("discarded", "COMMIT PRODUCER")}, "every landed op counts before age does"),
    Surprise("no-discard-when-op-in-first-pull", {0: COMMITTED}, "both find the op"),
    Surprise("discard-saved-by-a-neighbour", {0: CHECKED, 1: COMMITTED}, "both find the op"),
    Surprise(
        "discard-before-fresh-and-immunity",
        {0: ("discarded", "WAIT IMMUNE"), 1: ("discarded", "WAIT FRESH"), 2: ("discarded", "WAIT IMMUNE")},
        "the last check has its time to be answered, and a copy within its own immunity was never checked",
    ),
    Surprise("immune-despite-op", {0: ("putback_immune", "COMMIT PRODUCER")}, "every landed op counts before immunity"),
    Surprise(
        "late-op-for-put-back-original",
        {0: OLD_COPY, 1: ("putback_immune", "COMMIT PRODUCER")},
        "an op for the original ends its copy",
        copies={1: 0},
    ),
    Surprise("late-op-then-checked", {0: OLD_COPY, 1: LATE_END}, "an op for the original ends its copy", copies={1: 0}),
    Surprise(
        "late-op-for-checked-original",
        {0: OLD_COPY, 1: LATE_END},
        "an op for the original ends its copy, with or without immunity",
        copies={1: 0},
    ),
    Surprise(
        "prepared-used-up-by-original",
        {0: ("resolved", "SUPERSEDED"), 1: ("putback_immune", "COMMIT PRODUCER")},
        "one op ends original and copy together",
        copies={1: 0},
    ),
    Surprise(
        "prepared-works",
        {0: ("putback_immune", "SUPERSEDED"), 1: CHECKED, 2: COMMITTED},
        "where the op stands among the others does not matter",
        copies={2: 0},
    ),
    Surprise(
        "prepared-loses-joined-offsets",
        {0: ("resolved", "WAIT IMMUNE"), 1: IMMUNE, 2: HIDDEN_END, 3: HIDDEN_END},
        "a message of another key is no copy, and each offset of a joined op counts for itself",
    ),
    Surprise("immune-counts-as-check", {0: PUT_BACK}, "waiting is not counted as a check"),
    Surprise(
        "last-check-then-discard",
        {0: ("checked", ("CHECK TIMEOUT", "WAIT CHECKED_RECENTLY", "DISCARD CHECKED_TOO_OFTEN"))},
        "the last check has its time to be answered",
    ),
    Surprise("last-check-then-wait", {0: CHECKED, 1: CHECKED}, "both ask both"),
    Surprise(
        "check-max-1",
        dict.fromkeys((0, 1), ("checked", ("CHECK TIMEOUT", "WAIT CHECKED_RECENTLY"))),
        "also an only check has its time to be answered",
        group="asked-once",
    ),
    Surprise(
        "one-hole-a-run",
        {0: CHECKED, 2: CHECKED, 4: ("waiting", "CHECK TIMEOUT")},
        "missing offsets do not end a run",
    ),
    Surprise("hole-at-front-counts", {5: CHECKED, 7: ("waiting", "CHECK TIMEOUT")}, "missing offsets do not end a run"),
    Surprise(
        "half-offset-past-end",
        {0: (None, "CHECK TIMEOUT"), 1: (None, "CHECK TIMEOUT")},
        "no progress counter can pass over an open message",
    ),
    Surprise("op-offset-too-small", {0: LATE_END, 1: LATE_END}, "no progress counter can pass over an op"),
    Surprise("op-offset-past-end", {0: LATE_END}, "no progress counter can pass over an op"),
    Surprise("future-born-despite-op", {0: LATE_END}, "every landed op counts before a skewed clock"),
    Surprise("future-born-own-immunity", {0: PUT_BACK}, "both let it wait"),
    Surprise("op-clock-ahead", {0: LATE_END}, "an op's clock does not decide how many ops are read"),
    Surprise(
        "own-immunity-smaller", {0: CHECKED, 1: CHECKED, 2: CHECKED, 3: PUT_BACK, 4: PUT_BACK}, "both read it alike"
    ),
    Surprise("unreadable-check-times", {0: CHECKED, 1: CHECKED}, "both ask both"),
    Surprise(
        "body-spelling",
        {0: COMMITTED, 1: COMMITTED, 2: ("resolved", "CHECK TIMEOUT"), 3: CHECKED, 4: CHECKED, 5: CHECKED},
        "digits of other scripts are no offset: no broker writes them",
    ),
    Surprise("op-twice", {0: COMMITTED, 1: COMMITTED}, "both end each of them once"),
    Surprise(
        "op-for-later-offset",
        {0: COMMITTED, 1: COMMITTED, 2: IMMUNE, 3: HIDDEN_END},
        "an immune message hides no other one",
    ),
    Surprise(
        "stall-prepared-unreadable",
        {0: ("checked", "WAIT IMMUNE"), 1: CHECKED},
        "an unreadable offset stalls nothing: a run has one instant, and at that one the message is immune",
    ),
]


# ---- reported by users of RocketMQ ----


@dataclass(frozen=True)
class Report:
    """An issue of apache/rocketmq: what goes wrong in a broker in one sentence, and what halfop makes of it.

    `lands`: by run. `delivered` and `questions` count rows of the real topic and check requests after all runs.
    """

    issue: int
    goes_wrong: str
    lands: Mapping[int, Sequence[Landed]]
    wanted: Mapping[int, Wanted]
    delivered: int = 0
    questions: int = 0
    rejects: Sequence[str] = ()
    part: str = ""

    @property
    def name(self) -> str:
        return f"{self.issue}{self.part and ' ' + self.part}"


def copy(offset: int, of: int, times: str) -> m.Half:
    """The copy that the broker's check put back."""
    return half(offset, uniq_key=f"k{of}", store=NOW - SECOND, check_times=times)


def op(offset: int, *names: int, outcome: str = "COMMIT", stored: int = NOW - SECOND, **columns: bool) -> list[m.Op]:
    return op_rows(("", 0), offset, ",".join(map(str, names)), [outcome], stored, **columns)


REPORTS = [
    Report(
        5574,
        "two equal END_TRANSACTION requests deliver the message twice",
        {0: [half(), *op(0, 0), *op(1, 0)]},
        {0: "COMMIT PRODUCER"},
        delivered=1,
        rejects=["REDUNDANT"],
    ),
    Report(
        8158,
        "a producer's commit after the check's own commit delivers the message again",
        {0: [half()], 1: op(0, 0, from_check=True), 2: op(1, 0, from_check=False)},
        {0: ("CHECK TIMEOUT", "COMMIT CHECK", "")},
        delivered=1,
        questions=1,
        rejects=["REDUNDANT"],
        part="commit after a commit",
    ),
    Report(
        8158,
        "a producer's commit after the check's rollback delivers a message that was rolled back",
        {0: [half()], 1: op(0, 0, outcome="ROLLBACK", from_check=True), 2: op(1, 0, from_check=False)},
        {0: ("CHECK TIMEOUT", "ROLLBACK CHECK", "")},
        questions=1,
        rejects=["CONFLICT"],
        part="commit after a rollback",
    ),
    Report(
        8158,
        "checks go on to their maximum although the producer has ended the transaction, for the op names the original",
        {0: [half(), copy(1, 0, "1")], 1: op(0, 0)},
        {0: ("SUPERSEDED", "", ""), 1: ("WAIT CHECKED_RECENTLY", "COMMIT PRODUCER", "")},
        delivered=1,
        part="checks after the end",
    ),
    Report(
        8158,
        "a commit after the last check is lost or delivered without a trace, depending on where the message stands",
        {0: [half(age=80 * HOUR)], 1: op(0, 0)},
        {0: ("DISCARD EXPIRED", "COMMIT AFTER_DISCARD", "")},
        delivered=1,
        part="commit after the discard",
    ),
    Report(
        9500,
        "one message at which a check fails ends the round for all that stand after it, again and again",
        {0: [half(real_qid="x"), half(1), half(2), *op(0, 2)]},
        {0: ("REJECT BAD_REAL_QUEUE", "", ""), 1: ("CHECK TIMEOUT", "WAIT CHECKED_RECENTLY"), 2: "COMMIT PRODUCER"},
        delivered=1,
        questions=2,
        rejects=["BAD_REAL_QUEUE"],
    ),
    Report(
        7240,
        "a joined op counts as done when one of its offsets is, so the messages of its other offsets are checked",
        {0: [half(), *op(0, 0, 1, 2), half(1)], 1: [half(2)]},
        {0: "COMMIT PRODUCER", 1: "COMMIT PRODUCER", 2: ("EARLY_OP", "COMMIT PRODUCER", "")},
        delivered=3,
    ),
    Report(
        9320,
        "a message whose own immunity is longer than all checks together is given up and was never asked about",
        {0: [half(immunity="3600", check_times="14")]},
        {0: ("WAIT IMMUNE", "WAIT IMMUNE", "CHECK TIMEOUT")},
        questions=1,
    ),
    Report(
        2133,
        "deleting unused topics deletes the op queue, and what its ops had ended is checked again",
        {0: [half(), *op(0, 0)], 1: [half(1), *op(0, 1, stored=NOW)]},
        {0: ("COMMIT PRODUCER", "", ""), 1: ("", "CHECK TIMEOUT", "CHECK TIMEOUT")},
        delivered=1,
        questions=2,
        rejects=["KEY_REUSED"],
        part="an op queue that begins again",
    ),
    Report(
        2133,
        "deleting unused topics deletes the op queue, and what its ops had ended is checked again",
        {0: [half(), m.Final("", 0, "T", 1, 7, "k0", NOW)]},
        {0: ("COMMIT FINAL", "", "")},
        delivered=1,
        part="an op that never landed",
    ),
]


# ---- played ----


@dataclass(frozen=True)
class Outcome:
    """The fate of every case, by its name, which is its broker's."""

    decisions: Mapping[tuple[str, int], list[str]]
    rejects: Mapping[str, list[str]]
    delivered: Counter[str]
    questions: Counter[str]
    check_times: Mapping[tuple[str, int], list[int]]


@pytest.fixture(scope="module")
def outcome(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    warehouse = KernelWarehouse(spark, str(tmp_path_factory.mktemp("surprises") / "warehouse"))
    for run, now in enumerate(RUNS):
        rows = _landing(run)
        halves, ops, finals = ([row for row in rows if isinstance(row, kind)] for kind in (m.Half, m.Op, m.Final))
        r.land(warehouse, halves, ops, now, finals=finals)  # type: ignore[arg-type]
        r.run(warehouse, RULES, now)
    return _outcome(warehouse)


def _landing(run: int) -> list[Landed]:
    rows: list[Landed] = [replace(row, broker=report.name) for report in REPORTS for row in report.lands.get(run, ())]
    if run == 0:
        for surprise in SURPRISES:
            rows += [*surprise.halves, *RECORDED[surprise.name].ops]
    return rows


def _outcome(warehouse: Warehouse) -> Outcome:
    found = [{d.key: d for d in r.decisions(warehouse, run + 1)} for run in range(len(RUNS))]
    keys = sorted({key for run in found for key in run})
    rejects: dict[str, list[str]] = {}
    for (_, reason, broker, *_), number in r.rejected(warehouse).items():
        rejects.setdefault(broker, []).extend([reason] * number)
    return Outcome(
        {
            (broker, offset): [_text(run.get((broker, queue, offset))) for run in found]
            for broker, queue, offset in keys
        },
        rejects,
        Counter(row.key[0] for row in r.delivered(warehouse).elements()),
        Counter(row.key[0] for row in r.requests(warehouse).elements()),
        {(key[0], key[2]): [run[key].check_times for run in found if key in run] for key in keys},
    )


def _text(decision: m.Decision | None) -> str:
    return " ".join(part for part in (decision.decision, decision.reason) if part) if decision else ""


def _as_wanted(found: Sequence[str], wanted: Wanted) -> Wanted:
    """As many runs as the case has."""
    return found[0] if isinstance(wanted, str) else tuple(found[: len(wanted)])


# ---- held against the tables ----


def test_every_recorded_surprise_is_named() -> None:
    assert [surprise.name for surprise in SURPRISES] == list(RECORDED)


@pytest.mark.parametrize("surprise", SURPRISES, ids=lambda surprise: surprise.name)
def test_recorded_surprises(outcome: Outcome, surprise: Surprise) -> None:
    recorded: Recorded = RECORDED[surprise.name]
    broker = {offset: decision for offset, (decision, _) in surprise.both.items() if decision}
    assert broker == recorded.broker, "as RocketMQ recorded it"
    found = {
        offset: _as_wanted(outcome.decisions[surprise.name, offset], wanted)
        for offset, (_, wanted) in surprise.both.items()
    }
    assert found == {offset: wanted for offset, (_, wanted) in surprise.both.items()}, surprise.why


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)
def test_reported_issues(outcome: Outcome, report: Report) -> None:
    name, wanted = report.name, report.wanted
    found = {offset: _as_wanted(outcome.decisions[name, offset], wanted[offset]) for offset in wanted}
    assert found == wanted, report.goes_wrong
    assert sorted(outcome.rejects.get(name, [])) == sorted(report.rejects)
    assert (outcome.delivered[name], outcome.questions[name]) == (report.delivered, report.questions)


def test_waiting_is_not_counted_as_a_check(outcome: Outcome) -> None:
    """RocketMQ raises check times whenever it puts an immune message back."""
    assert outcome.check_times["9320", 0] == [0, 0, 1]
    assert outcome.check_times["immune-counts-as-check", 0] == [0, 0, 1]


def test_an_unreadable_number_of_checks_counts_as_none(outcome: Outcome) -> None:
    assert outcome.check_times["unreadable-check-times", 0][0] == 1
    assert outcome.check_times["unreadable-check-times", 1][0] == -2
