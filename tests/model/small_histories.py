"""All small histories of one UNIQ_KEY: a few rows, each of which lands before the first, second or third run.

Up to three half messages (the original, put-back copies, a broker's resume, twins), two ops, a broker's discard record,
a final message, and a resume of ours. Left out are histories that differ from others in names alone, and those of
which the rules do not say what is to happen (see `_is_defined`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from random import Random

from model.fleet import under
from model.reference import BrokerDiscard, Final, Half, Key, Op, Settings
from model.strategies import START, STORE, Charter, History, Land, Phase, Resume, Run, Step, op_rows

BROKER, OTHER = "b", "c"
RUNS = 3
SECOND = 1_000
SETTINGS = Settings(check_max=1, checks_a_run=None)  # asked by the first run, discarded by the second
_BORN = START
_BETWEEN = 100 * SECOND
_LANDINGS = [START + (n + 1) * _BETWEEN for n in range(RUNS)]
CHARTER = Charter(
    SETTINGS, tuple(Phase(at, (at + 1 * SECOND,), (at + 2 * SECOND,)) for at in _LANDINGS), _LANDINGS[-1] + _BETWEEN
)
# `land store` may only watch, by the default of rules.ask.
ASKING = replace(CHARTER, settings=replace(SETTINGS, ask=True))
_Row = Half | Op | BrokerDiscard | Final
# What a half message may be. A discard record of the broker is stored before the resumes, and after all others.
ORIGINAL, COPY, RESUMED, TWIN = "original", "copy", "resumed", "twin"
ESCAPED, PUT_BACK = "escaped", "put back"  # both on the other broker: what has escaped there, and a copy of it
_ESCAPES = [(ORIGINAL, ESCAPED), (ORIGINAL, COPY, ESCAPED), (ORIGINAL, ESCAPED, COPY), (ORIGINAL, ESCAPED, PUT_BACK)]


@dataclass(frozen=True)
class Rows:
    """Rows that land; half messages by their kind, all others by the half message that they are about."""

    halves: tuple[str, ...]
    ops: tuple[tuple[int, str], ...]
    discard: bool
    final: int | None
    resume: int | None

    @property
    def number(self) -> int:
        """The number of rows that may land before any run."""
        return len(self.halves) + len(self.ops) + self.discard + (self.final is not None) + (self.resume is not None)

    @property
    def agree(self) -> bool:
        """Everything that says how a transaction ends says the same."""
        return len({outcome for _, outcome in self.ops} | ({"COMMIT"} if self.final is not None else set())) <= 1


def all_rows(of_escapes: bool = False) -> Iterator[Rows]:
    """All rows, with a second broker, to which the message escapes, or without."""
    for halves in _ESCAPES if of_escapes else _all_halves():
        about = range(len(halves))
        ends = [(n, outcome) for n in about for outcome in ("COMMIT", "ROLLBACK")]
        ops = [(), *((op,) for op in ends), *product(ends, repeat=2)]
        for each in product(ops, (False, True), [None, *about], [None, *about]):
            yield Rows(halves, *each)


def _all_halves() -> Iterator[tuple[str, ...]]:
    """The lowest is the original, or a copy whose original has been lost."""
    for number in range(3):
        for first, others in product((ORIGINAL, COPY), product((COPY, RESUMED, TWIN), repeat=number)):
            yield (first, *others)


def orders(rows: Rows) -> Iterator[tuple[int, ...]]:
    """Before which run each row lands: half messages, ops, discard, final message, resume."""
    for order in product(range(RUNS), repeat=rows.number):
        if 0 in order and _is_defined(rows, order):
            yield order


def _is_defined(rows: Rows, order: Sequence[int]) -> bool:
    """The rules say what is to happen; that is not so of

    - twins of which a copy above lands in another run, because it may be of either, and one may have ended;
    - a broker's resume among twins, without a discard record, or that lands before the record that it undid, or after
      a copy above it: a resume is the highest that is known.
    """
    at = dict(zip(range(len(rows.halves)), order, strict=False))
    kinds = rows.halves
    if TWIN in kinds and any(at[m] != at[n] for n, kind in enumerate(kinds) for m in range(n) if kind == COPY):
        return False
    if RESUMED in kinds:
        discarded = order[len(kinds) + len(rows.ops)] if rows.discard else None
        resumed = [n for n, kind in enumerate(kinds) if kind == RESUMED]
        in_order = all(at[n] <= at[m] for n in resumed for m in range(n + 1, len(kinds)))
        return TWIN not in kinds and discarded is not None and discarded <= at[resumed[0]] and in_order
    return True


def as_a_store_lands(rows: Rows, order: Sequence[int]) -> bool:
    """Nothing lands before what was stored before it, so that a run looks nothing back."""
    number = len(rows.halves)
    halves, others = order[:number], iter(order[number:])
    ops = [next(others) for _ in rows.ops]
    discard = next(others) if rows.discard else RUNS
    final = next(others) if rows.final is not None else RUNS
    before = [at for kind, at in zip(rows.halves, halves, strict=True) if kind != RESUMED]
    named = [(halves[about], at) for (about, _), at in zip(rows.ops, ops, strict=True)]
    named += [] if rows.final is None else [(halves[rows.final], final)]
    in_order = all(one <= other for one, other in [*pairwise(halves), *pairwise(ops), *named])
    return in_order and all(at <= discard for at in before)


# ---- as histories ----


def histories(chosen: Iterable[tuple[Rows, Sequence[int]]]) -> list[History]:
    """In every other pair of them the queue is known before: another message's half message is there at first."""
    return [history(*each, known=n % 4 > 1) for n, each in enumerate(chosen)]


def of_stores(chosen: Iterable[tuple[Rows, Sequence[int]]]) -> list[History]:
    """Those that a store lands as it has them."""
    found = [history(*each, known=True) for each in chosen if as_a_store_lands(*each)]
    return [under(STORE, replace(each, settings=ASKING.settings)) for each in found]


def of_files(chosen: Iterable[tuple[Rows, Sequence[int]]]) -> list[History]:
    """Those with half messages in their order and ops in any, without what has a run look back for files."""
    plain = (each for each in chosen if not each[0].discard and each[0].final is None)
    return [
        history(*each, known=True)
        for each in plain
        if all(one <= other for one, other in pairwise(each[1][: len(each[0].halves)]))
    ]


def history(rows: Rows, order: Sequence[int], known: bool = False) -> History:
    halves = [_half(n, rows.halves[: n + 1]) for n in range(len(rows.halves))]
    ops = [_op(n, halves[about], outcome) for n, (about, outcome) in enumerate(rows.ops)]
    discards = [_DISCARD] if rows.discard else []
    finals = [] if rows.final is None else [_final(halves[rows.final])]
    landing: list[_Row] = [*halves, *ops, *discards, *finals]
    landed = list(zip(landing, order, strict=False))
    resumed = None if rows.resume is None else (halves[rows.resume].key, order[-1])
    brokers = {half.broker for half in halves}
    steps: list[Step] = []
    for n, phase in enumerate(CHARTER.phases):
        mine = [row for row, at in landed if at == n]
        mine += [replace(_ANOTHER, broker=broker) for broker in sorted(brokers) if known and n == 0]
        steps += [
            _land(mine, phase.landing, brokers),
            *_resumes(resumed, n, phase.resumes[0]),
            Run(phase.runs[0]),
        ]
    return History(SETTINGS, tuple(steps))


def _land(rows: Sequence[_Row], at: int, brokers: Collection[str]) -> Land:
    halves, ops, discards, finals = (
        tuple(row for row in rows if isinstance(row, kind)) for kind in (Half, Op, BrokerDiscard, Final)
    )
    return Land(halves, ops, at, {(broker, 0): at for broker in sorted(brokers)}, finals, discards)  # type: ignore[arg-type]


def _resumes(resumed: tuple[Key, int] | None, phase: int, at: int) -> list[Step]:
    return [Resume((resumed[0],), at)] if resumed and resumed[1] == phase else []


def _half(number: int, kinds: Sequence[str]) -> Half:
    """The last of these kinds; a queue is in the order of its store times."""
    store = _BORN + (50 if RESUMED in kinds else 10) * SECOND + number
    broker = OTHER if kinds[-1] in (ESCAPED, PUT_BACK) else BROKER
    plain = Half(broker, 0, number + 1, number * 100, "k", "g", "T", "0", _BORN, store, body=b"half %d" % number)
    times = {COPY: "1", PUT_BACK: "1", RESUMED: "0"}.get(kinds[-1])
    return replace(plain, check_times=times, wait="false" if broker == OTHER else None)


def _op(number: int, half: Half, outcome: str) -> Op:
    rows = op_rows((half.broker, 0), number, str(half.offset), [outcome], _BORN + 60 * SECOND)
    return rows[0]


_ANOTHER = Half(BROKER, 0, 0, 10_000, "another", "g", "T", "0", _BORN, _BORN)
_DISCARD = BrokerDiscard(BROKER, 0, 0, "k", "g", _BORN, 1, _BORN + 40 * SECOND)


def _final(half: Half) -> Final:
    return Final(half.broker, half.commit_log_offset, "T", 0, 0, "k", _BORN + 60 * SECOND)


def larger(number: int, chance: Random) -> Iterator[tuple[Rows, tuple[int, ...]]]:
    """Some of six to eight rows, of which there are 25 million."""
    some = [rows for rows in all_rows() if rows.number > 5]
    while number:
        rows = chance.choice(some)
        order = tuple(chance.choices(range(RUNS), k=rows.number))
        if 0 in order and _is_defined(rows, order):
            yield rows, order
            number -= 1


def up_to(most: int, of_escapes: bool = False) -> Iterator[tuple[Rows, tuple[int, ...]]]:
    """All of so many rows at most, those of fewer rows first: the first that fails is a smallest one."""
    for rows in sorted((rows for rows in all_rows(of_escapes) if rows.number <= most), key=lambda rows: rows.number):
        for order in orders(rows):
            yield rows, order
