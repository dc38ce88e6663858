"""Rows of `land files`: JSON lines, and Parquet files that other programs wrote."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from halfop.frame.errors import InputRefused
from halfop.landing.fields import completed, fields, items
from halfop.landing.files import json_rows
from halfop.landing.files.pieces import Piece, PieceFound, read, split
from halfop.landing.files.typed import Typed
from halfop.warehouse.disk import NewFile
from halfop.warehouse.splits import Split

from support.fuzzed.target import Draws, Target

_KINDS = ("half", "op")
_SHOWN = "input"


@dataclass(frozen=True)
class MemoryDisk:
    """A disk with one file, under any path."""

    content: bytes

    def open(self, _: str) -> pa.NativeFile:
        """The file."""
        return pa.BufferReader(self.content)

    def create(self, path: str) -> NewFile:
        """Nothing is written here."""
        raise NotImplementedError(path)


def _read(content: bytes, piece: Piece) -> tuple[list[Typed], PieceFound]:
    found = PieceFound(piece.kind, piece.format, piece.uri, piece.split.start)
    made = []
    for typed in read(piece, MemoryDisk(content), found):
        found.see(typed)
        _sound(typed)
        made.append(typed)
    return made, found


def _sound(typed: Typed) -> None:
    """Each row is good or has a problem in plain words; good ones have what they must have."""
    typed.rows.validate(full=True)
    assert len(typed.rows) == len(typed.places)
    for problem in typed.problems.values():
        assert problem.detail.isprintable()
        assert len(problem.detail) < 500
    good = typed.good
    assert len(good) == len(typed.rows) - len(typed.problems)
    assert not any(good[field.name].null_count for field in fields(typed.kind) if field.required)
    made = completed(good) if typed.kind == "half" else items(good)
    made.validate(full=True)
    assert len(made) >= len(good)


# ---- JSON lines ----


def json_lines(content: bytes) -> None:
    """Lines are read alike alone, together, and in pieces; a good row comes back when it is written as JSON."""
    draws = Draws(content)
    choice, middle = draws.below(4), draws.below(1 << 16)
    kind, packed, text = _KINDS[choice % 2], choice >= 2, draws.rest()
    size = len(text)
    whole, found = _read(text, Piece(kind, "json", _SHOWN, _SHOWN, Split(_SHOWN, 0, size or 1), packed))
    if packed:
        return
    cut = middle % (size + 1)
    parts = [Split(_SHOWN, begin, end) for begin, end in ((0, cut), (cut, size)) if begin < end]
    pieces = [typed for part in parts for typed in _read(text, Piece(kind, "json", _SHOWN, _SHOWN, part, False))[0]]
    if b"\r" not in text:  # a piece begins after a \n
        assert _rows(pieces) == _rows(whole)
    lines = split(text.removeprefix(b"\xef\xbb\xbf"))
    assert found.lines == len(lines)
    assert _rows([json_rows.typed(kind, [line], 0) for line in lines]) == _rows(whole)
    for typed in whole:
        again = json_rows.typed(kind, [_as_json(row) for row in typed.good.to_pylist()], 0)
        assert not again.problems
        assert again.rows.to_pylist() == typed.good.to_pylist()


def _rows(found: Sequence[Typed]) -> list[tuple[dict[str, Any], Any]]:
    return [(row, typed.problems.get(n)) for typed in found for n, row in enumerate(typed.rows.to_pylist())]


def _as_json(row: Mapping[str, Any]) -> bytes:
    return json.dumps({name: _plain(value) for name, value in row.items() if value is not None}).encode()


def _plain(value: Any) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, list) else value


_HALF = {
    "broker_name": "b",
    "queue_id": 0,
    "queue_offset": 7,
    "commit_log_offset": "1000",
    "uniq_key": "U",
    "born_timestamp": 1_750_000_000_000,
    "store_timestamp": "2025-06-15T15:06:40.123Z",
    "body": "Ym9keQ==",
    "properties": {"PGROUP": "pg", "REAL_QID": "3", "\u00e9": "\U0001f600"},
}
_OP = {name: _HALF[name] for name in ("broker_name", "queue_id", "queue_offset", "born_timestamp", "store_timestamp")}
_OP |= {"tag": "d", "body": "7,8,", "outcome": "COMMIT", "outcomes": {"8": "ROLLBACK"}, "from_check": True}
_ROWS = (_HALF, _OP)


def _lines() -> Iterator[bytes]:
    for choice, row in enumerate(_ROWS):
        odd = [{**row, "queue_offset": value} for value in (-1, 2**63, "9", "x", None, 1.5, True)]
        odd += [{**row, "born_timestamp": value} for value in ("0001-01-01T00:00:00+18:00", "1750000000000", 10**17)]
        for each in odd:
            yield bytes([choice, 200, 0]) + json.dumps(row).encode() + b"\n" + json.dumps(each).encode()
        yield bytes([choice + 2, 0, 0]) + gzip.compress(json.dumps(row).encode() + b"\r\n\n{\n", mtime=0)
    yield b"\0\0\0\xef\xbb\xbf" + json.dumps(_HALF).encode() + b"\r" + json.dumps(_HALF).encode()


# ---- Parquet ----

_TYPES: tuple[pa.DataType, ...] = (
    *(pa.string(), pa.int32(), pa.int64(), pa.binary(), pa.bool_(), pa.map_(pa.string(), pa.string())),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp(unit, "Europe/Berlin") for unit in ("ms", "us", "ns")),
    *(pa.int8(), pa.int16(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float64(), pa.null()),
    *(pa.large_string(), pa.large_binary(), pa.binary(4), pa.decimal128(20, 2), pa.date32(), pa.time64("us")),
    *(pa.list_(pa.string()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())),
    *(pa.map_(pa.int64(), pa.string()), pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64())),
    *(pa.dictionary(pa.int32(), pa.binary()), pa.duration("ms"), pa.float16()),
)
_NUMBERS = (0, 1, -1, 2**31, -(2**63), 2**63 - 1, 1_750_000_000_000, 253_402_300_800_000)
_STRINGS = ("", "b", "7,8,", "COMMIT", "d", "\x1b[2J", "\U0001f600", "9" * 30)


def parquet(content: bytes) -> None:
    """A file of any columns lands, or is refused with its name; a damaged one is refused."""
    draws = Draws(content)
    choice = draws.below(4)
    file = _damaged(draws) if choice >= 2 else _file(draws, _KINDS[choice % 2])
    kind = _KINDS[choice % 2]
    with suppress(InputRefused):
        made, found = _read(file, Piece(kind, "parquet", _SHOWN, _SHOWN, Split(_SHOWN, 0, len(file)), False))
        assert found.read == sum(len(typed.rows) for typed in made)


def _file(draws: Draws, kind: str) -> bytes:
    """A file with the columns of a kind, of which some have other types, other values, or are not there."""
    rows = draws.below(4)
    columns: list[tuple[str, pa.DataType]] = [(field.name, field.arrow) for field in fields(kind)]
    for _ in range(draws.below(5)):
        at = draws.below(len(columns))
        columns[at] = (columns[at][0], _TYPES[draws.below(len(_TYPES))])
    for _ in range(draws.below(3)):
        del columns[draws.below(len(columns))]
    columns += [(_name(draws), _TYPES[draws.below(len(_TYPES))]) for _ in range(draws.below(3))]
    arrays = [_column(draws, kind_of, rows) for _, kind_of in columns]
    out = BytesIO()
    version, group = ("1.0", "2.6")[draws.below(2)], 1 + draws.below(3)
    with suppress(pa.ArrowException):  # there are types that no Parquet file has
        table = pa.Table.from_arrays(arrays, names=[name for name, _ in columns])
        pq.write_table(table, out, version=version, row_group_size=group, store_schema=draws.below(2) == 1)
    return out.getvalue()


def _column(draws: Draws, kind: pa.DataType, rows: int) -> pa.Array:
    values = [_value(draws, kind) for _ in range(rows)]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.nulls(rows, kind)


def _name(draws: Draws) -> str:
    return draws.take(draws.below(8)).decode(errors="replace")


def _value(draws: Draws, kind: pa.DataType) -> object:
    choice = draws.below(16)
    if choice == 15:
        return None
    if pa.types.is_map(kind):
        return [(_value(draws, kind.key_type), _value(draws, kind.item_type)) for _ in range(choice % 3)]
    if pa.types.is_dictionary(kind):
        return _value(draws, kind.value_type)
    made = (make(choice) for fits, make in _VALUES if fits(kind))
    return next(made, _NUMBERS[choice % 8])


_VALUES: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[int], object]]] = (
    (pa.types.is_list, lambda n: [_STRINGS[n % 8]]),
    (pa.types.is_struct, lambda n: {"a": _NUMBERS[n % 8]}),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_boolean, lambda n: n % 2 == 0),
    (pa.types.is_fixed_size_binary, lambda _: b"\xff" * 4),
    (pa.types.is_float16, np.float16),
    (pa.types.is_floating, float),
    *((fits, lambda n: _STRINGS[n % 8].encode() or b"\xff") for fits in (pa.types.is_binary, pa.types.is_large_binary)),
    *((fits, lambda n: _STRINGS[n % 8]) for fits in (pa.types.is_string, pa.types.is_large_string)),
)


def _damaged(draws: Draws) -> bytes:
    """A sound file with its last bytes, its footer's among them, as given, or with bytes changed where they are said.

    A whole file as the bytes would be one that no fuzzer keeps sound: PyArrow's own code is not instrumented.
    """
    sound = bytearray(_file(Draws(b"\2"), _KINDS[draws.below(2)]))
    while draws.left:
        at = draws.below(1 << 16) % len(sound)
        noise = draws.take(1 + draws.below(8))
        sound[-1 - at : len(sound) - 1 - at + len(noise)] = noise
    return bytes(sound)


def _parquets() -> Iterator[bytes]:
    for choice in range(2):
        yield bytes([choice, 2]) + bytes(range(60))
        for n in range(0, len(_TYPES), 4):
            wrong = b"".join(bytes([at + n, n + at]) for at in range(4))
            yield bytes([choice, 3, 4]) + wrong + bytes([1, n, 1, 3]) + b"odd" + bytes([n]) + bytes(range(n, n + 60))
    for choice in range(2, 4):
        yield bytes([choice, choice, 40, 1, 3, 1, 2, 3, 4, 200, 0, 7]) + bytes(range(100, 108))


TARGETS = (
    Target("json", json_lines, _lines, (InputRefused,)),
    Target("parquet", parquet, _parquets, ()),
)
