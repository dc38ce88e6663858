"""A small producer of transactional messages in Python: for the demo, for tests, and to try a gateway or a broker out.

It speaks to one address and keeps no messages. Use RocketMQ's own clients in production.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from threading import Lock, Thread
from types import MappingProxyType, TracebackType
from typing import Literal, NamedTuple

import orjson

from halfop.frame.errors import TransientError
from halfop.rocketmq import names
from halfop.rocketmq import requests as r
from halfop.rocketmq.frames import ANSWER, ONE_WAY, BadFrame, Frame, Splitter
from halfop.rocketmq.message import Message
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.properties import packed, unpacked
from halfop.rocketmq.wire.remoting import Credentials, endpoint

Answer = Literal["COMMIT", "ROLLBACK", "UNKNOWN"]
_KINDS: Mapping[Answer, int] = {
    "COMMIT": r.COMMIT_TYPE,
    "ROLLBACK": r.ROLLBACK_TYPE,
    "UNKNOWN": r.NOT_TYPE,
}
_MOST_BYTES, _RECEIVED = 64 << 20, 1 << 16
_HEARTBEAT_SECONDS, _ANSWER_SECONDS = 20.0, 15.0
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Refusal(TransientError):
    """The server answered with an error."""

    def __init__(self, code: int, remark: str) -> None:
        self.code, self.remark = code, remark
        super().__init__(f"answered with code {code}: {remark}")


class StoredHalf(NamedTuple):
    """A half message as the server has stored it: what its end must name."""

    topic: str
    transaction_id: str
    queue_offset: int
    physical_offset: int


class Question(NamedTuple):
    """The server's question about a half message, with the message."""

    sent: StoredHalf
    body: bytes
    properties: Mapping[str, str]


class Producer:
    """A producer of a group. `answer` decides what to answer when it is asked; it is called in a thread of its own."""

    def __init__(
        self,
        address: str,
        group: str,
        answer: Callable[[Question], Answer],
        credentials: Credentials | None = None,
    ) -> None:
        self._group, self._answer, self._credentials = group, answer, credentials
        self._client = f"halfop-{secrets.token_hex(4)}"
        self._socket = socket.create_connection(endpoint(address), _ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(_HEARTBEAT_SECONDS)
        self._lock, self._opaque, self._closed = Lock(), 0, False
        self._answers: dict[int, Future[Frame]] = {}
        self._thread = Thread(target=self._receive, name=f"producer-{group}", daemon=True)
        self._thread.start()
        try:
            self.heartbeat()
        except TransientError:
            self._disconnect()
            raise

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- what a producer does ----

    def transaction(
        self, topic: str, body: bytes, local: Callable[[StoredHalf], Answer], properties: Mapping[str, str] = _NOTHING
    ) -> StoredHalf:
        """Sends a half message, does the local transaction, and ends the message as that says."""
        sent = self.send(topic, body, properties)
        self.end(sent, local(sent))
        return sent

    def send(self, topic: str, body: bytes, properties: Mapping[str, str] = _NOTHING) -> StoredHalf:
        """Sends a half message. Raises Refusal."""
        uniq = properties.get(names.UNIQ_KEY, secrets.token_hex(16).upper())
        own = {names.TRAN_MSG: "true", names.PRODUCER_GROUP: self._group, names.UNIQ_KEY: uniq}
        now, flag = int(time.time() * 1000), names.TRANSACTION_PREPARED
        text = packed({**properties, **own})
        header = r.SendMessageV2(self._group, topic, 0, flag, now, 0, properties=text)
        found = r.Sent.read(self.ask(header, body).fields)
        return StoredHalf(topic, found.transaction_id, found.queue_offset, int(found.msg_id[-16:], 16))

    def end(self, sent: StoredHalf, answer: Answer, from_check: bool = False) -> None:
        """Ends the half message. As RocketMQ's clients do, it waits for no answer."""
        self._send(self._ending(sent, answer, from_check), ONE_WAY)

    def end_surely(self, sent: StoredHalf, answer: Answer, from_check: bool = False) -> None:
        """Ends the half message, and waits until the server has it. Raises Refusal."""
        self.ask(self._ending(sent, answer, from_check))

    def heartbeat(self) -> None:
        """Says that this producer is there to be asked."""
        data = {"clientID": self._client, "consumerDataSet": [], "producerDataSet": [{"groupName": self._group}]}
        self.ask(r.HeartBeat(), orjson.dumps(data))

    def close(self) -> None:
        """Says goodbye, and closes the connection."""
        with suppress(TransientError):
            self.ask(r.UnregisterClient(self._client, self._group))
        self._disconnect()

    def _disconnect(self) -> None:
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    # ---- frames ----

    def ask(self, header: r.Header, body: bytes = b"") -> Frame:
        """The answer to a request. Raises Refusal, or TransientError if there is none."""
        future = self._send(header, 0, body)
        try:
            found = future.result(_ANSWER_SECONDS)
        except (FutureTimeout, ConnectionError) as error:
            raise TransientError(f"no answer to request {header.code}: {error}") from error
        if found.code != AnswerCode.SUCCESS:
            raise Refusal(found.code, found.remark)
        return found

    def _ending(self, sent: StoredHalf, answer: Answer, from_check: bool) -> r.EndTransaction:
        place, key = (sent.queue_offset, sent.physical_offset), sent.transaction_id
        return r.EndTransaction(self._group, *place, _KINDS[answer], from_check, key, key, sent.topic)

    def _send(self, header: r.Header, flag: int, body: bytes = b"") -> Future[Frame]:
        future: Future[Frame] = Future()
        fields = header.fields()
        signed = self._credentials.signed(fields, body) if self._credentials else fields
        with self._lock:
            if self._closed:
                raise TransientError("the connection is closed")
            self._opaque += 1
            if not flag & ONE_WAY:
                self._answers[self._opaque] = future
            try:
                self._socket.sendall(Frame(header.code, flag, self._opaque, signed, body=body).packed())
            except OSError as error:
                raise TransientError(f"the connection is lost: {error}") from error
        return future

    def _receive(self) -> None:
        splitter, heard = Splitter(_MOST_BYTES), time.monotonic()
        with suppress(OSError, BadFrame):
            while True:
                try:
                    data = self._socket.recv(_RECEIVED)
                except TimeoutError:
                    data = None
                if data == b"":
                    break
                for request in splitter.feed(data or b""):
                    self._take(request)
                if time.monotonic() - heard > _HEARTBEAT_SECONDS and not self._closed:
                    heard = time.monotonic()
                    Thread(target=self._quiet_heartbeat, daemon=True).start()
        with self._lock:
            self._closed = True
        for future in self._answers.values():
            future.set_exception(ConnectionError("the connection ended"))

    def _quiet_heartbeat(self) -> None:
        with suppress(TransientError):
            self.heartbeat()

    def _take(self, request: Frame) -> None:
        if request.flag & ANSWER:
            future = self._answers.pop(request.opaque, None)
            if future is not None:
                future.set_result(request)
        elif request.code == r.CheckTransactionState.code:
            Thread(target=self._answer_question, args=(request,), daemon=True).start()

    def _answer_question(self, request: Frame) -> None:
        question = question_of(request)
        with suppress(TransientError):
            self.end(question.sent, self._answer(question), from_check=True)


def question_of(request: Frame) -> Question:
    """The question that a frame holds."""
    asked = r.CheckTransactionState.read(request.fields)
    message, _ = Message.read(request.body, checked=False)
    sent = StoredHalf(
        message.topic.decode(), asked.transaction_id, asked.tran_state_table_offset, asked.commit_log_offset
    )
    return Question(sent, message.body, unpacked(message.properties.decode()))
