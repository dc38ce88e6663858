"""What tables must hold whatever has failed: the runs in their order, each as the model decides it at its pins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from halfop.columns.keys import key_of
from halfop.warehouse.tables import NO_TABLE, Marker, Warehouse
from model import fleet as f
from model import reference as m
from model.strategies import Land

from support import rows as r
from support.simulated_runs.memory import Tables

LANDS = "tests.land"
LANDED = {"half_messages": "halves", "op_messages": "ops", "final_messages": "finals", "broker_discards": "discards"}
_SINKS = ("decisions", "real_topics", "trans_check_max_time", "check_requests", "topics_index")


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
        return {queue: until for step in self.steps for queue, until in step.known_until.items()}

    @property
    def sources(self) -> dict[str, str]:
        return {broker: source for step in self.steps for broker, source in step.sources.items()}


class _Pinned(m.Model):
    """The model, for which a queue has landed as far as a run's own progress says."""

    def __init__(self, settings: m.Settings) -> None:
        super().__init__(settings)
        self.landed: dict[m.Queue, tuple[int, int]] = {}

    def moves(self, part: Part) -> None:
        """The progress of a landing."""
        self.land([], [], part.at, part.known_until, sources=part.sources)
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
    """Each run opens once, closes once, and before the next one opens; no table gets a run twice, or after a later."""
    events = [(row["run_id"], row["event"]) for row in tables.rows("runs")]
    assert events == [(n // 2 + 1, "CLOSED" if n % 2 else "OPENED") for n in range(len(events))], events
    for run, following in pairwise(_opened(tables)):
        assert following["inputs_before"] == run["inputs"], f"run {following['run_id']} begins where no run has ended"
    for name in _SINKS:
        numbers = [each.marker.number for each in tables.versions[name] if each.marker]
        assert numbers == sorted(set(numbers)), f"{name} has the runs {numbers}"


def highest_pin(tables: Tables, name: str) -> int:
    """The newest version that a run has pinned."""
    return max((run["inputs"].get(name, NO_TABLE) for run in _opened(tables)), default=NO_TABLE)


def pinned_in_order(tables: Tables) -> None:
    """A run that knows how far a landing has come sees all rows of it."""
    for run in _opened(tables):
        known = {marker.number for marker in _markers(tables, "landing_progress", NO_TABLE, run)}
        for name in LANDED:
            seen = {marker.number for marker in _markers(tables, name, NO_TABLE, run)}
            every = {each.marker.number for each in tables.versions[name] if each.marker}
            unseen = (every - seen) & known
            assert not unseen, f"run {run['run_id']} knows the progress of landings {unseen}, and not their {name}"


def _opened(tables: Tables) -> list[dict[str, Any]]:
    return [row for row in tables.rows("runs") if row["event"] == "OPENED"]


def _markers(tables: Tables, name: str, after: int, run: Mapping[str, Any]) -> Iterable[Marker]:
    versions = tables.versions[name][after + 1 : run["inputs"][name] + 1]
    return [each.marker for each in versions if each.marker]


def decided_as_pinned(tables: Tables, warehouse: Warehouse, settings: m.Settings, parts: Sequence[Part]) -> None:
    """All that the runs have written is what the model makes of what had landed at their pins."""
    model, decided = _Pinned(settings), list[list[m.Decision]]()
    for run in _opened(tables):
        _lands(model, tables, parts, run)
        decided.append(model.run(_millis(run["now"])))
    if model.undecided:
        return
    for run_id, wanted in enumerate(decided, 1):
        found = r.decisions(warehouse, run_id)
        lacking, other = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        assert not lacking + other, f"run {run_id} lacks {[*lacking]}, and has {[*other]}"
    assert r.delivered(warehouse) == Counter(model.delivered), "other messages were delivered"
    assert r.discards(warehouse) == Counter(model.discards), "other messages were discarded"
    assert r.requests(warehouse) == Counter(model.requests), "other questions were asked"
    assert r.rejected(warehouse) == Counter(map(f.rejected_cells, model.rejected)), "other rows were rejected"


def _lands(model: _Pinned, tables: Tables, parts: Sequence[Part], run: Mapping[str, Any]) -> None:
    """Gives the model what a run is the first to see."""

    def new(name: str) -> Iterable[Part]:
        return [parts[marker.number] for marker in _markers(tables, name, run["inputs_before"][name], run)]

    def rows(name: str) -> list[dict[str, Any]]:
        return tables.rows(name, run["inputs_before"][name], run["inputs"][name])

    for name, kind in LANDED.items():
        for part in new(name):
            given: dict[str, Any] = {"halves": (), "ops": (), kind: part.rows(kind)}
            model.land(**given, landed_at=part.at)
    for part in new("landing_progress"):
        model.moves(part)
    for row in rows("resumes"):
        model.resume(key_of(row), _millis(row["resumed_at"]))
    _hears(model, tables, rows("check_deliveries"))


def _hears(model: _Pinned, tables: Tables, deliveries: Iterable[Mapping[str, Any]]) -> None:
    asked = {row["request_id"]: row for row in tables.rows("check_requests")}
    for row in deliveries:
        about = asked[row["request_id"]]
        key = about["broker_name"], about["half_queue_id"], about["tran_state_table_offset"]
        model.deliver(about["run_id"], key, _millis(row["at"]))


def _millis(instant: Any) -> int:
    assert isinstance(instant, datetime)
    return (instant - r.EPOCH) // timedelta(milliseconds=1)
