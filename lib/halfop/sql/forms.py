"""Rows of a query as text: cells of a table, CSV, or a JSON object a row.

Instants are in UTC, binary values in base64, everywhere. A spreadsheet takes a text that begins with =, +, - or @ as a
formula; producers choose texts. So CSV puts an apostrophe before such a text, as before a tab or a carriage return.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal

import pyarrow as pa

from halfop.frame.errors import UsageError
from halfop.frame.units import moment

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_ROWS = 10_000  # of a batch


def cells(table: pa.Table) -> list[list[object]]:
    """Returns the rows as a table for people has them."""
    return [[_cell(value) for value in row] for row in _rows(table)]


def csv_text(table: pa.Table) -> Iterator[str]:
    """Returns the rows as CSV, with a head; a null is an empty cell."""
    texts = [pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in table.schema.types]
    yield _csv(map(_harmless, table.column_names))
    for batch in table.to_batches(_ROWS):
        for row in _rows(batch):
            given = zip(map(_cell, row), texts, strict=True)
            yield _csv(_harmless(cell) if is_text else cell for cell, is_text in given)


def json_text(table: pa.Table) -> Iterator[str]:
    """Returns the rows as JSON objects, one a line; UsageError if two columns have one name."""
    names = table.column_names
    refuse_same(names)
    for batch in table.to_batches(_ROWS):
        rows = [dict(zip(names, row, strict=True)) for row in _rows(batch)]
        yield "".join(f"{json.dumps(_plain(row), allow_nan=False)}\n" for row in rows)


def refuse_same(names: Sequence[str]) -> None:
    """Raises UsageError if two columns have one name, of which a JSON object would lose one."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"two columns have the name {twice[0]}: give one of them another name (… AS name)")


FORMS: dict[str, Callable[[pa.Table], Iterator[str]]] = {"csv": csv_text, "json": json_text}


def _rows(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    return zip(*map(_values, table.column_names, table.columns), strict=True)


def _values(name: str, column: pa.Array | pa.ChunkedArray) -> list[object]:
    try:
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    except OverflowError as error:
        if not pa.types.is_timestamp(column.type):
            raise UsageError(f"column {name}: a time is outside of the years 1 to 9999; cast it to STRING") from error
        return list(map(_instant, column))


def _instant(value: pa.TimestampScalar) -> object:
    """An instant of Spark's, in microseconds; words if Python's calendar ends before."""
    try:
        return value.as_py()
    except OverflowError:
        return moment(value.value // 1000)


def _csv(row: Iterable[object]) -> str:
    """A line. Only characters of the line's end are quoted in a cell, so that is CR LF first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(row)
    return f"{text.getvalue()[:-2]}\n"


def _harmless(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def _cell(value: object) -> object:
    """A value as one cell; what has parts is JSON."""
    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict | list | bool) else plain


def _plain(value: object) -> object:
    """A value of Arrow's as JSON has it."""
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if value is None or isinstance(value, str | bool | int) else _plain_scalar(value)


def _plain_scalar(value: object) -> object:
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, datetime):
        utc = value if value.tzinfo is None else value.astimezone(timezone.utc).replace(tzinfo=None)
        return utc.isoformat() + ("" if value.tzinfo is None else "Z")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
