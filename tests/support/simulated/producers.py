"""Producers of a simulation: what each means, and how it behaves. They know only frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Literal

import orjson
from halfop.gateway.core.clients import Client
from halfop.gateway.core.messages import Outcome
from halfop.rocketmq.frames import ANSWER, ONE_WAY, Frame
from halfop.rocketmq.message import Message
from halfop.rocketmq.names import AnswerCode, RequestCode
from halfop.rocketmq.properties import packed
from halfop.rocketmq.requests import (
    COMMIT_TYPE,
    NOT_TYPE,
    ROLLBACK_TYPE,
    CheckTransactionState,
    EndTransaction,
    HeartBeat,
    SendMessageV2,
)

KINDS = {"COMMIT": COMMIT_TYPE, "ROLLBACK": ROLLBACK_TYPE, None: NOT_TYPE}
Manner = Literal["honest", "silent", "repeating", "lying"]
MANNERS: tuple[Manner, ...] = ("honest", "honest", "silent", "repeating", "lying")
TOPICS = ("orders", "paid")
ADDRESS = bytes((10, 0, 0, 1)) + (40_000).to_bytes(4, "big")


@dataclass
class Meant:
    """A transaction, and what its producer knows of it. `said`: each outcome that it has told, a lie too."""

    key: str
    group: str
    outcome: Outcome
    manner: Manner
    place: tuple[int, int] | None = None  # queue offset and physical offset, as the gateway has told them
    is_durable: bool = False  # a send was acknowledged, or it was asked about
    said: set[Outcome] = field(default_factory=set)
    acknowledged_end: bool = False
    asked: int = 0


@dataclass(frozen=True)
class Waiting:
    """A request that waits for its answer."""

    meant: Meant
    what: Literal["send", "end"]


class Producer:
    """One client id of a group, with a connection or without one."""

    def __init__(self, name: str, group: str, manner: Manner, random: Random, meant: dict[str, Meant]) -> None:
        """`meant`: the transactions of its group, which all of its clients can look up."""
        self.name, self.group, self.manner, self._random, self.meant = name, group, manner, random, meant
        self.client: Client | None = None
        self._waiting: dict[int, Waiting] = {}
        self._answered = set[int]()
        self._opaques, self._numbers = count(1), count(1)

    # ---- the connection ----

    def connects(self) -> tuple[Client, Frame]:
        """A new connection; returns it and its first request, a heartbeat."""
        self.client = Client(ADDRESS, self.name)
        self._waiting.clear()
        data = {"clientID": self.name, "producerDataSet": [{"groupName": self.group}]}
        beat = Frame(RequestCode.HEART_BEAT, 0, next(self._opaques), HeartBeat().fields(), body=orjson.dumps(data))
        return self.client, beat

    def cut(self) -> None:
        self.client = None
        self._waiting.clear()

    # ---- what it sends ----

    def sends(self, born_ms: int) -> Frame:
        """A new transaction."""
        key = f"{self.name}-{next(self._numbers)}"
        outcome: Outcome = "COMMIT" if self._random.random() < 0.7 else "ROLLBACK"
        meant = self.meant[key] = Meant(key, self.group, outcome, self.manner)
        text = packed({"TRAN_MSG": "true", "PGROUP": self.group, "UNIQ_KEY": key})
        topic = self._random.choice(TOPICS)
        header = SendMessageV2(self.group, topic, self._random.randrange(2), 4, born_ms, 0, properties=text)
        body = key.encode() * self._random.randrange(1, 20)
        return self._request(header.code, header.fields(), Waiting(meant, "send"), body)

    def _ends(self, meant: Meant, outcome: Outcome | None, from_check: bool) -> Frame:
        assert meant.place is not None
        header = EndTransaction(meant.group, *meant.place, KINDS[outcome], from_check, transaction_id=meant.key)
        if outcome is None:
            return self._request(header.code, header.fields(), None)
        meant.said.add(outcome)
        return self._request(header.code, header.fields(), Waiting(meant, "end"))

    def _lies(self, meant: Meant) -> Frame:
        """The opposite end, by another offset or another group: it must count for nothing."""
        assert meant.place is not None
        (offset, place), group = meant.place, meant.group
        if self._random.random() < 0.5:
            group = "stranger"
        else:
            offset += self._random.choice((-1, 1, 1 << 40))
        header = EndTransaction(group, offset, place, KINDS[_opposite(meant.outcome)], transaction_id=meant.key)
        return self._request(header.code, header.fields(), None)

    def _request(self, code: int, fields: dict[str, str], waiting: Waiting | None, body: bytes = b"") -> Frame:
        opaque = next(self._opaques)
        if waiting is not None:
            self._waiting[opaque] = waiting
        return Frame(code, ONE_WAY if waiting is None else 0, opaque, fields, body=body)

    # ---- what comes back ----

    def takes(self, frame: Frame) -> Iterator[Frame]:
        """Takes an answer or a question; yields what it sends then."""
        if not frame.flag & ANSWER:
            yield from self._asked(frame)
            return
        waiting = self._waiting.pop(frame.opaque, None)
        if waiting is None:
            assert frame.opaque not in self._answered, "a send is answered twice"
            return
        meant = waiting.meant
        if waiting.what == "send":
            self._answered.add(frame.opaque)
        if waiting.what == "end":
            meant.acknowledged_end |= frame.code == AnswerCode.SUCCESS
        elif frame.code == AnswerCode.SUCCESS:
            meant.place, meant.is_durable = _place(frame), True
            yield from self._sent(meant)
        elif "queueOffset" in frame.fields:  # the disk took too long: a client rolls back
            meant.place = _place(frame)
            meant.outcome = "ROLLBACK"
            yield self._ends(meant, "ROLLBACK", from_check=False)

    def _sent(self, meant: Meant) -> Iterator[Frame]:
        if self.manner == "lying":
            yield self._lies(meant)
            if self._random.random() < 0.5:
                yield self._ends(meant, _opposite(meant.outcome), from_check=False)
        if self.manner != "silent":
            yield self._ends(meant, meant.outcome, from_check=False)
        if self.manner == "repeating":
            yield self._ends(meant, meant.outcome, from_check=False)

    def _asked(self, frame: Frame) -> Iterator[Frame]:
        """A question: the header's place and the message's own group and key say whose it is."""
        header = CheckTransactionState.read(frame.fields)
        message, _ = Message.read(frame.body)
        assert f"PGROUP\x01{self.group}\x02".encode() in message.properties, "asked in another group's name"
        meant = self.meant.get(header.transaction_id or "")
        assert meant is not None, "asked about a transaction that its group has not sent"
        meant.asked += 1
        meant.place, meant.is_durable = (header.tran_state_table_offset, header.commit_log_offset), True
        knows = self.manner != "silent" or self._random.random() < 0.5
        yield self._ends(meant, meant.outcome if knows else None, from_check=True)


def _opposite(outcome: Outcome) -> Outcome:
    return "ROLLBACK" if outcome == "COMMIT" else "COMMIT"


def _place(answer: Frame) -> tuple[int, int]:
    return int(answer.fields["queueOffset"]), int(answer.fields["msgId"][-16:], 16)
