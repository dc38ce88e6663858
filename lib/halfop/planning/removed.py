"""Says what to do if files have been removed that belong to a version which a run has pinned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from halfop.frame.errors import HalfopError
from halfop.planning.run import Run
from halfop.warehouse.spark_errors import READ_ERRORS, removed_file


class InputRemoved(HalfopError):
    """Files of a pinned version have been removed."""


@contextmanager
def naming_removed_files(run: Run) -> Iterator[None]:
    """Makes the error of a removed file say what to do; nothing wrong is written, because the job fails."""
    try:
        yield
    except READ_ERRORS as error:
        file = removed_file(error)
        if file is None:
            raise
        pins = ", ".join(f"{name} {version}" for name, version in sorted(run.inputs.items()) if version >= 0)
        raise InputRemoved(
            f"VACUUM or log clean-up removed a file that run {run.run_id} reads: keep versions as long as a run may "
            "be open or is to be verified, by delta.deletedFileRetentionDuration and delta.logRetentionDuration\n"
            f"it reads tables as they were when it opened ({pins}): {file}\n"
            "if you can bring the file back (from a backup or a bucket's versions), the next start finishes the run"
        ) from error
