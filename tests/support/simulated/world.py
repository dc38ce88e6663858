"""A gateway's real core and log, and all that surrounds them, in one thread under a clock of its own.

Everything that happens follows from a list of steps, each with a seed of its own. So a history can be played again, and
made shorter: what a step does depends on no step before it but by the state.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

from halfop.frame.errors import HalfopError
from halfop.gateway.core.clients import Client
from halfop.gateway.core.core import Core
from halfop.gateway.core.effects import (
    AddTopic,
    Answer,
    AppendEnd,
    AppendHalf,
    Ask,
    Effect,
    Instant,
    Note,
)
from halfop.gateway.log import log
from halfop.gateway.log.flusher import Batch, Flusher
from halfop.gateway.log.log import Log, StoreForm
from halfop.rocketmq.frames import Frame, Splitter
from halfop.rocketmq.names import RequestCode
from halfop.settings.gateway import GatewaySettings
from halfop.settings.model import Settings

from support.gateway.played import BROKER
from support.simulated.disk import Disk, PowerCut
from support.simulated.producers import MANNERS, Meant, Producer
from support.simulated.reference import RESERVED_MS, Reference
from support.simulated.shortest import Step, drawn, played
from support.simulated.shortest import fails as fails_in
from support.simulated.warehouse import Warehouse

FORM = StoreForm(8_192, 100)
OPEN, UNFLUSHED = 15, 1_000
START = 1_750_000_000.0
_GROUPS = ("pg", "other")


# How often each happens, of all together.
WEIGHTS = {
    "sends": 20,
    "network": 60,
    "flushes": 25,
    "passes": 20,
    "lands": 4,
    "runs": 5,
    "expires": 4,
    "connects": 3,
    "is_cut_off": 2,
    "is_slow": 1,
    "dies": 1,
    "loses_power": 1,
    "disk_fails": 1,
    "clock_jumps": 1,
}


STEPS = 300  # of a history


def history(seed: int, steps: int = STEPS) -> list[Step]:
    """The steps of a seed."""
    return drawn(seed, WEIGHTS, steps)


class Clock:
    """The machine's two clocks, of which the wall's may be set."""

    def __init__(self) -> None:
        self.now = Instant(START, 0.0)

    def ms(self) -> int:
        return self.now.ms

    def passes(self, steady: float, wall: float) -> None:
        self.now = Instant(self.now.wall + wall, self.now.steady + steady)


class _ByHand(Flusher):
    """A flusher that works when the simulation says so."""

    def start(self) -> None:
        pass

    def wake(self) -> None:
        pass


class World:
    """A gateway on its disk, its producers, the network, and the warehouse behind it."""

    def __init__(self, folder: Path, disk: Disk, random: Random, clock: Clock) -> None:
        self.folder, self.disk, self._random, self._clock = folder, disk, random, clock
        self._drift = random.uniform(-0.01, 0.01)
        self.settings = Settings(gateway=GatewaySettings(open_messages=OPEN, unflushed_bytes=UNFLUSHED))
        self._links: dict[Client, tuple[Producer, deque[Frame], deque[bytes]]] = {}
        meant: dict[str, dict[str, Meant]] = {group: {} for group in _GROUPS}
        self.producers = [
            Producer(f"p{n}", _GROUPS[n % 2], MANNERS[n % len(MANNERS)], random, meant[_GROUPS[n % 2]])
            for n in range(random.randrange(2, 7))
        ]
        self.warehouse = Warehouse()
        self.reference = Reference(meant, self.warehouse)
        self._start()

    # ---- the process ----

    def _start(self) -> None:
        self.log = Log(self.folder, BROKER.name, BROKER.store_host, FORM, self._on_flush)
        self.core = Core(self.log, BROKER, self.settings, Random(1), self.now)
        self._do(self.core.tick(self.now))
        left, before = self.warehouse.to_ask()
        self._do(self.core.want(left, before, self.now))

    @property
    def now(self) -> Instant:
        return self._clock.now

    def _on_flush(self, flushed_to: int) -> None:
        self._do(self.core.flushed(flushed_to, self.now))

    def ends(self, power: bool) -> None:
        """Ends the process, by a kill, its disk or the power, and begins it again; the start may be cut off, too."""
        for producer, _, _ in self._links.values():
            producer.cut()
        self._links.clear()
        self.warehouse.forget_unwritten()
        while True:
            self._close()
            if power:
                self.disk.lose_power()
            else:
                self.disk.restart()
            self.disk.cut_in = self._random.randrange(30) if power and self._random.random() < 0.3 else None
            try:
                self._start()
            except PowerCut:
                continue
            break
        self.disk.cut_in = None
        self.reference.check(self.log)

    def _close(self) -> None:
        """Lets the files of a process that has ended go."""
        of = self.log
        for close in (of._files.close, of._queues.close, of._owner.release):
            with suppress(OSError):
                close()

    # ---- what happens ----

    def plays(self, step: Step) -> None:
        """Does one step."""
        self._random.seed(step.seed)
        try:
            getattr(self, f"_{step.what}")()
        except PowerCut:
            self.ends(power=True)
        self.reference.limits(self.log, self.core, self.settings, self.now.ms)

    def _sends(self) -> None:
        producer = self._random.choice(self.producers)
        if producer.client is None:
            self._connects()
        if producer.client is not None:
            self._links[producer.client][1].append(producer.sends(self.now.ms))

    def _connect(self, producer: Producer) -> None:
        client, beat = producer.connects()
        self._links[client] = producer, deque([beat]), deque()

    def _connects(self) -> None:
        producer = self._random.choice(self.producers)
        if producer.client is None:
            self._connect(producer)

    def _network(self) -> None:
        """Delivers some frames, of one connection in their order; some ends come twice."""
        for _ in range(self._random.randrange(1, 6)):
            busy = [link for link in self._links.items() if link[1][1] or link[1][2]]
            if not busy:
                return
            client, (producer, up, down) = self._random.choice(busy)
            if up and (not down or self._random.random() < 0.5):
                request = up.popleft()
                is_end = request.code == RequestCode.END_TRANSACTION  # a send that comes again is another transaction
                for _ in range(2 if is_end and self._random.random() < 0.05 else 1):
                    self._do(self.core.request(client, request, self.now))
            elif down:
                for frame in Splitter(1 << 20).feed(down.popleft()):
                    up.extend(producer.takes(frame))

    def _is_cut_off(self) -> None:
        if self._links:
            client = self._random.choice(list(self._links))
            self._links.pop(client)[0].cut()
            self.core.left(client)

    def _is_slow(self) -> None:
        for client in self._links:
            client.is_open = self._random.random() < 0.7

    def _flushes(self) -> None:
        try:
            self._flush()
        except OSError:  # the process ends; nobody knows what the disk has
            self.ends(power=True)

    def _flush(self) -> Batch | None:
        return self.log._flusher.flush_once()

    def _passes(self) -> None:
        seconds = self._random.choice((0.01, 0.1, 0.1, 1.0, 5.0, 61.0, 600.0))
        self._clock.passes(seconds, seconds * (1 + self._drift))
        self._do(self.core.tick(self.now))

    def _clock_jumps(self) -> None:
        self._clock.passes(0.0, self._random.choice((-3600.0, -1.0, 1.0, 3600.0, 86_400.0)))

    def _dies(self) -> None:
        self.ends(power=False)

    def _loses_power(self) -> None:
        """At once, or at one of the next calls of the system."""
        if self._random.random() < 0.3:
            raise PowerCut
        self.disk.cut_in = self._random.randrange(12)

    def _disk_fails(self) -> None:
        self.disk.fail_in = self._random.randrange(8)

    def _lands(self) -> None:
        self.warehouse.lands(self.log, self._random)

    def _runs(self) -> None:
        """A run asks about what is open there. The gateway reads its requests, and writes deliveries, or not yet."""
        self.warehouse.runs(self.now.at, self.settings.rules.transaction_check_interval, self._random)
        if self._random.random() < 0.7:
            self.warehouse.write()
        left, before = self.warehouse.to_ask(new=True)
        self._do(self.core.want(left, before, self.now))

    def _expires(self) -> None:
        since = self.now.ms - RESERVED_MS
        with suppress(OSError, HalfopError):  # a later call tries it again
            landed = self.warehouse.landed(self.log)
            if not self.log.is_before(landed):
                self.log.expire(landed, since)
                self.reference.check(self.log)

    # ---- what the server does ----

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self._effect(effect)

    def _effect(self, effect: Effect) -> None:
        if isinstance(effect, AppendHalf):
            half = self.log.append_half(effect.message)
            self._do(self.core.half_stored(effect, half, self.now))
        elif isinstance(effect, AppendEnd):
            assert effect.half.end <= self.log.flushed_to, "a message ends that is not durable"
            self._do(self.core.end_stored(effect, self.log.append_end(effect.half, effect.end), self.now))
        elif isinstance(effect, AddTopic):
            self.log.put_topic(effect.name, effect.topic)
        elif isinstance(effect, Note):
            self.warehouse.note(effect.row)
        elif isinstance(effect, Ask):
            self.reference.asks(effect, self.log)
            assert effect.client in self._links, "asked a client that has left"
            self._reaches(effect.client, effect.frame)
        elif isinstance(effect, Answer):
            self._reaches(effect.client, effect.frame)

    def _reaches(self, client: Client, frame: bytes) -> None:
        if (link := self._links.get(client)) is not None:
            link[2].append(frame)

    # ---- the end ----

    def finishes(self) -> None:
        """With a disk and producers that work nothing waits; then all is compared."""
        self.disk.cut_in = self.disk.fail_in = None
        for _ in range(3):
            for producer in self.producers:
                if producer.client is None:
                    self._connect(producer)
            for client in self._links:
                client.is_open = True
            while any(up or down for _, up, down in self._links.values()):
                self._network()
                self._flush()
            self._flush()
        assert len(self.core.answers) == 0, "an answer waits for ever"
        self.ends(power=False)
        self.reference.store(self.folder)
        self.reference.given_up()
        self._close()


@contextmanager
def begun(folder: Path, seed: int) -> Iterator[World]:
    """A world in an empty folder, which is removed afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    random = Random(seed)
    disk, clock = Disk(folder, random), Clock()
    try:
        by_hand, by_clock = patch.object(log, "Flusher", _ByHand), patch.object(log, "_now_ms", clock.ms)
        with disk.used(), by_hand, by_clock:
            yield World(folder, disk, random, clock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def play(folder: Path, seed: int, steps: Sequence[Step]) -> float:
    """Plays a history; returns how many seconds have passed in it. Raises Failed."""
    return played(seed, steps, partial(_play, folder, seed))


def fails(folder: Path, seed: int, steps: Sequence[Step]) -> bool:
    """Returns whether something does not hold in a history."""
    return fails_in(steps, partial(_play, folder, seed))


def _play(folder: Path, seed: int, steps: Sequence[Step]) -> float:
    with begun(folder, seed) as world:
        for step in steps:
            world.plays(step)
        world.finishes()
        return world.now.steady
