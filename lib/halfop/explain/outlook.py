"""The state of a message now: what comes next and when at the earliest, or how it ended and what can be done."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pyspark.sql import Row

from halfop.columns.keys import in_micros, key_of, named_copy, superseded_by
from halfop.explain.life import MessageLife
from halfop.explain.look_up import NO_TIME, queue_clock
from halfop.frame import commands as w
from halfop.frame.units import instant, moment, plural
from halfop.planning.run import Clock, Run, clocks
from halfop.rocketmq.names import topic_fault
from halfop.rules.questions import SENT
from halfop.rules.reasons import Reason, allowed, words
from halfop.rules.settings_columns import RuleColumns, own_immunity
from halfop.runs.record import found_run, last_run
from halfop.runs.standing import written_discards
from halfop.settings.model import Settings
from halfop.sql.views import as_name, views_of
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.upkeep import trimmed_before
from halfop.wording import value

_FORGOTTEN, _TOO_OFTEN, _EXPIRED, _ASKED = (
    f"line {reason.line.number}"
    for reason in (Reason.FORGOTTEN_BY_BROKER, Reason.CHECKED_TOO_OFTEN, Reason.EXPIRED, Reason.TIMEOUT)
)


class Outlook(NamedTuple):
    """The state of a message in a word, and in full as lines."""

    state: str
    lines: list[str]


def outlook(warehouse: Warehouse, settings: Settings, life: MessageLife) -> Outlook:
    """Returns the state of a message after the last run, by that run's settings."""
    last = life.last
    if last is None or last["decision"] == "EARLY_OP":
        return _undecided(life)
    if last["decision"] in ("CHECK", "WAIT"):
        return _open(warehouse, life, last)
    if life.erasures:
        return _erased(life, last)
    if last["decision"] == "COMMIT":
        return _committed(warehouse, settings, last)
    return _ended(warehouse, settings, life, last)


def _erased(life: MessageLife, last: Row) -> Outlook:
    plans = ", ".join(sorted({row["plan_id"] for row in life.erasures}))
    return Outlook("ERASED", [f"decided {last['decision']}; its data was erased (plan {plans}), this decision stays"])


def _undecided(life: MessageLife) -> Outlook:
    if life.halves:
        return Outlook("LANDED", ["it has landed, and no run has seen it yet: the next reconcile decides about it"])
    if life.rejects and not life.unused_ops:
        return Outlook("REJECTED", ["its half message has not landed, and the op or resume that names it was rejected"])
    if life.decisions:
        return Outlook("EARLY_OP", ["an op waits for this half message, which has not landed"])
    return Outlook("UNKNOWN", ["its half message has not landed; the ops that name it wait for it"])


def _unused(life: MessageLife) -> str:
    """What the next run does with ops that have landed since the last one; whether one is valid, only a run knows."""
    outcomes = ", ".join(sorted({op["outcome"] for op in life.unused_ops}))
    text = "has landed since: the next reconcile ends the message by it, or rejects it"
    return f"an op ({outcomes}) {text}" if outcomes else ""


# ---- open ----


_OF_MESSAGE = """producer_group STRING, real_topic STRING, check_immunity STRING, queue_id INT, forgets_after BIGINT,
    born_timestamp TIMESTAMP, store_timestamp TIMESTAMP, resumed_at TIMESTAMP"""


class MessageSettings(NamedTuple):
    """The settings that apply to one message, in milliseconds; `immunity` is null if it has none of its own.

    `checks_a_run` is null if a run may ask its group any number of questions. `forgotten`: when its broker, which keeps
    it in RocksDB, has forgotten it.
    """

    timeout: int
    immunity: int | None
    check_max: int
    checks_a_run: int | None
    interval: int
    reserved: int
    forgotten: int | None


def _open(warehouse: Warehouse, life: MessageLife, last: Row) -> Outlook:
    found = last_run(warehouse)
    if found is None or life.half is None:
        return Outlook("OPEN", ["open"])
    run, _ = found
    since = min(row["run_from"] for row in life.decisions if _stands_open(row, last))
    lines = [f"open since run {since}, asked {plural(last['check_times'] or 0, 'time')} so far"]
    if run.counts_delivered_at(last["broker_name"]):
        lines += _not_sent(life)
    known = clocks(progress_rows(warehouse))
    settings = _settings_of(warehouse, run, life.half, last, known)
    clock = queue_clock(known, life.keys[-1], run.now)
    now = None if clock is None else round(clock.timestamp() * 1000)
    if unused := _unused(life):
        lines.append(f"next: {unused}")
    elif run.asks_at(last["broker_name"]):
        lines += _next(life.half, last, settings, run, now)
    else:
        lines += _watched(life.half, last, run, settings.forgotten, now)
    return Outlook("OPEN", [*lines, _clock(clock, run)])


def _stands_open(row: Row, last: Row) -> bool:
    """Returns whether a decision is of the time since it was last opened, by landing or by a resume."""
    return row["decision"] in ("CHECK", "WAIT") and row["resumed_at"] == last["resumed_at"]


def _settings_of(warehouse: Warehouse, run: Run, half: Row, last: Row, known: list[Clock]) -> MessageSettings:
    """A message's settings, worked out by the rules' own Columns: overrides and immunities are read in one place."""
    said = [clock.forgets_after for clock in known if clock[:2] == key_of(last)[:2]]
    instants = (half["born_timestamp"], half["store_timestamp"], last["resumed_at"])
    cells: list[object] = [half[name] or None for name in ("producer_group", "real_topic", "check_immunity")]
    cells += [last["queue_id"], *(said or [None]), *(None if at is None else at * 1000 for at in instants)]
    rules = RuleColumns(run.settings.rules, run.now)
    own = own_immunity(rules.timeout)
    forgotten = rules.forgotten_at(own, "store_timestamp", "resumed_at")
    columns = (rules.checks_a_run, rules.check_max, rules.timeout, own, forgotten)
    row = warehouse.frame([cells], _OF_MESSAGE).select(*columns).collect()[0]
    checks_a_run, check_max, *times = row
    timeout, immunity, forgotten_at = (at and at // 1000 for at in times)
    interval, reserved = rules.check_interval // 1000, rules.file_reserved_time // 1000
    return MessageSettings(timeout, immunity, check_max, checks_a_run, interval, reserved, forgotten_at)


def _next(half: Row, last: Row, settings: MessageSettings, run: Run, now: int | None) -> list[str]:
    """The next decision by lines 4b to 11 of the rules, and its earliest time; `now` is by the queue clock."""
    born, stored = half["born_timestamp"] or 0, half["store_timestamp"] or 0
    checked, times = last["last_checked_at"], last["check_times"] or 0
    answered = None if checked is None else checked + settings.interval
    expires = max((last["resumed_at"] or born) + settings.reserved, answered or 0)
    unless = f"unless an op lands first; by the settings of run {run.run_id}"
    ends = [] if settings.forgotten is None else [(settings.forgotten, _FORGOTTEN)]
    ends += [(answered or 0, _TOO_OFTEN)] if times >= settings.check_max else []
    expires, line = min([*ends, (expires, _EXPIRED)])
    asked = max(stored, answered or 0)
    asked = max(asked, _immune_until(born, max(asked, now or 0), settings))
    if expires < asked or times >= settings.check_max:
        return [f"next: it is discarded ({line}), {_from(expires, now)}, {unless}"]
    check = f"check {times + 1} of {settings.check_max}"
    last_check = f"{settings.interval // 1000} s after check {settings.check_max}"
    if last["reason"] == Reason.CHECK_LIMIT.name:
        questions = plural(settings.checks_a_run or 0, "question")
        unless += f"; a run gives its group {questions}, about the oldest messages first (rules.checks_a_run)"
    return [
        f"next: its producer is asked, {check} ({_ASKED}), {_from(asked, now)}, {unless}",
        f"after that: it is discarded, {_from(expires, now)} ({line}), or {last_check} ({_TOO_OFTEN})",
    ]


def _not_sent(life: MessageLife) -> list[str]:
    """The number of questions that do not count, because nobody is known to have got them."""
    sent = {row["request_id"] for row in life.deliveries if row["outcome"] == SENT}
    waiting = sum(1 for row in life.requests if row["request_id"] not in sent)
    written = plural(len(life.requests), "question")
    return [f"a question counts when a producer was sent it (rules.count): {waiting} of {written} not known to be sent"]


def _watched(half: Row, last: Row, run: Run, forgotten: int | None, now: int | None) -> list[str]:
    """The end of watching; the rules may leave a message alone for longer."""
    over = (last["resumed_at"] or half["born_timestamp"] or 0) + in_micros(run.settings.rules.watch_for) // 1000
    asks, awaited = "asks and discards by itself", "an op, a final message or the broker's discard"
    reason, why = Reason.END_NOT_SEEN, "rules.watch_for"
    if forgotten is not None:
        asks, awaited = "keeps it in RocksDB and asks by itself", "an op or a final message"
        if forgotten <= over:
            over, reason, why = forgotten, Reason.FORGOTTEN_BY_BROKER, _FORGOTTEN
    return [
        f"its broker {asks} (rules.ask): halfop only watches, and waits for {awaited}",
        f"after that: it is discarded ({reason.name}), {_from(over, now)} ({why})",
    ]


def _immune_until(born: int, now: int, settings: MessageSettings) -> int:
    """The end of its immunity, lines 8 and 9; 0 if it is born in the future and has no immunity of its own."""
    if settings.immunity is not None:
        return born + settings.immunity
    return born + settings.timeout if now >= born else 0


def _from(millis: int, now: int | None) -> str:
    if now is None:
        return "when ops of the queue have landed"
    return "in the next run" if millis <= now else f"not before {moment(millis)} by its queue clock"


def _clock(clock: datetime | None, run: Run) -> str:
    """The queue clock as far as has landed by today, which may be further than the last run saw."""
    if clock is None:
        return f"{NO_TIME}: no op of the queue is known to have landed"
    if clock < run.now:
        return f"its queue clock stands at {instant(clock)}: later ops of the queue have not landed yet"
    return f"its queue clock is at {instant(clock)}, the now of run {run.run_id}"


# ---- ended ----


def _committed(warehouse: Warehouse, settings: Settings, last: Row) -> Outlook:
    index = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    run_id = last["run_upto"]
    run, closed = found_run(warehouse, run_id) or (None, False)
    per_topic = run is None or run.settings.topics.layout == "per_topic"
    table = f"topics/{index.get(last['real_topic'], '?')}" if per_topic else "real_topics"
    half = named_copy(last) or key_of(last)
    key = f"broker_name = {value(half.broker_name)} AND half_queue_id = {half.queue_id}"
    where = f"{key} AND half_queue_offset = {half.queue_offset} AND run_id = {run_id}"
    later = _whether_written(warehouse, run_id, table, closed)
    trimmed = None if later else trimmed_before(warehouse, None, table, "" if per_topic else last["real_topic"])
    if run is not None and trimmed is not None and run.now_micros < trimmed:
        return Outlook("COMMITTED", ["committed; retention.topics has removed its row since"])
    place = f"committed: in {warehouse.path(table)}{later}"
    name = as_name(views_of(index).get(last["real_topic"], table) if per_topic else table)
    return Outlook("COMMITTED", [place, w.select(name, f"WHERE {where}", settings)])


def _whether_written(warehouse: Warehouse, run_id: int, table: str, closed: bool) -> str:
    found = last_run(warehouse)
    if found and any((debt.run_id, debt.sink) == (run_id, table) for debt in found[0].owed):
        return " once that table is written: it is owed, because the run was closed with --park-sink"
    return "" if closed else f" once run {run_id} has closed: start reconcile"


def _ended(warehouse: Warehouse, settings: Settings, life: MessageLife, last: Row) -> Outlook:
    if last["decision"] == "DISCARD":
        return _discarded(warehouse, settings, life, last)
    if last["decision"] == "ROLLBACK":
        return Outlook("ROLLED_BACK", ["rolled back: nothing was delivered"])
    if last["decision"] == "REJECT":
        return Outlook("REJECTED", _rejected(life, last))
    by = superseded_by(last)
    return Outlook("SUPERSEDED", [f"the copy at offset {by and life.place(by)} stands for it"])


def _discarded(warehouse: Warehouse, settings: Settings, life: MessageLife, last: Row) -> Outlook:
    if unused := _unused(life):
        return Outlook("DISCARDED", [f"discarded; {unused}"])
    if life.has_got_its_group:
        text = "discarded; a row with its producer group has landed since: the next reconcile decides about that"
        return Outlook("DISCARDED", [text])
    if life.resume_waits:
        return Outlook("RESUMED", ["discarded, and resumed since: the next reconcile makes it open again"])
    if last["run_upto"] > written_discards(warehouse):
        written = "once table trans_check_max_time has it; reconcile without --park-sink writes it"
        lines = [f"discarded: it can be resumed or ended {written}"]
    else:
        text = "discarded: table trans_check_max_time has the whole message; this makes it open again:"
        lines = [text, w.on_message("resume", str(key_of(last)), settings, "--key")]
    return Outlook("DISCARDED", [*lines, *_forgotten(warehouse, life, last)])


def _forgotten(warehouse: Warehouse, life: MessageLife, last: Row) -> list[str]:
    """When its broker forgot it, if it was discarded for that."""
    run, _ = found_run(warehouse, last["run_upto"]) or (None, False)
    if last["reason"] != Reason.FORGOTTEN_BY_BROKER.name or run is None or life.half is None:
        return []
    settings = _settings_of(warehouse, run, life.half, last, clocks(progress_rows(warehouse)))
    return [f"its broker forgot it at {moment(settings.forgotten)} ({_FORGOTTEN})"]


def _rejected(life: MessageLife, last: Row) -> list[str]:
    if life.is_corrected:
        return ["it was rejected; another row has landed under its key since: the next reconcile decides about that"]
    topic, reason = None if life.half is None else life.half["real_topic"], last["reason"]
    fault = _fault(topic) if reason == Reason.BAD_REAL_TOPIC.name else None
    why = words(reason) + (f": {fault}" if fault else "")
    to_do = f"allowed: {found}" if (found := allowed(reason)) else ""
    fix = "a corrected row that lands under the same key replaces it"
    return [line for line in (f"rejected: {why}; {fix}", to_do) if line]


def _fault(topic: str | None) -> str | None:
    return topic_fault(topic) if topic else "it is missing or empty"
