"""The options that a job's Java starts with: the class archive, and Java's first compiler alone.

The second compiler makes quicker code, but the rows of large jobs are read by Python workers and not by Java. Only a
job that stays runs the same code so often that it pays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from halfop.start.archive import Archive
from halfop.start.machine import temporary

# Alone it gets a fifth of the usual room for its code: full after some minutes, and Java interprets what is new.
FIRST_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
# Java refuses some of these beside an archive of ours.
_USERS_ARCHIVE = re.compile(r"-Xshare|-XX:.?(SharedArchiveFile|ArchiveClassesAtExit|AutoCreateSharedArchive|AOT)")


def spark_submit_opts(archive: Archive, environ: Mapping[str, str], job: Sequence[str] = ()) -> str:
    """Returns the value for SPARK_SUBMIT_OPTS. The user's own come last: the last of two that differ counts.

    `job` is the job's name and its options.
    """
    users = environ.get("SPARK_SUBMIT_OPTS", "")
    options = [] if _USERS_ARCHIVE.search(users) else archive.options()
    if (folder := temporary(environ)) is not None:
        options = [*options, f"-Djava.io.tmpdir={folder}"]
    return " ".join([*map(quoted, options), *(() if _stays(job) else FIRST_COMPILER), users]).strip()


def _stays(job: Sequence[str]) -> bool:
    return "follow" in job[:1] and "--once" not in job


def quoted(option: str) -> str:
    """The option as Spark's launcher takes it apart, if it holds a space."""
    if not re.search(r"[\s\"'\\]", option):
        return option
    return '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'
