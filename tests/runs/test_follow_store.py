"""follow on a broker's store as a process, while the store grows."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from support.brokers import store_writer as w
from support.brokers.stores import transactions
from support.crash import ended, job, said_until


@pytest.mark.slow
def test_a_store_that_grows_between_cycles(spark: SparkSession, tmp_path: Path) -> None:
    """And SIGTERM in the middle of a run lets it close: nothing is lost, and nothing is there twice."""
    store, root = w.Store(tmp_path / "store", file_size=1 << 13), str(tmp_path / "warehouse")
    transactions(store, range(20))
    process = job("follow", "store", "--path", str(store.root), "--warehouse", root, "--every", "1s")
    said_until(process, "run 1 closed")
    transactions(store, range(20, 30))
    told = [json.loads(line) for line in _lines(said_until(process, r'^\{"job": "follow".*"run_id": 2\b'))]
    transactions(store, range(30, 34))
    said_until(process, "run 3 decides")
    process.terminate()
    status, said = ended(process)
    assert status == 0, said
    assert told[-1]["landing"]["rows_written"] == {"half_messages": 10, "final_messages": 5, "op_messages": 10}
    assert {each["status"] for each in told} == {0}
    assert "stopped by a signal" in json.loads(_lines(said)[-1])["notes"]
    warehouse = KernelWarehouse(spark, root)
    decided = Counter((row.queue_offset, row.decision) for row in warehouse.read("decisions").collect())
    assert decided == Counter((n, "ROLLBACK" if n % 2 else "COMMIT") for n in range(34))
    assert sorted(row["event"] for row in warehouse.rows("runs")) == ["CLOSED"] * 3 + ["OPENED"] * 3
    delivered = Counter(row.half_queue_offset for row in warehouse.read("topics/orders").collect())
    assert delivered == Counter(range(0, 34, 2))


def _lines(said: str) -> list[str]:
    """The cycles' summaries in what a process has said."""
    return re.findall(r'^\{"job": "follow".*$', said, re.MULTILINE)
