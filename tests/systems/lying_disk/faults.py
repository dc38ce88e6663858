"""Lets one call for a disk fail, in a process that stands before it: faults.py FOLDER NAME EVERY [CALL …]

For each step of a history the calls that it makes are counted. Then the step is played again and again, each time over
a copy of what was there before, and another call fails once, with EIO and with ENOSPC: of each kind every EVERYth, from
a random one on. Prints a JSON line a trial.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from conftest import TINY
from halfop.warehouse.session import spark_session
from pyspark.sql import SparkSession
from support.seeds import SEED

from systems.lying_disk.checks import refusal
from systems.lying_disk.histories import KEPT, SMALL, WORKERS, History, Place, Step
from systems.lying_disk.shim import ERRORS, Shim

FAILED = ("open", "read", "write", "sync", "rename", "link")
PLAYED = {each.name: each for each in (SMALL, WORKERS, KEPT)}


@dataclass(frozen=True)
class Trial:
    """What came of one call that failed. `kind`: passed (nobody needed it), said, raw, or wrong at the next start."""

    step: int
    call: str
    number: int
    error: str
    kind: str
    detail: str = ""


class Trials:
    """The trials of one history."""

    def __init__(self, shim: Shim, spark: SparkSession, history: History, folder: Path) -> None:
        self._shim, self._spark, self._history, self._folder = shim, spark, history, folder
        self._given = folder / "given"
        self._given.mkdir(parents=True)

    def play(self, every: int, calls: Sequence[str]) -> Iterator[Trial]:
        history, place = self._history, Place(self._spark, self._folder / "first", self._given)
        place.top.mkdir()
        history.prepare(place)
        before = [self._copy(place.top, "before 0")]
        counts = []
        for number, step in enumerate(history.steps, 1):
            self._shim.watch(place.top)
            with self._shim.failing() as counted:
                assert refusal(place, [step]) is None
            counts.append(counted.counts)
            before.append(self._copy(place.top, f"before {number}"))
        wanted, chance = history.fates(place), Random(SEED)
        for number, counted_calls in enumerate(counts):
            for call in calls:
                for n in range(chance.randint(1, every), counted_calls[call] + 1, every):
                    for error in ERRORS:
                        yield self._trial(number, before[number], (call, n, error), wanted)

    def _copy(self, top: Path, name: str) -> Path:
        shutil.copytree(top, self._folder / name)
        return self._folder / name

    def _trial(self, number: int, before: Path, fault: tuple[str, int, str], wanted: Counter[str]) -> Trial:
        place = Place(self._spark, self._copy(before, f"{number}-{'-'.join(map(str, fault))}"), self._given)
        left: Sequence[Step] = self._history.steps[number:]
        self._shim.watch(place.top)
        with self._shim.failing(*fault):
            found = refusal(place, left[:1])
        self._shim.watch(self._folder / "nothing")
        again = refusal(place, left if found else left[1:])
        right = again is None and self._history.fates(place) == wanted
        shutil.rmtree(place.top)
        kind, detail = "passed", ""
        if found is not None:
            kind, detail = ("raw" if found.kind == "broken" else "said"), found.detail
        if not right:
            kind, detail = "wrong", f"{kind}: {detail}\nthen: {again}"
        return Trial(number, *fault, kind, detail)


def main() -> None:
    folder, name, every, *calls = sys.argv[1:]
    shim, spark = Shim(), spark_session("faults", **TINY)
    said = os.fdopen(os.dup(1), "w", buffering=1)
    for trial in Trials(shim, spark, PLAYED[name], Path(folder) / name).play(int(every), calls or FAILED):
        print(json.dumps(asdict(trial)), file=said)
    spark.stop()


if __name__ == "__main__":
    main()
