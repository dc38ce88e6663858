"""The contract of a warehouse's tables: what any way to read and write them does. A subclass says which way it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from halfop.frame.errors import HalfopError
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.schema import delta_table, table
from halfop.warehouse.session import session_settings
from halfop.warehouse.tables import NO_TABLE, AlreadyWrittenError, Marker, Warehouse
from halfop.warehouse.where import Compared, Where, all_of, any_of, between, equal, is_null
from support import rows as r
from support.reader_version import VECTORS, needs_more
from support.rules.rule_words import NOW, half

_HALVES = "half_messages"
_ONCE = Marker("tests", 1)
_COMMITS = 24  # a checkpoint comes after 20


class StoreContract:
    """`way` is a fixture of the subclass, by which everything of a test goes."""

    is_here = False

    def offsets(self, warehouse: Warehouse, version: int | None = None, where: Where | None = None) -> Counter[int]:
        found = warehouse.found(_HALVES, version, where)
        assert isinstance(found.rows, pa.Table) == (self.is_here or found.files == 0)
        return Counter(row["queue_offset"] for row in warehouse.read(_HALVES, version, where).collect())

    def land(self, warehouse: Warehouse, *offsets: int, marker: Marker | None = None) -> int:
        """Commits half messages, of which every third has no key; returns the table's version."""
        warehouse.make(_HALVES)
        halves = [replace(half(offset=n), broker=f"b{n % 2}", uniq_key=f"k{n}" if n % 3 else None) for n in offsets]
        cells = [r.half_cells(each, NOW + each.offset) for each in halves]
        with warehouse.for_few_rows():
            warehouse.commit(_HALVES, r.frame(warehouse, _HALVES, cells), marker)
        return warehouse.version(_HALVES)

    def test_no_table_has_no_rows(self, warehouse: Warehouse, way: None) -> None:
        assert (warehouse.version(_HALVES), warehouse.marker(_HALVES, "tests")) == (NO_TABLE, -1)
        assert (warehouse.rows(_HALVES), warehouse.properties(_HALVES)) == ([], {})
        assert not warehouse.has(_HALVES)
        assert warehouse.select(_HALVES).files == 0

    def test_a_commit_is_plain_or_happens_once(self, warehouse: Warehouse, way: None) -> None:
        for _ in range(2):
            self.land(warehouse, 1)
            self.land(warehouse, 2, marker=_ONCE)
        self.land(warehouse, 3, marker=Marker("another", 1))
        assert self.offsets(warehouse) == {1: 2, 2: 1, 3: 1}
        assert (warehouse.marker(_HALVES, "tests"), warehouse.marker(_HALVES, "another")) == (1, 1)

    def test_a_version_stays_as_it_was(self, warehouse: Warehouse, way: None) -> None:
        versions = [self.land(warehouse, first, first + 1) for first in (0, 10, 20)]
        assert self.offsets(warehouse, versions[0]) == {0: 1, 1: 1}
        assert self.offsets(warehouse, versions[1]) == {0: 1, 1: 1, 10: 1, 11: 1}
        before = warehouse.landed_until(_HALVES, versions[0], versions[2], between("queue_offset", 1, 20))
        assert [row["queue_offset"] for row in before.rows.collect()] == [1]

    def test_what_landed_between_two_versions(self, warehouse: Warehouse, way: None) -> None:
        versions = [NO_TABLE, *(self.land(warehouse, first) for first in (0, 100))]
        for before, upto, wanted in ((0, 1, {0}), (1, 2, {100}), (0, 2, {0, 100}), (1, 1, set[int]())):
            rows = warehouse.landed_between(_HALVES, versions[before], versions[upto])
            assert {row["queue_offset"] for row in rows.collect()} == wanted

    def test_a_condition_means_what_it_says(self, warehouse: Warehouse, way: None) -> None:
        self.land(warehouse, *range(10))
        for where, wanted in (
            (equal("broker_name", "b1"), {1, 3, 5, 7, 9}),
            (between("queue_offset", 3, 5), {3, 4, 5}),
            (all_of(equal("broker_name", "b0"), Compared("queue_offset", ">=", 4)), {4, 6, 8}),
            (any_of([equal("queue_offset", 1), equal("queue_offset", 8)]), {1, 8}),
            (between("born_timestamp", 0, NOW * 1000), {*range(10)}),
            (Compared("landed_at", ">=", (NOW + 8) * 1000), {8, 9}),
            (is_null("uniq_key"), {0, 3, 6, 9}),
            (all_of(equal("broker_name", "b0"), is_null("uniq_key")), {0, 6}),
            (any_of([equal("uniq_key", "k1"), is_null("uniq_key")]), {0, 1, 3, 6, 9}),
        ):
            assert self.offsets(warehouse, where=where) == Counter(wanted), where


class WarehouseContract(StoreContract):
    """What a store of Delta tables does besides."""

    def test_any_reader_of_delta_reads_new_tables(self, warehouse: Warehouse, way: None) -> None:
        """Also if Spark would give them deletion vectors, as Databricks does."""
        with session_settings(warehouse.spark, VECTORS):
            self.land(warehouse, 1)
        assert needs_more(warehouse.root) == set()

    def test_an_older_table_gets_the_columns_that_it_lacks(self, warehouse: Warehouse, way: None) -> None:
        name, columns = f"delta.`{warehouse.path(_HALVES)}`", "broker_name STRING, queue_id INT, queue_offset BIGINT"
        warehouse.spark.sql(f"CREATE TABLE {name} ({columns}) USING delta")
        warehouse.frame([("b", 0, 1)], columns).write.format("delta").mode("append").save(warehouse.path(_HALVES))
        rows = warehouse.read(_HALVES, where=is_null("uniq_key")).select("queue_offset", "uniq_key").collect()
        assert [tuple(row) for row in rows] == [(1, None)]
        self.land(warehouse, 2)
        assert {row["queue_offset"] for row in warehouse.read(_HALVES).collect()} == {1, 2}

    @pytest.mark.thorough
    def test_markers_outlive_many_commits_and_the_log_s_clean_up(self, warehouse: Warehouse, way: None) -> None:
        self.land(warehouse, 0, marker=_ONCE)
        for offset in range(1, _COMMITS):
            self.land(warehouse, offset)
        log = Path(warehouse.path(_HALVES), "_delta_log")
        checkpoint = max(int(file.name[:20]) for file in log.glob("*.checkpoint*.parquet"))
        for number in range(checkpoint):
            for file in log.glob(f"{number:020}.*"):
                file.unlink()
        self.land(warehouse, 0, marker=_ONCE)
        again = self.fresh(warehouse)
        assert (again.marker(_HALVES, "tests"), again.marker(_HALVES, "another")) == (1, -1)
        assert self.offsets(again) == dict.fromkeys(range(_COMMITS), 1)

    def test_a_version_from_before_removed_files_are_kept_can_be_read(self, warehouse: Warehouse, way: None) -> None:
        """Delta refuses it by the time alone."""
        first = self.land(warehouse, 1, 2)
        set_it = "SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
        warehouse.spark.sql(f"ALTER TABLE {delta_table(warehouse.path(_HALVES))} {set_it}")
        self.land(warehouse, 3)
        again = self.fresh(warehouse)
        assert again.keeps(_HALVES, first)
        assert self.offsets(again, first) == {1: 1, 2: 1}

    def fresh(self, warehouse: Warehouse) -> Warehouse:
        """The warehouse as a process that starts finds it."""
        return type(warehouse)(warehouse.spark, warehouse.root)

    def test_a_table_whose_markers_expire_is_refused(self, warehouse: Warehouse, way: None) -> None:
        self.land(warehouse, 0, marker=_ONCE)
        set_it = "SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 day')"
        warehouse.spark.sql(f"ALTER TABLE {delta_table(warehouse.path(_HALVES))} {set_it}")
        with pytest.raises(HalfopError, match="UNSET TBLPROPERTIES"):
            warehouse.marker(_HALVES, "tests")


class KernelContract(WarehouseContract):
    """What a store of files does besides."""

    def test_the_first_of_two_commits_is_known(self, warehouse: KernelWarehouse, way: None) -> None:
        self.land(warehouse, 1, marker=_ONCE)
        rows = pa.Table.from_pylist([{"queue_offset": 4}], schema=arrow_schema(table(_HALVES).struct))
        with pytest.raises(AlreadyWrittenError):
            warehouse.commit_first(_HALVES, rows, _ONCE)
        warehouse.commit_first(_HALVES, rows, Marker("tests", 2))
        assert self.offsets(warehouse)[4] == 1
