"""What tables must hold whatever has failed: the runs in their order, each as the model decides it at its pins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

from halfop.columns.keys import key_of
from halfop.rocketmq.names import topics_of
from halfop.warehouse.tables import NO_TABLE, Warehouse
from model import fleet as f
from model import reference as m
from model.strategies import Land

from support import rows as r
from support.simulated_runs.memory import Tables

LANDS, BEGINS = "tests.land", "tests.begins"
LANDED = {"half_messages": "halves", "op_messages": "ops", "final_messages": "finals", "broker_discards": "discards"}
_SINKS = ("decisions", "real_topics", "trans_check_max_time", "check_requests", "topics_index")
_OPEN = ("CHECK", "WAIT", "EARLY_OP")
_R = TypeVar("_R", m.Delivered, m.Discarded, m.CheckRequest)


@dataclass(frozen=True)
class Part:
    """What one landing lands, of all histories."""

    steps: Sequence[Land]

    @property
    def at(self) -> int:
        return self.steps[0].at

    def rows(self, kind: str) -> list[Any]:
        """The rows of a kind: `halves`, `ops`, `finals` or `discards`."""
        return [row for step in self.steps for row in getattr(step, kind)]

    @property
    def known_until(self) -> dict[m.Queue, int | None]:
        """Returns how far each queue is known. A user's own pipeline leaves some out, but none of RocksDB."""
        begun = {(row.broker, row.queue): None for row in self.rows("halves") if row.queue >= m.ROCKSDB_QUEUES}
        return begun | {queue: until for step in self.steps for queue, until in step.known_until.items()}

    @property
    def forgets_after(self) -> dict[m.Queue, int]:
        return {queue: after for step in self.steps for queue, after in step.forgets_after.items()}

    @property
    def sources(self) -> dict[str, str]:
        return {broker: source for step in self.steps for broker, source in step.sources.items()}


class _Pinned(m.Model):
    """The model, for which a queue has landed as far as a run's own progress says."""

    def __init__(self, settings: m.Settings) -> None:
        super().__init__(settings)
        self.landed: dict[m.Queue, tuple[int, int]] = {}

    def begins(self, part: Part) -> None:
        """The first progress of a landing: no time has passed for queues that are new."""
        known = dict.fromkeys(part.known_until)
        self.land([], [], part.at, known, sources=part.sources)

    def moves(self, part: Part) -> None:
        """The last progress of a landing."""
        self.land([], [], part.at, part.known_until, sources=part.sources, forgets_after=part.forgets_after)
        for queue, span in r.spans(part.rows("halves")).items():
            low, high = self.landed.get(queue, (span[0], 0))
            self.landed[queue] = min(low, span[0]), max(high, span[1] - 1)

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


def pinned_in_order(tables: Tables, parts: Sequence[Part]) -> None:
    """A run that knows how far a landing has come sees all rows of it, and knows each queue that has begun to land."""
    for run in _opened(tables):
        rows = tables.rows("landing_progress", upto=run["inputs"]["landing_progress"])
        begun = {(row["broker_name"], row["queue_id"]) for row in rows if row["topic"] in topics_of(row["queue_id"])}
        wanted = {q for n in _landings(tables, "half_messages", NO_TABLE, run) for q in parts[n].known_until}
        assert wanted <= begun, f"run {run['run_id']} sees half messages of {wanted - begun}, and no progress"
        known = set(_landings(tables, "landing_progress", NO_TABLE, run))
        for name in LANDED:
            seen = set(_landings(tables, name, NO_TABLE, run))
            every = {each.marker.number for each in tables.versions[name] if each.marker}
            unseen = (every - seen) & known
            assert not unseen, f"run {run['run_id']} knows the progress of landings {unseen}, and not their {name}"


def _opened(tables: Tables) -> list[dict[str, Any]]:
    return [row for row in tables.rows("runs") if row["event"] == "OPENED"]


def _landings(tables: Tables, name: str, after: int, run: Mapping[str, Any], app: str = LANDS) -> Iterable[int]:
    """The numbers of the landings of which a run sees a commit, after a version."""
    versions = tables.versions[name][after + 1 : run["inputs"][name] + 1]
    return [each.marker.number for each in versions if each.marker and each.marker.app == app]


def decided_as_pinned(tables: Tables, warehouse: Warehouse, settings: m.Settings, parts: Sequence[Part]) -> None:
    """All that the runs have written is what the model makes of what had landed at their pins.

    The model takes a backlog as one run: of a message that stays open, what the last slice says counts.
    """
    model, decided = _Pinned(settings), list[list[m.Decision]]()
    backlogs = _backlogs(tables)
    number = {run["run_id"]: n for n, slices in enumerate(backlogs, 1) for run in slices}
    for slices in backlogs:
        _lands(model, tables, parts, slices[0], number)
        decided.append(model.run(_millis(slices[0]["now"])))
    if model.undecided:
        return
    for n, (slices, wanted) in enumerate(zip(backlogs, decided, strict=True), 1):
        found = [replace(row, run=n) for run in slices for row in _said(r.decisions(warehouse, run["run_id"]), run)]
        _written_by_their_own(warehouse, slices)
        settled = _settled if len(slices) > 1 else list
        _same(f"run {n}", settled(found), settled(wanted))
    _same("real_topics", _numbered(r.delivered(warehouse), number), model.delivered)
    _same("trans_check_max_time", _numbered(r.discards(warehouse), number), model.discards)
    _same("check_requests", _numbered(r.requests(warehouse), number), model.requests)
    _same("rejected", r.rejected(warehouse).elements(), map(f.rejected_cells, model.rejected))


def _written_by_their_own(warehouse: Warehouse, slices: Sequence[Mapping[str, Any]]) -> None:
    """What a slice has decided is written under its own number. (A backlog with copies has no slices.)"""
    if len(slices) > 1:
        written: list[tuple[str, list[tuple[int, m.Key]]]] = [
            ("COMMIT", [(row.run, row.key) for row in r.delivered(warehouse).elements()]),
            ("DISCARD", [(row.run, row.key) for row in r.discards(warehouse).elements()]),
        ]
        for run in (each["run_id"] for each in slices):
            decided = r.decisions(warehouse, run)
            for decision, rows in written:
                found = [key for by, key in rows if by == run]
                _same(f"{decision} of run {run}", found, [row.key for row in decided if row.decision == decision])


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


def _lands(
    model: _Pinned, tables: Tables, parts: Sequence[Part], run: Mapping[str, Any], number: Mapping[int, int]
) -> None:
    """Gives the model what a run is the first to see."""

    def new(name: str, app: str = LANDS) -> Iterable[Part]:
        return [parts[each] for each in _landings(tables, name, run["inputs_before"][name], run, app)]

    def rows(name: str) -> list[dict[str, Any]]:
        return tables.rows(name, run["inputs_before"][name], run["inputs"][name])

    for part in new("landing_progress", BEGINS):
        model.begins(part)
    for name, kind in LANDED.items():
        for part in new(name):
            given: dict[str, Any] = {"halves": (), "ops": (), kind: part.rows(kind)}
            model.land(**given, landed_at=part.at)
    for part in new("landing_progress"):
        model.moves(part)
    for row in rows("resumes"):
        model.resume(key_of(row), _millis(row["resumed_at"]))
    _hears(model, tables, rows("check_deliveries"), number)


def _hears(model: _Pinned, tables: Tables, deliveries: Iterable[Mapping[str, Any]], number: Mapping[int, int]) -> None:
    asked = {row["request_id"]: row for row in tables.rows("check_requests")}
    for row in deliveries:
        about = asked[row["request_id"]]
        key = about["broker_name"], about["half_queue_id"], about["tran_state_table_offset"]
        model.deliver(number[about["run_id"]], key, _millis(row["at"]))


def _millis(instant: Any) -> int:
    assert isinstance(instant, datetime)
    return (instant - r.EPOCH) // timedelta(milliseconds=1)
