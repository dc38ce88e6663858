"""Says what to do where files have been removed that belong to a version which a run has pinned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from halfop.frame.errors import HalfopError
from halfop.planning.run import Run

_REMOVED = (
    "FILE_NOT_EXIST",
    "FileNotFoundException",
    "VersionNotFoundException",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_CANNOT_RESTORE_TABLE_VERSION",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
)


class InputGone(HalfopError):
    """Files of a pinned version have been removed."""


@contextmanager
def naming_removed_files(run: Run) -> Iterator[None]:
    """Nothing wrong can come of a file that is not there, for the job fails; this says what to do."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        if not any(word in str(error) for word in _REMOVED):
            raise
        pins = ", ".join(f"{name} {version}" for name, version in sorted(run.inputs.items()) if version >= 0)
        raise InputGone(
            f"VACUUM or log clean-up removed a file that run {run.run_id} reads: keep versions as long as a run may "
            "be open or is to be verified, by delta.deletedFileRetentionDuration and delta.logRetentionDuration\n"
            f"it reads tables as they were when it opened ({pins}): {_about(str(error))}\n"
            "where the file can be brought back (a backup, a bucket's versions) the next start finishes the run"
        ) from error


def _about(text: str) -> str:
    """The line of an error that names the file."""
    lines = [line.strip() for line in text.splitlines() if any(word in line for word in _REMOVED)]
    return lines[0][:300] if lines else ""
