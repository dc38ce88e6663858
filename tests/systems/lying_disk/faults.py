"""Lets one call for a disk fail, in a process that stands before it: faults.py FOLDER NAME OF_EACH SEED [CALL …]

For each step of a history the calls that it makes are listed. Then the step is played again and again, each time over
a copy of what was there before, and another call fails once, with EIO or with ENOSPC (choice.py). Prints a JSON line a
trial.
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

from conftest import TINY
from halfop.warehouse.session import spark_session
from pyspark.sql import SparkSession

from systems.lying_disk.checks import refusal
from systems.lying_disk.choice import chosen
from systems.lying_disk.histories import KEPT, SMALL, WORKERS, History, Place, Step
from systems.lying_disk.shim import Fault, Shim

FAILED = ("open", "read", "write", "sync", "rename", "link")
PLAYED = {each.name: each for each in (SMALL, WORKERS, KEPT)}


@dataclass(frozen=True)
class Trial:
    """What came of one call that failed.

    `kind`: passed (nobody needed it), said, raw, or wrong at the next start; missed: it never came.
    """

    step: int
    call: str
    files: str
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

    def play(self, of_each: int, seed: int, calls: Sequence[str]) -> Iterator[Trial]:
        history, place = self._history, Place(self._spark, self._folder / "first", self._given)
        place.top.mkdir()
        history.prepare(place)
        before = [self._copy(place.top, "before 0")]
        listed = []
        for number, step in enumerate(history.steps, 1):
            self._shim.watch(place.top)
            with self._shim.failing() as first:
                assert refusal(place, [step]) is None
            listed.append(first.calls)
            before.append(self._copy(place.top, f"before {number}"))
        wanted = history.fates(place)
        for trial, (number, fault) in enumerate(chosen(listed, of_each, seed, calls)):
            place = Place(self._spark, self._copy(before[number], f"trial {trial}"), self._given)
            yield self._trial(place, number, fault, wanted)

    def _copy(self, top: Path, name: str) -> Path:
        shutil.copytree(top, self._folder / name)
        return self._folder / name

    def _trial(self, place: Place, number: int, fault: Fault, wanted: Counter[str]) -> Trial:
        left: Sequence[Step] = self._history.steps[number:]
        self._shim.watch(place.top)
        with self._shim.failing(fault) as failing:
            found = refusal(place, left[:1])
        self._shim.watch(self._folder / "nothing")
        again = refusal(place, left if found else left[1:])
        right = again is None and self._history.fates(place) == wanted
        shutil.rmtree(place.top)
        kind, detail = ("passed" if failing.fired else "missed"), ""
        if found is not None:
            kind, detail = ("raw" if found.kind == "broken" else "said"), found.detail
        if not right:
            kind, detail = "wrong", f"{kind}: {detail}\nthen: {again}"
        return Trial(number, *fault, kind, detail)


def main() -> None:
    folder, name, of_each, seed, *calls = sys.argv[1:]
    shim, spark = Shim(), spark_session("faults", **TINY)
    said = os.fdopen(os.dup(1), "w", buffering=1)
    for trial in Trials(shim, spark, PLAYED[name], Path(folder) / name).play(int(of_each), int(seed), calls or FAILED):
        print(json.dumps(asdict(trial)), file=said)
    spark.stop()


if __name__ == "__main__":
    main()
