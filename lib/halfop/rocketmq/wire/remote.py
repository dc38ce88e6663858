"""A server that is asked through one connection, which is opened again after a loss."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from random import SystemRandom
from typing import Any, Generic, TypeVar

from halfop.rocketmq.frames import MALFORMED, Frame, read_json
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.requests import BadHeader, H, Header
from halfop.rocketmq.wire.remoting import (
    Connection,
    ConnectionLost,
    Corrupt,
    RefusedByBroker,
    RemotingError,
    RemotingSettings,
    Unreachable,
    endpoint,
)

_LOG = logging.getLogger("halfop.remoting")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_SAID_FROM = 1.0  # a wait so long is no hiccup: whoever watches hears of it
_BUSY = (AnswerCode.SYSTEM_BUSY, AnswerCode.SERVICE_NOT_AVAILABLE, AnswerCode.FLOW_CONTROL)
_STORE_CLOSED = "store getMessage return null"  # a broker that starts or stops
_random = SystemRandom()

Busy = Callable[[Header, Frame], bool]
R = TypeVar("R", bound=Header)
T = TypeVar("T")


class Patience:
    """Pauses between tries: longer each time, never in step with other clients, and not for ever."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end, self._pause = seconds, time.monotonic() + seconds, _FIRST_PAUSE
        self._said = False

    def pause(self, why: str) -> None:
        """Raises Unreachable when the time is up."""
        pause = self._pause * _random.uniform(0.5, 1)
        if time.monotonic() + pause > self._end:
            raise Unreachable(f"{why}; gave up after {self._seconds:g} s")
        if self._pause >= _SAID_FROM and not self._said:
            self._said = True
            _LOG.warning("%s; trying again for up to %.0f s", why, self._end - time.monotonic())
        time.sleep(pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def is_busy(_: Header, answer: Frame) -> bool:
    """Returns whether the same request may get another answer soon."""
    return answer.code in _BUSY or (answer.code == AnswerCode.SYSTEM_ERROR and answer.remark == _STORE_CLOSED)


class _Pending(Generic[R]):
    def __init__(self, request: R) -> None:
        self.request = request
        self.connection: Connection | None = None
        self.opaque = 0


class Remote:
    """A server, for one thread at a time.

    Requests may reach it more than once: send those that change something by `stream_once`.
    """

    def __init__(self, address: str, settings: RemotingSettings) -> None:
        endpoint(address)
        self.address, self._settings = address, settings
        self._tls = settings.tls.context() if settings.tls else None
        self._connection: Connection | None = None

    def ask(self, request: Header, busy: Busy = is_busy) -> Frame:
        """Returns the answer to a request that must succeed, once the server is not `busy`."""
        return self.checked(request, self.answer(request, busy))

    def answer(self, request: Header, busy: Busy = is_busy) -> Frame:
        """Returns the answer, whatever its code, once the server is not `busy`."""
        return next(answer for _, answer in self.stream([request], busy))

    def checked(self, request: Header, answer: Frame) -> Frame:
        """Returns the answer. Raises Refused if it is an error."""
        if answer.code != AnswerCode.SUCCESS:
            raise self.refusal(request, answer)
        return answer

    def refusal(self, request: Header, answer: Frame) -> RefusedByBroker:
        return RefusedByBroker(
            self.address, request, answer.code, answer.remark, self._settings.credentials is not None
        )

    def header(self, kind: type[H], answer: Frame) -> H:
        """Returns an answer's header. Raises Corrupt."""
        try:
            return kind.read(answer.fields)
        except BadHeader as error:
            raise Corrupt(self.address, f"sent a header that cannot be read: {error}") from error

    def body(self, answer: Frame, name: str, made: Callable[[Any], T]) -> T:
        """Returns the named part of an answer's JSON body, read by `made`. Raises Corrupt."""
        try:
            return made(read_json(answer.body)[name])
        except MALFORMED as error:
            raise Corrupt(self.address, f"sent a body without a sound {name}: {answer.body[:80]!r}") from error

    def stream(self, requests: Iterable[R], busy: Busy = is_busy) -> Iterator[tuple[R, Frame]]:
        """Each request with its answer, in order, with `in_flight` of them under way; `requests` is read no further."""
        unsent, window = iter(requests), deque[_Pending[R]]()
        try:
            while True:
                window.extend(_Pending(request) for request in islice(unsent, self._settings.in_flight - len(window)))
                if not window:
                    return
                answer = self._first_answer(window, busy)
                yield window.popleft().request, answer
        finally:
            if window:  # nobody will take their answers
                self.close()

    def stream_once(self, requests: Iterable[R]) -> Iterator[tuple[R, Frame | ConnectionLost]]:
        """Each request with its answer, in order, `in_flight` of them under way; none is sent a second time.

        After a loss those under way come with it, and the others are not sent: whether the server has met the former
        nobody knows.
        """
        unsent, window = iter(requests), deque[_Pending[R]]()
        try:
            connection = self._connected()
        except ConnectionLost:
            self.close()
            return
        try:
            while True:
                for request in islice(unsent, self._settings.in_flight - len(window)):
                    window.append(_Pending(request))
                    window[-1].opaque = connection.send(request, self._settings.answer_timeout)
                if not window:
                    return
                answer = connection.answer(window[0].opaque, self._settings.answer_timeout)
                yield window.popleft().request, answer
        except ConnectionLost as error:
            for pending in window:
                yield pending.request, error
        finally:
            if window:
                self.close()

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def try_once(self, request: Header) -> Frame:
        """The answer, or Lost after one try: for a caller that has other servers to ask."""
        return self._attempt(deque([_Pending(request)]))

    def _first_answer(self, window: deque[_Pending[R]], busy: Busy) -> Frame:
        patience = Patience(self._settings.give_up_after)
        while True:
            try:
                answer = self._attempt(window)
            except ConnectionLost as error:
                patience.pause(f"{error} ({window[0].request.code.name})")
                continue
            if not busy(window[0].request, answer):
                return answer
            window[0].connection = None
            patience.pause(str(self.refusal(window[0].request, answer)))

    def _attempt(self, window: deque[_Pending[R]]) -> Frame:
        """Sends what this connection has not seen yet, and waits for the first's answer."""
        timeout = self._settings.answer_timeout
        try:
            connection = self._connected()
            for pending in window:
                if pending.connection is not connection:
                    pending.opaque, pending.connection = connection.send(pending.request, timeout), connection
            return connection.answer(window[0].opaque, timeout)
        except RemotingError:
            self.close()
            raise

    def _connected(self) -> Connection:
        if self._connection is None:
            timeout, credentials = self._settings.connect_timeout, self._settings.credentials
            self._connection = Connection(self.address, timeout, self._tls, credentials)
        return self._connection
