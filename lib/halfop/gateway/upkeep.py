"""A gateway's work on its warehouse, in turns: requests are read, deliveries written, and old files of the log removed.

What reaches tables or removes files runs in a thread that gets all it needs and gives back what it found; what the
loop works with is touched in the loop alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from halfop.frame.errors import HalfopError
from halfop.gateway.core.effects import CheckRequest, Delivery
from halfop.gateway.core.messages import Half
from halfop.gateway.log.log import Log
from halfop.gateway.tables import NOTHING_SENT, SentBefore, Tables, now

T = TypeVar("T")
_EXPIRE_EVERY = 60.0
_MOST_ROWS = 200_000
_log = logging.getLogger("halfop.gateway")
_MILLISECOND = timedelta(milliseconds=1)
_ANOTHER_LOG = (
    "messages have landed under this gateway's name that its log does not have: its store is new, or was put back. New "
    "messages are stored, but no landing takes them (status 3), so nobody is asked about them, and no file is removed. "
    "If another store has what landed, start with that, and land this one by land store … --broker-name OTHER. If it "
    "is lost, call land broker … --accept-rewind once: this log lands as a new life"
)


class Deliveries:
    """Rows for check_deliveries that are not in the table yet.

    If the table cannot be written for so long that there are too many rows, the oldest go, with a warning.
    """

    def __init__(self, most: int = _MOST_ROWS) -> None:
        self._rows = deque[Delivery](maxlen=most)
        self._dropped = 0

    def put(self, row: Delivery) -> None:
        """Adds a row."""
        self._dropped += len(self._rows) == self._rows.maxlen
        self._rows.append(row)

    async def write(self, append: Callable[[Sequence[Delivery]], Awaitable[bool]]) -> None:
        """Writes all rows; if that raises an error, or returns False, the next call tries them again."""
        if self._dropped:
            _log.warning("%s rows of check_deliveries were dropped: it could not be written", self._dropped)
            self._dropped = 0
        rows = list(self._rows)
        if not rows or not await append(rows):
            return
        gone = min(self._dropped, len(rows))  # meanwhile, of those that were being written
        self._dropped -= gone
        for _ in range(len(rows) - gone):
            self._rows.popleft()


class Upkeep:
    """The work, in turns until `close`; a failure is tried again. `want` takes new requests, `prune` forgets some."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it works with
        self,
        tables: Tables,
        log: Log,
        deliveries: Deliveries,
        want: Callable[[Iterable[CheckRequest], Mapping[tuple[str, int], datetime]], None],
        prune: Callable[[], None],
        every: timedelta,
        young: timedelta,
        reserved: timedelta,
    ) -> None:
        self._tables, self._gateway_log, self._deliveries = tables, log, deliveries
        self._want, self._prune = want, prune
        self._every, self._young, self._reserved = every.total_seconds(), young, reserved
        self._stop, self._started, self._new = asyncio.Event(), now(), list[CheckRequest]()
        self._expired = -_EXPIRE_EVERY  # a landing that was of another log shows at the start
        self._of_another_log = set[int]()
        self._failing: set[str] = set()
        self._thread = ThreadPoolExecutor(1, "gateway-tables")
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Ends the work after all is written that there is."""
        self._stop.set()
        await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        stops = False
        while not stops:
            await self._try("check_requests", self._take_requests)
            await self._try("check_deliveries", self._write_deliveries)
            if time.monotonic() - self._expired > _EXPIRE_EVERY:
                self._expired = time.monotonic()
                await self._try("old files", self._expire)
            stops = await self._stopped()
        await self._try("check_deliveries", self._write_deliveries)

    async def _stopped(self) -> bool:
        """Returns whether it is to stop, after a pause if not."""
        try:
            return await asyncio.wait_for(self._stop.wait(), self._every)
        except asyncio.TimeoutError:
            return False

    async def _try(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """Does the work; its first failure is a warning, the others only count."""
        try:
            await work()
            self._failing.discard(what)
        except Exception as error:
            level = logging.DEBUG if what in self._failing else logging.WARNING
            kind = "" if isinstance(error, HalfopError) else f"{type(error).__name__}: "
            _log.log(level, "%s: %s%s; tried again", what, kind, str(error)[:500])
            self._failing.add(what)

    async def _away(self, work: Callable[[], T]) -> T:
        """Returns the result of work that is done in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _take_requests(self) -> None:
        self._new += await self._away(partial(self._tables.new_requests, self._young))
        if self._new:
            before = await self._away(partial(self._sent_before, tuple(self._new)))
            self._want([each for each in self._new if each.request_id not in before.requests], before.at)
            self._new = []

    def _sent_before(self, requests: Iterable[CheckRequest]) -> SentBefore:
        """Returns questions that a process before this one sent, which the runs of these requests may not know."""
        old = [each.requested_at for each in requests if each.requested_at <= self._started]
        return self._tables.sent_since(min(old) - self._young) if old else NOTHING_SENT

    async def _write_deliveries(self) -> None:
        await self._deliveries.write(lambda rows: self._away(partial(self._tables.append, rows)))

    async def _expire(self) -> None:
        self._prune()
        lost, is_of_another_log = await self._away(self._remove_files)
        for half in lost:
            _log.warning("half message %s was open for too long: its file was removed", half.queue_offset)
        if is_of_another_log:
            raise HalfopError(_ANOTHER_LOG)

    def _remove_files(self) -> tuple[list[Half], bool]:
        """Returns the half messages that were open in them, and whether what has landed is of another log."""
        since_ms = int(time.time() * 1000) - self._reserved // _MILLISECOND
        landed = self._tables.landed()
        if self._gateway_log.is_before(landed.offsets):
            self._of_another_log.add(landed.life)
        offsets = {} if landed.life in self._of_another_log else landed.offsets
        lost = self._gateway_log.expire(offsets, since_ms, partial(self._tables.refuse_missing, landed))
        return lost, not offsets and bool(landed.offsets)
