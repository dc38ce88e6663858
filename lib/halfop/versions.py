"""The versions of halfop, Spark and Delta, found by their files: nothing is started, and Spark may be missing.

It answers before a checkout's first set-up, too, so it uses the standard library alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from halfop import __version__
from halfop.settings.home import JARS_LOCK, checkout


def versions(environ: Mapping[str, str]) -> str:
    """Returns a line for each: halfop, the Spark that would start, and the Delta that its jars are of."""
    return f"halfop {__version__}\nSpark {_spark(environ)}\nDelta {_delta(environ)}\n"


def _spark(environ: Mapping[str, str]) -> str:
    found = find_spec("pyspark")
    home = environ.get("SPARK_HOME") or (str(Path(found.origin).parent) if found and found.origin else "")
    if not home:
        install = "pip install 'halfop[spark]'" if JARS_LOCK.is_file() else "./spark-submit.sh setup"
        return f"is not installed: {install}"
    cores = [jar.stem.split("-", 2)[2] for jar in Path(home).glob("jars/spark-core_*-*.jar")]
    return f"{cores[0] if cores else 'has no jars'} ({home})"


def _delta(environ: Mapping[str, str]) -> str:
    home = checkout(environ)
    lock = home / "requirements" / "jars.lock" if home and not JARS_LOCK.is_file() else JARS_LOCK
    found: list[str] = re.findall(r":delta-spark_\S+:(\S+)", lock.read_text(encoding="utf-8"))
    return found[0]
