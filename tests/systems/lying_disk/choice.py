"""Which calls are to fail: some of each kind.

A kind is a step, a call's name, its files, and whether it is the first, the last, or one between of these. An open or
read is of one kind for such files of all tables, wherever it comes: there are thousands. A fault is the nth call for
its files, because threads change the order among others.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from random import Random

from systems.lying_disk.shim import ERRORS, Call, Fault

_TABLE = re.compile(r"^/warehouse/(topics/)?\w+")


def chosen(steps: Sequence[Sequence[Call]], of_each: int, seed: int, names: Sequence[str]) -> list[tuple[int, Fault]]:
    """Returns faults of so many calls of each kind, and their steps, in a random order; `steps`: what was listed."""
    kinds = defaultdict[Hashable, list[tuple[int, Call, int]]](list)
    for step, calls in enumerate(steps):
        for call, count in sorted(Counter(calls).items()):
            for number in range(1, count + 1):
                kinds[step, _kind(call, number, count)].append((step, call, number))
    faults = [
        (step, Fault(*call, number, error))
        for kind, alike in kinds.items()
        for step, call, number in Random(f"{seed} {kind}").sample(alike, min(of_each, len(alike)))
        for error in ERRORS
        if call.name in names
    ]
    return sorted(faults, key=lambda fault: Random(f"{seed} {fault}").random())


def _kind(call: Call, number: int, count: int) -> Hashable:
    if call.name in ("open", "read"):
        return call.name, _TABLE.sub("a table", call.files)
    return call, number == 1, number == count
