"""The life of a question to a producer: requested by a run, sent, answered or not, asked again, or given up.

Requests wait by group and topic until a client of the group can be asked. What becomes of each is noted as rows of
check_deliveries, by which the rules count.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from halfop.gateway.core.clients import Client, Producers
from halfop.gateway.core.effects import Ask, CheckRequest, Delivery, Effect, LogView, Note
from halfop.gateway.core.messages import Half
from halfop.gateway.core.reads import Description
from halfop.rocketmq.frames import ONE_WAY, Frame
from halfop.rocketmq.message import Message, message_id
from halfop.rocketmq.requests import CheckTransactionState

_AT_ONCE = 5_000  # requests of a group and topic, so that nothing else waits long
_MOST_PASSED = 500  # of them whose sender has got its share, so that others' come, too
_FIRST_OPAQUE = 1 << 20
_MILLISECOND = timedelta(milliseconds=1)


class Manner(NamedTuple):
    """How questions are asked. `young`: a request waits so long for a producer; `a_second`: the most a client gets."""

    broker: Description
    young: timedelta
    a_second: int
    sender_first: bool


class _Wanted(NamedTuple):
    request: CheckRequest
    came: datetime


class _Sent(NamedTuple):
    """The last question about an open message; the request is None once it was answered."""

    request: CheckRequest | None
    at: datetime
    client: str | None = None
    is_seen: bool = True


_NOTHING_SENT: Mapping[tuple[str, int], datetime] = MappingProxyType({})


class Questions:
    """Requests that wait for a producer, and questions that wait for an answer. `counts` gets what became of them."""

    def __init__(self, log: LogView, producers: Producers, manner: Manner, counts: Counter[str]) -> None:
        self._log, self._producers, self._manner, self._counts = log, producers, manner, counts
        # by group and topic, since not every client of a group may see each topic; and by place, the oldest first
        self._wanted: dict[tuple[str, str], OrderedDict[int, _Wanted]] = {}
        self._sent: dict[int, _Sent] = {}
        self._unsure: dict[int, _Sent] = {}  # that count by their answers alone
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
    ) -> list[Effect]:
        """Takes new requests; a newer one about the same message replaces an older one.

        A run that takes long may ask again before it has seen that the question before was sent: such a request is
        dropped, because two questions would be sent for one that the rules count. `sent_before`: when the process
        before this one sent the last question, by broker and place of the half message.
        """
        noted: list[Effect] = []
        for request in requests:
            before = sent_before.get((request.broker_name, request.physical_offset))
            if before is not None:
                self._sent.setdefault(request.physical_offset, _Sent(None, before))
            sent = self._sent.get(request.physical_offset)
            if sent is not None and request.requested_at <= sent.at:
                remark = "the question before it was sent after it was requested"
                noted.append(self._note(request, "SUPERSEDED", now, remark=remark))
                continue
            of_topic = self._wanted.setdefault((request.group, request.topic), OrderedDict())
            older = of_topic.pop(request.physical_offset, None)
            if older is not None:
                noted.append(self._note(older.request, "SUPERSEDED", now, remark="there is a newer request"))
            of_topic[request.physical_offset] = _Wanted(request, now)
        return noted

    def ask(self, now: datetime, seconds: float) -> Iterator[Effect]:
        """Sends what can be sent, each when it is wanted; `seconds` have passed since the last call."""
        yield from self._unseen(now)
        left = Counter[Client]()
        self._credit += self._manner.a_second * seconds
        most = int(self._credit)
        self._credit -= most
        for of, requests in list(self._wanted.items()):
            before, passed = len(requests), 0
            for wanted in list(islice(requests.values(), _AT_ONCE)):
                # what is settled has been counted as sent, so that none is settled in vain
                settled = None if passed == _MOST_PASSED else self._settled(wanted, now, left, most)
                if settled is None:
                    break  # all others would wait for the same producers
                if settled:
                    del requests[wanted.request.physical_offset]
                    yield from settled
                else:
                    passed += 1
            if len(requests) < before:
                del self._wanted[of]
            if requests:
                self._wanted.setdefault(of, requests)  # after the others: they have had their share

    def answered(self, physical_offset: int, outcome: str, client: Client, remark: str, now: datetime) -> list[Effect]:
        """Notes a producer's answer to a question: ANSWERED or UNKNOWN."""
        sent = self._sent.get(physical_offset)
        if sent is None or sent.request is None:
            return []
        self._sent[physical_offset] = sent._replace(request=None)
        after = (now - sent.at) // _MILLISECOND
        noted: list[Effect] = [self._note(sent.request, outcome, now, after, client.name, remark or None)]
        if sent.is_seen:
            return noted
        self._unsure.pop(physical_offset, None)
        return [self._note(sent.request, "SENT", sent.at, client=sent.client), *noted]

    def prune(self) -> None:
        """Forgets questions about messages that have ended otherwise."""
        open_halves = self._log.open_halves
        self._sent = {place: sent for place, sent in self._sent.items() if place in open_halves}

    # ---- one request ----

    def _settled(self, wanted: _Wanted, now: datetime, left: Counter[Client], most: int) -> list[Effect] | None:
        """Sends the request, or notes why not; nothing if it waits for its producer, None if for any of the group."""
        request, came = wanted
        half = self._log.open_halves.get(request.physical_offset)
        if half is None or half.queue_offset != request.queue_offset:
            remark = "it ended before it was asked about, or is not of this log"
            return [self._note(request, "SUPERSEDED", now, remark=remark)]
        if now - came > self._manner.young:
            return [self._given_up(request, now)]
        return self._send(half, request, now, left, most)

    def _send(
        self, half: Half, request: CheckRequest, now: datetime, left: Counter[Client], most: int
    ) -> list[Effect] | None:
        client = self._sender(half, request.group)
        if client is not None and left[client] >= most:
            return []
        if client is None:
            in_turn = self._producers.in_turn(request.group)
            client = next((each for each in in_turn if left[each] < most and each.may_send(half.topic)), None)
        return None if client is None else self._asked(half, request, client, now, left)

    def _sender(self, half: Half, group: str) -> Client | None:
        """The client that has sent the half message, if it is there, and has not left the last question unanswered; a
        neighbour of it only for the first question, since one that does not know will not know the next time."""
        last, sender = self._sent.get(half.physical_offset), half.sender
        if sender is None or not self._manner.sender_first or (last is not None and last.request is not None):
            return None
        known = (sender.name,) if last else (sender.name, sender.address)
        return next((each for each in self._producers.like(group, *known) if each.may_send(half.topic)), None)

    def _asked(
        self, half: Half, request: CheckRequest, client: Client, now: datetime, left: Counter[Client]
    ) -> list[Effect]:
        record = self._record(half)
        if record is None:
            return [self._note(request, "FAILED", now, remark="the log cannot read the message")]
        self._opaque = self._opaque + 1 if self._opaque < 2**31 - 1 else _FIRST_OPAQUE
        left[client] += 1
        self._producers.asked(request.group, client)
        is_seen = not client.is_proxy and self._producers.has_beaten(request.group)
        self._sent[half.physical_offset] = sent = _Sent(request, now, client.name, is_seen)
        ask = Ask(client, half, question(half, record, self._manner.broker, self._opaque, client.form))
        if is_seen:
            return [ask, self._note(request, "SENT", now, client=client.name)]
        noted = self._not_seen(half.physical_offset, now)
        self._unsure[half.physical_offset] = sent
        return [ask, *noted]

    # ---- questions that perhaps nobody saw ----

    # A proxy takes questions for groups of which no client is connected, and drops them. So do its connections that
    # merely send. Such a question counts only when an answer has come, be it UNKNOWN.

    def _unseen(self, now: datetime) -> Iterator[Effect]:
        """Notes questions to which no answer has come within the check interval."""
        while self._unsure:
            place, sent = next(iter(self._unsure.items()))
            if now - sent.at <= self._manner.young:
                return
            yield from self._not_seen(place, now)

    def _not_seen(self, place: int, now: datetime) -> list[Effect]:
        sent = self._unsure.pop(place, None)
        if sent is None or sent.request is None:
            return []
        remark = "it was sent, but perhaps nobody saw it: no answer within the check interval"
        return [self._note(sent.request, "FAILED", now, client=sent.client, remark=remark)]

    def _record(self, half: Half) -> bytes | None:
        try:
            return self._log.record(half.physical_offset)
        except OSError:  # one place of the disk: the other questions are asked
            return None

    def _given_up(self, request: CheckRequest, now: datetime) -> Note:
        if request.group in self._producers:
            remark = "no producer of the group took it within the check interval"
            return self._note(request, "FAILED", now, remark=remark)
        return self._note(request, "NO_PRODUCER", now, remark="no producer of the group was connected")

    def _note(  # noqa: PLR0913, PLR0917 - a row's columns
        self,
        request: CheckRequest,
        outcome: str,
        now: datetime,
        after: int | None = None,
        client: str | None = None,
        remark: str | None = None,
    ) -> Note:
        self._counts[outcome] += 1
        return Note(
            Delivery(request.request_id, request.broker_name, request.group, outcome, now, after, client, remark)
        )


# ---- CHECK_TRANSACTION_STATE, as a broker sends it ----


def question(half: Half, record: bytes, broker: Description, opaque: int, form: int) -> bytes:
    """The frame of the question: one-way, with the half message under its real topic as its body."""
    uniq = half.uniq_key or ""
    message = message_id(broker.store_host, half.physical_offset)
    place = half.queue_offset, half.physical_offset
    header = CheckTransactionState(half.topic, *place, uniq, uniq, message, broker.name)
    body = _under_real_topic(record, half.topic, half.queue)
    return Frame(header.code, ONE_WAY, opaque, header.fields(), body=body, form=form).packed()


def _under_real_topic(record: bytes, topic: str, queue: int) -> bytes:
    """The half message's record with its real topic and queue, without the CRC of what the log has."""
    message, place = Message.read(record)
    real = message._replace(topic=topic.encode(), queue_id=queue)
    return real.packed(place._replace(size=real.size(checked=False)), checked=False)
