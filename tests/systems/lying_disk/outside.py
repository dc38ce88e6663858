"""Lives with somebody outside, who keeps what he was answered: a gateway's producers, a broker that owns messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

import pytest
from halfop.gateway.core.effects import Delivery
from halfop.gateway.tables import Tables
from halfop.rocketmq.frames import Frame
from halfop.warehouse.kernel import KernelWarehouse
from support import rows as r
from support.brokers.owning_broker import APART, NAME, Owning
from support.brokers.scripted import answering, serving
from support.gateway.gateway_log import SMALL, Waiting, uniq
from support.messages import NOW, RULES, half

from systems.lying_disk.histories import Done, History, Place, Step, at, called, step_of, well

_DONE = Done(0, "")

# ---- a gateway ----

GATEWAY_NAME = "gw"
_MESSAGES = 40  # a batch; a file of the log has some twenty
_FAR = 1 << 50


def produced(first: int) -> Step:
    """Half messages, of which two in four are committed and one is rolled back, by producers that note each answer."""

    def step(place: Place) -> Done:
        gateway = Waiting(place.top / "store", GATEWAY_NAME, SMALL)
        halves = gateway.halves(range(first, first + _MESSAGES))
        for one in halves:
            place.promise(f"half {one.uniq_key}")
        for number, one in enumerate(halves):
            if number % 4 != 3:
                outcome = "ROLLBACK" if number % 4 == 2 else "COMMIT"
                gateway.end(one, outcome)  # type: ignore[arg-type]
                place.promise(f"{outcome} {one.uniq_key}")
        gateway.close()
        return _DONE

    return step


def expired(place: Place) -> Done:
    """All that has landed is removed from the log, and a delivery noted."""
    gateway = Waiting(place.top / "store", GATEWAY_NAME, SMALL)
    tables = Tables(place.root, GATEWAY_NAME)
    gateway.log.expire(tables.landed().offsets, _FAR)
    now = datetime.now(timezone.utc)
    tables.append([Delivery(uniq(n), GATEWAY_NAME, "pg", "SENT", now) for n in range(3)])
    gateway.close()
    return _DONE


_LANDED = step_of("land", "store", "--path", "{top}/store", "--broker-name", GATEWAY_NAME)
_DECIDED = step_of("reconcile", "--now", at(NOW + 10_000))


def _gateway_made(place: Place) -> None:
    KernelWarehouse(place.spark, place.root).make("check_deliveries", "check_requests")
    for step in (produced(0), _LANDED, _DECIDED):
        well(step(place))


def _restarted(_: Sequence[str]) -> Sequence[Step]:
    return (expired, _LANDED, _DECIDED)


def _gateway_fates(place: Place) -> Counter[str]:
    """What has landed by UNIQ_KEY, as producers noted it, and deliveries; how often."""
    warehouse = KernelWarehouse(place.spark, place.root)
    found = Counter(f"half {row['uniq_key']}" for row in warehouse.rows("half_messages"))
    found.update(f"{row['outcome']} {row['uniq_key']}" for row in warehouse.rows("op_messages"))
    found.update(f"delivered {row['transaction_id']}" for row in warehouse.rows("topics/orders"))
    return found


def _promised(marks: Sequence[str]) -> Counter[str]:
    kept = [each for each in marks if each.split()[0] in ("half", "COMMIT", "ROLLBACK")]
    before = [f"half {uniq(n)}" for n in range(_MESSAGES)]
    wanted = Counter({*kept, *before})
    wanted.update(f"delivered {each.split()[1]}" for each in kept if each.startswith("COMMIT"))
    return wanted


GATEWAY = History(
    "gateway",
    _gateway_made,
    (produced(100), _LANDED, expired, produced(200), _LANDED, expired, _DECIDED),
    _gateway_fates,
    _restarted,
    _promised,
)

# ---- end, at a broker ----

_OPEN = 12


@contextmanager
def _at_once() -> Iterator[None]:
    """The check of a broker that never asks passes at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halfop.ending.sender.time.sleep", lambda _: None)
        yield


def _planned(place: Place) -> None:
    warehouse = KernelWarehouse(place.spark, place.root)
    halves = [half(n, uniq_key=f"K{n}", commit_log_offset=n * APART) for n in range(_OPEN)]
    r.land(warehouse, halves, [], NOW, {(NAME, 0): NOW}, sources={NAME: "BROKER"})
    r.run(warehouse, RULES, NOW, layout="per_topic")
    if not (place.given / "plan.jsonl").exists():
        plan = str(place.given / "plan.jsonl")
        well(called(place, "end", "--where", f"queue_offset < {_OPEN}", "--commit", "--plan", plan))


def ended_after(marks: Sequence[str]) -> Sequence[Step]:
    """The plan applied at a broker that has done already what the marks say."""

    def step(place: Place) -> Done:
        there = Owning(_OPEN)
        for mark in marks:
            if mark.startswith("sent "):
                there.answer(Frame(37, fields=_fields(int(mark.split()[1]))))

        def answer(asked: Frame) -> Mapping[str, Any]:
            done = there.answer(asked)
            if asked.code == 37:
                place.promise(f"sent {asked.fields['tranStateTableOffset']}")
            return done

        with _at_once(), serving(answering(answer)) as address:
            options = ("--broker", address, "--set", f"end.brokers={NAME}")
            done = called(place, "end", "--apply", str(place.given / "plan.jsonl"), *options)
        (place.top / "broker").write_text("\n".join(there.delivered))
        return done

    return (step,)


def _fields(offset: int) -> dict[str, str]:
    fields = {"commitLogOffset": offset * APART, "commitOrRollback": 8, "tranStateTableOffset": offset}
    return {name: str(value) for name, value in fields.items()} | {"msgId": f"K{offset}"}


def _at_the_broker(place: Place) -> Counter[str]:
    return Counter(f"delivered {key}" for key in (place.top / "broker").read_text().split())


END = History("end", _planned, ended_after([]), _at_the_broker, ended_after)
