"""The rules once more, as plain Python: what halfop's runs must decide, without Spark, tables or speed.

Written from the rules alone and from none of halfop's code, so that the two can be held against each other. All times
are int milliseconds. A `Model` is told what lands (`land`) and what is resumed (`resume`), and `run` decides. Which
half messages are copies of each other is in `model_lineage`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from model.lineage import BEGINNING, Copy, Transaction, families, is_marked, name_of

LONG_MAX = 2**63 - 1
FOREVER = 2**80  # longer than any immunity that fits a long
ROCKSDB_QUEUES = 1_000_000  # from this number on a queue is of a broker that keeps its transactions in RocksDB

NOT_ALLOWED_SEND = {
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
}

Ask = Literal["auto", True, False]
Count = Literal["auto", "written", "delivered"]
Queue = tuple[str, int]
Key = tuple[str, int, int]  # broker, queue, offset of the half message
OpKey = tuple[str, int, int, int, str, int]
FinalKey = tuple[str, str, int, int]
Identity = tuple[int | None, int, str | None]  # what rows with the same key must agree in


@dataclass(frozen=True)
class Half:
    """One row of half_messages; real_qid, immunity, check_times and prepared_offset are the properties' raw text."""

    broker: str
    queue: int
    offset: int
    commit_log_offset: int
    uniq_key: str | None
    group: str | None
    real_topic: str | None
    real_qid: str | None
    born: int
    store: int
    immunity: str | None = None
    check_times: str | None = None
    body: bytes = b"half"
    prepared_offset: str | None = None
    wait: str | None = None

    @property
    def key(self) -> Key:
        return (self.broker, self.queue, self.offset)

    @property
    def identity(self) -> Identity:
        return (self.commit_log_offset, self.store, self.uniq_key)

    def may_be(self, other: Half) -> bool:
        """Both are one message; a row without a producer group may have lost its key, too."""
        lacks = any(not half.group and not half.uniq_key for half in (self, other))
        return self.identity == other.identity or (lacks and self.identity[:-1] == other.identity[:-1])


@dataclass(frozen=True)
class Op:
    """One row of op_messages: an item of an op message's body; group to uniq_key are END_TRANSACTION's, where known."""

    broker: str
    queue: int
    offset: int
    item: int
    tag: str | None
    body: str | None
    half_offset: int | None
    outcome: str | None
    from_check: bool | None
    born: int
    store: int
    group: str | None = None
    tran_state_table_offset: int | None = None
    commit_log_offset: int | None = None
    uniq_key: str | None = None
    source: str | None = "FILES"
    life: int = 0  # of the broker, if it wrote this in a later life than that of the half message

    @property
    def key(self) -> OpKey:
        return (self.broker, self.queue, self.offset, self.item, self.source or "", self.life)

    @property
    def identity(self) -> Identity:
        return (self.commit_log_offset, self.store, self.uniq_key)

    @property
    def names_a_place(self) -> bool:
        """No half message had landed from the place in the log that it names."""
        place = whole_number(self.body) if self.queue >= ROCKSDB_QUEUES else None
        return self.half_offset is None and place is not None and place >= 0

    @property
    def names_nothing(self) -> bool:
        """Its body has empty items alone, and those are skipped."""
        return self.half_offset is None and bool(self.body) and set(self.body or "") == {","} and self.tag == "d"

    @property
    def has_header(self) -> bool:
        header = (self.group, self.tran_state_table_offset, self.commit_log_offset, self.uniq_key)
        return any(part is not None for part in header)


@dataclass(frozen=True)
class Final:
    """One row of final_messages: the broker's own delivery of a half message, in queue `queue` of the real topic."""

    broker: str
    prepared_transaction_offset: int
    topic: str
    queue: int
    offset: int
    uniq_key: str | None
    store: int

    @property
    def key(self) -> FinalKey:
        return (self.broker, self.topic, self.queue, self.offset)


@dataclass(frozen=True)
class BrokerDiscard:
    """One row of broker_discards; queue and offset are its own in TRANS_CHECK_MAX_TIME_TOPIC."""

    broker: str
    queue: int
    offset: int
    uniq_key: str | None
    group: str | None
    born: int
    check_times: int | None
    store: int

    @property
    def key(self) -> Key:
        return (self.broker, self.queue, self.offset)


@dataclass(frozen=True)
class Override:
    """What a producer group or a real topic may set for itself; None: not set."""

    transaction_timeout: int | None = None
    check_max: int | None = None
    checks_a_run: int | Literal["unset"] | None = "unset"  # of a group alone; None: no limit


@dataclass(frozen=True)
class Settings:
    transaction_timeout: int = 6_000
    check_max: int = 15
    check_interval: int = 60_000
    file_reserved_time: int = 72 * 3_600_000
    groups: Mapping[str, Override] = field(default_factory=dict)
    topics: Mapping[str, Override] = field(default_factory=dict)
    ask: Ask = "auto"
    watch_for: int = 7 * 24 * 3_600_000
    checks_a_run: int | None = 1_000
    count: Count = "auto"

    def checks_of(self, group: str | None) -> int | None:
        own = self.groups.get(group or "", Override()).checks_a_run
        return self.checks_a_run if own == "unset" else own

    def timeout_of(self, half: Half) -> int:
        values = [override.transaction_timeout for override in self._overrides(half)]
        return next((value for value in values if value is not None), self.transaction_timeout)

    def check_max_of(self, half: Half) -> int:
        values = [override.check_max for override in self._overrides(half)]
        return next((value for value in values if value is not None), self.check_max)

    def _overrides(self, half: Half) -> list[Override]:
        """The topic's before the group's: a topic's setting wins, each setting for itself."""
        return [self.topics.get(half.real_topic or "", Override()), self.groups.get(half.group or "", Override())]


@dataclass(frozen=True)
class Decision:
    """One row of a run's plan; check_times and last_checked as they stand after it."""

    run: int
    key: Key
    decision: str
    reason: str | None
    check_times: int
    last_checked: int | None
    op_offset: int | None = None
    superseded_by: int | None = None


@dataclass(frozen=True)
class Delivered:
    run: int
    key: Key
    topic: str
    queue_id: int
    body: bytes
    transaction_id: str | None
    prepared_transaction_offset: int
    born: int
    store: int
    op_offset: int | None


@dataclass(frozen=True)
class Discarded:
    run: int
    key: Key
    reason: str
    check_times: int


@dataclass(frozen=True)
class CheckRequest:
    run: int
    key: Key
    group: str
    topic: str
    queue_id: int
    uniq_key: str | None
    commit_log_offset: int
    check_times: int


@dataclass(frozen=True)
class Rejected:
    """kind is HALF, OP or RESUME; queue_offset the row's own, half_offset the half message that an op names."""

    kind: str
    reason: str
    broker: str
    queue: int
    queue_offset: int
    half_offset: int | None
    run: int
    item: int | None = None


class LandingRefused(Exception):
    """A queue whose key was reused takes nothing more."""


def whole_number(text: str | None) -> int | None:
    """An optional sign and ASCII digits within a Java long, nothing trimmed; None for anything else."""
    if text is None or re.fullmatch(r"[+-]?[0-9]+", text) is None:
        return None
    number = int(text)
    return number if -LONG_MAX - 1 <= number <= LONG_MAX else None


def small_number(text: str | None) -> int | None:
    """A whole number within a Java int."""
    number = whole_number(text)
    return number if number is not None and -(2**31) <= number < 2**31 else None


def split_body(body: str) -> list[tuple[int, str, int | None]]:
    """The items of an op message's body: (item, text, the half offset that it names or None), without empty ones."""
    items: list[tuple[int, str, int | None]] = []
    for text in body.split(","):
        if text != "":
            number = whole_number(text)
            items.append((len(items), text, number if number is not None and number >= 0 else None))
    return items


def own_immunity(half: Half, timeout: int) -> int | None:
    """How long the message itself asks to be left alone; None where it carries no CHECK_IMMUNITY_TIME_IN_SECONDS."""
    if not half.immunity:
        return None
    seconds = whole_number(half.immunity)
    if seconds is None or seconds == -1:
        return timeout
    return seconds * 1000 if seconds * 1000 <= LONG_MAX else FOREVER


def undeliverable(half: Half) -> str | None:
    """Line 1: why it cannot ever be delivered."""
    topic = half.real_topic or ""
    longest = 255 if topic.startswith(("%RETRY%", "%DLQ%")) else 127
    if re.fullmatch(r"[%|a-zA-Z0-9_-]+", topic) is None or len(topic) > longest:
        return "BAD_REAL_TOPIC"
    queue = small_number(half.real_qid)
    if queue is None or queue < 0:
        return "BAD_REAL_QUEUE"
    if topic in NOT_ALLOWED_SEND or topic.lower().startswith("rmq_sys_"):
        return "SYSTEM_TOPIC"
    return None


def row_fault(op: Op) -> str | None:
    """Why an op row counts for nothing, whatever half message it names."""
    if op.tag != "d":
        return "ILLEGAL_TAG"
    if not op.body:
        return "NULL_BODY"
    if op.names_a_place:
        return "HALF_BEFORE_LANDING"
    if op.half_offset is None or op.half_offset < 0:
        return "GARBAGE_OFFSET"
    if op.outcome not in ("COMMIT", "ROLLBACK"):
        return "NO_OUTCOME"
    return None


def header_fault(op: Op, half: Half, timeout: int) -> str | None:
    """Where END_TRANSACTION's header, as far as it is known, contradicts the half message or comes too late."""
    if op.group is not None and op.group != half.group:
        return "WRONG_PRODUCER_GROUP"
    if op.tran_state_table_offset is not None and op.tran_state_table_offset != half.offset:
        return "WRONG_STATE_TABLE_OFFSET"
    if op.commit_log_offset is not None and op.commit_log_offset != half.commit_log_offset:
        return "WRONG_COMMIT_LOG_OFFSET"
    own = own_immunity(half, timeout)
    if op.source == "GATEWAY":  # it has judged that, before it acknowledged
        return None
    if op.has_header and op.from_check is False and own is not None and op.born - half.born > max(own, timeout):
        return "TOO_LATE"
    return None


def proves(final: Final, half: Half) -> bool:
    """Whether a final message is the delivery of this half message."""
    same_place = (final.broker, final.prepared_transaction_offset) == (half.broker, half.commit_log_offset)
    return same_place and (not final.uniq_key or not half.uniq_key or final.uniq_key == half.uniq_key)


def names(discard: BrokerDiscard, half: Half) -> bool:
    """Whether a broker's discard record is about the transaction of this half message."""
    theirs = (discard.group or None, discard.uniq_key, discard.born)
    return bool(discard.uniq_key) and theirs == (half.group or None, half.uniq_key, half.born)


class Model:
    """All that has landed and what became of it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.transactions: dict[Key, Transaction] = {}  # by the key of every copy
        self.decisions: list[Decision] = []
        self.delivered: list[Delivered] = []
        self.discards: list[Discarded] = []
        self.requests: list[CheckRequest] = []
        self.rejected: list[Rejected] = []
        self.refused_queues: set[Queue] = set()
        self.known_until: dict[Queue, int | None] = {}
        self.forgets_after: dict[Queue, int] = {}  # of a broker that keeps transactions in RocksDB and has said so
        self.asking: set[str] = set()  # the brokers that ask by themselves
        self.gateways: set[str] = set()  # the brokers that are gateways
        self._sent: dict[tuple[int, Key], int] = {}  # when a question, by run and half key, was delivered; it lands so
        self.now = BEGINNING
        self._run = 0
        self._to_ask: list[Transaction] = []  # what line 11 holds for in this run, unless line 10b does
        self._new_halves: list[Half] = []  # landed since the last run, oldest first
        self._new_ops: list[tuple[Op, int]] = []  # the same, with the instant each landed
        self._new_resumes: list[tuple[int, Key]] = []
        self._early: list[tuple[Op, int]] = []  # ops that wait for their half message
        self._unheard: list[tuple[Op, int]] = []  # sound ops that were rejected for what their half message was
        self.undecided = False  # something has landed for which the rules do not say what is to happen
        self._first_identity: dict[OpKey, object] = {}  # of the first sound row under a key
        self._standing: dict[OpKey, dict[str | None, Op]] = {}  # every op that was found valid, or waits, by outcome
        self._finals: set[Final] = set()
        self._broker_discards: dict[Key, BrokerDiscard] = {}
        self._discarded_by: dict[Key, Transaction] = {}  # what each broker discard was found to be about
        self._arrived: set[Key] = set()  # the half messages that this run is the first to see
        self._offsets: dict[Queue, set[int]] = {}  # the half offsets that have landed, whatever became of them
        self._rejected_rows: set[tuple[str, Half | Op]] = set()
        self._rejected_ops: set[Op] = set()  # for what their half messages are
        self._first_landed: dict[Op, int] = {}  # when each op row landed first: a row that lands again counts once

    # What comes in

    def land(
        self,
        halves: Iterable[Half],
        ops: Iterable[Op],
        landed_at: int,
        known_until: Mapping[Queue, int | None] | None = None,
        *,
        finals: Iterable[Final] = (),
        discards: Iterable[BrokerDiscard] = (),
        sources: Mapping[str, str] | None = None,
        forgets_after: Mapping[Queue, int] | None = None,
    ) -> None:
        """One landing, all of it or nothing; within it rows have no order. known_until never goes back.

        `sources`: what it reads, by broker; without it files. `forgets_after`: by the settings of brokers that keep
        transactions in RocksDB, if they say them.
        """
        halves, ops, known = list(halves), list(ops), known_until or {}
        rows: list[Half | Op] = [*halves, *ops]
        for row in rows:
            if (row.broker, row.queue) in self.refused_queues:
                raise LandingRefused(f"{row.broker} {row.queue}: KEY_REUSED")
        self._new_halves += sorted(halves, key=lambda half: (half.store, half.commit_log_offset))
        for op in sorted(ops, key=lambda op: op.store):
            if not op.names_nothing:
                self._new_ops.append((op, self._first_landed.setdefault(op, landed_at)))
        for queue, instant in known.items():
            before = self.known_until.get(queue)
            self.known_until[queue] = before if instant is None else max(instant, instant if before is None else before)
        for queue, after in (forgets_after or {}).items():
            self.forgets_after[queue] = max(after, self.forgets_after.get(queue, after))
        self.asking |= {broker for broker, source in (sources or {}).items() if source in ("STORE", "BROKER")}
        self.gateways |= {broker for broker, source in (sources or {}).items() if source == "GATEWAY"}
        self._finals |= set(finals)
        for discard in discards:
            self._broker_discards.setdefault(discard.key, discard)

    def resume(self, key: Key, at: int) -> None:
        self._new_resumes.append((at, key))

    def deliver(self, run: int, key: Key, at: int) -> None:
        """A producer was sent the question of a run."""
        self._sent.setdefault((run, key), at)

    # A run

    def run(self, now: int) -> list[Decision]:
        """Decide all that is open at `now`; the run's rows in the order of the half keys."""
        if now < self.now:
            raise ValueError(f"now {now} lies before the last run's {self.now}")
        self.now = now
        self._run += 1
        self._hear_of_deliveries()
        plan = self._take_halves()
        plan += self._end(self._valid_ops())
        plan += self._end_by_finals()
        for at, key in sorted(self._new_resumes):
            self._resume(key, at)
        self._new_halves, self._new_ops, self._new_resumes = [], [], []
        self._to_ask = []
        plan += [decision for known in self._all("OPEN") if (decision := self._decide(known))]
        plan += self._ask_the_oldest()
        plan += [self._early_op(op) for op, _ in self._early]
        plan.sort(key=lambda decision: (decision.key, decision.op_offset or 0))
        self.decisions += plan
        return plan

    def _hear_of_deliveries(self) -> None:
        for transaction in self._all("OPEN"):
            for question in [each for each in transaction.undelivered if each in self._sent]:
                transaction.undelivered.remove(question)
                transaction.check_times += 1
                at = min(self._sent[question], self.now)
                transaction.last_checked = max(at, transaction.last_checked or at)
        self._sent = {}

    def _counts_when_delivered(self, half: Half) -> bool:
        if self.settings.count == "auto":
            return half.broker in self.gateways
        return self.settings.count == "delivered"

    def _all(self, *statuses: str) -> list[Transaction]:
        """Each once, lowest starter first."""
        found = {id(known): known for known in self.transactions.values() if known.status in statuses}
        return sorted(found.values(), key=lambda known: (known.starter.offset, known.starter.queue))

    # Half messages and their copies

    def _take_halves(self) -> list[Decision]:
        arrived: dict[Key, Half] = {}
        for half in self._new_halves:
            self._take_half(half, arrived)
        self._arrived = set(arrived)
        by_name: dict[object, list[Half]] = {}
        landed = [known.copies[key].half for key, known in self.transactions.items()]
        for half in [*landed, *arrived.values()]:
            by_name.setdefault(name_of(half), []).append(half)
        plan: list[Decision] = []
        for halves in by_name.values():
            found = families(halves, self.transactions)
            self.undecided |= self._belongs_to_some_twin(found)
            for family in found:
                plan += self._join(family)
        return plan

    def _belongs_to_some_twin(self, found: list[list[Half]]) -> bool:
        """Whether a copy has just landed above several twins of which the nearest has ended: it may be of either."""
        return any(
            half.key in self._arrived and is_marked(half) and self._has_ended(family) and _is_above(half, family, found)
            for family in found
            for half in family
        )

    def _has_ended(self, family: list[Half]) -> bool:
        known = [self.transactions[half.key] for half in family if half.key in self.transactions]
        return any(each.status in ("COMMIT", "ROLLBACK") for each in known)

    def _take_half(self, half: Half, arrived: dict[Key, Half]) -> None:
        self._offsets.setdefault((half.broker, half.queue), set()).add(half.offset)
        transaction = self.transactions.get(half.key)
        known = transaction.copies[half.key].half if transaction else arrived.get(half.key)
        if known is None:
            arrived[half.key] = half
        elif half != known and self._is_corrected_by(known, half, transaction):
            if (transaction is None or undeliverable(known) is None) and not half.may_be(known):
                self._reject_row("KEY_REUSED", half if transaction else known)
                self.refused_queues.add((half.broker, half.queue))
                if transaction:
                    return
            if transaction:
                self.transactions.pop(half.key).leave(half.key)
            arrived[half.key] = half
        elif not half.may_be(known):
            self._reject_row("KEY_REUSED", half)
            self.refused_queues.add((half.broker, half.queue))

    def _is_corrected_by(self, half: Half, other: Half, transaction: Transaction | None) -> bool:
        """Half was rejected, or would be now; or nothing has ended it, and it lacks a group that the other has."""
        if undeliverable(half) is not None:
            return self._is_rejected(half, transaction) if transaction else undeliverable(other) is None
        may = transaction is None or transaction.status in ("OPEN", "DISCARD")
        return may and not half.group and bool(other.group) and undeliverable(other) is None

    def _is_rejected(self, half: Half, transaction: Transaction) -> bool:
        return undeliverable(half) is not None and transaction.status in ("OPEN", "REJECT")

    def _join(self, family: list[Half]) -> list[Decision]:
        """Make one transaction of half messages of which some have just arrived; a row for each newly superseded."""
        new = [half for half in family if half.key in self._arrived]
        if not new:
            return []
        transaction = next((self.transactions[h.key] for h in family if h.key not in self._arrived), Transaction())
        before = (transaction.check_times, transaction.last_checked)
        for half in new:
            self.transactions[half.key] = transaction
            copy = self._copy(half)
            if transaction.copies:
                transaction.join(copy)
            else:
                transaction.start(copy)
        transaction.reopening = False
        return [
            self._superseded(copy, transaction, before)
            for key, copy in transaction.copies.items()
            if key != transaction.live and key not in transaction.told
        ]

    def _copy(self, half: Half) -> Copy:
        check_times = small_number(half.check_times) or 0
        own = own_immunity(half, self.settings.timeout_of(half))
        if own is not None and half.store - half.born <= own:
            check_times = 0  # the broker raised it without asking
        says_zero = whole_number(half.check_times) == 0
        return Copy(half, check_times, half.store if check_times > 0 else None, says_zero)

    def _superseded(self, copy: Copy, transaction: Transaction, before: tuple[int, int | None]) -> Decision:
        """The last row of a copy, with the checks as they stood: its own, or the transaction's while it was live."""
        key = copy.half.key
        transaction.told.add(key)
        times, last = (copy.check_times, copy.last_checked) if key in self._arrived else before
        reason = None if transaction.status in ("OPEN", "REJECT") else "ALREADY_ENDED"
        return Decision(self._run, key, "SUPERSEDED", reason, times, last, None, transaction.live[2])

    # Ops and finals

    def _valid_ops(self) -> dict[Key, list[Op]]:
        """The valid ops by the live copy of their transaction. Others are rejected, or wait for their half message."""
        valid: dict[Key, list[Op]] = {}
        for early, _ in self._early:
            self._standing.pop(early.key, None)
        found = [
            each for each in self._unheard if (each[0].broker, each[0].queue, each[0].half_offset) in self._arrived
        ]
        self._unheard = [each for each in self._unheard if each not in found]
        pending, self._early = self._early + found + self._new_ops, []
        for op, landed_at in pending:
            reason = row_fault(op)
            if reason is not None or op.half_offset is None:
                self._reject_row(reason or "GARBAGE_OFFSET", op)
            elif not self._stands(op):
                self._take_op(op, (op.broker, op.queue, op.half_offset), landed_at, valid)
        return valid

    def _stands(self, op: Op) -> bool:
        """Whether a row with its key and outcome counts already, or is that of a broker rebuilt under its name."""
        if op.identity != self._first_identity.setdefault(op.key, op.identity):
            self._reject_row("KEY_REUSED", op)
            self.refused_queues.add((op.broker, op.queue))
            return True
        return op.outcome in self._standing.get(op.key, {})

    def _take_op(self, op: Op, half_key: Key, landed_at: int, valid: dict[Key, list[Op]]) -> None:
        transaction = self.transactions.get(half_key)
        reason = self._fault(op, transaction, half_key) if transaction else self._lost(op, half_key[2], landed_at)
        if reason is not None:
            self._unheard.append((op, landed_at))
            self._reject_op(reason, op, half_key in self._arrived)
            return
        self._standing.setdefault(op.key, {})[op.outcome] = op
        if transaction is None:
            self._early.append((op, landed_at))
        else:
            valid.setdefault(transaction.half.key, []).append(op)

    def _lost(self, op: Op, half_offset: int, landed_at: int) -> str | None:
        """Why an op whose half message has not landed need not wait for it.

        How far a queue without landing_progress has landed is not known.
        """
        queue = (op.broker, op.queue)
        landed = self._offsets.get(queue, set()) if queue in self.known_until else set()
        if landed and half_offset < min(landed):
            return "HALF_BEFORE_LANDING"
        if landed and half_offset < max(landed) and self.now - landed_at >= self.settings.file_reserved_time:
            return "HALF_NEVER_LANDED"
        return None

    def _fault(self, op: Op, transaction: Transaction, half_key: Key) -> str | None:
        named = transaction.copies[half_key].half
        undone = transaction.status in ("OPEN", "DISCARD")
        if transaction.status == "REJECT" or (undone and (undeliverable(transaction.half) or undeliverable(named))):
            return "HALF_REJECTED"
        return header_fault(op, named, self.settings.timeout_of(named))

    def _end(self, valid: dict[Key, list[Op]]) -> list[Decision]:
        """Lines 2 and 3: the lowest valid op ends a transaction that has no end yet; all others change nothing."""
        plan = []
        for key, ops in valid.items():
            transaction = self.transactions[key]
            ops.sort(
                key=lambda op: (op.offset, op.item, op.source or "", op.broker)
            )  # stable: rows of one key as they landed
            ends_now = transaction.status in ("OPEN", "DISCARD")
            if ends_now:
                plan.append(self._end_by(ops.pop(0), transaction))
            for op in ops:
                if transaction.proved and op.outcome == "COMMIT":
                    continue  # the record of what a final message has proved before
                self._reject_op("REDUNDANT" if op.outcome == transaction.status else "CONFLICT", op, ends_now)
        return plan

    def _end_by(self, op: Op, transaction: Transaction) -> Decision:
        self._count_from_resume(transaction)
        if op.outcome == "COMMIT":
            self._deliver(transaction.copies[op.broker, op.queue, op.half_offset or 0].half, op.offset)
        reason = "CHECK" if op.from_check else "PRODUCER"
        return self._ended(transaction, op.outcome or "", reason, op.offset)

    def _end_by_finals(self) -> list[Decision]:
        """Line 2 where the op was lost: the lowest copy that the broker delivered is what is delivered."""
        plan = []
        for transaction in self._all("OPEN", "DISCARD"):
            delivered = self._delivered_copy(transaction)
            if delivered is not None and undeliverable(transaction.half) is None:
                self._count_from_resume(transaction)
                self._deliver(delivered, None)
                transaction.proved = True
                plan.append(self._ended(transaction, "COMMIT", "FINAL", None))
        return plan

    def _count_from_resume(self, transaction: Transaction) -> None:
        """What the broker has discarded and resumed counts its check times from there, also if it ends now.

        It spends no record: of twins, a record is about those that nothing ends.
        """
        resume = transaction.newest_resume()
        if transaction.status == "OPEN" and resume and any(r.store <= resume.store for r in self._records(transaction)):
            transaction.reopen_by(resume)

    def _delivered_copy(self, transaction: Transaction) -> Half | None:
        halves = transaction.in_order
        proven = [half for half in halves if any(proves(final, half) for final in self._finals)]
        return next((half for half in proven if undeliverable(half) is None), None)

    def _ended(self, transaction: Transaction, outcome: str, reason: str, op_offset: int | None) -> Decision:
        return self._decided(
            transaction, outcome, "AFTER_DISCARD" if transaction.status == "DISCARD" else reason, op_offset
        )

    def _deliver(self, half: Half, op_offset: int | None) -> None:
        self.delivered.append(
            Delivered(
                self._run,
                half.key,
                half.real_topic or "",
                int(half.real_qid or ""),
                half.body,
                half.uniq_key,
                half.commit_log_offset,
                half.born,
                half.store,
                op_offset,
            )
        )

    def _resume(self, key: Key, at: int) -> None:
        """Open a discarded transaction again, by any of its copies; anything else can't be resumed."""
        transaction = self.transactions.get(key)
        if transaction is None:
            refused = "UNKNOWN"
        elif self._is_rejected(transaction.half, transaction):
            refused = "HALF_REJECTED"
        elif transaction.status == "OPEN":
            refused = "OPEN"
        elif transaction.status == "DISCARD":
            transaction.reopen(at)
            return
        else:
            refused = "ENDED"
        self.rejected.append(Rejected("RESUME", refused, *key, key[2], self._run))

    # The decision table

    def _clock(self, queue: Queue) -> int:
        known = self.known_until.get(queue, self.now)
        return BEGINNING if known is None else min(self.now, known)

    def _decide(self, transaction: Transaction) -> Decision | None:
        """Lines 1 and 4 to 10 for a transaction that no op and no final message ends; None: one of 10b and 11 holds."""
        half = transaction.half
        if undeliverable(half) is None and self._discarded_by_broker(transaction):
            return self._discard(transaction, "BROKER_DISCARDED")
        fault = undeliverable(half)
        if fault is not None:
            self._reject_row(fault, half)
            return self._decided(transaction, "REJECT", fault)
        if half.queue >= ROCKSDB_QUEUES and self._is_forgotten(transaction):
            return self._discard(transaction, "FORGOTTEN_BY_BROKER")
        return self._ask_or_wait(transaction)

    def _is_forgotten(self, transaction: Transaction) -> bool:
        """Line 4b: its broker has asked for the last time, and an interval has passed since."""
        half, timeout = transaction.half, self.settings.timeout_of(transaction.half)
        immunity, queue = own_immunity(half, timeout), (half.broker, half.queue)
        begins = max(half.born + (timeout if immunity is None else immunity), half.store, transaction.revived)
        by_rules = (self.settings.check_max_of(half) + 2) * self.settings.check_interval
        return self._clock(queue) - begins >= self.forgets_after.get(queue, by_rules)

    def _ask_or_wait(self, transaction: Transaction) -> Decision | None:
        """Lines 5 to 10."""
        half = transaction.half
        clock = self._clock((half.broker, half.queue))
        last = transaction.last_checked
        checked_recently = last is not None and max(0, clock - last) < self.settings.check_interval
        given_up = None if checked_recently else self._too_much(transaction, clock)
        if given_up is not None:
            return self._give_up(transaction, given_up)
        if half.store >= clock:
            return self._wait(transaction, "FRESH")
        if self._immune(half, clock):
            return self._wait(transaction, "IMMUNE")
        if checked_recently:
            return self._wait(transaction, "CHECKED_RECENTLY")
        return self._ask_later(transaction)

    def _ask_later(self, transaction: Transaction) -> Decision | None:
        """Line 10a, and lines 10b and 11 once all are known that they hold for."""
        if not transaction.half.group:
            return self._give_up(transaction, "NO_PRODUCER_GROUP")
        if self._watches(transaction):
            return self._watch(transaction)
        self._to_ask.append(transaction)
        return None

    def _ask_the_oldest(self) -> list[Decision]:
        """Lines 10b and 11: every group's questions go to its oldest messages."""
        asked: dict[str | None, int] = {}
        plan = []
        for transaction in sorted(self._to_ask, key=lambda known: (known.half.born, known.half.key)):
            half = transaction.half
            number, most = asked.get(half.group, 0), self.settings.checks_of(half.group)
            if most is not None and number >= most:
                plan.append(self._wait(transaction, "CHECK_LIMIT"))
                continue
            asked[half.group] = number + 1
            clock = self._clock((half.broker, half.queue))
            plan.append(self._check(transaction, "CLOCK_SKEW" if clock < half.born else "TIMEOUT"))
        return plan

    def _discarded_by_broker(self, transaction: Transaction) -> bool:
        """Whether it is in the broker's discard topic; not for a discard that the broker's own resume undid."""
        resume, records = transaction.newest_resume(), self._records(transaction)
        if resume is not None and records and records[0].store <= resume.store:
            self._discarded_by[records[0].key] = transaction
            transaction.reopen_by(resume)
            records = self._records(transaction)
        if records:
            self._discarded_by[records[0].key] = transaction
        return bool(records)

    def _records(self, transaction: Transaction) -> list[BrokerDiscard]:
        """Broker discards after its last resume that are about it, or that may be: of twins each takes one."""
        about = [
            discard
            for key, discard in self._broker_discards.items()
            if discard.store > transaction.revived
            and names(discard, transaction.half)
            and self._discarded_by.get(key, transaction) is transaction
        ]
        return sorted(about, key=lambda discard: (discard.store, discard.key))

    def _too_much(self, transaction: Transaction, clock: int) -> str | None:
        """Lines 5 and 6."""
        if transaction.check_times >= self.settings.check_max_of(transaction.half):
            return "CHECKED_TOO_OFTEN"
        kept_since = transaction.half.born if transaction.revived == BEGINNING else transaction.revived
        return "EXPIRED" if clock - kept_since > self.settings.file_reserved_time else None

    def _immune(self, half: Half, clock: int) -> bool:
        """Lines 8 and 9."""
        age, timeout = clock - half.born, self.settings.timeout_of(half)
        own = own_immunity(half, timeout)
        return 0 <= age <= timeout if own is None else age <= own

    def _wait(self, transaction: Transaction, reason: str) -> Decision:
        return self._decided(transaction, "WAIT", reason)

    def _give_up(self, transaction: Transaction, reason: str) -> Decision:
        return self._watch(transaction) if self._watches(transaction) else self._discard(transaction, reason)

    def _watches(self, transaction: Transaction) -> bool:
        if self.settings.ask == "auto":
            return transaction.half.broker in self.asking
        return not self.settings.ask

    def _watch(self, transaction: Transaction) -> Decision:
        """The broker asks and discards; its end may have been missed."""
        half = transaction.half
        since = half.born if transaction.revived == BEGINNING else transaction.revived
        if self._clock((half.broker, half.queue)) - since >= self.settings.watch_for:
            return self._discard(transaction, "END_NOT_SEEN")
        return self._wait(transaction, "BROKER_ASKS")

    def _discard(self, transaction: Transaction, reason: str) -> Decision:
        self.discards.append(Discarded(self._run, transaction.half.key, reason, transaction.check_times))
        return self._decided(transaction, "DISCARD", reason)

    def _check(self, transaction: Transaction, reason: str) -> Decision:
        transaction.last_checked = self.now
        half = transaction.half
        if self._counts_when_delivered(half):
            transaction.undelivered = [*transaction.undelivered, (self._run, half.key)][-16:]
        else:
            transaction.check_times += 1
        self.requests.append(
            CheckRequest(
                self._run,
                half.key,
                half.group or "",
                half.real_topic or "",
                int(half.real_qid or ""),
                half.uniq_key,
                half.commit_log_offset,
                transaction.check_times + self._counts_when_delivered(half),
            )
        )
        return self._decided(transaction, "CHECK", reason)

    def _decided(self, transaction: Transaction, decision: str, reason: str, op_offset: int | None = None) -> Decision:
        transaction.status = "OPEN" if decision in ("WAIT", "CHECK") else decision
        if transaction.status != "OPEN":
            transaction.undelivered = []
        times, last = transaction.check_times, transaction.last_checked
        return Decision(self._run, transaction.half.key, decision, reason, times, last, op_offset)

    def _early_op(self, op: Op) -> Decision:
        return Decision(self._run, (op.broker, op.queue, op.half_offset or 0), "EARLY_OP", None, 0, None, op.offset)

    def _reject_op(self, reason: str, op: Op, news: bool) -> None:
        """An op that lands again after it was rejected is told again only where its half message has changed."""
        if op not in self._rejected_ops or (news and reason != "HALF_REJECTED"):
            self._reject_row(reason, op)
        self._rejected_ops.add(op)

    def _reject_row(self, reason: str, row: Half | Op) -> None:
        """Count a rejected row once for each reason, however often it lands."""
        if (reason, row) in self._rejected_rows:
            return
        self._rejected_rows.add((reason, row))
        if isinstance(row, Half):
            rejected = Rejected("HALF", reason, row.broker, row.queue, row.offset, row.offset, self._run)
        else:
            named = row.half_offset if row_fault(row) in (None, "NO_OUTCOME") else None
            rejected = Rejected("OP", reason, row.broker, row.queue, row.offset, named, self._run, row.item)
        self.rejected.append(rejected)


def _is_above(half: Half, family: list[Half], found: list[list[Half]]) -> bool:
    """Whether another of these transactions has a half message below it in its queue."""
    others = [other for each in found if each is not family for other in each]
    return any(other.key[:2] == half.key[:2] and other.offset < half.offset for other in others)
