"""A broker of transactions that is played: it ends them as RocketMQ does, and loses what a test wants it to lose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from halfop.columns.keys import Key
from halfop.ending.plan import COMMIT, Kind, PlannedPlace, Row
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import CHECK_TIMES, ROCKSDB_TOPICS, RequestCode
from halfop.rocketmq.requests import COMMIT_TYPE

from support.brokers import store_writer as w
from support.brokers.played_broker import Queue

NAME = "b"
APART = 1000  # bytes from a record to the next one
CONFIG = """brokerName=b
brokerRole=ASYNC_MASTER
messageIndexEnable=true
transactionCheckInterval=0
waitTimeMillsInTransactionQueue={}
"""
_QUEUE_REQUESTS = {RequestCode.PULL_MESSAGE, RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET}


def half(offset: int, times: int | None = None) -> w.Record:
    """The record of this broker's half message of transaction `offset`, or of a copy of it."""
    properties = {"UNIQ_KEY": f"K{offset}", "PGROUP": "g", "REAL_TOPIC": "T", "REAL_QID": "0"}
    marks = {} if times is None else {CHECK_TIMES: str(times)}
    return w.half(offset, properties=properties | marks)


def row(offset: int, kind: Kind = COMMIT, queue: int = 0) -> Row:
    """The row of a plan for transaction `offset`, of which the original alone has landed."""
    born = datetime.fromtimestamp(w.BORN_MS / 1000, timezone.utc)
    place = PlannedPlace(offset, offset * APART)
    return Row(Key(NAME, queue, offset), kind, "KEY", None, f"K{offset}", "g", "T", "CHECK", born, (place,))


@dataclass
class Owning:
    """Its log begins with `number` half messages. `behind`: records at its end that nothing shows yet."""

    number: int
    behind: int = 0
    loses_ops: bool = False
    in_rocksdb: bool = False
    end_queue: int = 0
    log: list[w.Record] = field(default_factory=list)
    asked_for: list[tuple[str, int]] = field(default_factory=list)  # UNIQ_KEYs and kinds of all answers

    def __post_init__(self) -> None:
        self.half_topic, self._op_topic = ROCKSDB_TOPICS if self.in_rocksdb else (w.HALF, w.OP)
        for offset in range(self.number):
            self.put(replace(half(offset), topic=self.half_topic))

    def put(self, record: w.Record) -> int:
        """Appends a record with the next offset of its queue; returns that."""
        offset = sum(each.topic == record.topic for each in self.log)
        self.log.append(replace(record, queue_offset=offset))
        return offset

    def lose(self, records: int) -> None:
        """The end of the log, as a slave lacks it that takes the place of its master."""
        del self.log[len(self.log) - records :]

    @property
    def ended(self) -> list[str]:
        """The half offsets that op messages name."""
        return [each.body.decode() for each in self.log if each.topic == w.OP]

    @property
    def delivered(self) -> list[str]:
        return [_key(each) for each in self.log if each.topic == "T"]

    def answer(self, asked: Frame) -> Mapping[str, Any]:
        if asked.code == RequestCode.END_TRANSACTION:
            return self._end(asked.fields)
        if asked.code in _QUEUE_REQUESTS:
            return self._queue(asked.fields["topic"]).answer(asked)
        if asked.code == RequestCode.QUERY_MESSAGE:
            return self._finals(asked.fields["key"])
        if asked.code == RequestCode.VIEW_MESSAGE_BY_ID:
            return self._at(int(asked.fields["offset"]))
        if asked.code == RequestCode.QUERY_CONSUMER_OFFSET:
            return {"offset": 1 << 40}  # its check has passed all
        return {"body": self._told(asked.code)}

    def _told(self, code: int) -> bytes:
        if code == RequestCode.GET_BROKER_CONFIG:
            return CONFIG.format(self.end_queue).encode()
        table = {"commitLogMaxOffset": len(self.log) * APART, "dispatchBehindBytes": self.behind * APART}
        self.behind = max(self.behind - 1, 0)
        return json.dumps({"table": {name: str(value) for name, value in table.items()}}).encode()

    def _end(self, fields: Mapping[str, str]) -> Mapping[str, Any]:
        place, kind = int(fields["commitLogOffset"]), int(fields["commitOrRollback"])
        self.asked_for.append((fields["msgId"], kind))
        prepared = self.log[place // APART]
        assert (prepared.topic, prepared.queue_offset) == (self.half_topic, int(fields["tranStateTableOffset"]))
        if kind == COMMIT_TYPE:
            self.put(replace(prepared, topic="T", sys_flag=COMMIT_TYPE, prepared_offset=place))
        if not self.loses_ops:
            self.put_op(prepared.queue_offset, place)
        return {}

    def put_op(self, half_offset: int, place: int) -> None:
        """Appends an op message about a half message."""
        if self.in_rocksdb:
            self.put(w.Record(self._op_topic, b"\0", {"TAGS": "d", "TRANS_OFFSET": str(place)}))
        else:
            self.put(w.op(str(half_offset)))

    def _shown(self) -> list[tuple[int, w.Record]]:
        return [(n * APART, each) for n, each in enumerate(self.log[: len(self.log) - self.behind])]

    def _queue(self, topic: str) -> Queue:
        records = {each.queue_offset: each.at(place) for place, each in self._shown() if each.topic == topic}
        return Queue(records, 0, len(records))

    def _finals(self, uniq_key: str) -> Mapping[str, Any]:
        found = [each.at(place) for place, each in self._shown() if each.topic == "T" and _key(each) == uniq_key]
        return {"body": b"".join(found)} if found else {"code": 22}

    def _at(self, place: int) -> Mapping[str, Any]:
        if place % APART or place // APART >= len(self.log):
            return {"code": 1, "remark": "can not find message by the offset"}
        return {"body": self.log[place // APART].at(place)}


def _key(record: w.Record) -> str:
    assert not isinstance(record.properties, bytes)
    return record.properties["UNIQ_KEY"]
