"""What Java must find on the machine when it starts, asked for before: it would say so by a stack trace."""

from __future__ import annotations

import os
import pwd
import resource
import tempfile
from collections.abc import Mapping

from halfop.frame.errors import UsageError

_FEWEST_FILES = 512  # Java opens each jar of Spark, some 330
_LIBRARIES = 1 << 20  # bytes; what Spark's jars unpack there is of this size


def refuse_too_little(environ: Mapping[str, str]) -> None:
    """Raises UsageError if a process may open few files, the temporary folder takes none, or the user has no name."""
    _refuse_few_files()
    _refuse_full(temporary(environ) or "/tmp")  # noqa: S108 - Java's own, whatever Python finds
    try:
        pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise UsageError(
            f"user {os.getuid()} has no name on this machine, and Hadoop needs one: add it to /etc/passwd, as "
            "the entry point of Spark's container images does"
        ) from error


def _refuse_few_files() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if resource.RLIM_INFINITY != most < _FEWEST_FILES:
        raise UsageError(
            f"a process may have {most} files open here, and Spark needs {_FEWEST_FILES} or more: allow more, as by "
            "ulimit -n 4096"
        )


def _refuse_full(folder: str) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            if file.write(bytes(_LIBRARIES)) < _LIBRARIES:
                raise OSError("it is full")
    except OSError as error:
        raise UsageError(
            f"{folder}: this temporary folder takes no files ({error.strerror or error}), and Java needs one: name "
            "another by TMPDIR"
        ) from error


def temporary(environ: Mapping[str, str]) -> str | None:
    """Returns the temporary folder that the user names; Java does not look there by itself."""
    return environ.get("TMPDIR") or None
