"""Kills and races without end: reconcile and land store killed by SIGKILL at commits and at any moment, drivers started
together; after each the next start must leave what an undisturbed run leaves, row for row.

bench/run soak [--kills 200] [--races 50] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import test_kills as k
from crash import KILLED, commits, dying, ended, job, killed_after
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession

Content = dict[str, Counter[str]]


class Soak:
    """A warehouse to come back to, and what its next run leaves when nobody disturbs it."""

    def __init__(self, spark: SparkSession, work: Path, chance: random.Random) -> None:
        self._spark, self._work, self._chance = spark, work, chance
        self._before = work / "before"
        k.prepare(Warehouse(spark, str(self._before)))
        self._wanted = k.content(k.finished(spark, self._copy("undisturbed")))
        self._commits = commits(*k.command(self._copy("counted")))
        self.kills = self.races = self.lost = self.twice = self.other = 0

    def _copy(self, name: str) -> Path:
        shutil.rmtree(self._work / name, ignore_errors=True)
        shutil.copytree(self._before, self._work / name)
        return self._work / name

    def kill(self) -> str:
        """One to three starts in a row are killed."""
        folder = self._copy("killed")
        return self._judged(folder, ", ".join(self._killed(folder) for _ in range(self._chance.randint(1, 3))))

    def _killed(self, folder: Path) -> str:
        self.kills += 1
        if self._chance.random() < 0.5:
            when, number = self._chance.choice(["before", "after"]), self._chance.randint(1, self._commits)
            status, _ = ended(dying(when, number, *k.command(folder)))
            died, what = status == KILLED, f"{when} commit {number}"
        else:
            seconds = self._chance.uniform(2, 20)
            died, what = killed_after(seconds, k.command(folder)), f"after {seconds:.1f} s"
        self.kills -= not died
        return what if died else "not killed, it was done"

    def race(self) -> str:
        self.races += 1
        folder, drivers = self._copy("raced"), self._chance.choice([2, 3, 4])
        statuses = [ended(process)[0] for process in [job(*k.command(folder)) for _ in range(drivers)]]
        return self._judged(folder, f"{drivers} drivers, statuses {sorted(statuses)}")

    def _judged(self, folder: Path, what: str) -> str:
        found = k.content(k.finished(self._spark, folder))
        if found == self._wanted:
            return f"{what}: as undisturbed"
        missing = sum((self._wanted[name] - found.get(name, Counter())).total() for name in self._wanted)
        more = {name: found[name] - self._wanted.get(name, Counter()) for name in found}
        again = sum(n for name in more for row, n in more[name].items() if row in self._wanted.get(name, {}))
        self.lost, self.twice = self.lost + missing, self.twice + again
        self.other += sum(rows.total() for rows in more.values()) - again
        return f"{what}: {missing} rows lost, {again} twice, others {more}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--races", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    spark = spark_session(
        "soak", **{"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "1"}
    )
    work = Path(tempfile.mkdtemp(prefix="halfop-soak-"))
    try:
        soak = Soak(spark, work, random.Random(given.seed))
        while soak.kills < given.kills or soak.races < given.races:
            # races in between, as many as are due
            race = soak.kills >= given.kills or soak.races * given.kills < soak.kills * given.races
            told = soak.race() if race else soak.kill()
            so_far = f"{soak.lost} lost, {soak.twice} twice, {soak.other} others"
            print(f"{soak.kills} kills, {soak.races} races, {so_far}: {told}", flush=True)
        sys.exit(1 if soak.lost or soak.twice or soak.other else 0)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
