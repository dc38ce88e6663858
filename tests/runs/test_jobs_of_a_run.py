"""The cost of a run over few rows: how many Spark jobs, and no function that is slow when a process first calls it.

A job takes a cold start a tenth of a second, whatever its rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from threading import Thread
from typing import Any

from halfop.runs.reconcile import Request, preview
from halfop.runs.verify import verify
from halfop.warehouse.tables import Warehouse
from model import reference as m
from pyspark.sql import SparkSession
from support import rows as r
from support.places import ROOT
from support.rules.rule_words import NOW, SECOND, commit, half
from support.spark_jobs import jobs


def test_a_run_is_few_jobs(warehouse: Warehouse) -> None:
    """Three runs: over what has landed, over nothing new, and over new messages of which not all may be asked about.

    Then a dry run, and one that is verified.
    """

    def run(seconds: int, new: Sequence[int], **rules: Any) -> int:
        if new:
            r.land(warehouse, [half(offset=n) for n in new], [commit(of=new[0], offset=new[0])], NOW, {("", 0): NOW})
        return jobs(warehouse.spark, lambda: r.run(warehouse, m.Settings(**rules), NOW + seconds * SECOND))

    found = [run(0, range(5)), run(1, []), run(2, range(5, 10), checks_a_run=2)]
    assert [[d.reason for d in r.decisions(warehouse, number)] for number in (1, 2, 3)] == [
        ["PRODUCER", *["TIMEOUT"] * 4],
        ["CHECKED_RECENTLY"] * 4,
        [*["CHECKED_RECENTLY"] * 4, "PRODUCER", *["TIMEOUT"] * 2, *["CHECK_LIMIT"] * 2],
    ]
    assert found == [4, 2, 5]
    request = Request(r.settings(m.Settings()), r.instant(NOW + 3 * SECOND))
    assert jobs(warehouse.spark, lambda: preview(warehouse, request)) == 4
    assert jobs(warehouse.spark, lambda: verify(warehouse, 1)) == 8


def test_no_task_waits_for_ever_to_run_nearer_to_its_data(spark: SparkSession) -> None:
    """Two tasks have their data on another host, as on HDFS, and one of a shuffle has it here."""
    context: Any = spark.sparkContext._jsc.sc()
    jvm: Any = spark._jvm
    rows = [jvm.scala.Tuple2(number, jvm.PythonUtils.toSeq(["elsewhere"])) for number in range(2)]
    there = context.makeRDD(jvm.PythonUtils.toSeq(rows), jvm.scala.reflect.ClassTag.AnyRef())
    both, found = there.union(there.repartition(1, None)), list[int]()
    counting = Thread(target=lambda: found.append(both.count()), daemon=True)
    counting.start()
    counting.join(30)
    if counting.is_alive():
        context.cancelAllJobs()
    assert found == [4]


def test_no_column_changes_the_case_of_letters() -> None:
    """The first time, Spark maps every letter of Unicode, which takes more than a second."""
    sources = (ROOT / "lib" / "halfop").rglob("*.py")
    assert [file.name for file in sources if re.search(r"F\.(lower|upper|initcap)\(", file.read_text())] == []
