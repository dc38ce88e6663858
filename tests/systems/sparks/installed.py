"""Other Sparks than the environment's own: installed into .halfop/ on first use; the checkout's commands with them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.fetched import packages
from support.places import ROOT

OTHERS = ("4.0", "4.1")
# Variables that `exec` gives this process, and pytest its workers.
_OURS = ("SPARK", "PYSPARK", "PYTHON", "HALFOP_", "LOG4J", "PYTEST", "JAVA_HOME")
_JAVA = ("HALFOP_JAVA", "HALFOP_TRUST_STORE")


def spark_home(spark: str) -> Path:
    """The folder of a Spark, for SPARK_HOME; the lock in requirements/ names it."""
    return packages("sparks", spark, ROOT / "requirements" / f"spark-{spark}.lock", users_own()) / "pyspark"


def users_own() -> dict[str, str]:
    """The environment without what starting this process has put there."""
    return {name: value for name, value in os.environ.items() if name in _JAVA or not name.startswith(_OURS)}


def called(spark: str, *command: str, seconds: float = 3600, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command of the checkout with that Spark."""
    return subprocess.run(
        [str(ROOT / command[0]), *command[1:]],
        env=users_own() | {"SPARK_HOME": str(spark_home(spark))} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
