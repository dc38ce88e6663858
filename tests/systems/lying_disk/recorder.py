"""Plays histories in a process whose disk is recorded: recorder.py FOLDER NAME …

Leaves in FOLDER/NAME: the inputs, a copy of the warehouse from before, the log, and what became of every message.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from conftest import TINY
from halfop.warehouse.session import spark_session
from pyspark.sql import SparkSession

from systems.lying_disk.histories import KEPT, SMALL, STORE, WORKERS, History, Place
from systems.lying_disk.outside import END, GATEWAY
from systems.lying_disk.recording import write_about
from systems.lying_disk.shim import Shim

ACKNOWLEDGED = "acknowledged "
ALL = {each.name: each for each in (SMALL, WORKERS, STORE, KEPT, END, GATEWAY)}


def record(shim: Shim, spark: SparkSession, history: History, folder: Path) -> None:
    given, top = folder / "given", folder / "top"
    for each in (given, top):
        each.mkdir(parents=True)
    place = Place(spark, top, given, shim.mark)
    history.prepare(place)
    shutil.copytree(top, folder / "before")
    write_about(folder / "about.json", top, folder / "before")
    shim.watch(top, folder / "log")
    for number, step in enumerate(history.steps):
        done = step(place)
        assert done.status == 0, done.said
        shim.mark(f"{ACKNOWLEDGED}{number}")
    shim.watch(folder / "nothing")
    (folder / "fates.json").write_text(json.dumps(sorted(history.fates(place).items())))


def main() -> None:
    folder, *names = sys.argv[1:]
    shim, spark = Shim(), spark_session("lying disk", **TINY)
    for name in names:
        record(shim, spark, ALL[name], Path(folder) / name)
    spark.stop()


if __name__ == "__main__":
    main()
