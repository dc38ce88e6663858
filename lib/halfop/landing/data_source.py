"""`spark.read.format("rocketmq")`: a broker's store as whole Arrow batches, for anybody's queries.

Its options are plain text. A landing passes its workers' options through sources of their own, as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from halfop.frame.errors import UsageError
from halfop.landing.broker.source import QueueSource
from halfop.landing.store.source import SCHEMAS, StoreReader, StoreSource
from halfop.rocketmq.batches import HALF, KINDS
from halfop.rocketmq.store.layout import layout

_OPTIONS = ("path", "kind", "skipCorrupt")


class RocketMQ(DataSource):
    """Options: `path`, a store directory on a file system that all workers see; `kind`: half (the default), op, final
    or discard; `skipCorrupt`: true or false (the default).
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMAS[_kind(_checked(self.options))])

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _checked(self.options)
        kind, skip_corrupt = _kind(options), _skip_corrupt(options)
        return StoreReader(kind, layout(options["path"]), skip_corrupt)


def _checked(given: Mapping[str, str]) -> dict[str, str]:
    """The options by their names as documented; Spark knows no case in them."""
    names = {name.lower(): name for name in _OPTIONS}
    if unknown := [name for name in given if name.lower() not in names]:
        raise UsageError(f"format rocketmq has no option {unknown[0]}: expected {', '.join(_OPTIONS)}")
    options = {names[name.lower()]: text for name, text in given.items()}
    if "path" not in options:
        raise UsageError("format rocketmq needs option path: a broker's store directory")
    return options


def _kind(options: Mapping[str, str]) -> str:
    kind = options.get("kind", HALF)
    if kind not in KINDS:
        raise UsageError(f"kind {kind!r} of format rocketmq: expected one of {', '.join(KINDS)}")
    return kind


def _skip_corrupt(options: Mapping[str, str]) -> bool:
    text = options.get("skipCorrupt", "false")
    if text.lower() not in ("true", "false"):
        raise UsageError(f"skipCorrupt {text!r} of format rocketmq: expected true or false")
    return text.lower() == "true"


def register(spark: SparkSession) -> None:
    for source in (RocketMQ, StoreSource, QueueSource):
        spark.dataSource.register(source)
