"""A nemesis: faults at random from a seed, several at once, each healed after a while; and operators beside."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Lock
from typing import NamedTuple

from support.crash import FAST
from support.histories.events import now
from support.nemesis.system import OWNERS, Part, System

_HANDS = 3  # so many faults at once
_SECONDS = {"kill": 4, "stop": 4, "pause": 12, "partition": 20, "clock": 20, "full disk": 12}  # at most
_REST_SECONDS = 6
_SKEW_SECONDS = 90
_OPERATOR_RESTS, _OPERATOR_DIES, _DIES_AFTER = 60, 0.3, (2, 20)
_MOST_CALLS = 2  # of a plan: a row that the broker refuses stays refused


class Fault(NamedTuple):
    kind: str
    target: str
    lock: Lock
    begin: Callable[[], object]
    heal: Callable[[], object]


def faults_of(system: System, chance: Random) -> list[Fault]:
    """All that this machine allows."""
    machine, broker, lock = system.machine, system.broker, system.broker_lock
    found = [each for part in system.parts.values() for each in _of_part(part)]
    found += [
        Fault("kill", "broker", lock, broker.kill, system.start_broker),
        Fault("pause", "broker", lock, partial(broker.signal, signal.SIGSTOP), partial(broker.signal, signal.SIGCONT)),
    ]
    for link in machine.links:
        found.append(Fault("partition", link, Lock(), partial(machine.cut, link), partial(machine.join, link)))
    for disk in machine.disks:
        found.append(Fault("full disk", disk.name, Lock(), partial(machine.fill, disk), partial(machine.empty, disk)))
    for name in machine.clocks:
        skew = partial(_skew, system, name, chance)
        found.append(Fault("clock", name, Lock(), skew, partial(machine.set_clock, name, 0)))
    return found


def _of_part(part: Part) -> list[Fault]:
    pause, go_on = partial(part.signal, signal.SIGSTOP), partial(part.signal, signal.SIGCONT)
    return [
        Fault("kill", part.name, part.lock, part.kill, part.start),
        Fault("stop", part.name, part.lock, part.stop, part.start),
        Fault("pause", part.name, part.lock, pause, go_on),
    ]


def _skew(system: System, name: str, chance: Random) -> None:
    system.machine.set_clock(name, chance.uniform(-_SKEW_SECONDS, _SKEW_SECONDS))


class Nemesis:
    """What it did is in `faults.jsonl`. `heal` undoes all that is still on."""

    def __init__(self, system: System, seed: int) -> None:
        self._system, self._seed, self._stop = system, seed, Event()
        self._log, self.done, self.jobs = system.folder / "faults.jsonl", Counter[str](), Counter[str]()
        self._plans: dict[str, tuple[Path, int]] = {}
        self._pool = ThreadPoolExecutor(_HANDS + 2)
        self._busy: list[Future[None]] = []

    def begin(self) -> None:
        faults = faults_of(self._system, Random(f"{self._seed} clocks"))
        work: list[Callable[[], None]] = [
            partial(self._hand, faults, Random(f"{self._seed} {n}")) for n in range(_HANDS)
        ]
        work += [self._supervise, partial(self._operate, Random(f"{self._seed} operator"))]
        self._busy = [self._pool.submit(each) for each in work]

    def wait(self, seconds: float) -> None:
        """Raises what went wrong in the nemesis itself."""
        for each in self._busy:
            if each.done():
                each.result()
        self._stop.wait(seconds)

    def heal(self) -> None:
        """Ends all faults, and leaves a system that is only supervised by `supervise`."""
        self._stop.set()
        for each in self._busy:
            each.result()

    # ---- faults ----

    def _hand(self, faults: Sequence[Fault], chance: Random) -> None:
        kinds = sorted({fault.kind for fault in faults})
        while not self._stop.wait(chance.uniform(0, _REST_SECONDS)):
            kind = chance.choice(kinds)
            fault = chance.choice([each for each in faults if each.kind == kind])
            seconds = chance.uniform(0, _SECONDS[kind])
            if fault.lock.acquire(blocking=False):
                try:
                    self._do(fault, seconds)
                finally:
                    fault.lock.release()

    def _do(self, fault: Fault, seconds: float) -> None:
        self._tell(fault, "begins")
        fault.begin()
        self.done[fault.kind] += 1
        self._stop.wait(seconds)
        fault.heal()
        self._tell(fault, "healed")

    def _tell(self, fault: Fault, what: str) -> None:
        with self._log.open("a") as log:
            log.write(json.dumps({"at": now(), "fault": fault.kind, "target": fault.target, "what": what}) + "\n")

    def _supervise(self) -> None:
        while not self._stop.wait(1):
            self.supervise()

    def supervise(self) -> None:
        for part in self._system.parts.values():
            part.look()

    # ---- operators ----

    def _operate(self, chance: Random) -> None:
        ends = [partial(self.end, outcome) for outcome in ("commit", "rollback")]
        work: list[Callable[[float | None], None]] = [*ends, self.resume, self.maintain]
        while not self._stop.wait(chance.uniform(0, _OPERATOR_RESTS)):
            chance.choice(work)(chance.uniform(*_DIES_AFTER) if chance.random() < _OPERATOR_DIES else None)

    def end(self, outcome: str, dies_after: float | None = None) -> None:
        """Ends what is left to `end`. A plan whose call died or left something is applied again before another one."""
        plan, calls = self._plans.pop(outcome, (self._system.folder / f"{outcome}-{self.jobs.total()}.jsonl", 0))
        if not calls:
            which = ["--where", f"uniq_key LIKE 'hang_{outcome}-%'", f"--{outcome}", "--plan", str(plan)]
            self._job("end", *which, "--min-age", "5s", "--limit", "100000", dies_after=dies_after)
        if plan.exists():
            names = ["--namesrv", self._system.broker.namesrv, "--set", OWNERS]
            status = self._job("end", "--apply", str(plan), *names, dies_after=dies_after)
            if status and calls < _MOST_CALLS:
                self._plans[outcome] = (plan, calls + 1)

    def resume(self, dies_after: float | None = None) -> None:
        self._job("resume", "--where", "uniq_key NOT LIKE 'hang%'", dies_after=dies_after)

    def maintain(self, dies_after: float | None = None) -> None:
        self._job("maintain", dies_after=dies_after)

    def _job(self, *command: str, dies_after: float | None) -> int:
        """Its exit status; it is killed if it takes longer."""
        name = " ".join(word for word in command[:2] if not word.startswith("--w"))
        operator = Part(
            "operator", self._system.folder / "logs", lambda _: self._system.job(*command, "--wait", "1m"), FAST
        )
        status = operator.run(dies_after)
        self.jobs[f"{name}: {status}"] += 1
        return status
