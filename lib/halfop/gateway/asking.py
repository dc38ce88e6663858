"""Questions to producers: which are to be asked, whom they are sent to, and what became of each."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from halfop.gateway.connection import Channel
from halfop.gateway.log.log import Log
from halfop.gateway.log.messages import Half
from halfop.gateway.producers import Producers
from halfop.gateway.questions import Asker, question
from halfop.gateway.tables import CheckRequest, Delivery
from halfop.gateway.tallies import Tallies

_AT_ONCE = 5_000  # requests of a group and topic, so that nothing else waits long
_FIRST_OPAQUE = 1 << 20
_MILLISECOND = timedelta(milliseconds=1)


class Manner(NamedTuple):
    """How questions are asked. `young`: a request waits so long for a producer; `a_second`: the most a client gets."""

    asker: Asker
    young: timedelta
    a_second: int


class _Wanted(NamedTuple):
    request: CheckRequest
    came: datetime


class _Sent(NamedTuple):
    """The last question about an open message; the request is None once it was answered."""

    request: CheckRequest | None
    at: datetime


_NOTHING_SENT: Mapping[tuple[str, int], datetime] = MappingProxyType({})


class Asking:
    """Requests that wait for a producer, and questions that wait for an answer. Called in the loop's thread alone.

    `put` takes the rows for check_deliveries.
    """

    def __init__(
        self, log: Log, producers: Producers, manner: Manner, tallies: Tallies, put: Callable[[Delivery], None]
    ) -> None:
        self._log, self._producers, self._manner, self._tallies = log, producers, manner, tallies
        self._put = put
        # by group and topic, since not every client of a group may see each topic; and by place, the oldest first
        self._wanted: dict[tuple[str, str], OrderedDict[int, _Wanted]] = {}
        self._sent: dict[int, _Sent] = {}
        self._credit = 0.0  # the part of a question that a client may be sent more
        self._opaque = _FIRST_OPAQUE

    @property
    def waiting(self) -> int:
        """How many requests have not been asked yet."""
        return sum(map(len, self._wanted.values()))

    def want(
        self,
        requests: Iterable[CheckRequest],
        now: datetime,
        sent_before: Mapping[tuple[str, int], datetime] = _NOTHING_SENT,
    ) -> None:
        """Takes new requests; a newer one about the same message replaces an older one.

        A run that takes long may ask again before it has seen that the question before was sent: such a request is
        dropped, because two questions would be sent for one that the rules count. `sent_before`: when the process
        before this one sent the last question, by broker and place of the half message.
        """
        for request in requests:
            before = sent_before.get((request.broker_name, request.physical_offset))
            if before is not None:
                self._sent.setdefault(request.physical_offset, _Sent(None, before))
            sent = self._sent.get(request.physical_offset)
            if sent is not None and request.requested_at <= sent.at:
                self._note(request, "SUPERSEDED", now, remark="the question before it was sent after it was requested")
                continue
            of_topic = self._wanted.setdefault((request.group, request.topic), OrderedDict())
            older = of_topic.pop(request.physical_offset, None)
            if older is not None:
                self._note(older.request, "SUPERSEDED", now, remark="there is a newer request")
            of_topic[request.physical_offset] = _Wanted(request, now)

    def ask(self, now: datetime, seconds: float) -> None:
        """Sends what can be sent; `seconds` have passed since the last call."""
        left = Counter[Channel]()
        self._credit += self._manner.a_second * seconds
        most = int(self._credit)
        self._credit -= most
        for of, requests in list(self._wanted.items()):
            before = len(requests)
            for _ in range(min(_AT_ONCE, before)):
                wanted = next(iter(requests.values()))
                if not self._settled(wanted, now, left, most):
                    break  # all others would wait for the same producers
                del requests[wanted.request.physical_offset]
            if len(requests) < before:
                del self._wanted[of]
            if requests:
                self._wanted.setdefault(of, requests)  # after the others: they have had their share

    def answered(self, physical_offset: int, outcome: str, client: str, remark: str, now: datetime) -> None:
        """Notes a producer's answer to a question: ANSWERED or UNKNOWN."""
        sent = self._sent.get(physical_offset)
        if sent is not None and sent.request is not None:
            self._sent[physical_offset] = sent._replace(request=None)
            after = (now - sent.at) // _MILLISECOND
            self._note(sent.request, outcome, now, after, client, remark or None)

    def prune(self) -> None:
        """Forgets questions about messages that have ended otherwise."""
        open_halves = self._log.open_halves
        self._sent = {place: sent for place, sent in self._sent.items() if place in open_halves}

    # ---- one request ----

    def _settled(self, wanted: _Wanted, now: datetime, left: Counter[Channel], most: int) -> bool:
        """Sends the request, or notes why not; False if it has to wait for a producer."""
        request, came = wanted
        half = self._log.open_halves.get(request.physical_offset)
        if half is None or half.queue_offset != request.queue_offset:
            self._note(request, "SUPERSEDED", now, remark="it ended before it was asked about, or is not of this log")
        elif now - came > self._manner.young:
            self._give_up(request, now)
        else:
            return self._send(half, request, now, left, most)
        return True

    def _send(self, half: Half, request: CheckRequest, now: datetime, left: Counter[Channel], most: int) -> bool:
        may_see = (each for each in self._producers.in_turn(request.group) if each.may_send(half.topic))
        channel = next((each for each in may_see if left[each] < most), None)
        if channel is None:
            return False
        record = self._log.record(half.physical_offset)
        if record is None:
            self._note(request, "FAILED", now, remark="the log cannot read the message")
            return True
        self._opaque = self._opaque + 1 if self._opaque < 2**31 - 1 else _FIRST_OPAQUE
        channel.send(question(half, record, self._manner.asker, self._opaque, channel.form))
        left[channel] += 1
        self._sent[half.physical_offset] = _Sent(request, now)
        self._note(request, "SENT", now, client=channel.client)
        return True

    def _give_up(self, request: CheckRequest, now: datetime) -> None:
        if request.group in self._producers:
            self._note(request, "FAILED", now, remark="no producer of the group took it within the check interval")
        else:
            self._note(request, "NO_PRODUCER", now, remark="no producer of the group was connected")

    def _note(  # noqa: PLR0913, PLR0917 - a row's columns
        self,
        request: CheckRequest,
        outcome: str,
        now: datetime,
        after: int | None = None,
        client: str | None = None,
        remark: str | None = None,
    ) -> None:
        self._tallies.questions[outcome] += 1
        self._put(Delivery(request.request_id, request.broker_name, request.group, outcome, now, after, client, remark))
