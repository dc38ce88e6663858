"""QUERY_MESSAGE: messages by their UNIQ_KEY, or by one of their KEYS, as far as the log still has them."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import partial

from halfop.gateway.core.accounts import GET, SUB, Account, check_may
from halfop.gateway.core.effects import LogView
from halfop.gateway.core.reads import Description
from halfop.gateway.core.refusals import Refused, header_of
from halfop.rocketmq import names
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.message import Message, Place, body_crc
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.properties import packed, unpacked
from halfop.rocketmq.requests import QueryMessage
from halfop.rocketmq.tool_requests import Queried

_MOST, _MOST_UNIQUE = 64, 32
_MOST_BYTES = 8 << 20  # of an answer
OPEN = "OPEN"  # END_OUTCOME of a half message that has not ended


class Keys:
    """Answers to QUERY_MESSAGE; each is a search that may be called in any thread."""

    def __init__(self, log: LogView, broker: Description) -> None:
        self._log, self._broker = log, broker

    def query(self, request: Frame, account: Account | None) -> bytes:
        """The answer. A half message that is not committed comes in its real topic, with END_OUTCOME.

        mqadmin shows no error's remark. So that what was removed from the log is not merely "no message", the answer
        is then a message that says so.
        """
        asked = header_of(QueryMessage, request)
        check_may(account, asked.topic, SUB, GET)
        most = _MOST_UNIQUE if asked.unique else min(max(asked.max_num, 1), _MOST)
        wanted, times = partial(_is_wanted, asked), (asked.begin_timestamp, asked.end_timestamp)
        # of a committed message its half message is found, too
        found = self._log.find(_text(asked), wanted, *times, 2 * most)
        shown = [each for each in (self._shown(asked, record) for record in found.records) if each][:most]
        if not shown and found.since_ms is not None:
            shown = [self._note(asked, found.since_ms)]
        if not shown:
            raise Refused(AnswerCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
        header = Queried(self._log.readable_ms(), self._log.flushed_to)
        return request.answer(AnswerCode.SUCCESS, header.fields(), body=b"".join(_few(shown)))

    def _shown(self, asked: QueryMessage, record: bytes) -> bytes | None:
        """The record as it is shown; None for the half message of a final one, which is shown itself."""
        message, place = Message.read(record)
        if message.topic.decode() == asked.topic:
            return record
        half = self._log.half_at(place.physical_offset)
        outcome = self._log.outcome(half) if half else None
        if half is None or outcome == "COMMIT":
            return None
        kind = names.TRANSACTION_ROLLBACK if outcome else names.TRANSACTION_PREPARED
        said = message.properties + packed({names.END_OUTCOME: outcome or OPEN}).encode()
        moved = message._replace(topic=half.topic.encode(), sys_flag=message.sys_flag | kind, properties=said)
        return moved.packed(place._replace(size=moved.size()))

    def _note(self, asked: QueryMessage, since_ms: int) -> bytes:
        """A message that says that the one asked for may have been removed."""
        since = datetime.fromtimestamp(since_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        hint = f"`explain {asked.key}`" if asked.unique else "half_messages, column keys"
        text = f"not in the log since {since}: if older, it has landed: ask {hint}"
        # mqadmin shows the properties of what it finds by UNIQ_KEY, but of what it finds by KEYS only the UNIQ_KEY
        told = {names.KEYS: asked.key, names.UNIQ_KEY: asked.key if asked.unique else text, "NOTE": text}
        body, host = text.encode(), self._broker.store_host
        note = Message(asked.topic.encode(), body, packed(told).encode(), since_ms, host, host, body_crc(body))
        return note.packed(Place(0, 0, note.size(), since_ms))


def _text(asked: QueryMessage) -> bytes:
    """Bytes that a record with the key has."""
    return (packed({names.UNIQ_KEY: asked.key}) if asked.unique else asked.key).encode()


def _is_wanted(asked: QueryMessage, record: bytes) -> bool:
    message, place = Message.read(record)
    properties, topic = unpacked(message.properties.decode(errors="replace")), message.topic.decode()
    keys = [properties.get(names.UNIQ_KEY)] if asked.unique else properties.get(names.KEYS, "").split(" ")
    is_of_topic = asked.topic in (topic, properties.get(names.REAL_TOPIC) if topic == names.HALF_TOPIC else None)
    return is_of_topic and asked.key in keys and asked.begin_timestamp <= place.store_ms <= asked.end_timestamp


def _few(records: list[bytes]) -> list[bytes]:
    """The first one, and those that still fit into a frame that clients take."""
    size, kept = 0, list[bytes]()
    for each in records:
        size += len(each)
        if kept and size > _MOST_BYTES:
            break
        kept.append(each)
    return kept
