"""What the next start makes of a disk after a crash: nothing is lost that was promised, and nothing is there twice."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from halfop.frame.errors import HalfopError
from pyspark.sql import SparkSession
from support.places import IMPORTS, ROOT

from systems.lying_disk.crashes import Cut, materialize
from systems.lying_disk.histories import Done, History, Place, Step, called
from systems.lying_disk.recorder import ACKNOWLEDGED, ALL
from systems.lying_disk.recording import Recording, read_recording
from systems.lying_disk.shim import environment


@dataclass(frozen=True)
class Recorded:
    """A history that was recorded in a folder."""

    history: History
    folder: Path
    recording: Recording
    wanted: Counter[str]


def recorded(folder: Path, *names: str) -> list[Recorded]:
    """Plays histories in a process whose disk is recorded. Raises NoCompiler."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["./spark-submit.sh", "exec", "python", "tests/systems/lying_disk/recorder.py", str(folder), *names]
    given = os.environ | environment(folder / "control") | IMPORTS
    ran = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-5000:]
    return [_read(folder / name, ALL[name]) for name in names]


def _read(folder: Path, history: History) -> Recorded:
    wanted = Counter(dict(json.loads((folder / "fates.json").read_text())))
    return Recorded(history, folder, read_recording(folder / "about.json", folder / "log"), wanted)


GOOD = ("right", "repaired")
# Others: wrong with status 0; wrong after a repair; delivered twice; never repaired; an error that is no sentence.
KINDS = (*GOOD, "silent", "lost", "twice", "refused", "broken")


@dataclass(frozen=True)
class Outcome:
    """What came of a cut: one of KINDS."""

    kind: str
    detail: str = ""


class Checker:
    """Checks one recording's cuts; a state that was seen before is not checked again."""

    def __init__(self, spark: SparkSession, of: Recorded, work: Path) -> None:
        self._spark, self._of, self._work, self._seen = spark, of, work, dict[str, Outcome]()

    def check(self, cut: Cut) -> Outcome:
        marks = [text for at, text in self._of.recording.marks() if at < cut.at]
        top = self._work / f"{self._of.history.name}-{cut.at}-{cut.way.replace(' ', '-')}-{cut.seed}"
        digest = f"{len(marks)} {materialize(self._of.recording, cut, top)}"
        if digest not in self._seen:
            place = Place(self._spark, top, self._of.folder / "given")
            self._seen[digest] = self._outcome(place, marks)
        if self._seen[digest].kind in GOOD:
            shutil.rmtree(top)
        return self._seen[digest]

    @property
    def states(self) -> int:
        return len(self._seen)

    def _left(self, marks: Sequence[str]) -> Sequence[Step]:
        """The steps that nobody had an answer to before the crash."""
        history = self._of.history
        if history.after is not None:
            return history.after(marks)
        return history.steps[sum(each.startswith(ACKNOWLEDGED) for each in marks) :]

    def _outcome(self, place: Place, marks: Sequence[str]) -> Outcome:
        problem = refusal(place, self._left(marks))
        if problem is None:
            return self._compared(place, marks, "right")
        repaired = repair(place)
        again = refusal(place, self._left(marks))
        if again is not None:
            return Outcome(problem.kind, f"{problem.detail}\nexamine: {repaired.said}\nthen: {again.detail}")
        return self._compared(place, marks, "repaired")

    def _compared(self, place: Place, marks: Sequence[str], kind: str) -> Outcome:
        history = self._of.history
        try:
            found = history.fates(place)
        except Exception as error:
            return Outcome("lost", f"{kind}, and then tables cannot be read: {str(error)[:300]}")
        wanted = history.wanted(marks) if history.wanted else self._of.wanted
        less, more = wanted - found, found - wanted
        twice = [each for each in more if each in wanted]
        if less or twice or (more and not history.wanted):
            wrong = "silent" if kind == "right" else "lost"
            return Outcome("twice" if twice else wrong, f"{kind}; missing: {[*less][:6]}; more: {[*more][:6]}")
        return Outcome(kind)


def refusal(place: Place, steps: Sequence[Step]) -> Outcome | None:
    """Returns how the first step ended that did not end well; None if all did."""
    for step in steps:
        try:
            done = step(place)
        except HalfopError as error:  # of a gateway, which no job's frame surrounds here
            return Outcome("refused", str(error))
        except BaseException:
            return Outcome("broken", traceback.format_exc()[-1500:])
        if done.status != 0:
            return Outcome("broken" if _is_raw(done) else "refused", f"status {done.status}: {done.said[-1500:]}")
    return None


def repair(place: Place) -> Done:
    """Repairs a warehouse, and lands again what the repair says is lost."""
    done = called(place, "examine", "--repair")
    for command in json.loads(done.printed.splitlines()[-1]).get("commands", ()):
        _, job, *words = shlex.split(command)
        if job == "land":
            _land_again(place, words)
    return done


def _land_again(place: Place, words: Sequence[str]) -> None:
    """Does a call, with what only the user knows put in."""
    store = next((each for each in (place.top / "store", place.given / "store") if each.exists()), place.top)
    known = {"DIR": [str(store)]}
    halves, ops = (sorted(map(str, place.given.glob(f"*.{kind}.jsonl"))) for kind in "ho")
    files = iter((halves, ops))
    put = (next(files) if word == "FILES" else known.get(word, [word]) for word in words)
    called(place, "land", *(word for some in put for word in some))


# Of Python, of Java, of an error that nobody has put into words.
_RAW = ("Traceback (most recent call last)", "\tat ", "run again with -v")


def _is_raw(done: Done) -> bool:
    return any(each in done.said for each in _RAW)
