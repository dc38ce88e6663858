"""Work of a gateway in a thread of its own: requests are read, deliveries written, and old files removed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from threading import Event, Thread

from halfop.frame.errors import HalfopError
from halfop.gateway.asking import Asking
from halfop.gateway.deliveries import Deliveries
from halfop.gateway.log.log import Log
from halfop.gateway.tables import NOTHING_SENT, CheckRequest, SentBefore, Tables, now

_EXPIRE_EVERY = 60.0
_log = logging.getLogger("halfop.gateway")
_MILLISECOND = timedelta(milliseconds=1)
_ANOTHER_LOG = (
    "messages have landed under this gateway's name that its log does not have: none are removed. If the store was put "
    "back or made again, land … --accept-rewind lands it as a new life"
)


class Upkeep:
    """The thread. `call` runs a function in the loop's thread, where `asking` lives; a failure is tried again."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it works with
        self,
        tables: Tables,
        log: Log,
        asking: Asking,
        deliveries: Deliveries,
        call: Callable[[Callable[[], None]], object],
        every: timedelta,
        young: timedelta,
        reserved: timedelta,
    ) -> None:
        self._tables, self._gateway_log, self._asking, self._call = tables, log, asking, call
        self._deliveries = deliveries
        self._every, self._young, self._reserved = every.total_seconds(), young, reserved
        self._stop, self._started, self._new = Event(), now(), list[CheckRequest]()
        self._expired = -_EXPIRE_EVERY  # a landing that was of another log shows at the start
        self._of_another_log = set[int]()
        self._failing: set[str] = set()
        self._thread = Thread(target=self._run, name="gateway-tables", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread after it has written what there is."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._try("check_requests", self._take_requests)
            self._try("check_deliveries", self._write_deliveries)
            if time.monotonic() - self._expired > _EXPIRE_EVERY:
                self._expired = time.monotonic()
                self._try("old files", self._expire)
        self._try("check_deliveries", self._write_deliveries)

    def _try(self, what: str, work: Callable[[], None]) -> None:
        """Does the work; its first failure is a warning, the others only count."""
        try:
            work()
            self._failing.discard(what)
        except Exception as error:
            level = logging.DEBUG if what in self._failing else logging.WARNING
            _log.log(level, "%s: %s: %s; tried again", what, type(error).__name__, str(error)[:500])
            self._failing.add(what)

    def _take_requests(self) -> None:
        self._new += self._tables.new_requests(self._young)
        if self._new:
            before = self._sent_before(self._new)
            found = [each for each in self._new if each.request_id not in before.requests]
            self._call(lambda: self._asking.want(found, now(), before.at))
            self._new = []

    def _sent_before(self, requests: Iterable[CheckRequest]) -> SentBefore:
        """What a process before this one has sent that the runs of these requests may not have seen."""
        old = [each.requested_at for each in requests if each.requested_at <= self._started]
        return self._tables.sent_since(min(old) - self._young) if old else NOTHING_SENT

    def _write_deliveries(self) -> None:
        self._deliveries.write(self._tables.append)

    def _expire(self) -> None:
        since_ms = int(time.time() * 1000) - self._reserved // _MILLISECOND
        landed = self._tables.landed()
        if self._gateway_log.is_before(landed.offsets):
            self._of_another_log.add(landed.life)
        offsets = {} if landed.life in self._of_another_log else landed.offsets
        for half in self._gateway_log.expire(offsets, since_ms, partial(self._tables.refuse_missing, landed)):
            _log.warning("half message %s was open for too long: its file was removed", half.queue_offset)
        self._call(self._asking.prune)
        if not offsets and landed.offsets:
            raise HalfopError(_ANOTHER_LOG)
