"""A plan: transactions that somebody wants to end, each with its outcome and all that an answer to its broker needs.

A plan is a file that people read, and from which they may delete lines: JSON lines with a head in the first line, or
Parquet (a name with the suffix .parquet) with the head in the schema's metadata. Each row has a seal, a checksum of the
head and of its own cells: a row that was changed is refused.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from halfop.columns.keys import Key, key_of
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.trouble import owner

Kind = Literal["COMMIT", "ROLLBACK", "RESUME"]
COMMIT: Kind = "COMMIT"
ROLLBACK: Kind = "ROLLBACK"
RESUME: Kind = "RESUME"  # no plan has it: `resume --broker` sends it at once
Origin = Literal["KEY", "WHERE", "RESOLVE", "SWEEP"]

_INSTANT = pa.timestamp("us", "UTC")
_PLACE = pa.struct([("queue_offset", pa.int64()), ("commit_log_offset", pa.int64())])
ROWS = pa.schema(
    [
        ("kind", pa.string()),
        ("broker_name", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("uniq_key", pa.string()),
        ("producer_group", pa.string()),
        ("real_topic", pa.string()),
        ("origin", pa.string()),
        ("evidence", pa.string()),
        ("decision", pa.string()),
        ("reason", pa.string()),
        ("check_times", pa.int32()),
        ("run_id", pa.int64()),
        ("born_timestamp", _INSTANT),
        ("commit_log_offset", pa.int64()),
        ("copies", pa.list_(_PLACE)),
    ]
)
_SEAL, _SEAL_LENGTH = "seal", 16
_METADATA = b"halfop.plan"
_FORM = 2
_HEAD_NUMBERS = ("decisions", "form")
_HINT = "delete rows, but do not change them"
_NO_CELLS = (pa.ArrowException, ValueError, TypeError, OverflowError)


@dataclass(frozen=True)
class PlanHead:
    """The origin of a plan; `decisions` is the version of that table from which its rows are."""

    plan_id: str
    decisions: int
    made_at: str
    made_by: str
    asked_for: str
    form: int = _FORM

    @property
    def instant(self) -> datetime:
        return datetime.fromisoformat(self.made_at)


@dataclass(frozen=True)
class EndingPlan:
    """A head, and rows with the columns of `ROWS`, one a transaction, under the half key of its live copy."""

    head: PlanHead
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.rows)


class PlannedPlace(NamedTuple):
    """The place of a half message, or of a copy, in its queue and in its broker's log; there -1 if it is not known."""

    queue_offset: int
    commit_log_offset: int


class Row(NamedTuple):
    """A row of a plan, as Python has it; the live copy comes last in `places`."""

    key: Key
    kind: Kind
    origin: Origin
    evidence: str | None
    uniq_key: str
    producer_group: str
    real_topic: str | None
    decision: str | None
    born_timestamp: datetime | None
    places: tuple[PlannedPlace, ...]


def new_head(decisions: int, asked_for: str) -> PlanHead:
    """Returns the head of a plan that is made now, by this user."""
    now = datetime.now(timezone.utc)
    return PlanHead(f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}", decisions, now.isoformat(), owner(), asked_for)


def rows_of(table: pa.Table, size: int) -> Iterator[list[Row]]:
    """Returns the rows of a plan in batches of at most `size`."""
    for start in range(0, len(table), size):
        yield [_row(each) for each in table.slice(start, size).to_pylist()]


def _row(cells: Mapping[str, Any]) -> Row:
    key = key_of(cells)
    taken = {name: cells[name] for name in Row._fields if name in cells}
    return Row(key=key, places=places_of(cells), **taken)


def places_of(cells: Mapping[str, Any]) -> tuple[PlannedPlace, ...]:
    """Returns all half messages of the transaction that a row stands for, its own, the live copy, last."""
    own = place_of(cells)
    others = (place_of(each) for each in cells["copies"] or ())
    return (*sorted(each for each in others if each.queue_offset != own.queue_offset), own)


def place_of(cells: Mapping[str, Any]) -> PlannedPlace:
    """Returns the place that a row, or a copy in it, shows."""
    log_offset = cells["commit_log_offset"]
    return PlannedPlace(cells["queue_offset"], -1 if log_offset is None else log_offset)


# ---- the file ----


def refuse_existing(path: str) -> None:
    """Raises UsageError if there is a file already: it may be a plan that is half applied."""
    if Path(path).exists():
        raise UsageError(f"--plan {path}: there is a file already; name a new one")


def write(plan: EndingPlan, path: str) -> None:
    """Writes a plan to a new file."""
    refuse_existing(path)
    target = Path(path)
    try:
        if _is_parquet(target):
            sealed = plan.rows.append_column(_SEAL, pa.array([seal for _, seal in _sealed(plan)], pa.string()))
            head = {_METADATA: json.dumps(asdict(plan.head)).encode()}
            pq.write_table(sealed.replace_schema_metadata(head), target)
        else:
            with target.open("x", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in _lines(plan))
    except OSError as error:
        raise UsageError(f"--plan {path}: it cannot be written: {error}") from error


def read(path: str) -> EndingPlan:
    """Returns a plan as it was written, or with fewer rows; InputRefused if it is something else."""
    source = Path(path)
    try:
        plan, seals, lines = _from_parquet(source) if _is_parquet(source) else _from_lines(source)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise InputRefused(path, None, f"the plan cannot be read: {error}") from error
    for given, (_, made), line in zip(seals, _sealed(plan), lines, strict=True):
        if given != made:
            raise InputRefused(path, line, "this row, or the plan's head, is not as it was planned", _HINT)
    if twice := _twice(zip(*(plan.rows[name].to_pylist() for name in Key._fields), strict=True)):
        raise InputRefused(path, None, f"{twice} is there twice", "delete one of the two lines")
    return plan


def _sealed(plan: EndingPlan) -> Iterator[tuple[str, str]]:
    """Each row as JSON without its nulls, and its seal: that is no secret, it only shows a change."""
    head = hashlib.sha256(json.dumps(asdict(plan.head), sort_keys=True).encode())
    for batch in plan.rows.to_batches(10_000):
        for row in batch.to_pylist():
            text = json.dumps({name: _plain(value) for name, value in row.items() if value is not None})
            seal = head.copy()
            seal.update(text.encode())
            yield text, seal.hexdigest()[:_SEAL_LENGTH]


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def _lines(plan: EndingPlan) -> Iterator[str]:
    yield json.dumps({"plan": asdict(plan.head)})
    for text, seal in _sealed(plan):
        yield f'{text[:-1]}, "{_SEAL}": "{seal}"}}'


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


_Read = tuple[EndingPlan, Iterable[Any], Iterable[int | None]]  # with the seal and the line of each row


def _from_parquet(source: Path) -> _Read:
    table = pq.read_table(source)
    metadata = table.schema.metadata or {}
    if _METADATA not in metadata:
        raise _no_plan(source, None)
    found = [table[f.name].cast(f.type) if f.name in table.column_names else _nulls(table, f) for f in ROWS]
    seals = table[_SEAL].to_pylist() if _SEAL in table.column_names else [None] * len(table)
    head = _head(source, _object(source, None, metadata[_METADATA].decode()))
    return EndingPlan(head, pa.Table.from_arrays(found, schema=ROWS)), seals, [None] * len(table)


def _nulls(table: pa.Table, field: pa.Field) -> pa.Array:
    return pa.nulls(len(table), field.type)


def _from_lines(source: Path) -> _Read:
    with source.open(encoding="utf-8-sig") as file:  # some editors write a byte order mark
        lines = [(number, _object(source, number, line)) for number, line in enumerate(file, 1) if line.strip()]
    if not lines:
        raise _no_plan(source, 1)
    (_, first), *others = lines
    rows = pa.Table.from_arrays([_column(source, others, field) for field in ROWS], schema=ROWS)
    return (
        EndingPlan(_head(source, first.get("plan")), rows),
        [row.get(_SEAL) for _, row in others],
        [number for number, _ in others],
    )


def _column(source: Path, lines: Sequence[tuple[int, dict[str, Any]]], field: pa.Field) -> pa.Array:
    try:
        return _array([row.get(field.name) for _, row in lines], field)
    except _NO_CELLS as error:
        wrong = next(number for number, row in lines if not _fits(row.get(field.name), field))
        raise InputRefused(source, wrong, f"{field.name}: {error}", _HINT) from error


def _array(values: Iterable[Any], field: pa.Field) -> pa.Array:
    if field.type == _INSTANT:
        values = (None if value is None else datetime.fromisoformat(value) for value in values)
    return pa.array(values, field.type)


def _fits(value: Any, field: pa.Field) -> bool:
    try:
        return len(_array([value], field)) == 1
    except _NO_CELLS:
        return False


def _object(source: Path, number: int | None, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _no_plan(source, number) from error
    if not isinstance(found, dict):
        raise _no_plan(source, number)
    return found


def _head(source: Path, found: Any) -> PlanHead:
    try:
        head = PlanHead(**found)
        sound = head.instant.tzinfo and all(
            isinstance(value, int if name in _HEAD_NUMBERS else str) for name, value in found.items()
        )
    except (TypeError, ValueError) as error:
        raise _no_plan(source, None) from error
    if not sound:
        raise _no_plan(source, None)
    if head.form != _FORM:
        raise InputRefused(
            source, None, f"a plan of form {head.form}; this version reads form {_FORM}", "make it again"
        )
    return head


def _no_plan(source: Path, number: int | None) -> InputRefused:
    hint = "expected a plan that `end` or `resolve` wrote: its head in the first line (or in Parquet's metadata)"
    return InputRefused(source, number, "no plan", hint)


def _twice(keys: Iterable[tuple[Any, ...]]) -> Key | None:
    (most,) = Counter(keys).most_common(1) or [((), 0)]
    return Key(*most[0]) if most[1] > 1 else None
