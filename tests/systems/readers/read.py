"""read.py READER FETCHED TABLE…: rows of Delta tables as one JSON object, by a reader that knows no halfop."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from systems.readers.trino_server import by_trino

Rows = Sequence[Mapping[str, Any]]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def by_deltalake(tables: Sequence[str], _: str) -> list[Rows]:
    from deltalake import DeltaTable

    return [DeltaTable(table).to_pyarrow_table().to_pylist() for table in tables]


def by_duckdb(tables: Sequence[str], _: str) -> list[Rows]:
    """By the files that deltalake lists: DuckDB's own extension `delta` is no part of its package."""
    import duckdb
    from deltalake import DeltaTable

    found = [duckdb.from_arrow(DeltaTable(table).to_pyarrow_dataset()) for table in tables]
    return [[dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()] for rows in found]


def by_polars(tables: Sequence[str], _: str) -> list[Rows]:
    """By pyarrow below a folder whose name is not ASCII: polars' own reader does not find the files there."""
    import polars

    return [polars.read_delta(table, use_pyarrow=not table.isascii()).to_dicts() for table in tables]


def by_spark(tables: Sequence[str], fetched: str) -> list[Rows]:
    from pyspark.sql import SparkSession

    jars = ",".join(map(str, Path(fetched).glob("*.jar")))
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    session = builder.getOrCreate()
    try:
        assert session.version.startswith("3.5.")
        frames = [session.read.format("delta").load(table) for table in tables]
        return [[row.asDict(recursive=True) for row in frame.collect()] for frame in frames]
    finally:
        session.stop()


READERS: Mapping[str, Callable[[Sequence[str], str], list[Rows]]] = {
    "deltalake": by_deltalake,
    "duckdb": by_duckdb,
    "polars": by_polars,
    "spark-3.5": by_spark,
    "trino": by_trino,
}


def lines(rows: Rows) -> list[str]:
    """Rows as lines of JSON, in one order whoever read them."""
    return sorted(json.dumps(plain(row), ensure_ascii=False) for row in rows)


def plain(value: Any) -> object:
    """A value as JSON has it: bytes in hex, an instant in microseconds, a struct or a map as its sorted entries."""
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=timezone.utc)) - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return _entries(value.items())
    if isinstance(value, list) and value:
        return _entries(value) if _is_map(value) else [plain(each) for each in value]
    return value


def _is_map(value: list[Any]) -> bool:
    """Returns whether a list is a map: Arrow has it as a list of pairs, polars as a list of structs."""
    return all(isinstance(each, tuple) or (isinstance(each, Mapping) and [*each] == ["key", "value"]) for each in value)


def _entries(pairs: Any) -> object:
    found = [tuple(each.values()) if isinstance(each, Mapping) else each for each in pairs]
    return sorted(([name, plain(value)] for name, value in found), key=str)


if __name__ == "__main__":
    reader, fetched, *tables = sys.argv[1:]
    found = READERS[reader](tables, fetched)
    print(json.dumps({table: lines(rows) for table, rows in zip(tables, found, strict=True)}))
