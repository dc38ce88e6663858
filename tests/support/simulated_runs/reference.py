"""What tables must hold whatever has failed: the runs in their order, each as the model decides it at its pins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, TypeVar

from halfop.columns.keys import key_of
from halfop.landing.fields import LONG_MAX
from halfop.landing.table_rows import RESOLVE
from halfop.rocketmq.names import topics_of
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.tables import NO_TABLE, Warehouse
from model import fleet as f
from model import reference as m

from support import rows as r
from support.simulated_runs.landings import LANDED, Landing, Part, files_of
from support.simulated_runs.memory import Tables

_SINKS = ("decisions", "real_topics", "trans_check_max_time", "check_requests", "topics_index")
_OPEN = ("CHECK", "WAIT", "EARLY_OP")
_R = TypeVar("_R", m.Delivered, m.Discarded, m.CheckRequest)


class _Pinned(m.Model):
    """The model, for which a queue has landed as far as a run's own progress says."""

    def __init__(self, settings: m.Settings) -> None:
        super().__init__(settings)
        self.landed: dict[m.Queue, tuple[int, int]] = {}

    def begins(self, progress: Sequence[Mapping[str, Any]]) -> None:
        """Hears of queues; no time has passed yet for those that are new."""
        for row in progress:
            self.land([], [], 0, {_queue(row): None}, sources={row["broker_name"]: row["source"]})

    def moves(self, progress: Sequence[Mapping[str, Any]]) -> None:
        """Hears how far queues have landed."""
        for row in progress:
            queue, (of_halves, of_ops) = _queue(row), topics_of(row["queue_id"])
            if row["topic"] == of_ops:
                after = row["forgets_after"]
                known = None if row["known_until"] is None else _millis(row["known_until"])
                self.land([], [], 0, {queue: known}, forgets_after={} if after is None else {queue: after // 1000})
            elif row["topic"] == of_halves and row["next_offset"] is not None:
                first, upto = row["first_offset"], row["next_offset"]
                last = upto if upto == LONG_MAX else upto - 1  # after the highest of all offsets there is none
                low, high = self.landed.get(queue, (first, last))
                self.landed[queue] = min(low, first), max(high, last)

    def has_resumed(self, discard: m.BrokerDiscard) -> bool:
        """Returns whether an earlier run has seen a broker's resume without this record, which it may have undone."""
        halves = (copy.half for each in self.transactions.values() for copy in each.copies.values())
        return any(m.names(discard, half) and half.check_times == "0" for half in halves)

    def _lost(self, op: m.Op, half_offset: int, landed_at: int) -> str | None:
        queue = (op.broker, op.queue)
        own = self._offsets
        try:
            self._offsets = {queue: set(self.landed.get(queue, ()))}
            return super()._lost(op, half_offset, landed_at)
        finally:
            self._offsets = own


def runs_in_order(tables: Tables) -> None:
    """Each run opens once, closes once, and before the next one opens; no table gets a run twice, or after a later.

    A run begins where the last one ended, or is the next slice of its backlog.
    """
    events = [(row["run_id"], row["event"]) for row in tables.rows("runs")]
    assert events == [(n // 2 + 1, "CLOSED" if n % 2 else "OPENED") for n in range(len(events))], events
    for run, following in pairwise(_opened(tables)):
        if _is_last(run):
            begins = following["inputs_before"] == run["inputs"] and following["slice"]["number"] == 1
        else:
            begins = _backlog(following) == _backlog(run) and following["slice"]["number"] == run["slice"]["number"] + 1
        assert begins, f"run {following['run_id']} begins where no run has ended"
    for name in _SINKS:
        numbers = [each.marker.number for each in tables.versions[name] if each.marker]
        assert numbers == sorted(set(numbers)), f"{name} has the runs {numbers}"


def _is_last(run: Mapping[str, Any]) -> bool:
    """Returns whether no slice of the backlog follows."""
    part = run["slice"]
    return bool(part["number"] == len(part["bounds"]) + 1)


def _backlog(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns what the slices of a backlog have in common."""
    pins = {name: version for name, version in run["inputs"].items() if name != "decisions"}
    return pins, run["inputs_before"], run["slice"]["bounds"], run["now"], run["settings"]


def _backlogs(tables: Tables) -> list[list[dict[str, Any]]]:
    """Returns the runs, with the slices of a backlog in one list."""
    found: list[list[dict[str, Any]]] = []
    for run in _opened(tables):
        if run["slice"]["number"] == 1:
            found.append([])
        found[-1].append(run)
    return found


def highest_pin(tables: Tables, name: str) -> int:
    """The newest version that a run has pinned."""
    return max((run["inputs"].get(name, NO_TABLE) for run in _opened(tables)), default=NO_TABLE)


def pinned_in_order(tables: Tables, landings: Mapping[datetime, Landing]) -> None:
    """A run that knows how far a landing has come sees all rows of it, and knows each queue that has begun to land."""
    for run in _opened(tables):
        progress = tables.rows(PROGRESS, upto=run["inputs"][PROGRESS])
        begun = {_queue(row) for row in progress if _is_of_a_queue(row)}
        seen = {row["landed_at"] for row in tables.rows("half_messages", upto=run["inputs"]["half_messages"])}
        unknown = {queue for at in seen for queue in landings[at].queues} - begun
        assert not unknown, f"run {run['run_id']} sees half messages, and no progress of {unknown}"
        ended = _ended(tables, run["inputs"][PROGRESS])
        for name in LANDED:
            unseen = [row for row in tables.rows(name, before=run["inputs"][name]) if row["landed_at"] in ended]
            assert not unseen, f"run {run['run_id']} knows the progress of a landing, and not its {name}: {unseen}"


def _ended(tables: Tables, version: int) -> set[datetime]:
    """The instants of landings whose last progress is there: it says something, or is their second."""
    pieces = [each for each in tables.versions[PROGRESS][-1].pieces if each.version <= version]
    times = Counter(at for each in pieces for at in set(each.rows["landed_at"].to_pylist()))
    rows = tables.rows(PROGRESS, upto=version)
    told = {row["landed_at"] for row in rows if row["known_until"] or row["next_offset"] is not None}
    return told | {at for at, number in times.items() if number > 1}


def all_landed(tables: Tables, parts: Sequence[Part], tried: Sequence[Part]) -> None:
    """The tables have the rows that were to land, no others, and none more often than somebody tried to land it."""
    for name, (kind, _) in LANDED.items():
        found = Counter(_ROW[name](row) for row in tables.rows(name) if row.get("source") != RESOLVE)
        wanted = {row for part in parts for row in part.rows(kind)}
        assert set(found) == wanted, f"{name} lacks {wanted - set(found)}, and has {set(found) - wanted}"
        most = Counter(row for part in tried for row in part.rows(kind))
        assert found <= most, f"{name} has more than once {found - most}"


def landed_as_told(tables: Tables, parts: Sequence[Part], landings: Mapping[datetime, Landing]) -> None:
    """Each file is recorded once; progress says what the files hold, and no time passes that nobody has told."""
    recorded = Counter((row["path"].rpartition("/")[2], row["rows"]) for row in tables.rows("landed_files"))
    assert recorded == Counter(each for n, part in enumerate(parts) for each in files_of(n, part).items()), recorded
    ops = [row for row in tables.rows("op_messages") if row["source"] != RESOLVE]
    for row in tables.rows(PROGRESS):
        landing, queue = landings[row["landed_at"]], _queue(row)
        if row["topic"] == topics_of(row["queue_id"])[0] and row["next_offset"] is not None:
            assert (row["first_offset"], row["next_offset"]) == r.spans(landing.part.rows("halves"))[queue], row
        if row["known_until"] is None:
            continue
        if landing.known_until is not None:
            assert row["known_until"] == r.instant(landing.known_until), row
        else:
            of_broker = [op for op in ops if op["broker_name"] == queue[0] and op["landed_at"] <= row["landed_at"]]
            assert row["known_until"] <= max(op["store_timestamp"] for op in of_broker), row


def ended_as_said(tables: Tables) -> None:
    """Each op row of `end` was meant before it came; what was said to be sent is there, and nothing says otherwise."""
    rows = tables.rows("endings")
    sent = {(key_of(row), row["kind"]) for row in rows if row["state"] == "SENT"}
    meant = {(key_of(row), row["kind"]) for row in rows if row["state"] == "INTENDED"}
    there = [
        ((row["broker_name"], row["queue_id"], row["half_offset"]), row["outcome"])
        for row in tables.rows("op_messages")
        if row["source"] == RESOLVE
    ]
    assert sent <= set(there) <= meant, f"sent {sent}, there {there}, meant {meant}"
    assert len({half for half, _ in there}) == len(there), f"a message was answered more than once: {there}"


def _opened(tables: Tables) -> list[dict[str, Any]]:
    return [row for row in tables.rows("runs") if row["event"] == "OPENED"]


def decided_as_pinned(tables: Tables, warehouse: Warehouse, settings: m.Settings) -> None:
    """All that the runs have written is what the model makes of what had landed at their pins.

    The model takes a backlog as one run: of a message that stays open, what the last slice says counts.
    """
    model, decided = _Pinned(settings), list[list[m.Decision]]()
    backlogs = _backlogs(tables)
    number = {run["run_id"]: n for n, slices in enumerate(backlogs, 1) for run in slices}
    for slices in backlogs:
        _lands(model, tables, slices[0], number)
        decided.append(model.run(_millis(slices[0]["now"])))
    if model.undecided:
        return
    for n, (slices, wanted) in enumerate(zip(backlogs, decided, strict=True), 1):
        found = [replace(row, run=n) for run in slices for row in _said(r.decisions(warehouse, run["run_id"]), run)]
        settled = _settled if len(slices) > 1 else list
        _same(f"run {n}", settled(found), settled(wanted))
    _same("real_topics", _numbered(r.delivered(warehouse), number), model.delivered)
    _same("trans_check_max_time", _numbered(r.discards(warehouse), number), model.discards)
    _same("check_requests", _numbered(r.requests(warehouse), number), model.requests)
    _rejects(tables, Counter(map(f.rejected_cells, model.rejected)))


def _rejects(tables: Tables, wanted: Counter[r.Cells]) -> None:
    """No run rejects a row twice, and what the model rejects is rejected.

    Of an op that was rejected before, a later run says the same again if it lands again with a copy of its message, and
    not why else it would be, if that is a copy of what has ended.
    """
    rows = [(row["run_id"], tuple(row[name] for name in r.REJECTED)) for row in tables.rows("rejected")]
    for (run, cells), number in Counter(rows).items():
        assert number <= wanted[cells], f"run {run} has rejected {number} times {cells}"
    found = Counter(cells for _, cells in rows)
    places = {(kind, *place) for kind, _, *place in found}
    for cells in found | wanted:
        kind, _, *place = cells
        repeated = kind == "OP" and (kind, *place) in places
        assert found[cells] == wanted[cells] or repeated, f"rejected has {found[cells]} times {cells}"


def written_as_decided(tables: Tables) -> None:
    """Each run has written what it has decided under its own number, once: messages, discards, questions, rejects.

    A message that an op has named by its copy is written as that.
    """
    decided = [(row["decision"], row["run_id"], *_named(row)) for row in tables.rows("decisions")]
    for decision, name, queue, offset in _WRITTEN:
        rows = tables.rows(name)
        if decision == "REJECT":
            rows = [row for row in rows if row["kind"] == "HALF"]
        found = [(row["run_id"], row["broker_name"], row[queue], row[offset]) for row in rows]
        _same(name, found, [row[1:] for row in decided if row[0] == decision])


def _named(row: Mapping[str, Any]) -> tuple[Any, ...]:
    of_copy = (row["copy_broker"], row["copy_queue"], row["copy_offset"])
    return tuple(own if part is None else part for own, part in zip(key_of(row), of_copy, strict=True))


_WRITTEN = (
    ("COMMIT", "real_topics", "half_queue_id", "half_queue_offset"),
    ("DISCARD", "trans_check_max_time", "queue_id", "queue_offset"),
    ("CHECK", "check_requests", "half_queue_id", "tran_state_table_offset"),
    ("REJECT", "rejected", "queue_id", "half_offset"),
)


def _said(rows: Iterable[m.Decision], run: Mapping[str, Any]) -> list[m.Decision]:
    """Returns the rows of a slice that stand. What stays open is for the last slice to say."""
    return [row for row in rows if _is_last(run) or row.decision not in _OPEN]


def _settled(rows: Iterable[m.Decision]) -> list[m.Decision]:
    """Returns the rows with each CHECK as the WAIT that a later slice makes of it."""
    return [
        replace(row, decision="WAIT", reason="CHECKED_RECENTLY") if row.decision == "CHECK" else row for row in rows
    ]


def _numbered(rows: Counter[_R], number: Mapping[int, int]) -> list[_R]:
    return [replace(row, run=number[row.run]) for row in rows.elements()]


def _same(name: str, found: Iterable[Hashable], wanted: Iterable[Hashable]) -> None:
    counted, other = Counter(found), Counter(wanted)
    assert counted == other, f"{name} lacks {[*(other - counted)]}, and has {[*(counted - other)]}"


def _lands(model: _Pinned, tables: Tables, run: Mapping[str, Any], number: Mapping[int, int]) -> None:
    """Gives the model what a run is the first to see."""

    def rows(name: str) -> list[dict[str, Any]]:
        return tables.rows(name, run["inputs_before"][name], run["inputs"][name])

    progress = [row for row in rows(PROGRESS) if _is_of_a_queue(row)]
    model.begins(progress)
    model.undecided |= any(model.has_resumed(_discard(row)) for row in rows("broker_discards"))
    for name in LANDED:
        for landed_at, landed in groupby(rows(name), itemgetter("landed_at")):
            _land(model, name, list(landed), -(-_micros(landed_at) // 1000))
    model.moves(progress)
    for row in rows("resumes"):
        model.resume(key_of(row), _millis(row["resumed_at"]))
    _hears(model, tables, rows("check_deliveries"), number)


def _land(model: _Pinned, name: str, rows: Sequence[Mapping[str, Any]], at: int) -> None:
    """A millisecond that has begun counts as a whole one: a run's instant is never within it."""
    landed: dict[str, Any] = {"halves": [], "ops": [], LANDED[name][0]: [_ROW[name](row) for row in rows]}
    model.land(**landed, landed_at=at)


def _hears(model: _Pinned, tables: Tables, deliveries: Iterable[Mapping[str, Any]], number: Mapping[int, int]) -> None:
    asked = {row["request_id"]: row for row in tables.rows("check_requests")}
    for row in deliveries:
        about = asked[row["request_id"]]
        key = about["broker_name"], about["half_queue_id"], about["tran_state_table_offset"]
        model.deliver(number[about["run_id"]], key, _millis(row["at"]))


# ---- rows as the model words them ----


def _queue(row: Mapping[str, Any]) -> m.Queue:
    return row["broker_name"], row["queue_id"]


def _key(row: Mapping[str, Any]) -> m.Key:
    return *_queue(row), row["queue_offset"]


def _is_of_a_queue(row: Mapping[str, Any]) -> bool:
    return row["topic"] in topics_of(row["queue_id"])


def _half(row: Mapping[str, Any]) -> m.Half:
    given = dict(row["properties"])
    return m.Half(
        *_key(row),
        commit_log_offset=row["commit_log_offset"],
        uniq_key=given.get("UNIQ_KEY"),
        group=given.get("PGROUP"),
        real_topic=given.get("REAL_TOPIC"),
        real_qid=given.get("REAL_QID"),
        born=_millis(row["born_timestamp"]),
        store=_millis(row["store_timestamp"]),
        immunity=given.get("CHECK_IMMUNITY_TIME_IN_SECONDS"),
        check_times=given.get("TRANSACTION_CHECK_TIMES"),
        body=bytes(row["body"]),
        prepared_offset=given.get("TRAN_PREPARED_QUEUE_OFFSET"),
        wait=given.get("WAIT"),
    )


def _op(row: Mapping[str, Any]) -> m.Op:
    return m.Op(
        *(row["broker_name"], row["queue_id"], row["queue_offset"], row["item"], row["tag"], row["body"]),
        *(row["half_offset"], row["outcome"], row["from_check"]),
        *(_millis(row["born_timestamp"]), _millis(row["store_timestamp"])),
        *(row["producer_group"], row["tran_state_table_offset"], row["commit_log_offset"], row["uniq_key"]),
        source=row["source"],
        life=row["life"] or 0,
    )


def _final(row: Mapping[str, Any]) -> m.Final:
    place = row["prepared_transaction_offset"], row["topic"], row["queue_id"], row["queue_offset"]
    return m.Final(row["broker_name"], *place, row["uniq_key"], _millis(row["store_timestamp"]))


def _discard(row: Mapping[str, Any]) -> m.BrokerDiscard:
    born, store = _millis(row["born_timestamp"]), _millis(row["store_timestamp"])
    return m.BrokerDiscard(*_key(row), row["uniq_key"], row["producer_group"], born, row["check_times"], store)


_ROW: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "half_messages": _half,
    "op_messages": _op,
    "final_messages": _final,
    "broker_discards": _discard,
}


def _millis(instant: Any) -> int:
    return _micros(instant) // 1000


def _micros(instant: Any) -> int:
    assert isinstance(instant, datetime)
    return (instant - r.EPOCH) // timedelta(microseconds=1)
