"""Writes broker stores as a broker leaves them: records, the files of the log, and consume queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from halfop.rocketmq import message as m
from halfop.rocketmq.message import Message, Place, host_bytes
from halfop.rocketmq.properties import packed
from halfop.rocketmq.record import MAGIC_V1, MAGIC_V2
from halfop.rocketmq.store.consumequeue import BLANK, PACKED

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
        text = property_bytes(self.properties)
        if self.property_crc and text and not text.endswith(b"\x02"):
            text += b"\x02"
        crc = m.body_crc(self.body) if self.body_crc is None else self.body_crc
        hosts = host_bytes(*self.born_host), host_bytes(*self.store_host)
        more = self.queue_id, self.flag, self.sys_flag, self.reconsume_times, self.prepared_offset
        message = Message(topic, self.body, text, self.born_ms, *hosts, crc, *more)
        form = self.property_crc, MAGIC_V1 if self.version == 1 else MAGIC_V2
        return message.packed(Place(self.queue_offset, physical, message.size(*form), self.store_ms), *form)


def property_bytes(properties: Mapping[str, str] | bytes) -> bytes:
    if isinstance(properties, bytes):
        return properties
    return packed(properties).encode()


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
        counts = record.sys_flag & 0xC not in (4, 0xC)  # CommitLog: prepared and rollback are of no queue
        offset = self.next_offsets.get(queue, record.queue_offset) if counts else 0
        record = replace(record, queue_offset=offset)
        size = len(record.at(0))
        left = self.file_size - (self.end - self.first) % self.file_size
        if size + 8 > left:
            self._write(self.end, m.blank(left))
            self.end += left
        physical = self.end
        self._write(physical, record.at(physical))
        self.end += size
        self.records.append((physical, record))
        if counts:
            self.next_offsets[queue] = offset + 1
        if counts and dispatch and self.queues:
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
        size = self.queue_file_units * PACKED.size
        folder = self.root / "consumequeue" / queue[0] / str(queue[1])
        return folder / f"{offset * PACKED.size // size * size:020d}", offset * PACKED.size % size

    def unit(self, queue: tuple[str, int], offset: int, physical: int, size: int) -> None:
        path, position = self.queue_file(queue, offset)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            blank = BLANK * (0 if any(path.parent.iterdir()) else position // PACKED.size)
            path.write_bytes(blank.ljust(self.queue_file_units * PACKED.size, b"\0"))
        patch(path, position, PACKED.pack(physical, size, 0))

    def tear(self, content: bytes) -> int:
        """Bytes at the log's end that are no whole record."""
        self._write(self.end, content)
        return self.end


def patch(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)
