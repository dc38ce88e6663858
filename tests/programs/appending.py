"""Appends rows to a table, a commit each, and says which are in.

appending.py WAREHOUSE NAME NUMBER locked|unlocked LOG-STORE
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from datetime import timedelta

from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.session import spark_session

TABLE = "appended"


def main() -> None:
    folder, name, number, how, store = sys.argv[1:]
    slow = {"spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.SlowRename"}
    slow |= {"spark.delta.logStore.file.impl": store}
    spark = spark_session("appending", **slow | {"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    warehouse = KernelWarehouse(spark, folder)
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(int(number)):
        row = warehouse.frame([(name, n)], "name STRING, n INT")
        with hold(warehouse, "run", timedelta(minutes=5)) if how == "locked" else nullcontext():
            row.write.format("delta").mode("append").save(warehouse.path(TABLE))
        print(f"in: {name} {n}", flush=True)


if __name__ == "__main__":
    main()
