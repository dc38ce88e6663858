"""A broker's store of which bytes were harmed: no wrong row, no silent loss, and no other error than a refusal."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

from halfop.frame.errors import InputRefused
from halfop.rocketmq.store import commitlog

from support.brokers.store_reader import Read, filled, read_all
from support.brokers.store_writer import Store, final, half, op
from support.fuzzed.target import SHARED, Draws, Target, refused_by

_KINDS = (
    *("flip", "noise", "zero", "zero tail", "truncate", "delete", "delete, same size", "duplicate", "overwrite"),
    "swap",
)
_LENGTHS = (1, 4, 20, 100, 240, 1000)
_WINDOW = 1500
_PARTS = 1 << 16


@dataclass(frozen=True)
class Harm:
    """A change to one of the store's files; places and lengths as parts of what there is."""

    file: float
    what: str
    at: float
    other: float
    length: int
    noise: bytes

    def to(self, content: bytes) -> bytes:
        """Returns a file's content after the harm."""
        used = max(len(content.rstrip(b"\0")), 1)  # mostly where something is
        at, other = int(self.at * used), int(self.other * used)
        low, high = sorted((at, other))
        part = content[at : at + self.length]
        after, flipped = content[at + len(part) :], bytes(b ^ n for b, n in zip(part, self.noise, strict=False))
        changed = {
            "flip": content[:at] + flipped + content[at + len(flipped) :],
            "noise": content[:at] + self.noise + content[at + len(self.noise) :],
            "zero": content[:at] + bytes(len(part)) + after,
            "zero tail": content[:at] + bytes(len(content) - at),
            "truncate": content[:at],
            "delete": content[:at] + after,
            "delete, same size": (content[:at] + after).ljust(len(content), b"\0"),
            "duplicate": content[:at] + part + part + after,
            "overwrite": content[:other] + part + content[other + len(part) :],
            "swap": content[:low]
            + content[high:][:20]
            + content[low + 20 : high]
            + content[low:][:20]
            + content[high + 20 :],
        }
        return changed[self.what]


def stretch(content: bytes) -> None:
    """Rows of a harmed store are rows of the sound one; what is lost lies within a fault that is named."""
    draws = Draws(content)
    skip, size = draws.below(2) == 1, (_WINDOW, 1 << 20)[draws.below(2)]
    harms = [_harm(draws) for _ in range(1 + draws.below(3))]
    with tempfile.TemporaryDirectory(dir=SHARED) as folder, patch.object(commitlog, "WINDOW", _WINDOW):
        root = Path(folder) / "store"
        store, files = _sound()
        _write(root, files, harms)
        found = list[Read]()
        refusal = refused_by((InputRefused,), lambda: found.append(read_all(root, skip, size)))
        assert refusal is None or refusal.path.startswith(str(root))
    for each in found:
        _rows_are_the_originals(store, each)
        if skip and len(harms) == 1:
            _losses_are_told(store, each)


def _harm(draws: Draws) -> Harm:
    file, at, other = (draws.below(_PARTS) / _PARTS for _ in range(3))
    what, length = _KINDS[draws.below(len(_KINDS))], _LENGTHS[draws.below(len(_LENGTHS))]
    return Harm(file, what, at, other, length, draws.take(1 + draws.below(8)) or b"\1")


@cache
def _sound() -> tuple[Store, Mapping[str, bytes]]:
    """A store with records of every kind and form, and its files."""
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        made = filled(Path(folder) / "store", 10, file_size=4096, queue_file_units=8)
        for n in range(10, 16):
            body = bytes(range(n))
            place = made.append(half(n, property_crc=n % 2 == 0, version=2, born_host=("::1", 5), body=body))
            made.append(final(n, place, property_crc=n % 3 == 0, store_host=("fe80::1", 9)))
        made.append(op("10,11,"))
        files = sorted(path for path in made.root.rglob("*") if path.is_file())
        return made, {str(path.relative_to(made.root)): path.read_bytes() for path in files}


def _write(root: Path, files: Mapping[str, bytes], harms: Sequence[Harm]) -> None:
    names, harmed = list(files), dict(files)
    for harm in harms:
        at = harm.file * len(names) if harm.file < 0.5 else (harm.file - 0.5) * 6
        harmed[names[int(at)]] = harm.to(harmed[names[int(at)]])
    for name, content in harmed.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _rows_are_the_originals(store: Store, found: Read) -> None:
    originals = {place: (store.size(place), record) for place, record in store.records}
    for kind, rows in found.rows.items():
        assert len({(row["queue_id"], row["queue_offset"], row.get("topic")) for row in rows}) == len(rows)
        for row, place in zip(rows, found.places(kind), strict=True):
            size, record = originals[place]
            assert (row["queue_id"], row["queue_offset"]) == (record.queue_id, record.queue_offset)
            assert row.get("record_size", size) == size
            assert "body" not in row or row["body"] == (record.body if kind == "half" else record.body.decode())


def _losses_are_told(store: Store, found: Read) -> None:
    """Losses of topics that land as a whole are reported. (Nothing protects a final's sysFlag, by which it is one.)"""
    for kind in ("half", "op", "discard"):
        for place in set(store.places(kind)) - set(found.places(kind)):
            told = any(fault.physical <= place < fault.lost_until for fault in found.faults)
            assert told or place >= found.plan.end


def _harms() -> Iterator[bytes]:
    for n in range(len(_KINDS)):
        for skip in range(2):
            place = (n * 6007 + skip * 20011) % _PARTS
            parts = b"".join(each.to_bytes(2, "little") for each in (0x8000 + n * 3000, place, place // 2))
            yield bytes([skip, n % 2, 0]) + parts + bytes([n, n % 6, 3, 1, 2, 4, 255])


TARGETS = (Target("stretch", stretch, _harms, ()),)
