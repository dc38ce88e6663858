"""Put-back copies without Spark: rule by rule, by the hundred thousand, and as a worker sees them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pytest
from halfop.rules import kins
from halfop.rules.kins import Candidate, given_up
from halfop.rules.resolve import Copy, Member, State, Transaction, resolve
from model import lineage
from model import reference as m

LATEST = 10**6


def at(offset: int, state: State = "NEW", times: int | None = None, **changed: object) -> Member:
    """A half message, stored at its offset; one with check times is a copy, and 0 says that the broker resumed it."""
    marked, checks = times is not None, times or 0
    last = offset if checks else None
    place = {name: changed.get(name, default) for name, default in (("broker_name", "b"), ("queue_id", 0))}
    known = Member("b", 0, offset, state, marked, False, times == 0, offset, checks, last, None, ())
    changed = {"copies": (copy(offset)._replace(**place),)} | changed  # type: ignore[arg-type]
    return known._replace(**changed)  # type: ignore[arg-type]


def copy(offset: int) -> Copy:
    return Copy("b", 0, offset, offset * 500, 1)


def known(*offsets: int) -> tuple[Copy, ...]:
    return tuple(map(copy, offsets))


def told(transaction: Transaction) -> tuple[int, bool, list[int]]:
    """The offset that it stands at, whether that is a live copy, and the offsets that it supersedes."""
    return transaction.standing.offset, transaction.alive, [member.offset for member in transaction.superseded]


RESUMED = {"resumed_at": 50}
D = {"broker_name": "d"}
D9 = copy(9)._replace(broker_name="d")
CASES: dict[str, tuple[list[Member], list[int], list[tuple[int, bool, list[int]]]]] = {
    "the highest copy is the live one": ([at(0), at(5, times=1), at(9, times=2)], [], [(9, True, [0, 5])]),
    "twins are never merged": ([at(0), at(5)], [], [(0, True, []), (5, True, [])]),
    "a copy belongs to the nearest head below it": (
        [at(0), at(3, times=1), at(5), at(7, times=1)],
        [],
        [(3, True, [0]), (7, True, [5])],
    ),
    "copies whose head has not landed are one transaction": (
        [at(3, times=1), at(5, times=2), at(7)],
        [],
        [(5, True, [3]), (7, True, [])],
    ),
    "an open row takes its place by the lowest copy that it knows": (
        [at(9, "OPEN", copies=known(0, 9)), at(5)],
        [],
        [(9, True, []), (5, True, [])],
    ),
    "a pointer is no head of a transaction": (
        [at(0, "SUPERSEDED"), at(5, "OPEN", copies=known(0, 5)), at(7, times=2)],
        [],
        [(7, True, [5])],
    ),
    "a copy that lands after the end is decided with it": (
        [at(0, "ENDED"), at(5, times=1)],
        [],
        [(0, False, [5])],
    ),
    "a copy that lands after we gave up is decided with it": (
        [at(0, "DISCARDED"), at(5, times=1)],
        [],
        [(0, False, [5])],
    ),
    "a copy with check times 0 opens what was given up": (
        [at(0, "DISCARDED"), at(3, times=2), at(5, times=0), at(7, times=1)],
        [],
        [(7, True, [3, 5])],
    ),
    "no resume lies below what was known": (
        [at(9, "DISCARDED", copies=known(0, 9)), at(5, times=0)],
        [],
        [(9, False, [5])],
    ),
    "no resume was stored before the last one": (
        [at(0, "DISCARDED", **RESUMED), at(5, times=0)],
        [],
        [(0, False, [5])],
    ),
    "no resume of what has ended": ([at(0, "ENDED"), at(5, times=0)], [4], [(0, False, [5])]),
    "what was given up and resumed is a pointer": (
        [at(0, "DISCARDED"), at(5, "OPEN", copies=known(0, 5)), at(7, times=1)],
        [],
        [(7, True, [5])],
    ),
    "a rejected row stands where nothing else does": ([at(0, "REJECTED")], [], [(0, False, [])]),
    "the last of rejected rows stands": ([at(0, "REJECTED"), at(5, "REJECTED", times=1)], [], [(5, False, [])]),
    "a resume is stored after the last one": (
        [at(0, "DISCARDED", **RESUMED), at(51, times=0)],
        [],
        [(51, True, [])],
    ),
    "no resume was stored with the last one": (
        [at(0, "DISCARDED", **RESUMED), at(50, times=0)],
        [],
        [(0, False, [50])],
    ),
    "no resume lies below a copy that is known and not at hand": (
        [at(0, "DISCARDED", copies=known(0, 9)), at(5, times=0)],
        [],
        [(0, False, [5])],
    ),
    "a mark alone is no escape": (
        [at(0), at(5, times=1, broker_name="c")],
        [],
        [(0, True, []), (5, True, [])],
    ),
    "a later life puts back what stands in an earlier one": (
        [at(0), at(5, times=1, broker_name="b~2")],
        [],
        [(5, True, [0])],
    ),
    "what escaped is of the last that was stored before it, whatever its offset": (
        [at(9, stored_at=10), at(1, broker_name="d", stored_at=20), at(5, broker_name="c", stored_at=30, escaped=True)],
        [],
        [(9, True, []), (5, True, [1])],
    ),
    "of two that were stored at once, what escaped is of the later broker's": (
        [at(9, stored_at=20), at(1, broker_name="d", stored_at=20), at(5, broker_name="c", stored_at=30, escaped=True)],
        [],
        [(9, True, []), (5, True, [1])],
    ),
    "of two that were stored at once in one queue, what escaped is of the higher": (
        [at(1, stored_at=20), at(9, stored_at=20), at(5, broker_name="c", stored_at=30, escaped=True)],
        [],
        [(1, True, []), (5, True, [9])],
    ),
    "a row that knows two parts makes them one": (
        [
            at(0, "DISCARDED"),
            at(3, broker_name="c"),
            at(9, "OPEN", times=1, broker_name="d", copies=(*known(0), copy(3)._replace(broker_name="c"), D9)),
        ],
        [],
        [(9, True, [3])],
    ),
    "a mark alone is no escape, also if a later message has escaped": (
        [at(0), at(5, times=1, broker_name="d"), at(9, broker_name="c", escaped=True)],
        [],
        [(0, True, []), (9, True, [5])],
    ),
    "a mark between two of which the later has escaped is of their transaction": (
        [
            at(0, "SUPERSEDED", times=1),
            at(5, times=1, broker_name="c"),
            at(9, "OPEN", times=1, copies=(*known(0), D9), **D),
        ],
        [],
        [(9, True, [5])],
    ),
    "a superseded row stands before a rejected one": (
        [at(0, "SUPERSEDED"), at(5, "REJECTED", times=1)],
        [],
        [(0, False, [])],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    members, discards, expected = CASES[name]
    assert sorted(map(told, resolve(members, discards))) == sorted(expected)


def only(members: list[Member], discards: list[int] | None = None) -> Member:
    (transaction,) = resolve(members, discards or [])
    return transaction.standing


def test_the_live_copy_has_the_most_of_all_copies() -> None:
    row = only([at(0, "OPEN", check_times=7, last_checked_at=99), at(5, times=2)])
    assert (row.check_times, row.last_checked_at, row.copies, row.marked) == (7, 99, known(0, 5), False)


def test_copies_without_their_start_are_marked() -> None:
    assert only([at(5, times=2)]).marked
    assert only([at(0, "SUPERSEDED"), at(5, "OPEN", times=2)]).marked


def test_checks_before_our_resume_count_no_more() -> None:
    """The copy was stored before it, and lands after it."""
    row = only([at(0, "OPEN", **RESUMED), at(5, times=9), at(60, times=2)])
    assert (row.offset, row.check_times, row.last_checked_at, row.resumed_at) == (60, 2, 60, 50)


def test_checks_before_the_brokers_resume_count_no_more() -> None:
    row = only([at(0), at(5, times=9), at(60, times=0), at(70, times=1)], [55])
    assert (row.offset, row.check_times, row.last_checked_at, row.resumed_at) == (70, 1, 70, 60)


def test_what_a_resume_of_ours_leaves_uncounted() -> None:
    """What was stored up to its instant."""
    assert [only([at(0, "OPEN", **RESUMED), at(n, times=9)]).check_times for n in (49, 50, 51)] == [0, 0, 9]


@pytest.mark.parametrize(("offset", "discard"), [(40, 30), (60, 50)])
def test_a_resume_of_ours_undoes_discards_up_to_its_instant(offset: int, discard: int) -> None:
    assert only([at(0, "OPEN", **RESUMED), at(offset, times=0)], [discard]).resumed_at == 50


@pytest.mark.parametrize("state", ["DISCARDED", "SUPERSEDED"])
def test_a_pointer_keeps_its_place_though_the_broker_s_clock_went_back(state: State) -> None:
    pointer = at(0, state, stored_at=100)
    row = only([pointer, at(5, "OPEN", copies=known(0, 5), **RESUMED), at(70, times=0)], [60])
    assert (row.offset, row.resumed_at) == (70, 70)


def test_whether_its_original_may_be_on_another_broker() -> None:
    original, escape = at(0), at(5, broker_name="c", escaped=True)
    marks = [(row.marked, row.escaped) for row in (only([escape]), only([original, escape]), only([at(5, times=1)]))]
    assert marks == [(False, True), (False, False), (True, False)]


def test_copies_are_in_the_order_of_their_queues_and_offsets() -> None:
    """The first one is the starter, which discard records go by."""
    here = (0, 3, 4, 5, 6, 7, 8, 9)
    escape = at(2, broker_name="a", stored_at=30, escaped=True)
    row = only([at(9, "OPEN", copies=known(*here)), escape])
    assert [each.key for each in row.copies] == [*(("b", 0, n) for n in here), ("a", 0, 2)]


def test_a_discard_after_it_makes_a_copy_no_resume() -> None:
    row = only([at(0), at(5, times=9), at(60, times=0)], [61])
    assert (row.offset, row.check_times, row.resumed_at) == (60, 9, None)


def test_a_row_without_a_store_time_is_no_resume() -> None:
    assert only([at(0), at(5, times=0, stored_at=None)], [1]).resumed_at is None


OPEN_TWINS = [Candidate(0, "b", 0, True, None, 0), Candidate(5, "b", 0, True, None, 0)]
TWINS = {
    "one record, the lowest twin": (OPEN_TWINS, [9], 0, [True, False]),
    "a record for each": (OPEN_TWINS, [8, 9], 0, [True, True]),
    "not what ends": ([Candidate(0, "b", 0, False, None, 0), OPEN_TWINS[1]], [9], 0, [False, True]),
    "not what was resumed after it": ([Candidate(0, "b", 0, True, 9, 0), OPEN_TWINS[1]], [9], 0, [False, True]),
    "not what another was given up for": ([Candidate(0, "b", 0, True, None, 1)], [9], 1, [False]),
    "a record that is new": ([Candidate(0, "b", 0, True, None, 1)], [8, 9], 1, [True]),
    "what was seen and not spent": ([Candidate(0, "b", 0, True, None, 0)], [9], 1, [True]),
    "none was seen, so none is spent": ([Candidate(0, "b", 0, True, None, 1)], [9], 0, [True]),
    "the lowest, whatever their order": (OPEN_TWINS[::-1], [9], 0, [False, True]),
    "brokers in order": (
        [Candidate(0, "c", 0, True, None, 0), Candidate(0, "b", 0, True, None, 0)],
        [9],
        0,
        [False, True],
    ),
    "queues in order": (
        [Candidate(0, "b", 1, True, None, 0), Candidate(0, "b", 0, True, None, 0)],
        [9],
        0,
        [False, True],
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_given_up(name: str) -> None:
    candidates, discards, seen, expected = TWINS[name]
    assert given_up(candidates, discards, seen) == expected


# ---- against the independent model ----


@dataclass
class Both:
    """One kin in the model and as rows; what landed, ended or was given up is done to both.

    Half messages of all brokers are numbered by the time when they were stored, and so are their offsets.
    """

    chance: random.Random
    escapes: set[int] | None = None  # to another broker; twins and resumes are left out then
    rows: dict[int, Member] = field(default_factory=dict)
    model: dict[m.Key, lineage.Transaction] = field(default_factory=dict)
    arrived: set[m.Key] = field(default_factory=set)
    halves: dict[int, m.Half] = field(default_factory=dict)

    def land(self, offset: int) -> None:
        if self.escapes is None:
            self._land_here(offset)
        else:
            self._land_anywhere(offset, self.escapes)

    def _land_anywhere(self, offset: int, escapes: set[int]) -> None:
        """0 is the original. All others are put back where they are, or have escaped to there, or both.

        Only the first one of the other broker may be without a mark: a second one, or one that escapes back, cannot be
        told from a twin before all have landed.
        """
        broker = "c" if offset in escapes else "b"
        plain = offset == min(escapes, default=None) and self.chance.random() < 0.5
        times = None if plain or not offset else self.chance.choice(["1", "2"])
        half = m.Half(broker, 0, offset, offset * 500, "K", "g", "T", "1", 0, offset, check_times=times)
        self.halves[offset] = replace(half, wait="false" if broker == "c" else None)
        number = int(times) if times is not None else None
        self.rows[offset] = at(offset, times=number, broker_name=broker, escaped=broker == "c")
        self.arrived.add(half.key)

    def _land_here(self, offset: int) -> None:
        between = any(low < offset for low in self.rows) and any(high > offset for high in self.rows)
        original = not offset or (not between and self.chance.random() < 0.2)
        times = None if original else self.chance.choice(["0", "1", "2", None])
        prepared = None if original or times else "0"
        half = m.Half("b", 0, offset, offset * 500, "K", "g", "T", "1", 0, offset, check_times=times)
        self.halves[offset] = replace(half, prepared_offset=prepared)
        number = int(times) if times is not None else 0 if prepared else None
        says_zero = times == "0"
        self.rows[offset] = at(offset, times=number, says_resumed=says_zero)
        self.arrived.add(half.key)

    def model_resolves(self) -> set[tuple[object, ...]]:
        found: set[tuple[object, ...]] = set()
        for family in lineage.families(self.halves.values(), self.model):
            home = next((self.model[h.key] for h in family if h.key in self.model), lineage.Transaction())
            for half in family:
                if half.key in self.arrived:
                    self._model_takes(home, half)
            home.reopening = False
            below = {key for key in home.copies if key != home.live and key not in home.told}
            home.told |= below
            alive = home.status == "OPEN"
            counts = (home.check_times, home.last_checked) if alive else None
            offsets = [tuple(sorted(offset for _, _, offset in keys)) for keys in (below, home.copies)]
            found.add((home.live[2], alive, counts, *offsets))
        self.arrived.clear()
        return found

    def _model_takes(self, home: lineage.Transaction, half: m.Half) -> None:
        self.model[half.key] = home
        times = int(half.check_times or 0)
        made = lineage.Copy(half, times, half.store if times else None, half.check_times == "0")
        (home.join if home.copies else home.start)(made)

    def resolves(self) -> set[tuple[object, ...]]:
        found: set[tuple[object, ...]] = set()
        for transaction in resolve(self._at_hand(), []):
            row = transaction.standing
            counts = (row.check_times, row.last_checked_at) if transaction.alive else None
            below = tuple(sorted(member.offset for member in transaction.superseded))
            found.add((row.offset, transaction.alive, counts, below, tuple(sorted(c.offset for c in row.copies))))
            for offset in below:
                self.rows[offset] = self.rows[offset]._replace(state="SUPERSEDED", says_resumed=False)
            self.rows[row.offset] = row._replace(state="OPEN" if transaction.alive else row.state, says_resumed=False)
        return found

    def _at_hand(self) -> list[Member]:
        """Superseded copies are only read where neither an open row nor a new original is there."""
        news = any(row.state == "OPEN" or (row.state == "NEW" and not row.marked) for row in self.rows.values())
        return [row for row in self.rows.values() if not news or row.state != "SUPERSEDED"]

    def decide(self, now: int) -> None:
        """What a run, and a user after it, may make of each open or discarded transaction."""
        for home in {id(t): t for t in self.model.values()}.values():
            live = home.live[2]
            row, what = self.rows[live], self.chance.randrange(6)
            if home.status == "OPEN" and what == 0:
                home.status, self.rows[live] = "COMMIT", row._replace(state="ENDED")
            elif home.status == "OPEN" and what in (1, 2):
                home.status, self.rows[live] = "DISCARD", row._replace(state="DISCARDED")
            elif home.status == "DISCARD" and what in (1, 2):
                home.reopen(now)
                reopened = {"check_times": 0, "last_checked_at": None, "resumed_at": now}
                self.rows[live] = row._replace(state="OPEN", **reopened)  # type: ignore[arg-type]


def runs(chance: random.Random, escapes: bool = False) -> Iterator[tuple[Both, list[int], int]]:
    """Offsets that land before each of three runs, most in their order."""
    offsets = sorted(chance.sample(range(12), chance.choice([2, 3, 4, 5])))
    both = Both(chance, {each for each in offsets if each and chance.random() < 0.5} if escapes else None)
    cuts = sorted(chance.choices(range(len(offsets) + 1), k=2))
    late = chance.random() < 0.2
    if late:
        chance.shuffle(offsets)
    for start, end in zip([0, *cuts], [*cuts, len(offsets)], strict=True):
        yield both, offsets[start:end], max(offsets[:end], default=0)


SEEDS = [*((seed, False) for seed in range(4)), *((seed, True) for seed in range(2))]


@pytest.mark.long
@pytest.mark.parametrize(("seed", "escapes"), SEEDS)
def test_a_hundred_thousand_runs_against_the_model(seed: int, escapes: bool) -> None:
    agree(seed, escapes, range(8_400))


def agree(seed: int, escapes: bool, numbers: range) -> None:
    """Plays histories of these numbers."""
    for number in numbers:
        landed: list[list[int]] = []
        for both, offsets, newest in runs(random.Random(f"{seed} {number}"), escapes):
            landed.append(offsets)
            for offset in offsets:
                both.land(offset)
            before = dict(both.rows)
            expected, found = both.model_resolves(), both.resolves()
            assert found == expected, (number, landed, before)
            both.decide(newest)


# ---- in a worker ----


def columns(of: list[list[Member]], gone: list[list[int]]) -> list[pa.Array]:
    """Kins as lists of members, in the columns that a worker gets."""
    instant, long = pa.timestamp("us", tz="UTC"), pa.int64()
    each = dict(zip(kins.MEMBER, Member._fields, strict=True))
    queue = [("broker_name", pa.string()), ("queue_id", pa.int32())]
    place = pa.struct([*queue, ("queue_offset", long), ("commit_log_offset", long), ("landed_at", instant)])
    types = {"state": pa.string(), "marked": pa.bool_(), "resume_mark": pa.bool_(), "check_times": pa.int32()}
    types |= dict(queue) | {"escaped": pa.bool_()}
    types |= {"queue_offset": long, "store_timestamp": instant, "last_checked_at": instant, "resumed_at": instant}
    types["copies"] = pa.list_(place)

    def column(name: str) -> pa.Array:
        values = [[getattr(member, each[name]) for member in kin] for kin in of]
        if name == "copies":
            names = [f.name for f in place]
            values = [[[dict(zip(names, c, strict=True)) for c in cell] for cell in kin] for kin in values]
        return pa.array(values, pa.list_(types[name]))

    return [*map(column, kins.MEMBER), pa.array(gone, pa.list_(instant))]


def test_a_worker_names_members_by_their_places_in_their_kin() -> None:
    both_queues = [at(0), at(5, times=1), at(0, queue_id=1), at(LATEST, times=0, queue_id=1)]
    given = columns([both_queues, [at(3, times=1)]], [[60], []])
    whole = kins.resolved(*given)
    places = [[(t["standing"], t["superseded"], t["members"], t["marked"]) for t in kin] for kin in whole.to_pylist()]
    assert places == [[(1, [0], [0, 1], False), (3, [2], [2, 3], False)], [(0, [], [0], True)]]
    resumed = [[t["resumed_at"] and t["resumed_at"].timestamp() for t in kin] for kin in whole.to_pylist()]
    assert resumed == [[None, LATEST / 1e6], [None]]
    assert [[t["resumed"] for t in kin] for kin in whole.to_pylist()] == [[False, True], [False]]
    assert kins.resolved(*[column.slice(1) for column in given]).equals(whole.slice(1))


def test_a_worker_reads_instants_beyond_the_year_9999() -> None:
    far = 300_000_000_000_000_000
    kin = columns([[at(0, stored_at=far), at(5, times=0, stored_at=far)]], [[far]])
    found = kins.resolved(*kin).flatten()
    assert found.field("resumed_at").cast(pa.int64()).to_pylist() == [far]


# All that has neither a case nor a seed.
ALONE = [
    test_the_live_copy_has_the_most_of_all_copies,
    test_copies_without_their_start_are_marked,
    test_checks_before_our_resume_count_no_more,
    test_checks_before_the_brokers_resume_count_no_more,
    test_a_discard_after_it_makes_a_copy_no_resume,
    test_what_a_resume_of_ours_leaves_uncounted,
    *(partial(test_a_resume_of_ours_undoes_discards_up_to_its_instant, *each) for each in ((40, 30), (60, 50))),
    *(
        partial(test_a_pointer_keeps_its_place_though_the_broker_s_clock_went_back, state)
        for state in ("DISCARDED", "SUPERSEDED")
    ),
    test_whether_its_original_may_be_on_another_broker,
    test_copies_are_in_the_order_of_their_queues_and_offsets,
    test_a_row_without_a_store_time_is_no_resume,
    test_a_worker_names_members_by_their_places_in_their_kin,
    test_a_worker_reads_instants_beyond_the_year_9999,
]
