"""Trouble of a machine as a plain sentence: a full disk, one that can only be read; a failure in a job's last line.

An error may come from Python, from Java or from a worker of Spark's. The system's own words are in each. A file is
durable when its bytes are, and when its folder's entry of it is. Other file systems promise of their own that a file
which has been closed is there, so nobody calls this for them."""

from __future__ import annotations

import errno
import getpass
import os
import re
import resource
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from halfop.frame.errors import HalfopError, is_mistake, is_transient
from halfop.frame.summary import Summary

_AGAIN = "and start again, which is always safe"


def _denied() -> str:
    return (
        f"{_named(user())} may not read or write there. Start as the user that owns it, or let that user share it: a "
        "group of both, chmod -R g+rwX, and umask 002 for every job"
    )


def _named(name: str) -> str:
    return f"user {name}" if name == str(os.getuid()) else f"user {name} (number {os.getuid()})"


def _too_many_files() -> str:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return f"this process may have {most} files open. Allow more, as by ulimit -n 4096 before the call, {_AGAIN}"


# The system's words, and what they mean.
_MEANT: dict[str, Callable[[], str]] = {
    "No space left on device": lambda: f"the disk is full. Make room on it, {_AGAIN}",
    "Disk quota exceeded": lambda: f"your share of the disk is used up. Make room in it, {_AGAIN}",
    "Read-only file system": lambda: f"the disk can only be read. Mount it to be written, {_AGAIN}",
    "Input/output error": lambda: f"the disk fails (dmesg may say why). Repair it, {_AGAIN}",
    "Too many open files": _too_many_files,
    "Permission denied": _denied,
    "Operation not permitted": _denied,
    "AccessDeniedException": _denied,
}
# They last until somebody changes something.
_LASTING = re.compile("Read-only|Permission denied|not permitted|AccessDenied|has no client")
_WORDS = "|".join(map(re.escape, _MEANT))
# A path before the words (Java's, PyArrow's) or after them (Python's).
_PLACED = re.compile(
    rf"(?:^|[\s'`])(?:file:)?(?P<before>/[^\n'`]*?)(?:: | \(|'\. Detail: \[errno \d+\] )(?:{_WORDS})"
    rf"|(?:{_WORDS}): '?(?:file:)?(?P<after>/[^\n'`]+)"
)


# Stores of others, whose own text says what they refuse: no chmod here mends it.
_ELSEWHERE = re.compile(r"AccessControlException|AccessDeniedException: (?!file:)[a-z][a-z0-9+.-]*:/")


@contextmanager
def named(path: str | Path) -> Iterator[None]:
    """Gives an error of the disk the file's path: the system's own error of a call of an open file has none."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def may_pass(trouble: str) -> bool:
    """Returns whether trouble that `plainly` has put into words may end by itself."""
    return not _LASTING.search(trouble)


# Hadoop's clients of other stores, by the class that it looks for: the scheme, and the package that has it.
_CLIENTS = {
    "s3a.S3AFileSystem": ("s3a", "hadoop-aws"),
    "azurebfs.SecureAzureBlobFileSystem": ("abfss", "hadoop-azure"),
}
_NO_CLIENT = re.compile(rf"Class org\.apache\.hadoop\.fs\.({'|'.join(map(re.escape, _CLIENTS))}) not found")


def missing_client(error: BaseException) -> str | None:
    """Returns which package Spark lacks for a store, and how to add it; None for any other error."""
    found = _NO_CLIENT.search(f"{error}\n{getattr(error, '_stackTrace', '')}")
    if found is None:
        return None
    scheme, package = _CLIENTS[found[1]]
    option = f"--packages org.apache.hadoop:{package}:{_hadoop()}"
    return f"Spark has no client of {scheme}:// here. Add it before the job's name: {option} (docs/install.md)"


def _hadoop() -> str:
    """The version of the Hadoop that comes with Spark."""
    spec = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or os.path.dirname((spec and spec.origin) or "")
    jars = sorted(Path(home, "jars").glob("hadoop-client-api-*.jar"))
    return jars[-1].stem.removeprefix("hadoop-client-api-") if jars else "VERSION"


def plainly(error: BaseException) -> str | None:
    """Returns where the machine refused what, and the way out; None for an error that says nothing of the kind."""
    if (lacking := missing_client(error)) is not None:
        return lacking
    text = f"{error}\n{getattr(error, '_stackTrace', '')}"  # of Java's, PySpark keeps the causes apart
    said = re.findall(_WORDS, text)
    if not said or _ELSEWHERE.search(text):
        return None
    found = list(_PLACED.finditer(text))
    where = (found[-1]["before"] or found[-1]["after"]) if found else "the warehouse, or Spark's folder spark.local.dir"
    return f"{where}: {_MEANT[said[-1]]()} ({said[-1]})"


def make_durable(files: Iterable[str | Path]) -> None:
    """Makes files durable, and after them the entries of their folders: each folder once. Raises OSError."""
    written = [os.fspath(file) for file in files]
    for file in written:
        sync(file)
    for folder in sorted({os.path.dirname(os.path.abspath(file)) for file in written}):
        sync(folder)


def sync(path: str | Path) -> None:
    """Makes a file's bytes durable, or the entries of a folder: files made, renamed or removed in it."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with named(path):
            os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL or not os.path.isdir(path):  # some file systems sync no folders
            raise
    finally:
        os.close(handle)


def user() -> str:
    """Returns the user's name; the number of a user that has no name, as containers on OpenShift have."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # Python 3.13 raises the latter
        return str(os.getuid())


def owner() -> str:
    """Returns the user and the machine."""
    return f"{user()}@{socket.gethostname()}"


@dataclass(frozen=True)
class Failure:
    status: int
    message: str
    transient: bool
    known: Mapping[str, object] = field(default_factory=dict)

    def fields(self) -> dict[str, object]:
        """The fields of a summary's line, without the job's name: also what was known before it failed."""
        return {**self.known, "error": self.message, "transient": self.transient, "status": self.status}


def failure_of(error: BaseException, verbose: bool) -> Failure:
    known = _known(error)
    if isinstance(error, HalfopError):
        return Failure(error.exit_status, str(error), error.transient, known)
    if isinstance(error, KeyboardInterrupt):
        return Failure(130, "interrupted", True, known)
    if (trouble := plainly(error)) is not None and not is_mistake(error):
        return Failure(1, trouble, may_pass(trouble), known)
    hint = "" if verbose else "\nrun again with -v for the traceback"
    return Failure(1, f"{type(error).__name__}: {_first_lines(str(error))}{hint}", is_transient(error), known)


def _known(error: BaseException) -> dict[str, object]:
    """The fields of the summary that `Summary.shown_in_failure` has left with the error."""
    summary = getattr(error, "summary", None)
    fields = summary.fields() if isinstance(summary, Summary) else {}
    return {name: value for name, value in fields.items() if name != "job"}


def _first_lines(message: str) -> str:
    """A JVM's error carries its stack trace in its text: up to that."""
    return re.split(r"\n\s*at |\n+JVM stacktrace:", message)[0].strip()
