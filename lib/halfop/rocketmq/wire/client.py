"""Brokers, and the requests that halfop sends them. Each ends with an answer or a RemotingError."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from halfop.rocketmq import names
from halfop.rocketmq import requests as r
from halfop.rocketmq.batches import half_batch
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.message import message_id
from halfop.rocketmq.names import CHECK_GROUP, GATEWAY_CONFIG, AnswerCode
from halfop.rocketmq.properties import Properties, decoded
from halfop.rocketmq.record import Records, chain
from halfop.rocketmq.wire.remote import Remote, is_busy
from halfop.rocketmq.wire.remoting import Corrupt, RemotingSettings

T = TypeVar("T")
_SLAVE = "SLAVE"
_RUNTIME = re.compile(r"\[ ?(\D*\d.*) days, (\d+) hours, (\d+) minutes, (\d+) seconds ?\]")
_SECOND = 1_000_000


class Role(NamedTuple):
    """A broker's own name; whether it is a slave or a gateway of halfop's.

    `forgets_after`: the microseconds after which it forgets a transaction in RocksDB, None if it keeps none there.
    """

    name: str
    is_slave: bool
    is_gateway: bool
    forgets_after: int | None = None


class LogExtent(NamedTuple):
    """The end of a broker's log, and the place up to which its queues and its index have it."""

    end: int
    shown_to: int


@dataclass(frozen=True)
class BrokerClock:
    """The instant that a broker showed, epoch microseconds cut to seconds; `asked`: `time.monotonic()` before that.

    The host that lands may have another time.
    """

    shown: int
    asked: float

    def latest(self) -> int:
        """Returns an instant that the broker has not passed yet: what it has stored by now is not newer."""
        return self.shown + _SECOND + int((time.monotonic() - self.asked) * _SECOND)


class Broker:
    """One broker at `host:port`, through one connection that is opened again after a loss. For one thread at a time."""

    def __init__(self, address: str, settings: RemotingSettings) -> None:
        self.remote = Remote(address, settings)

    def topics(self) -> dict[str, int]:
        """Every topic in the broker's table (in 4.9 without the op topic) with its number of read queues."""
        return self.remote.body(self.remote.ask(r.GetAllTopicConfig()), "topicConfigTable", _read_queues)

    def clock(self) -> BrokerClock:
        """The broker's own clock."""
        asked = time.monotonic()
        return BrokerClock(self._runtime(shown_time), asked)

    def log_end(self) -> LogExtent:
        """How much of its log the broker shows by now."""
        return self._runtime(_log_end)

    def role(self) -> Role:
        """The broker's role, as it says itself."""
        found = self.configuration()
        for name in ("brokerName", "brokerRole"):
            if name not in found:
                raise Corrupt(self.remote.address, f"sent a configuration without {name}")
        return Role(found["brokerName"], found["brokerRole"] == _SLAVE, GATEWAY_CONFIG in found, _forgets_after(found))

    def configuration(self) -> dict[str, str]:
        """The broker's settings by its own names."""
        lines = self.remote.ask(r.GetBrokerConfig()).body.decode("utf-8", "replace").splitlines()
        return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}

    def min_offset(self, topic: str, queue: int) -> int:
        """The queue's first offset; 0 for an unknown topic too."""
        return self.min_offsets([(topic, queue)])[0]

    def max_offset(self, topic: str, queue: int) -> int:
        """The offset after the queue's last one; 0 for an unknown topic too."""
        return self.max_offsets([(topic, queue)])[0]

    def min_offsets(self, queues: Iterable[tuple[str, int]]) -> list[int]:
        """`min_offset` of each queue, several requests in flight: a broker has a thousand queues from the start."""
        return self._offsets(r.GetMinOffset, queues)

    def max_offsets(self, queues: Iterable[tuple[str, int]]) -> list[int]:
        """`max_offset` of each queue, in the same way."""
        return self._offsets(r.GetMaxOffset, queues)

    def offset_at(self, topic: str, queue: int, millis: int) -> int:
        """About the first offset of the queue whose message was stored at an instant or later; brokers round it."""
        return self._offset(self.remote.ask(r.SearchOffset(topic, names.queue_there(topic, queue), millis)))

    def check_offset(self, topic: str, queue: int) -> int | None:
        """How far the broker's own check of a half queue has come; None if it does not say so."""
        answer = self.remote.answer(r.QueryConsumerOffset(topic, names.queue_there(topic, queue), CHECK_GROUP))
        return self._offset(answer) if answer.code == AnswerCode.SUCCESS else None

    def close(self) -> None:
        self.remote.close()

    def _runtime(self, made: Callable[[Any], T]) -> T:
        return self.remote.body(self.remote.ask(r.GetBrokerRuntimeInfo(), _is_starting), "table", made)

    def _offsets(self, kind: type[r.GetMaxOffset], queues: Iterable[tuple[str, int]]) -> list[int]:
        answers = self.remote.stream(kind(topic, names.queue_there(topic, queue)) for topic, queue in queues)
        return [self._offset(self.remote.checked(request, answer)) for request, answer in answers]

    def _offset(self, answer: Frame) -> int:
        return self.remote.header(r.Offset, answer).offset


def _forgets_after(settings: Mapping[str, str]) -> int | None:
    """An interval before each question, of which there is one more than the limit, and one for the last answer."""
    limit, interval = (settings.get(name, "") for name in ("transactionCheckMax", "transactionCheckInterval"))
    known = settings.get("transRocksDBEnable") == "true" and limit.isdecimal() and interval.isdecimal()
    return (int(limit) + 2) * int(interval) * 1000 if known else None


def _is_starting(request: r.Header, answer: Frame) -> bool:
    """Returns whether a broker has just started: in its first seconds 4.9 has no sample yet of what it counts."""
    fails = answer.code == AnswerCode.SYSTEM_ERROR and "NoSuchElementException" in answer.remark
    return fails or is_busy(request, answer)


def _log_end(table: Any) -> LogExtent:
    end = int(table["commitLogMaxOffset"])
    return LogExtent(end, end - int(table["dispatchBehindBytes"]))


def _read_queues(topics: Any) -> dict[str, int]:
    return {str(name): int(each["readQueueNums"]) for name, each in topics.items()}


def shown_time(table: Mapping[str, str]) -> int:
    """Returns the instant in a broker's runtime information: when it started, and for how long it has run."""
    found = _RUNTIME.fullmatch(table["runtime"].strip())
    if found is None:
        raise ValueError(table["runtime"])
    days, hours, minutes, seconds = (int(re.sub(r"\D", "", each)) for each in found.groups())
    return int(table["bootTimestamp"]) * 1000 + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * _SECOND


# ---- ending a transaction as a third party ----


_LAST_INSTANT = 2**63 - 1
_MOST_FINALS = 32  # brokers may give more
_NO_HOST = bytes(8)  # of a message id, brokers look at the offset alone

# After the log's end, and within a record: the broker takes its bytes for a length, which no buffer has.
_NOT_THERE = ("can not find message by the offset", "java.lang.IllegalArgumentException")


class HalfPlace(NamedTuple):
    """The half message that an END_TRANSACTION names, with what the broker compares with it."""

    producer_group: str
    uniq_key: str
    real_topic: str | None
    queue_offset: int
    commit_log_offset: int


def end_transaction(half: HalfPlace, commit: bool) -> r.EndTransaction:
    """The answer to a check: a broker takes it also after the message's own immunity."""
    kind, key = r.COMMIT_TYPE if commit else r.ROLLBACK_TYPE, half.uniq_key
    place = half.queue_offset, half.commit_log_offset
    return r.EndTransaction(half.producer_group, *place, kind, True, key, key, half.real_topic or "")


def query_finals(topic: str, uniq_key: str) -> r.QueryMessage:
    """Asks for the messages of a topic with a UNIQ_KEY; the broker finds them by its index."""
    return r.QueryMessage(topic, uniq_key, _MOST_FINALS, 0, _LAST_INSTANT, unique=True)


def prepared_offsets(broker: Broker, request: r.QueryMessage, answer: Frame) -> list[int]:
    """Returns the places of the half messages in the log whose final messages were asked for by `query_finals`."""
    if answer.code == AnswerCode.QUERY_NOT_FOUND:
        return []
    records = _records(broker, broker.remote.checked(request, answer))
    topics = records.topics().dictionary_decode().to_pylist()
    keys = Properties(records).strings(names.UNIQ_KEY).to_pylist()
    committed = (records.head["sys_flag"] & names.TRANSACTION_TYPE_MASK) == names.TRANSACTION_COMMIT
    rows = zip(topics, keys, committed, records.longs("prepared_offset"), strict=True)
    wanted = request.topic, request.key
    return [int(place) for topic, key, final, place in rows if final and (decoded(topic), key) == wanted]


class Stored(NamedTuple):
    """A message at a place of the log."""

    topic: str
    queue_offset: int
    uniq_key: str | None
    producer_group: str | None


def stored_at(broker: Broker, place: int) -> Stored | None:
    """Returns the message that begins at this place of the broker's log; None if none does.

    Raises Refused if the broker does not say: it answers a passing fault with the same code, but another remark.
    """
    request = r.ViewMessage(place)
    answer = broker.remote.answer(request)
    if answer.code == AnswerCode.SYSTEM_ERROR and any(text in answer.remark for text in _NOT_THERE):
        return None
    records = _records(broker, broker.remote.checked(request, answer))
    rows = half_batch(records).to_pylist()
    if len(rows) != 1 or rows[0]["commit_log_offset"] != place:
        return None
    topic = decoded(records.topics().dictionary_decode().to_pylist()[0])
    return Stored(topic, *(rows[0][name] for name in ("queue_offset", "uniq_key", "producer_group")))


def resume_check(topic: str, place: int) -> r.ResumeCheckHalfMessage:
    """Makes the broker put a copy of whatever is at this place of its log to its half topic, with check times 0."""
    return r.ResumeCheckHalfMessage(topic, message_id(_NO_HOST, place))


def _records(broker: Broker, answer: Frame) -> Records:
    found = chain(answer.body)
    if found.stop is not None:
        raise Corrupt(broker.remote.address, f"byte {found.stop.position} of the answer: {found.stop.text}")
    return found.records
