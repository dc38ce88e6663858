"""Writes broker stores byte for byte as RocketMQ lays records out, knowing nothing of the code that reads them."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
HALF, OP, DISCARD = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
HALF_QUEUE = (HALF, 0)
BORN_MS = 1_750_000_000_000


@dataclass(frozen=True)
class Record:
    """A message to be written; properties as a mapping or as the bytes themselves."""

    topic: str | bytes = "orders"
    body: bytes = b"body"
    properties: Mapping[str, str] | bytes = field(default_factory=dict)
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    sys_flag: int = 0
    born_ms: int = BORN_MS
    born_host: tuple[str, int] = ("10.0.0.1", 40000)
    store_ms: int = BORN_MS + 1
    store_host: tuple[str, int] = ("10.0.0.2", 10911)
    reconsume_times: int = 0
    prepared_offset: int = 0
    version: int = 1
    property_crc: bool = False
    body_crc: int | None = None

    def at(self, physical: int) -> bytes:
        """The record's bytes at that physical offset."""
        topic = self.topic.encode() if isinstance(self.topic, str) else self.topic
        topic_length = struct.pack(">B" if self.version == 1 else ">H", len(topic))
        text = property_bytes(self.properties)
        if self.property_crc:
            text += (b"\x02" if text and not text.endswith(b"\x02") else b"") + bytes(20)
        crc = zlib.crc32(self.body) & 0x7FFFFFFF if self.body_crc is None else self.body_crc
        born, store = host_bytes(self.born_host), host_bytes(self.store_host)
        sys_flag = self.sys_flag | (0x10 if len(born) == 20 else 0) | (0x20 if len(store) == 20 else 0)
        rest = (
            struct.pack(">iiiqqi", crc, self.queue_id, self.flag, self.queue_offset, physical, sys_flag)
            + struct.pack(">q", self.born_ms)
            + born
            + struct.pack(">q", self.store_ms)
            + store
            + struct.pack(">iq", self.reconsume_times, self.prepared_offset)
            + struct.pack(">i", len(self.body))
            + self.body
            + topic_length
            + topic
            + struct.pack(">h", len(text))
            + text
        )
        whole = struct.pack(">iI", len(rest) + 8, V1 if self.version == 1 else V2) + rest
        return whole[:-20] + crc_property(whole[:-20]) if self.property_crc else whole


def property_bytes(properties: Mapping[str, str] | bytes) -> bytes:
    if isinstance(properties, bytes):
        return properties
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in properties.items())


def crc_property(covered: bytes) -> bytes:
    digits = f"{zlib.crc32(covered) & 0x7FFFFFFF:010d}"[::-1]
    return b"__CRC32#\x01" + digits.encode() + b"\x02"


def host_bytes(host: tuple[str, int]) -> bytes:
    family = socket.AF_INET6 if ":" in host[0] else socket.AF_INET
    return socket.inet_pton(family, host[0]) + struct.pack(">i", host[1])


def half(n: int, **more: object) -> Record:
    """The nth half message."""
    properties = {
        "UNIQ_KEY": f"{n:032X}",
        "REAL_TOPIC": "orders",
        "REAL_QID": str(n % 4),
        "PGROUP": "pg",
        "TRAN_MSG": "true",
        "TAGS": "a",
        "KEYS": f"k{n}",
    }
    return replace(Record(HALF, b"body %d" % n, properties), **more)  # type: ignore[arg-type]


def op(body: str, **more: object) -> Record:
    return replace(Record(OP, body.encode(), {"TAGS": "d"}), **more)  # type: ignore[arg-type]


def gateway_op(offset: int, outcome: str, **more: str | None) -> Record:
    """An op message of a gateway, which says how the half message ended."""
    said = {
        "TAGS": "d",
        "END_OUTCOME": outcome,
        "END_FROM_CHECK": "true",
        "END_GROUP": "pg",
        "END_TRANSACTION_ID": f"{offset:032X}",
        "END_STATE_TABLE_OFFSET": str(offset),
        "END_COMMIT_LOG_OFFSET": str(offset * 100),
        **more,
    }
    return Record(OP, str(offset).encode(), {name: text for name, text in said.items() if text is not None})


def final(n: int, prepared_offset: int, **more: object) -> Record:
    properties = {"UNIQ_KEY": f"{n:032X}", "TRAN_MSG": "true", "PGROUP": "pg"}
    record = Record("orders", b"body %d" % n, properties, sys_flag=8, prepared_offset=prepared_offset, queue_id=n % 4)
    return replace(record, **more)  # type: ignore[arg-type]


def discard(n: int, **more: object) -> Record:
    properties = {"UNIQ_KEY": f"{n:032X}", "PGROUP": "pg", "TRANSACTION_CHECK_TIMES": "15"}
    return replace(Record(DISCARD, b"body %d" % n, properties), **more)  # type: ignore[arg-type]


@dataclass
class Store:
    """A store on disk. Records are appended as a broker appends them, each with the next offset of its queue."""

    root: Path
    file_size: int = 1 << 16
    queue_file_units: int = 100
    first: int = 0
    queues: bool = True
    end: int = field(init=False)
    records: list[tuple[int, Record]] = field(init=False, default_factory=list)
    next_offsets: dict[tuple[str, int], int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.end = self.first
        (self.root / "commitlog").mkdir(parents=True)
        if self.queues:
            (self.root / "consumequeue").mkdir()

    def append(self, record: Record, dispatch: bool = True) -> int:
        """The record's physical offset."""
        queue = (str(record.topic), record.queue_id)
        offset = self.next_offsets.get(queue, record.queue_offset)
        record = replace(record, queue_offset=offset)
        size = len(record.at(0))
        left = self.file_size - (self.end - self.first) % self.file_size
        if size + 8 > left:
            self._write(self.end, struct.pack(">iI", left, BLANK))
            self.end += left
        physical = self.end
        self._write(physical, record.at(physical))
        self.end += size
        self.next_offsets[queue] = offset + 1
        self.records.append((physical, record))
        if dispatch and self.queues:
            self.unit(queue, offset, physical, size)
        return physical

    def extend(self, records: Iterable[Record]) -> list[int]:
        return [self.append(record) for record in records]

    def places(self, kind: str) -> list[int]:
        """Where the records of a kind are; all in topic orders are committed."""
        topics = {"half": HALF, "op": OP, "final": "orders", "discard": DISCARD}
        return [place for place, record in self.records if record.topic == topics[kind]]

    def size(self, place: int) -> int:
        return next(len(record.at(0)) for at, record in self.records if at == place)

    def log_file(self, physical: int) -> tuple[Path, int]:
        """The file of a physical offset, and the position in it."""
        position = (physical - self.first) % self.file_size
        return self.root / "commitlog" / f"{physical - position:020d}", position

    def _write(self, physical: int, content: bytes) -> None:
        path, position = self.log_file(physical)
        if not path.exists():
            path.write_bytes(bytes(self.file_size))
        patch(path, position, content)

    def queue_file(self, queue: tuple[str, int], offset: int) -> tuple[Path, int]:
        """The file of a unit, and the position in it."""
        size = self.queue_file_units * 20
        folder = self.root / "consumequeue" / queue[0] / str(queue[1])
        return folder / f"{offset * 20 // size * size:020d}", offset * 20 % size

    def unit(self, queue: tuple[str, int], offset: int, physical: int, size: int) -> None:
        path, position = self.queue_file(queue, offset)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            blank = struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * (0 if any(path.parent.iterdir()) else position // 20)
            path.write_bytes(blank.ljust(self.queue_file_units * 20, b"\0"))
        patch(path, position, struct.pack(">qiq", physical, size, 0))

    def tear(self, content: bytes) -> int:
        """Bytes at the log's end that are no whole record."""
        self._write(self.end, content)
        return self.end


def patch(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)
