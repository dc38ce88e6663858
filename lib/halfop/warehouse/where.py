"""Conditions on a table's rows in a form that Delta's log, a Parquet file and Spark understand alike.

The log then leaves out files that cannot hold such a row, and a file its row groups, before any row is read.
A null meets no condition but `is_null`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StringType, StructType, TimestampType

Value = str | int | bool
# The form from which halfop.TableLogs makes a predicate: a sign and its operands, as in ["=", "run_id", "long", 3].
Predicate = list[Any]


class Where(Protocol):
    """A condition. Values of a TIMESTAMP column are epoch microseconds."""

    def column(self, struct: StructType) -> Column:
        """The condition as Spark's column."""

    def expression(self, struct: StructType) -> pc.Expression:
        """The condition as an expression of Arrow."""

    def predicate(self, struct: StructType) -> Predicate:
        """The condition for Delta Kernel."""


@dataclass(frozen=True)
class Compared:
    """A column compared with a value: `=`, `>=` or `<=`."""

    name: str
    sign: str
    value: Value

    def column(self, struct: StructType) -> Column:
        found: Column = _SIGNS[self.sign](F.col(self.name), _spark_literal(struct[self.name].dataType, self.value))
        return found

    def expression(self, struct: StructType) -> pc.Expression:
        kind = _LITERALS[type(struct[self.name].dataType)][1]
        return _SIGNS[self.sign](pc.field(self.name), pc.scalar(pa.scalar(self.value, kind)))

    def predicate(self, struct: StructType) -> Predicate:
        return [self.sign, self.name, _LITERALS[type(struct[self.name].dataType)][0], self.value]


@dataclass(frozen=True)
class IsNull:
    """A column without a value."""

    name: str

    def column(self, struct: StructType) -> Column:
        return F.col(self.name).isNull()

    def expression(self, struct: StructType) -> pc.Expression:
        return pc.field(self.name).is_null()

    def predicate(self, struct: StructType) -> Predicate:
        return ["IS_NULL", self.name]


@dataclass(frozen=True)
class IsSet:
    """A column with a value."""

    name: str

    def column(self, struct: StructType) -> Column:
        return F.col(self.name).isNotNull()

    def expression(self, struct: StructType) -> pc.Expression:
        return pc.field(self.name).is_valid()

    def predicate(self, struct: StructType) -> Predicate:
        return ["IS_NOT_NULL", self.name]


@dataclass(frozen=True)
class Combined:
    """Several conditions of which all (AND) or any (OR) must hold."""

    sign: str
    parts: tuple[Where, ...]

    def column(self, struct: StructType) -> Column:
        joined: Column = _joined(_SIGNS[self.sign], [part.column(struct) for part in self.parts])
        return joined

    def expression(self, struct: StructType) -> pc.Expression:
        return _joined(_SIGNS[self.sign], [part.expression(struct) for part in self.parts])

    def predicate(self, struct: StructType) -> Predicate:
        parts = [part.predicate(struct) for part in self.parts]
        joined: Predicate = _joined(lambda left, right: [self.sign, left, right], parts)
        return joined


def _joined(join: Callable[[Any, Any], Any], parts: Sequence[Any]) -> Any:
    """The conditions joined two by two: a tree of little depth, because Spark walks it by recursion."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return join(_joined(join, parts[:middle]), _joined(join, parts[middle:]))


def equal(name: str, value: Value) -> Where:
    """Rows whose column has this value."""
    return Compared(name, "=", value)


def one_of(name: str, values: Iterable[Value]) -> Where:
    """Rows whose column has one of these values; there must be one."""
    return any_of([equal(name, value) for value in values])


def is_null(name: str) -> Where:
    """Rows whose column has no value."""
    return IsNull(name)


def at_least(name: str, low: Value) -> Where:
    """Rows whose column has this value or a greater one."""
    return Compared(name, ">=", low)


def at_most(name: str, high: Value) -> Where:
    """Rows whose column has this value or a lesser one."""
    return Compared(name, "<=", high)


def is_set(name: str) -> Where:
    """Rows whose column has a value."""
    return IsSet(name)


def between(name: str, low: Value, high: Value) -> Where:
    """Rows whose column lies between two values, both included."""
    return all_of(at_least(name, low), at_most(name, high))


def all_of(*parts: Where) -> Where:
    """Rows that meet every condition."""
    return parts[0] if len(parts) == 1 else Combined("AND", parts)


def any_of(parts: Sequence[Where]) -> Where:
    """Rows that meet one of the conditions; there must be one."""
    return parts[0] if len(parts) == 1 else Combined("OR", tuple(parts))


_SIGNS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    "AND": operator.and_,
    "OR": operator.or_,
}
# The name of a literal's type for Delta Kernel, and Arrow's type.
_LITERALS: Mapping[type[DataType], tuple[str, pa.DataType]] = {
    StringType: ("string", pa.string()),
    IntegerType: ("int", pa.int32()),
    LongType: ("long", pa.int64()),
    BooleanType: ("boolean", pa.bool_()),
    TimestampType: ("timestamp", pa.timestamp("us", "UTC")),
}


def _spark_literal(kind: DataType, value: Value) -> Column:
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(F.lit(value))
    return F.lit(value).cast(kind)
