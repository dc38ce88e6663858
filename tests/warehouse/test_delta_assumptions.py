"""Assumptions about Delta of the run protocol's model (tests/model/protocol/log.py), seen on a real table.

That a commit of Delta's own store on a local disk looks and renames, and overwrites what came between, is seen in
test_races.py (slow, `test_two_processes_commit_on_a_local_disk`); that ours refuses it, in test_log_store.py.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.schema import table
from halfop.warehouse.spark_errors import is_java
from halfop.warehouse.tables import AlreadyWrittenError
from py4j.protocol import Py4JJavaError

TABLE, APP = "resumes", "sink"


@pytest.fixture
def made(warehouse: KernelWarehouse) -> KernelWarehouse:
    warehouse.make(TABLE)
    return warehouse


def rows(*offsets: int) -> pa.Table:
    cells = [{"broker_name": "b", "queue_id": 0, "queue_offset": offset} for offset in offsets]
    return pa.Table.from_pylist(cells, schema=arrow_schema(table(TABLE).struct))


def begun(warehouse: KernelWarehouse, marker: tuple[str, int] | None) -> Any:
    """A commit that has read the table's version, and has not committed."""
    return warehouse.log._begun(warehouse.path(TABLE), None, marker)


def commit(warehouse: KernelWarehouse, to: Any, *offsets: int) -> None:
    files = [vars(file) for offset in offsets for file in warehouse.files_from(TABLE, rows(offset))]
    to.append(json.dumps(files), table(TABLE).json)


def offsets(warehouse: KernelWarehouse, version: int | None = None) -> list[int]:
    return sorted(row["queue_offset"] for row in warehouse.rows(TABLE, version))


def test_plain_appends_that_began_together_both_stand(made: KernelWarehouse) -> None:
    one, other = begun(made, None), begun(made, None)
    commit(made, one, 1)
    commit(made, other, 2)
    assert (offsets(made), offsets(made, 1)) == ([1, 2], [1])


@pytest.mark.parametrize("number", [1, 2])
def test_a_commit_is_refused_if_its_app_came_since_it_began(made: KernelWarehouse, number: int) -> None:
    """A commit with its number or a higher one refuses it."""
    late, other = begun(made, (APP, 1)), begun(made, (APP, number))
    commit(made, other, 2)
    with pytest.raises(Py4JJavaError) as refused:
        commit(made, late, 1)
    assert is_java(refused.value, "ConcurrentTransactionException")
    assert offsets(made) == [2]


def test_a_higher_number_is_not_refused(made: KernelWarehouse) -> None:
    """Kernel does not refuse it. Delta's Spark connector does, and then the marker is looked at again."""
    one, higher = begun(made, (APP, 1)), begun(made, (APP, 2))
    commit(made, one, 1)
    commit(made, higher, 2)
    assert offsets(made) == [1, 2]
    assert made.log.marker(made.path(TABLE), APP) == 2


def test_another_app_and_plain_appends_do_not_refuse_it(made: KernelWarehouse) -> None:
    mine, other, plain = begun(made, (APP, 1)), begun(made, ("other", 1)), begun(made, None)
    commit(made, other, 1)
    commit(made, plain, 2)
    commit(made, mine, 3)
    assert offsets(made) == [1, 2, 3]
    assert made.log.marker(made.path(TABLE), APP) == 1


def test_a_marker_that_is_there_refuses_the_same_number_and_lower_ones(made: KernelWarehouse) -> None:
    path, spec = made.path(TABLE), table(TABLE)
    made.log.commit_files(path, spec, made.files_from(TABLE, rows(1)), (APP, 2))
    for number in (1, 2):
        with pytest.raises(AlreadyWrittenError):
            made.log.commit_files(path, spec, made.files_from(TABLE, rows(2)), (APP, number))
    made.log.commit_files(path, spec, made.files_from(TABLE, rows(3)), (APP, 3))
    assert offsets(made) == [1, 3]


def test_a_version_has_whole_commits_and_stays_as_it_is(made: KernelWarehouse) -> None:
    first = begun(made, None)
    commit(made, first, 1, 2, 3)
    pinned = made.version(TABLE)
    commit(made, begun(made, None), 4, 5)
    assert (offsets(made, pinned - 1), offsets(made, pinned), offsets(made)) == ([], [1, 2, 3], [1, 2, 3, 4, 5])
    assert sorted(row["queue_offset"] for row in made.landed_between(TABLE, pinned, pinned + 1).collect()) == [4, 5]
