"""The file of a plan, which people read, and from which they may delete lines.

It is JSON lines with a head in the first line, or Parquet (a name with the suffix .parquet) with the head in the
schema's metadata. Each row has a seal, a checksum of the head and of its own cells: a row that was changed is refused.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from halfop.columns.keys import Key
from halfop.frame.errors import InputRefused, UsageError

INSTANT = pa.timestamp("us", "UTC")
_SEAL, _SEAL_LENGTH = "seal", 16
_METADATA = b"halfop.plan"
_HINT = "delete rows, but do not change them"
_NO_CELLS = (pa.ArrowException, ValueError, TypeError, OverflowError)
# Whether a head's value is of its type, by the type's name in its dataclass; true is no whole number here.
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "str": lambda value: type(value) is str,
    "str | None": lambda value: value is None or type(value) is str,
    "int": lambda value: type(value) is int,
    "dict[str, int]": lambda value: type(value) is dict and all(type(each) is int for each in value.values()),
}


class PlanOrigin(Protocol):
    """What a plan says of itself: a dataclass of texts, whole numbers and counts, with the form of its file."""

    @property
    def instant(self) -> datetime:
        """When it was made."""

    @property
    def form(self) -> int:
        """The number of the file's form."""


HeadOf = TypeVar("HeadOf", bound=PlanOrigin)


def new_plan_id(now: datetime) -> str:
    """Returns an id that no other plan has."""
    return f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def refuse_existing(path: str) -> None:
    """Raises UsageError if there is a file already: it may be a plan that is half applied."""
    if Path(path).exists():
        raise UsageError(f"--plan {path}: there is a file already; name a new one")


@dataclass(frozen=True)
class PlanFile(Generic[HeadOf]):
    """The files of one kind of plan: its head's class, the columns of its rows, its form, and the jobs that make it."""

    head: type[HeadOf]
    rows: pa.Schema
    form: int
    jobs: str

    def write(self, head: HeadOf, rows: pa.Table, path: str) -> None:
        """Writes a plan to a new file."""
        refuse_existing(path)
        target = Path(path)
        try:
            if _is_parquet(target):
                sealed = rows.append_column(_SEAL, pa.array([seal for _, seal in _sealed(head, rows)], pa.string()))
                metadata = {_METADATA: json.dumps(_cells(head)).encode()}
                pq.write_table(sealed.replace_schema_metadata(metadata), target)
            else:
                with target.open("x", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in _lines(head, rows))
        except OSError as error:
            raise UsageError(f"--plan {path}: it cannot be written: {error}") from error

    def read(self, path: str) -> tuple[HeadOf, pa.Table]:
        """Returns a plan as it was written, or with fewer rows; InputRefused if it is something else."""
        source = Path(path)
        try:
            found = self._from_parquet(source) if _is_parquet(source) else self._from_lines(source)
        except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
            raise InputRefused(path, None, f"the plan cannot be read: {error}") from error
        for given, (_, made), line in zip(found.seals, _sealed(found.head, found.rows), found.lines, strict=True):
            if given != made:
                raise InputRefused(path, line, "this row, or the plan's head, is not as it was planned", _HINT)
        if twice := _twice(zip(*(found.rows[name].to_pylist() for name in Key._fields), strict=True)):
            raise InputRefused(path, None, f"{twice} is there twice", "delete one of the two lines")
        return found.head, found.rows

    def _from_parquet(self, source: Path) -> _ReadPlan[HeadOf]:
        table = pq.read_table(source)
        table.validate(full=True)  # Arrow reads texts whatever their bytes
        metadata = table.schema.metadata or {}
        if _METADATA not in metadata:
            raise self._no_plan(source, None)
        found = [table[f.name].cast(f.type) if f.name in table.column_names else _nulls(table, f) for f in self.rows]
        seals = table[_SEAL].to_pylist() if _SEAL in table.column_names else [None] * len(table)
        head = self._head(source, self._object(source, None, metadata[_METADATA].decode()))
        return _ReadPlan(head, pa.Table.from_arrays(found, schema=self.rows), seals, [None] * len(table))

    def _from_lines(self, source: Path) -> _ReadPlan[HeadOf]:
        with source.open(encoding="utf-8-sig") as file:  # some editors write a byte order mark
            lines = [
                (number, self._object(source, number, line)) for number, line in enumerate(file, 1) if line.strip()
            ]
        if not lines:
            raise self._no_plan(source, 1)
        (_, first), *others = lines
        rows = pa.Table.from_arrays([_column(source, others, field) for field in self.rows], schema=self.rows)
        seals = [row.get(_SEAL) for _, row in others]
        return _ReadPlan(self._head(source, first.get("plan")), rows, seals, [number for number, _ in others])

    def _object(self, source: Path, number: int | None, line: str) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._no_plan(source, number) from error
        if not isinstance(found, dict):
            raise self._no_plan(source, number)
        return found

    def _head(self, source: Path, found: Any) -> HeadOf:
        try:
            head = self.head(**found)
            sound = head.instant.tzinfo and _is_typed(head, found)
        except (TypeError, ValueError) as error:
            raise self._no_plan(source, None) from error
        if not sound:
            raise self._no_plan(source, None)
        if head.form != self.form:
            problem = f"a plan of form {head.form}; this version reads form {self.form}"
            raise InputRefused(source, None, problem, "make it again")
        return head

    def _no_plan(self, source: Path, number: int | None) -> InputRefused:
        hint = f"expected a plan that {self.jobs} wrote: its head in the first line (or in Parquet's metadata)"
        return InputRefused(source, number, "no plan", hint)


@dataclass(frozen=True)
class _ReadPlan(Generic[HeadOf]):
    """A plan as a file has it, with the seal and the line of each row."""

    head: HeadOf
    rows: pa.Table
    seals: Iterable[Any]
    lines: Iterable[int | None]


def _sealed(head: PlanOrigin, rows: pa.Table) -> Iterator[tuple[str, str]]:
    """Each row as JSON without its nulls, and its seal: that is no secret, it only shows a change."""
    of_head = hashlib.sha256(json.dumps(_cells(head), sort_keys=True).encode())
    for batch in rows.to_batches(10_000):
        for row in batch.to_pylist():
            text = json.dumps({name: _plain(value) for name, value in row.items() if value is not None})
            seal = of_head.copy()
            seal.update(text.encode())
            yield text, seal.hexdigest()[:_SEAL_LENGTH]


def _lines(head: PlanOrigin, rows: pa.Table) -> Iterator[str]:
    yield json.dumps({"plan": _cells(head)})
    for text, seal in _sealed(head, rows):
        yield f'{text[:-1]}, "{_SEAL}": "{seal}"}}'


def _cells(head: Any) -> dict[str, Any]:
    """A head without its nulls: heads that were written before a field came keep their seals."""
    return {name: value for name, value in asdict(head).items() if value is not None}


def _is_typed(head: Any, found: Mapping[str, Any]) -> bool:
    return all(_TYPES[str(f.type)](found[f.name]) for f in fields(head) if f.name in found)


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _nulls(table: pa.Table, field: pa.Field) -> pa.Array:
    return pa.nulls(len(table), field.type)


def _column(source: Path, lines: Sequence[tuple[int, dict[str, Any]]], field: pa.Field) -> pa.Array:
    try:
        return _array([row.get(field.name) for _, row in lines], field)
    except _NO_CELLS as error:
        wrong = next(number for number, row in lines if not _fits(row.get(field.name), field))
        raise InputRefused(source, wrong, f"{field.name}: {error}", _HINT) from error


def _array(values: Iterable[Any], field: pa.Field) -> pa.Array:
    if field.type == INSTANT:
        values = (None if value is None else datetime.fromisoformat(value) for value in values)
    return pa.array(values, field.type)


def _fits(value: Any, field: pa.Field) -> bool:
    try:
        return len(_array([value], field)) == 1
    except _NO_CELLS:
        return False


def _twice(keys: Iterable[tuple[Any, ...]]) -> Key | None:
    (most,) = Counter(keys).most_common(1) or [((), 0)]
    return Key(*most[0]) if most[1] > 1 else None
