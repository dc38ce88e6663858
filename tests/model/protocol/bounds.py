"""The searches: what the suite explores at every run, and the larger bounds of `bench/run protocol`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from model.protocol.world import LATE, NEVER, PINNED, Bound, Message, Protocol

LOCAL = Protocol(atomic=False, lock="jvm")
AT_ONCE, LATER, THIRD, UNENDED, SECOND = Message(1, 1), Message(1, 2), Message(1, 3), Message(1, NEVER), Message(2, 2)
_ONE_CLOCK = (LATE,)


class Search(NamedTuple):
    protocol: Protocol
    bound: Bound


# Without a lock if nothing is said: whatever a lock forbids is a part of that.
SMALL: Mapping[str, Search] = {
    "a landing beside runs, a kill": Search(Protocol(), Bound((AT_ONCE, LATER), landed=1, clocks=_ONE_CLOCK)),
    "parked by some drivers": Search(
        Protocol(), Bound((AT_ONCE, LATER, UNENDED), landed=2, parks=True, clocks=_ONE_CLOCK)
    ),
    "a resume, and an op after it": Search(
        Protocol(), Bound((THIRD,), landings=3, landed=2, kills=0, resumes=1, clocks=_ONE_CLOCK)
    ),
    "maintain beside runs": Search(
        Protocol(), Bound((AT_ONCE, SECOND), landed=1, kills=0, maintains=1, clocks=_ONE_CLOCK)
    ),
    "parked by some drivers, commits of Delta's connector": Search(
        Protocol(whatever_number=True), Bound((AT_ONCE, LATER, UNENDED), landed=2, parks=True, clocks=_ONE_CLOCK)
    ),
    "a local disk, clocks that jump": Search(LOCAL, Bound((AT_ONCE, LATER, UNENDED), landed=1)),
}
LARGE: Mapping[str, Search] = {
    "two landings beside runs": Search(Protocol(), Bound((AT_ONCE, LATER), kills=0, clocks=_ONE_CLOCK)),
    "clocks that jump, a kill": Search(Protocol(), Bound((AT_ONCE, LATER), landed=1)),
    "parked by some drivers, a landing and a kill": Search(
        Protocol(), Bound((AT_ONCE, LATER), landed=1, parks=True, clocks=_ONE_CLOCK)
    ),
    "parked by some drivers, three runs, two kills": Search(
        Protocol(), Bound((AT_ONCE, LATER), landed=2, parks=True, runs=3, kills=2, clocks=_ONE_CLOCK)
    ),
    "a resume, three runs, a kill": Search(
        Protocol(), Bound((AT_ONCE, UNENDED), landed=1, resumes=1, runs=3, clocks=_ONE_CLOCK)
    ),
    "maintain, three runs, a kill": Search(
        Protocol(), Bound((AT_ONCE, SECOND), landed=1, maintains=1, runs=3, clocks=_ONE_CLOCK)
    ),
    "a local disk, two kills, two landings": Search(LOCAL, Bound((AT_ONCE, LATER), kills=2)),
    "three drivers": Search(Protocol(), Bound((AT_ONCE,), landings=1, landed=1, runs=2, drivers=3, kills=0)),
}

_PARKS = Bound((AT_ONCE, LATER), landed=1, parks=True, kills=0, clocks=_ONE_CLOCK)
# Protocols with a mistake, and what a search must find.
MISTAKES: Mapping[str, tuple[Search, str]] = {
    "halves pinned first, progress last": (
        Search(
            Protocol(pinned=("halves", "ops", "progress", *PINNED[3:])),
            Bound((AT_ONCE, LATER), landed=1, clocks=_ONE_CLOCK),
        ),
        "run 1 discards message 1, though its op was stored before",
    ),
    "an app id a start": (
        Search(Protocol(app="start"), Bound((AT_ONCE,), landings=1, landed=1, runs=1, kills=0)),
        "twice: message 0 in topic",
    ),
    "a lock that Python holds, on a disk whose commit looks and renames": (
        Search(Protocol(atomic=False, lock="python"), Bound((AT_ONCE, LATER), clocks=_ONE_CLOCK)),
        "",
    ),
    "no lock on a disk whose commit looks and renames": (
        Search(Protocol(atomic=False), Bound((AT_ONCE, LATER), landed=1, kills=0, clocks=_ONE_CLOCK)),
        "",
    ),
    "debts are not paid first": (
        Search(Protocol(pays_first=False), _PARKS),
        "lost: run 1 is closed, and topic lacks messages (0,)",
    ),
    # halfop itself made these two until the model found them
    "debts of a run that another driver has opened are not paid": (
        Search(Protocol(pays_after_opening=False), _PARKS),
        "lost: run 1 is closed, and topic lacks messages (0,)",
    ),
    "the same, and an app id a run": (
        Search(Protocol(pays_after_opening=False, app="run"), _PARKS),
        "out of order: topic has the runs [2, 1]",
    ),
    "a run is opened while another driver's is open": (
        Search(Protocol(finishes_first=False), Bound((AT_ONCE,), landings=1, landed=1, runs=3, clocks=_ONE_CLOCK)),
        "runs out of order: OPENED 1, CLOSED 1, OPENED 2, OPENED 3",
    ),
}
