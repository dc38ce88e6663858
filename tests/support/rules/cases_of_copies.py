"""Put-back copies, final messages and a broker's own discards: a case a sentence of the rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from model import reference as m

from support.halves import half_at

T0 = 1_750_000_000_000
RULES = m.Settings(check_max=3)
SECOND, MINUTE = 1_000, 60_000
RUNS = (T0 + 2 * MINUTE, T0 + 5 * MINUTE, T0 + 8 * MINUTE)

Step = m.Half | m.Op | m.Final | m.BrokerDiscard
Row = tuple[int, int, str, str | None, int | None]  # run, offset, decision, reason, superseded_by


def half(offset: int, times: str | None = None, prepared: str | None = None, **changed: object) -> m.Half:
    """One transaction's original at 0, or a copy: it has check times or the first copy's offset, and a later place."""
    given = {"commit_log_offset": offset * 500, "uniq_key": "KEY", "group": "group", "store": T0 + offset}
    given |= {"check_times": times, "prepared_offset": prepared, "body": f"half {offset}".encode()}
    return replace(half_at(("b", 0), offset, T0, **given), **changed)  # type: ignore[arg-type]


def op(offset: int, names: int, outcome: str = "COMMIT", **changed: object) -> m.Op:
    made = m.Op("b", 0, offset, 0, "d", str(names), names, outcome, None, T0 + 9, T0 + 9, source="STORE")
    return replace(made, **changed)  # type: ignore[arg-type]


def final(names: int, offset: int = 0, key: str | None = "KEY") -> m.Final:
    return m.Final("b", names * 500, "T", 1, offset, key, T0 + 9)


def discard(store: int, offset: int = 0) -> m.BrokerDiscard:
    return m.BrokerDiscard("b", 0, offset, "KEY", "group", T0, 3, store)


@dataclass(frozen=True)
class Case:
    """Rows that land before each run, and what comes of them."""

    name: str
    landings: tuple[tuple[Step, ...], ...]
    rows: tuple[Row, ...]
    delivered: tuple[tuple[int, int | None], ...] = ()  # half offset, op offset
    rejected: tuple[tuple[str, int], ...] = ()  # reason, op offset


CASES = [
    Case(
        "the highest copy is the live one",
        ((half(0), half(5, "1"), half(9, "2")),),
        ((1, 0, "SUPERSEDED", None, 9), (1, 5, "SUPERSEDED", None, 9), (1, 9, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "an immune message's copy names its original",
        ((half(0), half(5, prepared="0")),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "twins are never merged",
        ((half(0), half(5)),),
        ((1, 0, "CHECK", "TIMEOUT", None), (1, 5, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "an op that names the original ends the transaction, and the original is delivered",
        ((half(0), half(5, "1"), op(0, 0)),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "PRODUCER", None)),
        delivered=((0, 0),),
    ),
    Case(
        "an op that names the live copy",
        ((half(0), half(5, "1"), op(0, 5)),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "PRODUCER", None)),
        delivered=((5, 0),),
    ),
    Case(
        "ops on two copies end it once",
        ((half(0), half(5, "1"), op(0, 0), op(1, 5), op(2, 5, "ROLLBACK")),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "PRODUCER", None)),
        delivered=((0, 0),),
        rejected=(("CONFLICT", 2), ("REDUNDANT", 1)),
    ),
    Case(
        "a copy lands while the transaction is open, and an op still names the original",
        ((half(0),), (half(5, "1"),), (op(0, 0),)),
        (
            (1, 0, "CHECK", "TIMEOUT", None),
            (2, 0, "SUPERSEDED", None, 5),
            (2, 5, "CHECK", "TIMEOUT", None),
            (3, 5, "COMMIT", "PRODUCER", None),
        ),
        delivered=((0, 0),),
    ),
    Case(
        "a reject is told of once, though the half message that its op names lands again, with a copy",
        ((half(0), op(0, 0, group="other")), (half(0), half(5, "1"))),
        (
            (1, 0, "CHECK", "TIMEOUT", None),
            (2, 0, "SUPERSEDED", None, 5),
            (2, 5, "CHECK", "TIMEOUT", None),
        ),
        rejected=(("WRONG_PRODUCER_GROUP", 0),),
    ),
    Case(
        "a copy lands after the end",
        ((half(0), op(0, 0)), (half(5, "1"),), (op(1, 5), op(2, 0, "ROLLBACK"))),
        ((1, 0, "COMMIT", "PRODUCER", None), (2, 5, "SUPERSEDED", "ALREADY_ENDED", 0)),
        delivered=((0, 0),),
        rejected=(("CONFLICT", 2), ("REDUNDANT", 1)),
    ),
    Case(
        "a copy lands after the end, and with it a twin above it",
        ((half(0), op(0, 0)), (half(5, "1"), half(9)), ()),
        (
            (1, 0, "COMMIT", "PRODUCER", None),
            (2, 5, "SUPERSEDED", "ALREADY_ENDED", 0),
            (2, 9, "CHECK", "TIMEOUT", None),
            (3, 9, "CHECK", "TIMEOUT", None),
        ),
        delivered=((0, 0),),
    ),
    Case(
        "the original lands after its copy",
        ((half(5, "1"),), (half(0),), (op(0, 0),)),
        (
            (1, 5, "CHECK", "TIMEOUT", None),
            (2, 0, "SUPERSEDED", None, 5),
            (2, 5, "CHECK", "TIMEOUT", None),
            (3, 5, "COMMIT", "PRODUCER", None),
        ),
        delivered=((0, 0),),
    ),
    Case(
        "the original lands after its copy ended",
        ((half(5, "1"), op(0, 5)), (half(0),), ()),
        ((1, 5, "COMMIT", "PRODUCER", None), (2, 0, "SUPERSEDED", "ALREADY_ENDED", 5)),
        delivered=((5, 0),),
    ),
    Case(
        "a final message proves a commit whose op was lost",
        ((half(0), half(5, "1"), final(0)), (op(0, 5, "ROLLBACK"),)),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "FINAL", None)),
        delivered=((0, None),),
        rejected=(("CONFLICT", 0),),
    ),
    Case(
        "two final messages: the lower copy's counts",
        ((half(0), half(5, "1"), final(5, 1), final(0)),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "FINAL", None)),
        delivered=((0, None),),
    ),
    Case(
        "a final message of a message without copies, landed later",
        ((half(0),), (final(0),)),
        ((1, 0, "CHECK", "TIMEOUT", None), (2, 0, "COMMIT", "FINAL", None)),
        delivered=((0, None),),
    ),
    Case(
        "a final message beside its op says nothing new",
        ((half(0), op(0, 0), final(0)),),
        ((1, 0, "COMMIT", "PRODUCER", None),),
        delivered=((0, 0),),
    ),
    Case(
        "a final message of another key proves nothing",
        ((half(0), final(0, key="OTHER")),),
        ((1, 0, "CHECK", "TIMEOUT", None),),
    ),
    Case(
        "a message of another group is no copy",
        ((half(0), half(5, prepared="0", group="other")),),
        ((1, 0, "CHECK", "TIMEOUT", None), (1, 5, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "the broker gave it up",
        ((half(0), half(5, "1"), discard(T0 + 50)),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "DISCARD", "BROKER_DISCARDED", None)),
    ),
    Case(
        "the broker gave up what an op ends",
        ((half(0), half(5, "1"), discard(T0 + 50), op(0, 5)),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "PRODUCER", None)),
        delivered=((5, 0),),
    ),
    Case(
        "the broker gave it up, later; an op on a copy comes later still",
        ((half(0), half(5, "1")), (discard(T0 + 50),), (op(0, 0),)),
        (
            (1, 0, "SUPERSEDED", None, 5),
            (1, 5, "CHECK", "TIMEOUT", None),
            (2, 5, "DISCARD", "BROKER_DISCARDED", None),
            (3, 5, "COMMIT", "AFTER_DISCARD", None),
        ),
        delivered=((0, 0),),
    ),
    Case(
        "a final message of what the broker gave up",
        ((half(0), half(5, "1"), discard(T0 + 50)), (final(0),)),
        (
            (1, 0, "SUPERSEDED", None, 5),
            (1, 5, "DISCARD", "BROKER_DISCARDED", None),
            (2, 5, "COMMIT", "AFTER_DISCARD", None),
        ),
        delivered=((0, None),),
    ),
    Case(
        "the broker resumes what it gave up",
        ((half(0), half(5, "3"), discard(T0 + 50)), (half(100, "0"),), (op(0, 100),)),
        (
            (1, 0, "SUPERSEDED", None, 5),
            (1, 5, "DISCARD", "BROKER_DISCARDED", None),
            (2, 100, "CHECK", "TIMEOUT", None),
            (3, 100, "COMMIT", "PRODUCER", None),
        ),
        delivered=((100, 0),),
    ),
    Case(
        "given up, and resumed twice before the next run: questions count from the last time on",
        ((half(0, "3"),), (half(100, "0"), half(200, "3"), half(300, "0")), ()),
        (
            (1, 0, "DISCARD", "CHECKED_TOO_OFTEN", None),
            (2, 100, "SUPERSEDED", None, 300),
            (2, 200, "SUPERSEDED", None, 300),
            (2, 300, "CHECK", "TIMEOUT", None),
            (3, 300, "CHECK", "TIMEOUT", None),
        ),
    ),
    Case(
        "an op names what was given up, and was resumed, and has ended",
        ((half(0), discard(T0 + 50)), (half(100, "0"), op(0, 100)), (op(1, 0),)),
        (
            (1, 0, "DISCARD", "BROKER_DISCARDED", None),
            (2, 100, "COMMIT", "PRODUCER", None),
        ),
        delivered=((100, 0),),
        rejected=(("REDUNDANT", 1),),
    ),
    Case(
        "an op names a copy that was given up, and was resumed, and has ended",
        ((half(0), half(5, "3"), discard(T0 + 50)), (half(100, "0"), op(0, 100)), (op(1, 5, "ROLLBACK"),)),
        (
            (1, 0, "SUPERSEDED", None, 5),
            (1, 5, "DISCARD", "BROKER_DISCARDED", None),
            (2, 100, "COMMIT", "PRODUCER", None),
        ),
        delivered=((100, 0),),
        rejected=(("CONFLICT", 1),),
    ),
    Case(
        "given up and resumed before the first run",
        ((half(0), half(5, "3"), discard(T0 + 50), half(100, "0")),),
        ((1, 0, "SUPERSEDED", None, 100), (1, 5, "SUPERSEDED", None, 100), (1, 100, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "the broker gave up that one of twins that no op ends",
        ((half(0), half(5), op(0, 0), discard(T0 + 50)),),
        ((1, 0, "COMMIT", "PRODUCER", None), (1, 5, "DISCARD", "BROKER_DISCARDED", None)),
        delivered=((0, 0),),
    ),
    Case(
        "twins are given up one by one",
        ((half(0), half(5), discard(T0 + 50)), (discard(T0 + 150, 1),)),
        (
            (1, 0, "DISCARD", "BROKER_DISCARDED", None),
            (1, 5, "CHECK", "TIMEOUT", None),
            (2, 5, "DISCARD", "BROKER_DISCARDED", None),
        ),
    ),
    Case(
        "a twin that lands later is not given up for the same record",
        ((half(5), discard(T0 + 50)), (half(0),)),
        ((1, 5, "DISCARD", "BROKER_DISCARDED", None), (2, 0, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "a copy lands behind the resume that was written after it",
        ((half(5, "2"), discard(T0 + 8), half(9, "0")), (half(7, "3"),)),
        (
            (1, 5, "SUPERSEDED", None, 9),
            (1, 9, "CHECK", "TIMEOUT", None),
            (2, 7, "SUPERSEDED", None, 9),
            (2, 9, "CHECK", "TIMEOUT", None),
        ),
    ),
    Case(
        "given up, resumed and given up again",
        ((half(0), half(5, "3"), discard(T0 + 50), half(100, "0")), (discard(T0 + 150, 1),)),
        (
            (1, 0, "SUPERSEDED", None, 100),
            (1, 5, "SUPERSEDED", None, 100),
            (1, 100, "CHECK", "TIMEOUT", None),
            (2, 100, "DISCARD", "BROKER_DISCARDED", None),
        ),
    ),
]


def under(broker: str, step: Step) -> Step:
    """The same of another broker, with another UNIQ_KEY: what agrees in it may be a copy across brokers."""
    return replace(step, broker=broker, uniq_key=step.uniq_key and f"{step.uniq_key} of {broker}")


def only(kind: type[Step], steps: Iterable[Step]) -> list:  # type: ignore[type-arg]
    return [step for step in steps if isinstance(step, kind)]
