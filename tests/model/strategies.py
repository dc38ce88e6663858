"""Histories for halfop's rules: what lands, is resumed and is run, in which order and when.

A `History` is settings and a list of steps; `play` puts it through the model, `half_lines` and `op_lines` turn its
rows into the JSON lines that `land files` takes. Every choice is drawn from a short list whose first member is the
plain one, so that a failing history shrinks to few rows with plain values; the instants come from sums of the settings
themselves, so that an age is often exactly its boundary.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hypothesis import strategies as st

from model.reference import (
    FOREVER,
    LONG_MAX,
    ROCKSDB_QUEUES,
    Ask,
    BrokerDiscard,
    Decision,
    Final,
    Half,
    Key,
    LandingRefused,
    Model,
    Op,
    Override,
    Queue,
    Settings,
    own_immunity,
    small_number,
    split_body,
    whole_number,
)

T = TypeVar("T")

START = 1_750_000_000_000  # ms; most messages are born here

BROKERS = ["broker-a", "broker-b"]
GATEWAY, STORE = "gateway-", "store-"  # sources of brokers that have this in their names
ASKS: list[Ask] = [True, True, True, "auto", "auto", False]
HALF_OFFSETS = [0, 1, 2, 3, 5, 8, 2**53 + 1, LONG_MAX - 1, LONG_MAX]  # holes, and more than a double holds
OP_GAPS = [1, 1, 2, 1000]
GROUPS = ["g1", "g2"]
TOPICS = ["T1", "T2"]
ODD_TOPICS = ["TBW102", "BenchmarkTest", "%RETRY%g1", "%DLQ%" + "d" * 250, "T" * 127, "a|b_c-9"]  # odd, but deliverable
BAD_TOPICS = [None, "", "a b", "tópico", "T" * 128, "%DLQ%" + "d" * 251, "T1\n"]
SYSTEM_TOPICS = [
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "rmq_sys_anything",
    "Rmq_Sys_Mixed",
]
QUEUE_IDS = ["0", "3", "+3", "03"]
BAD_QUEUE_IDS = [None, "", "x", " 3", "3.0", "2147483648", "-1"]
IMMUNITIES = ["1", "0", "6", "7", "30", "+40", "-7", "-1", "abc", " 30", "1.5", "", "9223372036854775"]
IMMUNITIES += ["9223372036854776", "9223372036854775807", "9223372036854775808"]
CHECK_TIMES = ["1", "0", "2", "15", "-3", "x", "1.0", "99999999999"]
GARBAGE_ITEMS = ["x", "-1", " 3", "3 ", "3.0", "9223372036854775808", "\u0661"]
OUTCOMES = ["COMMIT", "ROLLBACK"]
NO_OUTCOMES = [None, "UNKNOWN", "commit"]
WRONG_TAGS = [None, "D", "x", "dd"]


@dataclass(frozen=True)
class Land:
    halves: tuple[Half, ...]
    ops: tuple[Op, ...]
    at: int
    known_until: Mapping[Queue, int | None]
    finals: tuple[Final, ...] = ()
    discards: tuple[BrokerDiscard, ...] = ()

    @property
    def sources(self) -> dict[str, str]:
        """The source that each broker landed by, where its name says one: the last of BROKERS is a real one."""
        brokers = {broker for broker, _ in self.known_until}
        stores = {broker: "STORE" for broker in brokers if broker.endswith(BROKERS[-1]) or STORE in broker}
        return stores | {broker: "GATEWAY" for broker in brokers if GATEWAY in broker}

    @property
    def forgets_after(self) -> dict[Queue, int]:
        """How long a broker keeps what is in RocksDB, if it has said that: not of the first queue."""
        return {queue: 60_000 for queue in self.known_until if queue[1] > ROCKSDB_QUEUES}


@dataclass(frozen=True)
class Resume:
    keys: tuple[Key, ...]
    at: int


@dataclass(frozen=True)
class Run:
    now: int


Step = Land | Resume | Run


@dataclass(frozen=True)
class History:
    settings: Settings
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Reordered:
    """Twice the same rows, each landed in its own order and slices."""

    first: History
    second: History


@dataclass(frozen=True)
class Played:
    """A history as the model played it: by run the decisions and what was sent after it; and landings it refused."""

    model: Model
    runs: list[list[Decision]]
    sent: list[list[Question]]
    refused: list[int]


Question = tuple[int, Key]  # which run asked about which half message


def nothing_sent(_: Model) -> list[Question]:
    return []


def play(history: History, some_of: Callable[[Model], list[Question]] = nothing_sent) -> Played:
    """`some_of` the questions that a producer has been sent by the second after each run, as far as the model knows."""
    played = Played(Model(history.settings), [], [], [])
    for number, step in enumerate(history.steps):
        if isinstance(step, Run):
            played.runs.append(played.model.run(step.now))
            played.sent.append(some_of(played.model))
            for question in played.sent[-1]:
                played.model.deliver(*question, sent_at(step))
        elif isinstance(step, Resume):
            for key in step.keys:
                played.model.resume(key, step.at)
        else:
            try:
                played.model.land(
                    step.halves,
                    step.ops,
                    step.at,
                    step.known_until,
                    finals=step.finals,
                    discards=step.discards,
                    sources=step.sources,
                    forgets_after=step.forgets_after,
                )
            except LandingRefused:
                played.refused.append(number)
    return played


def sent_at(run: Run) -> int:
    return run.now + 1_000


# Rows as `land files` takes them


def half_lines(halves: Iterable[Half]) -> list[dict[str, Any]]:
    return [_half_line(half) for half in halves]


def op_lines(ops: Iterable[Op]) -> list[dict[str, Any]]:
    """One line an item; source is left to `land files`."""
    return [{name: value for name, value in op_columns(op).items() if value is not None} for op in ops]


def properties(half: Half) -> dict[str, str]:
    """The message's properties as the broker keeps them."""
    known = {
        "REAL_TOPIC": half.real_topic,
        "REAL_QID": half.real_qid,
        "PGROUP": half.group,
        "UNIQ_KEY": half.uniq_key,
        "CHECK_IMMUNITY_TIME_IN_SECONDS": half.immunity,
        "TRANSACTION_CHECK_TIMES": half.check_times,
        "TRAN_PREPARED_QUEUE_OFFSET": half.prepared_offset,
        "TRAN_MSG": "true",
        "WAIT": half.wait,
    }
    return {name: value for name, value in known.items() if value is not None}


def _half_line(half: Half) -> dict[str, Any]:
    return {
        "broker_name": half.broker,
        "queue_id": half.queue,
        "queue_offset": half.offset,
        "commit_log_offset": half.commit_log_offset,
        "flag": 0,
        "sys_flag": 0,
        "reconsume_times": 0,
        "born_timestamp": half.born,
        "born_host": "127.0.0.1:1",
        "store_timestamp": half.store,
        "store_host": "127.0.0.1:2",
        "body": base64.b64encode(half.body).decode(),
        "properties": properties(half),
    }


def op_columns(op: Op) -> dict[str, Any]:
    """The columns of an input row of op_messages, whatever it comes from."""
    return {
        "broker_name": op.broker,
        "queue_id": op.queue,
        "queue_offset": op.offset,
        "item": op.item,
        "tag": op.tag,
        "body": op.body,
        "half_offset": op.half_offset,
        "outcome": op.outcome,
        "from_check": op.from_check,
        "born_timestamp": op.born,
        "store_timestamp": op.store,
        "producer_group": op.group,
        "tran_state_table_offset": op.tran_state_table_offset,
        "commit_log_offset": op.commit_log_offset,
        "uniq_key": op.uniq_key,
    }


# Small strategies


def rarely(draw: st.DrawFn, one_in: int = 10) -> bool:
    """True once in a while; shrinks to False."""
    return draw(st.integers(0, one_in - 1)) == one_in - 1


def overrides() -> st.SearchStrategy[Override]:
    return st.builds(Override, st.sampled_from([None, 1_000, 10_000]), st.sampled_from([None, 1, 3]))


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    return Settings(
        transaction_timeout=draw(st.sampled_from([6_000, 10_000, 1_000, 0])),
        check_max=draw(st.sampled_from([15, 1, 2])),
        check_interval=draw(st.sampled_from([60_000, 1_000, 0])),
        file_reserved_time=draw(st.sampled_from([72 * 3_600_000, 3_600_000, 30_000])),
        groups=draw(st.dictionaries(st.sampled_from(GROUPS), overrides(), max_size=1)),
        topics=draw(st.dictionaries(st.sampled_from(TOPICS), overrides(), max_size=1)),
        ask=draw(st.sampled_from(ASKS)),
        watch_for=draw(st.sampled_from([7 * 24 * 3_600_000, 3_600_000, 30_000])),
    )


def durations(rules: Settings) -> st.SearchStrategy[int]:
    """A boundary of the rules, a millisecond beside it, or next to nothing."""
    boundaries = [rules.check_interval, rules.transaction_timeout, 30_000, rules.file_reserved_time]
    return st.builds(lambda base, beside: max(0, base + beside), st.sampled_from([0, *boundaries]), st.integers(-1, 1))


def moments(rules: Settings, halves: Iterable[Half]) -> list[int]:
    """The last instants at which a rule still sees these half messages as it did before."""
    found = set()
    for half in halves:
        timeout = rules.timeout_of(half)
        limits = [0, timeout, rules.file_reserved_time, own_immunity(half, timeout) or 0]
        found |= {half.store} | {half.born + limit for limit in limits if 0 <= limit < FOREVER}
    return sorted(found)


def later(rules: Settings, clock: int, boundaries: list[int]) -> st.SearchStrategy[int]:
    """An instant not before the clock: often one of the boundaries still ahead, or a millisecond after it."""
    waited = st.builds(lambda wait: clock + wait, durations(rules))
    ahead = [instant for instant in boundaries if clock <= instant <= clock + 2 * rules.file_reserved_time]
    if not ahead:
        return waited
    return waited | st.builds(lambda instant, beside: instant + beside, st.sampled_from(ahead), st.integers(0, 1))


@st.composite
def queues(draw: st.DrawFn) -> list[Queue]:
    pool = [(broker, queue) for broker in BROKERS for queue in (0, 1)]
    return draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3, unique=True))


@st.composite
def half_messages(draw: st.DrawFn, rules: Settings, key: Key, number: int) -> Half:
    """A half message; `number` makes it distinct. One in a few has something odd about it."""
    born = START + draw(st.sampled_from([0, 0, 1, -1, 5_000, -60_000, 10**6, -rules.file_reserved_time]))
    store = born + draw(st.sampled_from([0, 0, 1, 6_000, 7_000, 7_001]))
    if born > START:  # the producer's clock is ahead of the broker's
        store = draw(st.sampled_from([START, store]))
    half = Half(
        *key,
        commit_log_offset=number * 100,
        uniq_key=None if rarely(draw) else f"k{number}",
        group=draw(st.sampled_from(GROUPS)),
        real_topic=draw(st.sampled_from(TOPICS)),
        real_qid=draw(st.sampled_from(QUEUE_IDS)),
        born=born,
        store=store,
        immunity=draw(st.sampled_from([None, None, *IMMUNITIES])) if draw(st.booleans()) else None,
        check_times=draw(st.sampled_from([None, *CHECK_TIMES])) if draw(st.booleans()) else None,
        body=b"half %d" % number,
    )
    if rarely(draw, 12):
        half = replace(half, real_topic=draw(st.sampled_from(ODD_TOPICS)))
    return half


@st.composite
def faulty(draw: st.DrawFn, half: Half) -> Half:
    """The same row as a lander might have garbled it: lines 1 and 4 reject it."""
    fault = draw(st.sampled_from(["group", "topic", "queue", "system"]))
    if fault == "group":
        return replace(half, group=draw(st.sampled_from([None, ""])))
    if fault == "topic":
        return replace(half, real_topic=draw(st.sampled_from(BAD_TOPICS)))
    if fault == "queue":
        return replace(half, real_qid=draw(st.sampled_from(BAD_QUEUE_IDS)))
    return replace(half, real_topic=draw(st.sampled_from(SYSTEM_TOPICS)))


@st.composite
def pools(draw: st.DrawFn, rules: Settings) -> list[Half]:
    """The half messages of a history as they should land, by key."""
    halves: list[Half] = []
    for broker, queue in draw(queues()):
        for offset in sorted(draw(st.sets(st.sampled_from(HALF_OFFSETS), min_size=1, max_size=4))):
            halves.append(draw(half_messages(rules, (broker, queue, offset), len(halves))))
    return halves


# Op messages


def op_rows(
    queue: Queue, offset: int, body: str | None, outcomes: Sequence[str | None], born: int, **columns: Any
) -> list[Op]:
    """An op message's rows as they land: one an item, each with its own outcome (the last one for all that follow)."""
    items: Sequence[tuple[int, str | None, int | None]] = [(0, None, None)] if body is None else split_body(body)
    columns = {"tag": "d", "from_check": None, "store": born, **columns}
    return [
        Op(
            *queue,
            offset,
            item,
            body=text,
            half_offset=half,
            outcome=outcomes[min(item, len(outcomes) - 1)],
            born=born,
            **columns,
        )
        for item, text, half in items
    ]


def header(half: Half) -> dict[str, Any]:
    """The header of a right END_TRANSACTION for the half message."""
    return {
        "group": half.group,
        "tran_state_table_offset": half.offset,
        "commit_log_offset": half.commit_log_offset,
        "uniq_key": half.uniq_key,
    }


def late_by(rules: Settings, half: Half) -> st.SearchStrategy[int]:
    """How long after its half message an op is born: near the boundaries of TOO_LATE."""
    limits = [0, rules.timeout_of(half), 1_000, 7_000, 30_000]
    return st.builds(lambda limit, beside: limit + beside, st.sampled_from(limits), st.integers(-1, 1))


@dataclass(frozen=True)
class _Draft:
    """The draft of an op message: `half` is the message that it is about, `ends` how each ought to end."""

    half: Half
    pool: list[Half]
    ends: Mapping[Key, str]
    offset: int
    born: int

    @property
    def queue(self) -> Queue:
        return (self.half.broker, self.half.queue)

    def rows(self, body: str | None, outcomes: Sequence[str | None] = (), **columns: Any) -> list[Op]:
        return op_rows(self.queue, self.offset, body, outcomes or [self.ends[self.half.key]], self.born, **columns)


def _from_check(draw: st.DrawFn) -> bool | None:
    return draw(st.sampled_from([None, False, True]))


def _plain(draw: st.DrawFn, draft: _Draft) -> list[Op]:
    return draft.rows(str(draft.half.offset), from_check=_from_check(draw))


def _headed(draw: st.DrawFn, draft: _Draft) -> list[Op]:
    return draft.rows(str(draft.half.offset), from_check=_from_check(draw), **header(draft.half))


def _wrong_header(draw: st.DrawFn, draft: _Draft) -> list[Op]:
    half = draft.half
    wrong = {"group": "g9", "tran_state_table_offset": half.offset - 1, "commit_log_offset": half.commit_log_offset + 1}
    name = draw(st.sampled_from(sorted(wrong)))
    said = header(half) | {name: wrong[name]}
    return draft.rows(str(half.offset), from_check=_from_check(draw), **said)


def _batch(draw: st.DrawFn, draft: _Draft) -> list[Op]:
    mates = [other for other in draft.pool if (other.broker, other.queue) == draft.queue]
    named = draw(st.lists(st.sampled_from(mates), min_size=1, max_size=4))
    body = ",".join(str(other.offset) for other in named) + draw(st.sampled_from(["", ","]))
    return draft.rows(body, [draft.ends[other.key] for other in named])


def _garbage(draw: st.DrawFn, draft: _Draft) -> list[Op]:
    offset = str(draft.half.offset)
    parts = st.lists(st.sampled_from([offset, "+" + offset, "", *GARBAGE_ITEMS]), min_size=1)
    return draft.rows(",".join(draw(parts)))


def _wrong_tag(draw: st.DrawFn, draft: _Draft) -> list[Op]:
    return draft.rows(str(draft.half.offset), tag=draw(st.sampled_from(WRONG_TAGS)))


def _null_body(draw: st.DrawFn, draft: _Draft) -> list[Op]:
    return draft.rows(None, from_check=_from_check(draw))


def _no_outcome(draw: st.DrawFn, draft: _Draft) -> list[Op]:
    return draft.rows(str(draft.half.offset), [draw(st.sampled_from(NO_OUTCOMES))])


def _unknown_half(draw: st.DrawFn, draft: _Draft) -> list[Op]:
    unknown = draw(st.sampled_from([4, 0, 1, 6, 2**53, LONG_MAX - 2]))
    return draft.rows(str(unknown), [draft.ends.get((*draft.queue, unknown), draft.ends[draft.half.key])])


def _empty_items(draw: st.DrawFn, draft: _Draft) -> list[Op]:
    return draft.rows(draw(st.sampled_from([",", ",,", f",{draft.half.offset},"])))


OP_KINDS = [_plain] * 5 + [_headed] * 5 + [_batch] * 2 + [_wrong_header] * 2
OP_KINDS += [_garbage, _wrong_tag, _null_body, _no_outcome, _unknown_half, _empty_items]


@st.composite
def op_messages(draw: st.DrawFn, rules: Settings, pool: list[Half], ends: Mapping[Key, str], offset: int) -> list[Op]:
    """One op message of any kind; `ends` says how each half message ought to end."""
    half = draw(st.sampled_from(pool))
    kind = draw(st.sampled_from(OP_KINDS))
    return kind(draw, _Draft(half, pool, ends, offset, half.born + draw(late_by(rules, half))))


@st.composite
def all_ops(draw: st.DrawFn, rules: Settings, pool: list[Half], ends: Mapping[Key, str], conflicts: bool) -> list[Op]:
    ops: list[Op] = []
    offset = draw(st.sampled_from([0, 7, 2**53, LONG_MAX - 20_000]))
    for _ in range(draw(st.integers(0, 10))):
        message = draw(op_messages(rules, pool, ends, offset))
        if conflicts and rarely(draw, 6):
            message = [replace(op, outcome=opposite(op.outcome)) for op in message]
        ops += message
        offset += draw(st.sampled_from(OP_GAPS))
    return ops


def opposite(outcome: str | None) -> str | None:
    return {"COMMIT": "ROLLBACK", "ROLLBACK": "COMMIT"}.get(outcome or "", outcome)


# Histories


@dataclass(frozen=True)
class Charter:
    """The common part of histories that are played side by side in one warehouse: settings, and what happens when."""

    settings: Settings
    phases: tuple[Phase, ...]
    last_run: int


@dataclass(frozen=True)
class Phase:
    """A landing, then runs; at one of the `resumes` a message may be resumed."""

    landing: int
    resumes: tuple[int, ...]
    runs: tuple[int, ...]


@st.composite
def charters(draw: st.DrawFn, most_phases: int = 6, most_runs: int = 3, boundaries: Sequence[int] = ()) -> Charter:
    """Instants at which something happens, many of them boundaries of the rules for messages that are born at START."""
    return draw(_charters(draw(settings()), boundaries, most_phases, most_runs))


@st.composite
def _charters(draw: st.DrawFn, rules: Settings, boundaries: Sequence[int], most_phases: int, most_runs: int) -> Charter:
    ahead = list(boundaries) or moments(rules, [_plain_half(rules)])
    phases: list[Phase] = []
    clock = START - 2
    for _ in range(draw(st.integers(1, most_phases))):
        landing = clock = draw(later(rules, clock + 1, ahead))  # no two landings at the same instant
        resumes: list[int] = []
        runs: list[int] = []
        for _ in range(draw(st.integers(0, most_runs))):
            resumes.append(clock)
            clock = draw(later(rules, clock, ahead))
            runs.append(clock)
        phases.append(Phase(landing, tuple(resumes), tuple(runs)))
    return Charter(rules, tuple(phases), draw(later(rules, clock, ahead)))


def _plain_half(rules: Settings) -> Half:
    return Half(BROKERS[0], 0, 0, 0, None, GROUPS[0], TOPICS[0], QUEUE_IDS[0], START, START, immunity="7")


@st.composite
def histories(draw: st.DrawFn, charter: Charter | None = None) -> History:
    """Any history: rows land in any order and more than once, faulty first and corrected later, with reused keys,
    resumes and runs in between, while known_until lags or is missing.

    Left out, because the rules do not say what is to happen: rows that agree in key and identity but contradict each
    other (save faulty ones that a *later* landing corrects), one op offset from two sources, a transaction_check_max
    below 1, and a broker's copies (no TRAN_PREPARED_QUEUE_OFFSET; each UNIQ_KEY belongs to one message).
    """
    rules = charter.settings if charter else draw(settings())
    pool = draw(pools(rules))
    boundaries = moments(rules, pool)
    charter = charter or draw(_charters(rules, boundaries, 6, 3))
    ends = {half.key: draw(st.sampled_from(OUTCOMES)) for half in pool}
    halves: list[list[Half]] = [[] for _ in charter.phases]
    ops: list[list[Op]] = [[] for _ in charter.phases]
    for half in pool:
        _land_half(draw, half, halves)
    for op in draw(all_ops(rules, pool, ends, conflicts=True)):
        _land_op(draw, op, ops)
    landings = [Land(tuple(halves[n]), tuple(ops[n]), phase.landing, {}) for n, phase in enumerate(charter.phases)]
    return History(rules, _steps(draw, charter, landings, pool, boundaries))


def _steps(
    draw: st.DrawFn, charter: Charter, landings: Sequence[Land], pool: list[Half], boundaries: list[int]
) -> tuple[Step, ...]:
    """The landings with some known_until, and what comes between them."""
    modes = {(half.broker, half.queue): draw(st.sampled_from(["absent", "current", "lagging"])) for half in pool}
    keys = [half.key for half in pool] + [("broker-a", 0, 99)]
    steps: list[Step] = []
    for phase, landing in zip(charter.phases, landings, strict=True):
        at = phase.landing
        known = {queue: _known(draw, mode, at, boundaries) for queue, mode in modes.items() if mode != "absent"}
        steps.append(replace(landing, known_until=known))
        for resumed_at, now in zip(phase.resumes, phase.runs, strict=True):
            if rarely(draw, 3):
                resumed = draw(st.lists(st.sampled_from(keys), min_size=1, unique=True))
                steps.append(Resume(tuple(resumed), resumed_at))
            steps.append(Run(now))
    return (*steps, Run(charter.last_run))


def _land_half(draw: st.DrawFn, half: Half, phases: list[list[Half]]) -> None:
    last = len(phases) - 1
    phase = draw(st.integers(0, last))
    phases[phase].append(half)
    if rarely(draw, 6):  # a faulty row, and this one corrects it
        phases[phase][-1] = draw(faulty(half))
        if phase < last and draw(st.booleans()):
            phases[draw(st.integers(phase + 1, last))].append(half)
    elif rarely(draw, 6):  # lands again
        phases[draw(st.integers(0, last))].append(half)
    elif rarely(draw, 30):  # the broker was rebuilt under its old name
        phases[draw(st.integers(0, last))].append(draw(reused(half)))


@st.composite
def reused(draw: st.DrawFn, half: Half) -> Half:
    """Another message under the same key; still a good one."""
    others: list[dict[str, Any]] = [
        {"commit_log_offset": half.commit_log_offset + 7},
        {"store": half.store + 1},
        {"uniq_key": "other"},
    ]
    return replace(half, body=b"reused", **draw(st.sampled_from(others)))


def _land_op(draw: st.DrawFn, op: Op, phases: list[list[Op]]) -> None:
    last = len(phases) - 1
    phase = draw(st.integers(0, last))
    phases[phase].append(op)
    if op.outcome not in OUTCOMES and phase < last and draw(st.booleans()):  # corrected later
        phases[draw(st.integers(phase + 1, last))].append(replace(op, outcome=draw(st.sampled_from(OUTCOMES))))
    elif rarely(draw, 6):  # lands again
        phases[draw(st.integers(0, last))].append(op)
    elif rarely(draw, 60):
        phases[draw(st.integers(0, last))].append(replace(op, store=op.store + 1))


def _known(draw: st.DrawFn, mode: str, clock: int, boundaries: list[int]) -> int | None:
    if mode == "current":
        return clock
    return draw(st.sampled_from([None, clock, *(instant for instant in boundaries if instant < clock)]))


# Histories of a broker whose own check service runs


@dataclass(frozen=True)
class _Chain:
    """A half message and its put-back copies, by offset. Its kind is plain, twins (two messages under one UNIQ_KEY) or
    resumed (the broker's resume wrote the last copy).
    """

    copies: list[Half]
    kind: str


_COPY_KINDS = {kind: ["checked", "checked", "immune", "both", "odd"] for kind in ("plain", "twins", "resumed")}
_COPY_KINDS["twins"] += ["twin"]
_COPY_KINDS["resumed"] += ["resumed"]


def _next_copy(draw: st.DrawFn, before: Half, kind: str, original: Half) -> dict[str, Any]:
    """The properties of what a broker puts back."""
    raised = str((small_number(before.check_times) or 0) + draw(st.sampled_from([1, 1, 1, 2, 15])))
    prepared = before.prepared_offset or str(original.offset)
    kept = None if whole_number(before.check_times) == 0 else before.check_times  # only a resume writes 0
    kinds: dict[str, dict[str, Any]] = {
        "checked": {"check_times": raised, "prepared_offset": before.prepared_offset},
        "immune": {"check_times": kept, "prepared_offset": prepared},
        "both": {"check_times": raised, "prepared_offset": prepared},
        "odd": {"check_times": draw(st.sampled_from(["x", "1.0", "-3", ""])), "prepared_offset": prepared},
        "resumed": {"check_times": draw(st.sampled_from(["0", "0", "+00"])), "prepared_offset": before.prepared_offset},
        "twin": {"check_times": None, "prepared_offset": None},
    }
    return kinds[kind]


@st.composite
def _chains(draw: st.DrawFn, rules: Settings, queue: Queue, first: int) -> list[_Chain]:
    """The messages of one half queue: up to two chains, their messages in turns; `first` numbers the messages."""
    offsets = sorted(draw(st.sets(st.sampled_from(HALF_OFFSETS), min_size=2)))
    owner = {offset: draw(st.integers(0, 1)) for offset in offsets}
    number = {offset: first + place for place, offset in enumerate(offsets)}
    return [
        draw(_chain(rules, queue, {offset: number[offset] for offset in offsets if owner[offset] == chain}))
        for chain in sorted(set(owner.values()))
    ]


@st.composite
def _chain(draw: st.DrawFn, rules: Settings, queue: Queue, numbers: Mapping[int, int]) -> _Chain:
    (offset, number), *others = numbers.items()
    original = draw(half_messages(rules, (*queue, offset), number))
    kind = draw(st.sampled_from(["plain", "plain", "twins", "resumed", "resumed"]))
    steps = {number: draw(st.sampled_from(_COPY_KINDS[kind])) for _, number in others}
    if others and kind == "resumed":
        steps[others[-1][1]] = "resumed"
    copies = [original]
    for offset, number in others:
        waited = draw(st.sampled_from([1, 1_000, rules.check_interval + 1, rules.transaction_timeout + 1, 30_000]))
        given = _next_copy(draw, copies[-1], steps[number], original)
        place: dict[str, Any] = {"offset": offset, "commit_log_offset": number * 100, "body": b"half %d" % number}
        copies.append(replace(original, **place, store=copies[-1].store + waited, **given))
    return _Chain(copies, kind)


def _finals(draw: st.DrawFn, chain: _Chain, first: int) -> list[Final]:
    """The deliveries of a chain's messages: mostly none; `first` is an offset of the real topic's queue."""
    found = []
    for number in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        half = draw(st.sampled_from(chain.copies))
        place = half.commit_log_offset + (7 if rarely(draw, 12) else 0)
        uniq_key = draw(st.sampled_from([half.uniq_key, half.uniq_key, None, "other"]))
        found.append(Final(half.broker, place, half.real_topic or "T1", 3, first + number, uniq_key, half.store))
    return found


def _discards(draw: st.DrawFn, chain: _Chain, first: int) -> list[BrokerDiscard]:
    """A broker's discards of a chain, after any of its messages: mostly none, unless it was resumed."""
    found = []
    for number in range(draw(st.sampled_from([0, 1, 1, 2] if chain.kind == "resumed" else [0, 0, 0, 1, 2]))):
        half = draw(st.sampled_from(chain.copies))
        store = half.store + draw(st.sampled_from([1, 1, 1_000, 30_000]))
        key = (half.broker, half.queue, first + number)
        found.append(BrokerDiscard(*key, half.uniq_key, half.group, half.born, 15, store))
    return found


def _undone(chain: _Chain, discard: BrokerDiscard, phases: Sequence[list[Half]]) -> int | None:
    """Before which phase a discard lands that a broker's resume undid: a later copy with check times 0 reads as one."""
    resumed = {copy for copy in chain.copies if whole_number(copy.check_times) == 0 and copy.store >= discard.store}
    return next((n + 1 for n, halves in enumerate(phases) if resumed & set(halves)), None)


def _land_once_or_twice(draw: st.DrawFn, row: T, phases: Sequence[list[T]]) -> None:
    draw(st.sampled_from(phases)).append(row)
    if rarely(draw, 8):
        draw(st.sampled_from(phases)).append(row)


def _land_chain(draw: st.DrawFn, chain: _Chain, phases: list[list[Half]]) -> None:
    """Lands a chain in order or in any, some never. Twins land in order: what is whose copy depends on it."""
    in_order = draw(st.booleans()) or chain.kind == "twins"
    last_at_last = chain.kind == "resumed" and draw(st.booleans())
    earliest = 0
    for half in chain.copies:
        if not rarely(draw, 10):
            phase = draw(st.integers(earliest, len(phases) - 1))
            if last_at_last and half == chain.copies[-1]:
                phase = len(phases) - 1
            phases[phase].append(half)
            earliest = phase if in_order else 0
            if rarely(draw, 8):
                phases[draw(st.integers(phase, len(phases) - 1))].append(half)


@st.composite
def copied_histories(draw: st.DrawFn, charter: Charter | None = None, conflicts: bool = True) -> History:
    """A broker's own check service runs: half messages with copies, twins now and then, ops on any of them, resumes by
    the broker and by us, final messages with and without ops, and the broker's discards; all in any order. Without
    `conflicts`, all that says how a transaction ends says the same.

    Left out, because the rules do not say what is to happen: messages that can never be delivered (which row of several
    is rejected), copies that differ in group or real topic or that are corrected, a half message without a group, a
    twin that lands after a copy above it, a copy of twins of which one has ended (see `undecided` of the model), a
    broker's resume of twins, one that lands before the discard that it undid,
    and a discard stored after it landed.
    """
    rules = charter.settings if charter else draw(settings())
    chains: list[_Chain] = []
    for queue in draw(queues()):
        chains += draw(_chains(rules, queue, sum(len(chain.copies) for chain in chains)))
    pool = [half for chain in chains for half in chain.copies]
    boundaries = moments(rules, pool)
    charter = charter or draw(_charters(rules, boundaries, 6, 3))
    landings = [Land((), (), phase.landing, {}) for phase in charter.phases]
    halves: list[list[Half]] = [[] for _ in landings]
    ops: list[list[Op]] = [[] for _ in landings]
    finals: list[list[Final]] = [[] for _ in landings]
    discards: list[list[BrokerDiscard]] = [[] for _ in landings]
    ends: dict[Key, str] = {}
    by_ops: list[Half] = []
    for number, chain in enumerate(chains):
        _land_chain(draw, chain, halves)
        end = draw(st.sampled_from(OUTCOMES))
        ends |= {half.key: end for half in chain.copies}
        by_ops += chain.copies if draw(st.booleans()) else []
        for final in _finals(draw, chain, 10 * number):
            if conflicts or end == "COMMIT":
                _land_once_or_twice(draw, final, finals)
        for discard in _discards(draw, chain, 10 * number):
            upto = _undone(chain, discard, halves)
            later = [discards[n] for n, phase in enumerate(charter.phases[:upto]) if phase.landing >= discard.store]
            if later:
                _land_once_or_twice(draw, discard, later)
    for op in draw(all_ops(rules, by_ops, ends, conflicts)) if by_ops else []:
        _land_once_or_twice(draw, op, ops)
    rows = zip(landings, halves, ops, finals, discards, strict=True)
    landings = [Land(tuple(h), tuple(o), land.at, {}, tuple(f), tuple(d)) for land, h, o, f, d in rows]
    return History(rules, _steps(draw, charter, landings, pool, boundaries))


# The same rows in two orders


@st.composite
def reorderings(draw: st.DrawFn, orders: tuple[Charter, Charter] | None = None) -> Reordered:
    """The same rows in two orders and slicings, for: the same transactions end the same way, whatever the order.

    Ends are commits (with what was delivered), rollbacks and rejects; not how often a producer was asked, nor who is
    discarded meanwhile, because that depends on when the runs take place. Not in these rows, because the rules let the
    order decide: conflicting ops for one half message (the first decided end stands), and reused keys (the first
    landed row stands).
    """
    rules = orders[0].settings if orders else draw(settings())
    pool = draw(pools(rules))
    ends = {half.key: draw(st.sampled_from(OUTCOMES)) for half in pool}
    halves = [replace(half, group=None) if rarely(draw, 3) else half for half in pool]
    garbled = [draw(faulty(half)) for half in halves if rarely(draw, 6)]
    never_right = {half.key for half in garbled if rarely(draw, 3)}
    halves = garbled + [half for half in halves if half.key not in never_right]
    ops = draw(all_ops(rules, pool, ends, conflicts=False))
    ops += [fixed for op in ops for fixed in _with_outcome(op, ends)]
    first, second = orders or (draw(_orders(rules)), draw(_orders(rules)))
    return Reordered(*(History(rules, draw(_sliced(order, halves, ops))) for order in (first, second)))


@st.composite
def _orders(draw: st.DrawFn, rules: Settings) -> Charter:
    pauses = st.sampled_from([0, 1, rules.check_interval, rules.transaction_timeout + 1, 30_000])
    phases: list[Phase] = []
    clock = START
    for _ in range(draw(st.integers(1, 5))):
        landing = clock = clock + 1 + draw(pauses)
        runs = []
        for _ in range(draw(st.integers(0, 2))):
            clock += draw(pauses)
            runs.append(clock)
        phases.append(Phase(landing, tuple(runs), tuple(runs)))
    return Charter(rules, tuple(phases), clock + 1)


def _with_outcome(op: Op, ends: Mapping[Key, str]) -> list[Op]:
    """The row that corrects one that lacks its outcome."""
    if op.outcome in OUTCOMES or op.half_offset is None:
        return []
    return [replace(op, outcome=ends[op.broker, op.queue, op.half_offset])]


@st.composite
def _sliced(draw: st.DrawFn, charter: Charter, halves: list[Half], ops: list[Op]) -> tuple[Step, ...]:
    last = len(charter.phases) - 1
    half_phases: list[list[Half]] = [[] for _ in charter.phases]
    op_phases: list[list[Op]] = [[] for _ in charter.phases]
    keys = sorted({half.key for half in halves})
    for half in halves:
        half_phases[draw(st.integers(0, last))].append(half)
    for op in ops:
        op_phases[draw(st.integers(0, last))].append(op)
    found = sorted({key[:2] for key in keys})
    modes = {queue: draw(st.sampled_from(["absent", "current", "lagging"])) for queue in found}
    boundaries = moments(charter.settings, halves)
    steps: list[Step] = []
    for number, phase in enumerate(charter.phases):
        at = phase.landing
        known = {queue: _known(draw, mode, at, boundaries) for queue, mode in modes.items() if mode != "absent"}
        steps.append(Land(tuple(half_phases[number]), tuple(op_phases[number]), at, known))
        for resumed_at, now in zip(phase.resumes, phase.runs, strict=True):
            if rarely(draw, 3):
                steps.append(Resume((draw(st.sampled_from(keys)),), resumed_at))
            steps.append(Run(now))
    return (*steps, Run(charter.last_run))
