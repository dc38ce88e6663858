"""Files on every file system that Hadoop knows, for one of Spark's Python workers: the executor's JVM opens them.

`lib/java/halfop/ServedFiles.java` answers, and describes requests. One thread uses a connection.
"""

from __future__ import annotations

import socket
import struct
from itertools import count
from typing import Any

import pyarrow as pa

from halfop.warehouse.disk import NewFile, WrittenFile

_REQUEST, _ANSWER = struct.Struct(">ciqi"), struct.Struct(">?i")
_SECRET = 32
_CONNECT_SECONDS = 60
_LARGE = 1 << 20  # reads and writes of fewer bytes are joined
_LARGEST = 8 << 20
_KINDS = {
    "FileNotFoundException": FileNotFoundError,
    "AccessControlException": PermissionError,
    "AccessDeniedException": PermissionError,
}


class NotServed(OSError):
    """A file could not be read or written now; nothing is known to be wrong with it, so a task may try again."""


class ThroughJava:
    """A task's disk, in its JVM. It is connected with the first file; at its end, files half written are removed."""

    def __init__(self, address: bytes) -> None:
        """The address is what `WorkerFiles.java` puts before the task's records."""
        self._secret, (port,) = address[:_SECRET], struct.unpack_from(">i", address, _SECRET)
        self._at = address[_SECRET + 4 :].decode("ascii"), port
        self._socket: socket.socket | None = None
        self._numbers = count(1)
        self._unused: list[int] = []
        self.closed = False

    def open(self, path: str) -> pa.NativeFile:
        number = next(self._numbers)
        (size,) = struct.unpack(">q", self.ask(b"o", number, path.encode()))
        return pa.PythonFile(_ReadFile(self, number, size), "r")

    def create(self, path: str) -> NewFile:
        """A file whose name is like no other's."""
        return _NewFile(self, next(self._numbers), path)

    def ask(self, what: bytes, number: int, payload: Any = b"") -> bytes:
        """Returns the answer to a request that brings these bytes."""
        self._send(what, number, 0, len(payload), payload)
        return bytes(self._received(self._answered()))

    def read_into(self, number: int, position: int, target: memoryview) -> None:
        """Fills the target with the file's bytes from a position on."""
        for start in range(0, len(target), _LARGEST):
            part = target[start : start + _LARGEST]
            self._send(b"r", number, position + start, len(part))
            self._answered()
            self._receive(part)

    def leave(self, number: int) -> None:
        """A file that is no longer read is closed with the next request: this may be called in the middle of one."""
        self._unused.append(number)

    def _send(self, what: bytes, number: int, position: int, size: int, payload: Any = b"") -> None:
        while self._unused and what != b"e":
            self.ask(b"e", self._unused.pop())
        head = _REQUEST.pack(what, number, position, size)
        if len(payload) < _LARGE:
            self._connected().sendall(head + bytes(payload))
        else:
            self._connected().sendall(head)
            self._connected().sendall(payload)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._at, _CONNECT_SECONDS)
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(self._secret)
        return self._socket

    def _answered(self) -> int:
        """Returns how many bytes follow of an answer; raises the error that it is instead."""
        failed, size = _ANSWER.unpack(self._received(_ANSWER.size))
        if failed:
            raise _error(self._received(size).decode())
        found: int = size
        return found

    def _received(self, size: int) -> bytearray:
        target = bytearray(size)
        self._receive(memoryview(target))
        return target

    def _receive(self, target: memoryview) -> None:
        received = 0
        while received < len(target):
            number = self._connected().recv_into(target[received:], 0, socket.MSG_WAITALL)
            if not number:
                raise NotServed("the executor's JVM has ended the connection by which this task gets its files")
            received += number

    def __enter__(self) -> ThroughJava:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True
        if self._socket is not None:
            self._socket.close()


class _ReadFile:
    """A file as PyArrow reads it. Small reads are from a window of what lies near: a store of objects answers late."""

    closed = False

    def __init__(self, java: ThroughJava, number: int, size: int) -> None:
        self._java, self._number, self._size, self._at = java, number, size, 0
        self._window, self._start = pa.py_buffer(b""), 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, number: int = -1) -> pa.Buffer:
        start = min(self._at, self._size)
        end = self._size if number < 0 else min(start + number, self._size)
        self._at = end
        if end - start >= _LARGE:
            return self._bytes(start, end)
        if start < self._start or end > self._start + self._window.size:
            self._start = start // _LARGE * _LARGE
            self._window = self._bytes(self._start, min(self._size, -(-end // _LARGE) * _LARGE))
        return self._window.slice(start - self._start, end - start)

    read_buffer = read

    def _bytes(self, start: int, end: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(end - start)
        self._java.read_into(self._number, start, memoryview(buffer))
        return buffer

    def close(self) -> None:
        """It is closed when nobody refers to it."""

    def __del__(self) -> None:
        self._java.leave(self._number)


class _NewFile:
    """It is made when its first bytes are sent."""

    closed = False

    def __init__(self, java: ThroughJava, number: int, path: str) -> None:
        self._java, self._number, self._path = java, number, path
        self._held, self._is_made = bytearray(), False

    @property
    def stream(self) -> Any:
        return self

    def write(self, content: Any) -> int:
        if self._java.closed:  # the task has failed, and PyArrow ends the files that it finds open
            return len(content)
        if len(content) < _LARGE:
            self._held += content
        if len(self._held) >= _LARGE or len(content) >= _LARGE:
            self._send_held()
        if len(content) >= _LARGE:
            self._append(memoryview(content))
        return len(content)

    def flush(self) -> None:
        """Everything is there when the file is closed."""

    def begin_to_close(self) -> None:
        self._send_held()
        self._java.ask(b"f", self._number)

    def close(self) -> WrittenFile:
        self._send_held()
        size, modified = struct.unpack(">qq", self._java.ask(b"e", self._number))
        return WrittenFile(self._path, size, modified)

    def _send_held(self) -> None:
        self._append(memoryview(self._held))
        self._held = bytearray()

    def _append(self, content: memoryview) -> None:
        if not self._is_made:
            self._java.ask(b"c", self._number, self._path.encode())
            self._is_made = True
        for start in range(0, len(content), _LARGEST):
            self._java.ask(b"w", self._number, content[start : start + _LARGEST])


def _error(text: str) -> OSError:
    kind = text.partition(":")[0].rpartition(".")[2]
    return _KINDS.get(kind, NotServed)(text)
