"""The half key, by which half messages are found: its columns, its values as they are compared, rows found by it.

And rows that functions over Arrow batches make.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from halfop.rocketmq.buffers import WHOLE_NUMBER

# The offset first: it distinguishes rows fastest, in hashes and in sorts.
HALF_KEY = ["queue_offset", "queue_id", "broker_name"]
QUEUE = ["broker_name", "queue_id"]
KEY_COLUMNS = "broker_name STRING, queue_id INT, queue_offset BIGINT"  # of `Key`, for a frame

_WRITTEN_KEY = re.compile(r"(.*)/([0-9]{1,10})/([0-9]{1,19})", re.DOTALL)


class Key(NamedTuple):
    """A half key, as users write it: BROKER/QUEUE/OFFSET."""

    broker_name: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return "/".join(map(str, self))


def key_of(row: Any) -> Key:
    """Returns the half key of a row, whatever holds its cells by name."""
    return Key(*(row[name] for name in Key._fields))


def superseded_by(decision: Any) -> Key | None:
    """Returns the key of the copy that stands for this one."""
    return _other(decision, "superseded_by", "superseded_by_broker", "superseded_by_queue")


def named_copy(decision: Any) -> Key | None:
    """Returns the key of the copy that the op of an ended transaction names, if it is another one."""
    return _other(decision, "copy_offset", "copy_broker", "copy_queue")


def _other(row: Any, offset: str, broker: str, queue: str) -> Key | None:
    if row[offset] is None:
        return None
    if row[broker] is None:
        return key_of(row)._replace(queue_offset=row[offset])
    return Key(row[broker], row[queue], row[offset])


def as_key(text: str) -> Key | None:
    """The key that `BROKER/QUEUE/OFFSET` names, None of another text; the broker's name may hold a slash, too."""
    match = _WRITTEN_KEY.fullmatch(text)
    if match is None or int(match[2]) >= 2**31 or int(match[3]) >= 2**63:
        return None
    return Key(match[1], int(match[2]), int(match[3]))


FARTHEST = 4 * 10**17  # microseconds: some 12,000 years, further than any time that a rule compares
_WHOLE_NUMBER = rf"\A{WHOLE_NUMBER}\z"


def whole_number(text: Column) -> Column:
    """The Java long that a text is; null if it is none."""
    return F.when(text.rlike(_WHOLE_NUMBER), text.try_cast("bigint"))


def present(text: Column) -> Column:
    """A property's text, null if it is empty: a broker's store loses empty values."""
    return F.nullif(text, F.lit(""))


def micros(time: Column) -> Column:
    """Microseconds since 1970, kept within bounds that differences cannot overflow."""
    return F.greatest(F.lit(-FARTHEST), F.least(F.lit(FARTHEST), F.unix_micros(time)))


def in_micros(length: timedelta) -> int:
    """A duration in microseconds."""
    return length // timedelta(microseconds=1)


def millis(column: str) -> Column:
    """The column as milliseconds since 1970, under its own name: a collected timestamp has no zone."""
    return F.unix_millis(column).alias(column)


Queue = tuple[str, int]
Places = npt.NDArray[np.int64]


class ByKey:
    """Rows, at most one a key; `offset` names their column of half offsets."""

    def __init__(self, rows: pa.Table, offset: str = "queue_offset") -> None:
        self.rows = in_one(rows)
        self._queues: dict[Queue, tuple[Places, Places]] = {}
        for queue, places in by_queue(self.rows, offset):
            offsets = numbers(self.rows[offset])[places]
            order = np.argsort(offsets, kind="stable")
            self._queues[queue] = offsets[order], places[order]

    def find(self, batch: pa.RecordBatch) -> tuple[Places, Places]:
        """The places in the batch of rows whose key is known, in order, and the places of the rows that have it."""
        hits, founds = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for queue, mine in by_queue(batch, "queue_offset"):
            if queue in self._queues:
                offsets, places = self._queues[queue]
                here = numbers(batch["queue_offset"])[mine]
                at = np.minimum(np.searchsorted(offsets, here), len(offsets) - 1)
                hit = offsets[at] == here
                hits.append(mine[hit])
                founds.append(places[at[hit]])
        hit, found = np.concatenate(hits), np.concatenate(founds)
        order = np.argsort(hit, kind="stable")
        return hit[order], found[order]


def in_one(rows: pa.Table) -> pa.RecordBatch:
    """All rows as one batch."""
    batches = rows.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=rows.schema)


def by_queue(rows: pa.RecordBatch, offset: str) -> Iterator[tuple[Queue, Places]]:
    """The places of each queue's rows; rows without a full key are nobody's."""
    brokers = rows["broker_name"]
    brokers = brokers if pa.types.is_dictionary(brokers.type) else brokers.dictionary_encode()
    code = numbers(pc.fill_null(brokers.indices, -1))
    number = numbers(rows["queue_id"])
    keyed = (code >= 0) & _valid(rows["queue_id"]) & _valid(rows[offset])
    for broker, name in enumerate(brokers.dictionary.to_pylist()):
        of_broker = np.flatnonzero(keyed & (code == broker))
        queues = number[of_broker]
        for queue in _distinct(queues):
            yield (name, queue), of_broker[queues == queue]


def _distinct(numbers: Places) -> list[int]:
    """Without a sort of numbers that are all the same, as they mostly are."""
    if not len(numbers):
        return []
    low, high = int(numbers.min()), int(numbers.max())
    found: list[int] = [low] if low == high else np.unique(numbers).tolist()
    return found


def numbers(column: pa.Array) -> Places:
    """NumPy would make floating-point numbers of values with nulls, and these cannot show that large offsets differ."""
    found: Places = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return found


# ---- rows that a function makes of Arrow batches, in Spark's Python workers ----


Making = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]


def made_of(rows: DataFrame, make: Making, gives: StructType) -> DataFrame:
    """Returns the rows that a function makes of batches of these.

    This is `DataFrame.mapInArrow`, which asks for pandas and then uses none: only Spark Connect's client has it anyway.
    Spark 4.0 has no Arrow UDF.
    """
    if not isinstance(rows, ClassicFrame):
        return rows.mapInArrow(partial(_each, make), gives)
    udf = UserDefinedFunction(partial(_each, make), gives, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    made = rows._jdf.mapInArrow(udf(*rows.columns)._jc, False, None)
    return DataFrame(made, rows.sparkSession)


def _each(make: Making, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A function of ours, because Spark Connect's client looks at its signature: `chain` has none."""
    return chain.from_iterable(map(make, batches))
