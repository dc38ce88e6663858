"""A call of spark-submit: its options, then a job and the job's options; and what halfop adds for Spark to start.

It runs before each job, so it uses the standard library alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from halfop.frame.errors import UsageError

_OF_THE_WHEEL = Path(__file__).parent / "conf" / "spark-defaults.conf"  # Spark's settings
FLAGS = ("--verbose", "-v", "--supervise", "--load-spark-defaults")
VALUED = (
    "--conf -c --properties-file --master --deploy-mode --remote --name --class --proxy-user --jars --py-files --files "
    "--archives --packages --exclude-packages --repositories --driver-memory --driver-cores --driver-java-options "
    "--driver-library-path --driver-class-path --executor-memory --executor-cores --total-executor-cores "
    "--num-executors --queue --principal --keytab"
)
_SERVER = re.compile(r"sc://(\[[^]]+\]|[^][/:;]+)(:\d{1,5})?(/.*)?")
_OF_FILE = re.compile(r"^[ \t]*(spark\.[^\s=:]+)[ \t]*[ \t=:][ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE)
_HELP = ("--help", "-h")
_ABOUT_SPARK = ("--kill", "--status")


@dataclass(frozen=True)
class CommandLine:
    """`given` has the options with their values; a setting of Spark's stands under its own name, of --conf or `conf`.

    `conf` is the file of Spark's settings where no other is named.
    """

    spark: list[str]
    given: list[tuple[str, str]]
    job: str = ""
    options: Sequence[str] = ()
    asks_for_help: bool = False
    asks_for_version: bool = False
    is_about_spark: bool = False  # it names no job
    conf: Path = _OF_THE_WHEEL

    def value(self, *names: str) -> str:
        """The value of an option that goes by these names: of one that is given twice, the last. Empty: not given."""
        return ["", *(value for name, value in self.given if name in names)][-1]

    @property
    def master(self) -> str:
        """Spark's master, as spark-submit finds it among its options."""
        return self.value("--master", "--remote") or self.value("spark.master") or "local[*]"

    @property
    def remote(self) -> str:
        """Returns the server of Spark Connect; empty if Spark is started by this call."""
        found = self.value("--remote") or os.environ.get("SPARK_REMOTE", "")
        if found and not _SERVER.fullmatch(found):
            raise UsageError(f"--remote {found}: expected a server of Spark Connect, as sc://host:15002")
        return found

    @property
    def is_local(self) -> bool:
        """Returns whether executors are in the driver's process."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")

    @property
    def has_driver_here(self) -> bool:
        """Returns whether the driver runs on this machine, started by this call."""
        return self.value("--deploy-mode", "spark.submit.deployMode") in ("", "client")

    def submitted(self, jars: Path) -> list[str]:
        """Returns Spark's options with halfop's: of one that is given twice the last counts, so ours hold the user's.

        In local mode Delta is on the class path alone, which starts quickest; executors elsewhere must get it, too.
        """
        own = [] if self.value("--properties-file") else ["--properties-file", str(self.conf)]
        if not self.is_local:
            users = self.value("--jars", "spark.jars")
            own += ["--jars", ",".join([*map(str, sorted(jars.glob("*.jar"))), *filter(None, [users])])]
        if self.has_driver_here:
            users = self.value("--driver-class-path", "spark.driver.extraClassPath")
            own += ["--driver-class-path", ":".join([f"{jars}/*", *filter(None, [users])])]
        return [*self.spark, *own]


def _of_file(path: Path) -> list[tuple[str, str]]:
    with suppress(OSError):  # Spark says so
        return _OF_FILE.findall(path.read_text(encoding="utf-8", errors="replace"))
    return []


def command_line(words: Sequence[str], conf: Path = _OF_THE_WHEEL) -> CommandLine:
    """Returns what a command line calls. Raises UsageError if spark-submit has no such option."""
    left, spark, given = list(words), list[str](), list[tuple[str, str]]()
    while left and left[0].startswith("-"):
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if word in _HELP:
            return CommandLine(spark, given, asks_for_help=True)
        if word == "--version":
            return CommandLine(spark, given, asks_for_version=True)
        if name in _ABOUT_SPARK:
            return CommandLine([*spark, word, *left], given, is_about_spark=True)
        if word in FLAGS:
            spark.append(word)
            continue
        if name not in VALUED.split():
            raise UsageError(f"spark-submit has no option {name}; a job's own options follow the job's name")
        if not equals and not left:
            raise UsageError(f"{name} needs a value")
        value = value if equals else left.pop(0)
        spark += [name, value]
        key, _, of_key = value.partition("=")
        given.append((key, of_key) if name in ("--conf", "-c") and key.startswith("spark.") else (name, value))
    named = [value for name, value in given if name == "--properties-file"]
    given = [*_of_file(Path(named[-1]) if named else conf), *given]  # the last one counts
    return CommandLine(spark, given, left[0] if left else "", left[1:], conf=conf)
