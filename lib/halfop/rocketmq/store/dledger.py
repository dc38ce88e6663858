"""DLedger's log, which a broker with enableDLegerCommitLog writes instead of its own: known by name, and never read.

Its files lie in dledger-<id>/data and hold entries: magic, size, index, term, the entry's own place, and, after 52
bytes, a record of the broker. A broker that was switched to DLedger keeps its old commit log beside it.
"""

from __future__ import annotations

import struct
from pathlib import Path

from halfop.frame.errors import InputRefused

FOLDERS = "dledger-*"
_MAGICS = (1, 2, 3)  # no record of a commit log is as short
_HEADER = struct.Struct(">iiqqq")


def refusal(path: str | Path) -> InputRefused:
    """Returns the error of what holds DLedger's log."""
    return InputRefused(
        path,
        None,
        "DLedger's log (enableDLegerCommitLog), which frames each record in an entry of its own: land store reads "
        "plain commit logs only",
        "land from the running broker: land broker --namesrv HOST:PORT",
    )


def refuse_folders(root: str | Path) -> None:
    """Raises InputRefused if there is a folder of DLedger's, or if this is one."""
    if Path(root).match(FOLDERS) and (Path(root) / "data").is_dir():
        raise refusal(root)
    for folder in sorted(Path(root).glob(FOLDERS)):
        if (folder / "data").is_dir():
            raise refusal(folder)


def is_entry(start: bytes, at: int) -> bool:
    """Returns whether bytes from a position of the log on begin with one of its entries, which holds its own place."""
    if len(start) < _HEADER.size:
        return False
    magic, *_, place = _HEADER.unpack_from(start)
    return magic in _MAGICS and place == at
