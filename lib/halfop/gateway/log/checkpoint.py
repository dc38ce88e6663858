"""The checkpoint: how far log and consume queues are surely on the disk and sound. In the form of a broker's own."""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from halfop.gateway.log.disk import replace_file

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
    content = path.read_bytes() if path.exists() else b""
    if len(content) < _FIELDS.size:
        return Checkpoint()
    newest_ms, _, _, _, checked = _FIELDS.unpack_from(content)
    return Checkpoint(checked, newest_ms)


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    newest, checked = checkpoint.newest_ms, checkpoint.checked
    replace_file(folder / _FILE, _FIELDS.pack(newest, newest, 0, 0, checked).ljust(_SIZE, b"\0"))
