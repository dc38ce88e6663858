"""The one place that knows what the errors of Spark, Delta and the JVM mean.

An exception of Java's arrives as PySpark's class for it if there is one, else as Py4JJavaError. Both have the Java
classes and their messages in their text, and only this text can be looked at.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from halfop.frame.errors import HalfopError, TransientError, UsageError, is_mistake
from halfop.frame.trouble import plainly

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""A Spark job or a call into the JVM has failed."""

READ_ERRORS = (*SPARK_ERRORS, FileNotFoundError)
"""Rows cannot be read, by Spark or by this process."""

OPERATIONAL_ERRORS = (HalfopError, *SPARK_ERRORS, Py4JNetworkError, OSError, pa.ArrowException)
"""All that a table, a broker or a catalog can meet. Any other error is a mistake in the code, and ends the job."""

_LONGEST = 300
_LOG = logging.getLogger("halfop.warehouse")
_CAUSED = re.compile(r"^Caused by: (?:[\w$]+\.)*([\w$]+(?:[: ][^\n]*)?)", re.MULTILINE)
_OVERTAKEN = re.compile(
    r"DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)|\bdelta\.exceptions\."
    r"|Concurrent(Transaction|Append|Write)|(Protocol|Metadata)Changed"
)
_REMOVED_FILE = re.compile(
    r"FILE_NOT_EXIST|PATH_NOT_FOUND|FileNotFoundException|VersionNotFoundException|DELTA_VERSION_NOT_FOUND|DELTA_LOG_FILE_NOT_FOUND"
    r"|Cannot load table version|no log files found|[Mm]issing (?:log|delta) file"
    r"|TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION|DELTA_FILE_NOT_FOUND|DELTA_CANNOT_RESTORE_TABLE_VERSION|DELTA_TRUNCATED_TRANSACTION_LOG"
)


# ---- what an error means ----


def is_java(error: Py4JJavaError, *names: str) -> bool:
    """Returns whether the JVM raised one of these classes."""
    return error.java_exception.getClass().getSimpleName() in names


def overtaken(error: Exception) -> bool:
    """Returns whether Delta refused a commit because another came first; on a local disk a lock keeps others out."""
    return isinstance(error, SPARK_ERRORS) and bool(_OVERTAKEN.search(f"{type(error)} {error}"))


def removed_file(error: Exception) -> str | None:
    """Returns the line that names the file of a table, or of its log, that is not there; None for any other error."""
    if isinstance(error, FileNotFoundError):
        return str(error)[:_LONGEST]
    if plainly(error) is not None:  # Java says "FileNotFoundException" also of a file that a full disk refuses to make
        return None
    lines = (line.strip() for line in str(error).splitlines() if _REMOVED_FILE.search(line))
    return next((line[:_LONGEST] for line in lines), None) if isinstance(error, SPARK_ERRORS) else None


def raise_mistake(error: Exception) -> None:
    """Raises the error again if it is a mistake in the code: no part of the work has failed then, but the program."""
    if is_mistake(error):
        raise error


# ---- what is shown of it ----


def first_line(error: BaseException) -> str:
    """Returns enough of an error for a summary: our own text or the JVM's, else with the name of the class."""
    if not isinstance(error, HalfopError) and (trouble := plainly(error)) is not None:
        return trouble
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString()).splitlines()[0][:_LONGEST]
    named = str(error) if isinstance(error, HalfopError) else f"{type(error).__name__}: {error}"
    return named.splitlines()[0][:_LONGEST]


def innermost(error: BaseException) -> str:
    """Returns the last cause that the JVM names, else the first line."""
    causes = _CAUSED.findall(str(error))
    return causes[-1] if causes else str(error).strip().split("\n")[0]


def as_ours(error: Exception, where: str) -> HalfopError:
    """Returns an error of ours as it is, and for any other one that names Spark's innermost cause."""
    if isinstance(error, HalfopError):
        return error
    raise_mistake(error)
    ours = TransientError(f"{where}: {plainly(error) or innermost(error)}")
    ours.__cause__ = error
    return ours


@contextmanager
def or_else(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Lets the caller go another way, which costs more, if one of these errors ends the block; the log says so."""
    try:
        yield
    except errors as error:
        _LOG.info("%s takes longer: %s", what, first_line(error))
        _LOG.debug("%s: the traceback", what, exc_info=error)


@contextmanager
def by_condition(where: str | None) -> Iterator[None]:
    """Raises UsageError with Spark's first words if a block fails whose rows the user has chosen by --where."""
    try:
        yield
    except PySparkException as error:
        if where is None:
            raise
        raise UsageError(f"--where {where}: {str(error).strip().splitlines()[0]}") from error


def log_failure(log: logging.Logger, what: str, error: Exception, line: str | None = None) -> str:
    """Logs that a part of the work failed, at -v with the traceback, and returns the line for the summary."""
    line = first_line(error) if line is None else line
    log.error("%s: %s", what, line)
    log.debug("%s: the traceback", what, exc_info=error)
    return line
