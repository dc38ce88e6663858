"""Ten days of a topic as runs leave them, joined, and laid out day by day: scans of a day, look-ups of keys.

bench/run layout [--rows N] [--rounds N]

From 3 million rows on a look-up reads at most a tenth of the bytes that it read from joined files; a day's scan, for
which time order is best, at most half as much again. A day more is laid out by writing its bytes, and those of a
cluster that was not full.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from backlog import land, quiet_session, run, spent
from generate import Stretch, body
from halfop.settings.load import load_settings
from halfop.upkeep.maintain import maintain
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.where import Where, between, equal
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_TABLE, _DAYS, _RUNS_A_DAY, _BOUND_FROM = "topics/Topic0", 10, 8, 3_000_000
_DAY, _FIRST = 86_400_000_000, 1_750_000_000_000_000  # microseconds
_KEYS = 3
_LOOK_UP, _SCAN = 1 / 10, 1.5
_CLUSTER = 1 << 30
BY = "topics.Topic0.cluster_by=committed_at,keys"


class Spent(NamedTuple):
    """What a query takes. `files`: those that Delta's log does not let a reader skip, with their bytes."""

    seconds: float
    cpu_s: float
    files: float
    file_bytes: float
    read_bytes: float


def rows_of(warehouse: KernelWarehouse, first: int, rows: int, a_day: int) -> DataFrame:
    """Messages in the order of their runs, each run's in one partition; their keys are in no order."""
    ids = warehouse.spark.range(first, first + rows, 1, max(1, rows * _RUNS_A_DAY // a_day))
    of_run = F.floor(F.col("id") * _RUNS_A_DAY / a_day)
    at = F.timestamp_micros(F.lit(_FIRST) + of_run * F.lit(_DAY // _RUNS_A_DAY))
    uniq_key, keys = (
        F.upper(F.md5(F.concat(F.lit("u"), "id"))),
        F.concat(F.lit("order-"), F.md5(F.col("id").cast("string"))),
    )
    named = {"UNIQ_KEY": uniq_key, "KEYS": keys, "PGROUP": F.lit("group"), "WAIT": F.lit("true")}
    given = {
        "topic": F.lit("Topic0"),
        "queue_id": F.pmod("id", F.lit(8)).cast("int"),
        "body": body(),
        "keys": keys,
        "transaction_id": uniq_key,
        "properties": F.create_map(*[part for name, value in named.items() for part in (F.lit(name), value)]),
        "broker_name": F.lit("broker-a"),
        "half_queue_id": F.lit(0),
        "half_queue_offset": F.col("id"),
        "run_id": of_run + 100,
        "born_timestamp": at,
        "store_timestamp": at,
        "committed_at": at,
    }
    struct = warehouse.schema(_TABLE)
    return ids.select(*[given.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in struct])


class Table:
    """The table, and what reading it takes."""

    def __init__(self, warehouse: KernelWarehouse, rows: int, rounds: int) -> None:
        self.warehouse, self._a_day, self._rounds = warehouse, rows // _DAYS, rounds
        self._keys = [f"order-{hashlib.md5(str(rows // 7 * n).encode()).hexdigest()}" for n in range(1, _KEYS + 1)]  # noqa: S324

    def told(self, state: str) -> dict[str, Spent]:
        first = _FIRST + 4 * _DAY
        day = between("committed_at", first, first + _DAY - 1)
        found = {
            "day": self._spent([day], lambda rows: rows.agg(F.count("*"), F.sum(F.length("body")))),
            "key": self._spent([equal("keys", key) for key in self._keys], lambda rows: rows.select("body")),
        }
        for what, each in found.items():
            print(json.dumps({"state": state, "read": what, **each._asdict()}), flush=True)
        return found

    def _spent(self, wheres: list[Where], ask: Callable[[DataFrame], DataFrame]) -> Spent:
        every = [self._once(where, ask) for _ in range(self._rounds + 1) for where in wheres][len(wheres) :]
        return Spent(*(round(statistics.median(each), 2) for each in zip(*every, strict=True)))

    def _once(self, where: Where, ask: Callable[[DataFrame], DataFrame]) -> Spent:
        path, struct = self.warehouse.path(_TABLE), self.warehouse.schema(_TABLE)
        listed = self.warehouse.log.files(path, None, where.predicate(struct)) or []
        rows = self.warehouse.spark.read.format("delta").load(path).where(where.column(struct))
        before = self._bytes_read()
        seconds, cpu = spent(lambda: self._found(ask(rows)))
        return Spent(seconds, cpu, len(listed), sum(file.size for file in listed), self._bytes_read() - before)

    @staticmethod
    def _found(rows: DataFrame) -> None:
        if len(rows.collect()) != 1:
            raise SystemExit("a query did not find what is there")

    def _bytes_read(self) -> int:
        jvm: Any = self.warehouse.spark._jvm
        return sum(int(each.getBytesRead()) for each in jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics())

    def maintained(self, state: str, *settings: str) -> int:
        """Returns the bytes of files that it wrote."""
        before = {file.path for file in self.warehouse.listed(_TABLE)}
        given = load_settings(None, settings, {})
        seconds, cpu = spent(lambda: maintain(self.warehouse, given))
        written = [file.size for file in self.warehouse.listed(_TABLE) if file.path not in before]
        done = {"maintain": state, "seconds": seconds, "cpu_s": cpu, "files": len(written), "bytes": sum(written)}
        print(json.dumps(done), flush=True)
        return sum(written)

    def add(self, first: int, rows: int) -> int:
        """Returns the bytes of files that it adds."""
        before = {file.path for file in self.warehouse.listed(_TABLE)}
        self.warehouse.commit(_TABLE, rows_of(self.warehouse, first, rows, self._a_day))
        return sum(file.size for file in self.warehouse.listed(_TABLE) if file.path not in before)


def measure(folder: Path, rows: int, rounds: int) -> bool:
    """Returns whether the bounds hold."""
    session = quiet_session()
    conf: Any = session._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    conf.set("parquet.hadoop.vectored.io.enabled", "false")  # Hadoop counts no bytes of such reads
    plain, laid_out = (begun(KernelWarehouse(session, str(folder / name)), rows, rounds) for name in ("plain", "laid"))
    plain.add(0, rows)
    plain.told("as runs leave it")
    plain.maintained("joined")
    before = plain.told("joined")
    within = True
    for day in range(_DAYS):
        more = laid_out.add(day * rows // _DAYS, rows // _DAYS)
        within &= laid_out.maintained(f"day {day + 1}", BY) <= 1.2 * more + _CLUSTER
    after = laid_out.told("laid out day by day")
    return (
        within
        and after["key"].read_bytes <= before["key"].read_bytes * _LOOK_UP
        and after["day"].read_bytes <= before["day"].read_bytes * _SCAN
    )


def begun(warehouse: KernelWarehouse, rows: int, rounds: int) -> Table:
    """The topic's table, which a first run has made."""
    land(warehouse, Stretch(0, 2_000))
    run(warehouse)
    return Table(warehouse, rows, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="halfop-bench-"))
    try:
        held = measure(folder, args.rows, args.rounds)
    finally:
        shutil.rmtree(folder)
    raise SystemExit(0 if held or args.rows < _BOUND_FROM else 1)


if __name__ == "__main__":
    main()
