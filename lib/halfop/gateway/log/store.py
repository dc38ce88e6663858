"""A store beside its log: its owner, checkpoint and topic table, and the rule for how long its files are kept."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from time import time
from typing import NamedTuple

from halfop.frame.errors import InputRefused, WarehouseBusy
from halfop.gateway.core.messages import Topic
from halfop.gateway.core.reads import config_of
from halfop.gateway.log.files import LogFiles, replace_file, whole_file
from halfop.gateway.log.queues import LogQueue, Queues
from halfop.gateway.log.records import store_ms_at
from halfop.rocketmq.names import GATEWAY_FILE, HALF_TOPIC, OP_TOPIC

# ---- its owner ----


_FLOCK = struct.Struct("hhqqi4x")


@dataclass(frozen=True)
class Identity:
    """The store's owner: the gateway's name, and an id of its own that was made with the store."""

    name: str
    created: str


class StoreLock:
    """The exclusive lock of a store, which a real broker takes too; it ends with the process."""

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # of the open file, not of the process: closing another descriptor of it keeps the lock
            whole = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            fcntl.fcntl(self._handle, fcntl.F_OFD_SETLK, whole)
        except OSError as error:
            os.close(self._handle)
            raise WarehouseBusy(f"{folder}: another gateway or broker has this store open; stop it first") from error

    def release(self) -> None:
        os.close(self._handle)


def identity(folder: Path, name: str) -> Identity:
    """The store's identity, which is made with an empty store. Raises InputRefused if it is of another name."""
    path = folder / GATEWAY_FILE
    if not path.exists():
        if any(folder.glob("commitlog/*")):
            raise InputRefused(folder, None, "a store that no gateway has made", "give --store an empty folder")
        replace_file(path, json.dumps({"name": name, "created": uuid.uuid4().hex}).encode())
    try:
        read = json.loads(whole_file(path))
        found = Identity(str(read["name"]), str(read["created"]))
    except (ValueError, LookupError, TypeError) as error:
        raise InputRefused(path, None, "no gateway's identity can be read from it", "restore the file") from error
    if found.name != name:
        problem = f"the store of gateway {found.name}, not of {name}"
        raise InputRefused(
            folder, None, problem, "its messages have landed under that name: keep it, or take a new folder"
        )
    return found


# ---- the checkpoint: in the form of a broker's own ----


_FILE, _SIZE = "checkpoint", 4096
# store times of log, queues and index; what a slave flushed; the offset up to which the log is confirmed
_FIELDS = Struct(">qqqqq")


class Checkpoint(NamedTuple):
    """All before `checked` is durable in log and consume queues; `newest_ms` is the last store time there."""

    checked: int = 0
    newest_ms: int = 0


def read_checkpoint(folder: Path) -> Checkpoint:
    """The last checkpoint; zeros if there is none."""
    path = folder / _FILE
    content = whole_file(path) if path.exists() else b""
    if len(content) < _FIELDS.size:
        return Checkpoint()
    newest_ms, _, _, _, checked = _FIELDS.unpack_from(content)
    return Checkpoint(checked, newest_ms)


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    newest, checked = checkpoint.newest_ms, checkpoint.checked
    replace_file(folder / _FILE, _FIELDS.pack(newest, newest, 0, 0, checked).ljust(_SIZE, b"\0"))


# ---- the topic table: in the form of a broker's own ----


_OWN = {HALF_TOPIC: Topic(1, 1), OP_TOPIC: Topic(1, 1)}


class TopicTable:
    """The topics of a store. One thread changes it, and one makes that durable by `write`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "config" / "topics.json"
        self._path.parent.mkdir(exist_ok=True)
        self._topics, self._counter = self._read() if self._path.exists() else ({}, 0)
        self._changed = not _OWN.keys() <= self._topics.keys()
        self._topics = _OWN | self._topics
        self.write()

    @property
    def all(self) -> Mapping[str, Topic]:
        return self._topics

    def put(self, name: str, topic: Topic) -> None:
        """Adds or changes a topic."""
        if self._topics.get(name) != topic:
            self._topics[name] = topic
            self._changed = True

    def set_queues(self, names: Iterable[str], queues: int) -> None:
        """Has these topics and all others take messages in so many queues; what has more of them can still be read."""
        found = dict(self._topics)
        for name in {*names, *self._topics} - _OWN.keys():
            known = self._topics.get(name, Topic(0, 0))
            found[name] = known._replace(read_queues=max(queues, known.read_queues), write_queues=queues)
        if found != self._topics:
            self._topics.update(found)
            self._changed = True

    def _read(self) -> tuple[dict[str, Topic], int]:
        try:
            read = json.loads(whole_file(self._path))
            table = read["topicConfigTable"]
            topics = {name: Topic(t["readQueueNums"], t["writeQueueNums"], t["perm"]) for name, t in table.items()}
            return topics, int(read["dataVersion"]["counter"])
        except (ValueError, LookupError, TypeError) as error:
            raise InputRefused(self._path, None, "no topic table can be read from it", "restore the file") from error

    def write(self) -> None:
        """Makes all changes durable."""
        if not self._changed:
            return
        self._changed = False  # first: what is changed meanwhile is written by the next call
        self._counter += 1
        version = {"counter": self._counter, "stateVersion": 0, "timestamp": int(time() * 1000)}
        table = {name: config_of(name, topic) for name, topic in dict(self._topics).items()}
        content = {"dataVersion": version, "topicConfigTable": table}
        replace_file(self._path, json.dumps(content, indent=1).encode())


# ---- how long files are kept ----


# The offset after the last message that has landed, by topic and queue, as landing_progress has it. A landing from the
# store's files has one entry for the whole log, whose offsets are physical ones.
Landed = Mapping[tuple[str, int], int]
WHOLE_LOG = ("commitlog", 0)


class Reserve(NamedTuple):
    """Reasons to keep files: half messages from `first_open` on are open, and those stored since `since_ms` may be."""

    first_open: int
    since_ms: int


def removable_to(files: LogFiles, queues: Queues, flushed_to: int, landed: Landed, reserve: Reserve) -> int:
    """The physical offset before which all files may go: the log's first one if none may.

    The newest file stays, also when it is full: without a file a start would not know where the log ends.
    """
    end = files.first
    while end + files.size < flushed_to and _may_go(files, queues, end + files.size, landed, reserve):
        end += files.size
    return end


def _may_go(files: LogFiles, queues: Queues, end: int, landed: Landed, reserve: Reserve) -> bool:
    """Returns whether the file that ends there may go; those before it may."""
    if not (landed.get(WHOLE_LOG, 0) >= end or all(_has_landed(queue, end, landed) for queue in queues)):
        return False
    following = store_ms_at(files, end)
    return end <= reserve.first_open or (following is not None and following < reserve.since_ms)


def _has_landed(queue: LogQueue, end: int, landed: Landed) -> bool:
    return queue.first_from(end) <= max(landed.get((queue.topic, queue.number), 0), queue.first)
