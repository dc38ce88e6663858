"""Kills and races without end, in rounds: some starts of reconcile in a row are killed by SIGKILL, at commits and at
any moment; then two to four drivers start at once and must leave what an undisturbed run leaves, row for row.

bench/run soak [--kills 200] [--races 50] [--seed N]

Without a seed, one is drawn and printed: the same one kills and races in the same places again.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import spark_session
from programs.dying import DEATH
from pyspark.sql import SparkSession
from runs import test_kills as k
from support.crash import KILLED, commits_archived, dying, ended, job, killed_after

Content = dict[str, Counter[str]]
_MOST_KILLS = 8  # a round
_STRIDE = 3  # commits that a start gets to do at most, so that a run dies often
_SECONDS = (3, 15)  # of a start that is killed at any moment
_AT_COMMITS = 0.7  # of the kills
_DONE = "was done"
# For a handful of rows.
_SPARK = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Soak:
    """A warehouse to come back to, and what its next run leaves when nobody disturbs it."""

    def __init__(self, spark: SparkSession, work: Path, chance: random.Random) -> None:
        self._spark, self._work, self._chance = spark, work, chance
        self._before = work / "before"
        k.prepare(KernelWarehouse(spark, str(self._before)))
        commits_archived(work / "classes.jsa", *k.command(self._copy("undisturbed")))
        self._wanted = k.content(KernelWarehouse(spark, str(work / "undisturbed")))
        self.at: Counter[str] = Counter()
        self.kills = self.races = self.lost = self.twice = self.other = 0

    def _copy(self, name: str) -> Path:
        shutil.rmtree(self._work / name, ignore_errors=True)
        shutil.copytree(self._before, self._work / name)
        return self._work / name

    def round(self, kills: int, drivers: int) -> str:
        """Starts in a row that are killed, then drivers at once that find what these left: all is as undisturbed."""
        folder, told = self._copy("round"), list[str]()
        while len(told) < kills and told[-1:] != [_DONE]:
            told.append(self._killed(folder))
        told.append(self._raced(folder, drivers))
        return ", ".join([*told, self._judged(k.content(KernelWarehouse(self._spark, str(folder))))])

    def _killed(self, folder: Path) -> str:
        """Where it died, unless it was done before."""
        if self._chance.random() < _AT_COMMITS:
            when, number = self._chance.choice(["before", "after"]), self._chance.randint(1, _STRIDE)
            status, said = ended(dying(when, number, *k.command(folder)))
            self.other += status not in (KILLED, 0)
            if status != KILLED:
                return _DONE
            (what,) = re.findall(rf"^{DEATH}(.*)$", said, re.MULTILINE)
        else:
            if not killed_after(self._chance.uniform(*_SECONDS), k.command(folder)):
                return _DONE
            what = "at any moment"
        self.kills += 1
        self.at[what] += 1
        return what

    def _raced(self, folder: Path, drivers: int) -> str:
        """One has the lock, or one after the other; none fails."""
        statuses = [ended(process)[0] for process in [job(*k.command(folder)) for _ in range(drivers)]]
        self.races += 1
        self.other += not (0 in statuses and set(statuses) <= {0, 4})
        return f"{drivers} drivers with statuses {sorted(statuses)}"

    def _judged(self, found: Content) -> str:
        if found == self._wanted:
            return "as undisturbed"
        missing = sum((self._wanted[name] - found.get(name, Counter())).total() for name in self._wanted)
        more = {name: found[name] - self._wanted.get(name, Counter()) for name in found}
        again = sum(n for name in more for row, n in more[name].items() if row in self._wanted.get(name, {}))
        self.lost, self.twice = self.lost + missing, self.twice + again
        self.other += sum(rows.total() for rows in more.values()) - again
        return f"{missing} rows lost, {again} twice, others {more}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--races", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    print(f"--seed {given.seed}", flush=True)
    spark = spark_session("soak", **_SPARK)
    work = Path(tempfile.mkdtemp(prefix="halfop-soak-"))
    try:
        soak = Soak(spark, work, random.Random(given.seed))
        chance = random.Random(given.seed)
        while soak.kills < given.kills or soak.races < given.races:
            kills = math.ceil((given.kills - soak.kills) / max(1, given.races - soak.races))
            told = soak.round(min(max(kills, 0), _MOST_KILLS), chance.choice([2, 3, 4]))
            so_far = f"{soak.lost} lost, {soak.twice} twice, {soak.other} others"
            print(f"{soak.kills} kills, {soak.races} races, {so_far}: {told}", flush=True)
        print("kills " + ", ".join(f"{what}: {n}" for what, n in sorted(soak.at.items())))
        sys.exit(1 if soak.lost or soak.twice or soak.other else 0)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
