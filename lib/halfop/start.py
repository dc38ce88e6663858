"""The start of a job's Java: an archive of classes, open streams, a machine that is large enough, its options.

It gets its first compiler alone: the second makes quicker code, but the rows of large jobs are read by Python workers
and not by Java. It pays only in a job that plays many runs: a `follow` that stays, and `simulate`.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from halfop.frame.errors import HalfopError, UsageError

_KEPT_UNUSED_SECONDS = 30 * 24 * 3600
_NAMES_AOT = 24  # since this Java messages about archives have the tag `aot`, too; an older one does not start with it


@dataclass(frozen=True)
class Archive:
    """The archive for a Java and for the folders of jars on its class path, in a folder of archives."""

    folder: Path
    java: Path
    jars: Sequence[Path]

    @staticmethod
    def at(folder: str, java: str, jars: str, spark: str) -> Archive:
        """The archive for a Java that has halfop's jars and Spark's on its class path."""
        return Archive(Path(folder), Path(java).resolve(), [Path(jars), Path(spark, "jars")])

    def file(self) -> Path | None:
        """The file that holds it, or would; None if this Java has no `release` file to be known by."""
        if (release := self._release()) is None:
            return None
        parts = [str(self.java), release, *(_seen(jar) for folder in self.jars for jar in sorted(folder.glob("*.jar")))]
        return self.folder / f"classes-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}.jsa"

    def _release(self) -> str | None:
        with suppress(OSError):
            return self.java.parents[1].joinpath("release").read_text()
        return None

    def is_made(self) -> bool:
        file = self.file()
        return file is not None and file.is_file()

    def options(self) -> list[str]:
        """Java's options to start with the archive; none if it is not made."""
        file = self.file()
        if file is None or not file.is_file():
            return []
        with suppress(OSError):  # another user's
            for each in (file, self._base()):
                os.utime(each)
        return [*self._quiet(), f"-XX:SharedArchiveFile={file}"]

    def _quiet(self) -> list[str]:
        """No message about an archive that does not fit, and others on stderr: stdout holds a job's summary."""
        major = re.search(r'^JAVA_VERSION="(\d+)', self._release() or "", re.MULTILINE)
        aot = ",aot*=off" if major and int(major[1]) >= _NAMES_AOT else ""
        return ["-Xlog:disable", f"-Xlog:all=warning,cds*=off{aot}:stderr"]

    def options_to_make(self, part: Path) -> list[str]:
        """Java's options to write the archive to a file when it ends."""
        if self.file() is None:
            raise HalfopError(f"{self.java} has no file `release` beside it to be known by")
        own = self.java.parents[1] / "lib" / "server" / "classes.jsa"
        base = [] if own.is_file() else [f"-XX:SharedArchiveFile={self._made_base()}"]
        return [*self._quiet(), *base, f"-XX:ArchiveClassesAtExit={part}"]

    def _base(self) -> Path:
        return self.folder / f"{(self.file() or self.java).stem}-base.jsa"

    def _made_base(self) -> Path:
        """Java's own classes in an archive, which one of further classes builds on: runtimes from PyPI come without."""
        subprocess.run([str(self.java), "-Xshare:dump", f"-XX:SharedArchiveFile={self._base()}"], check=True)
        return self._base()

    def keep(self, part: Path, class_path: str) -> None:
        """Gives a written archive its name if it is whole, and removes those that nobody has used for long."""
        self._check(part, class_path)
        if (file := self.file()) is not None:
            part.replace(file)
        for old in self.folder.glob("classes-*.jsa"):
            if old.stat().st_mtime < time.time() - _KEPT_UNUSED_SECONDS:
                old.unlink(missing_ok=True)

    def _check(self, part: Path, class_path: str) -> None:
        """Java may crash on a file that a full disk has cut, and looks at its sums only if it is asked to."""
        checked = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={part}"]
        subprocess.run([str(self.java), *checked, "-Xshare:on", "-cp", class_path, "-version"], check=True)


def _seen(jar: Path) -> str:
    found = jar.stat()
    return f"{jar} {found.st_size} {found.st_mtime_ns}"


def open_closed() -> None:
    """Opens the null device for each standard stream that the caller has closed: another file would get its number."""
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)  # programs that this one starts write there, too
            setattr(sys, name, os.fdopen(number, mode))


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


# Alone it gets a fifth of the usual room for its code: full after some minutes, and Java interprets what is new.
FIRST_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
# conf/log4j2.properties keeps back what Spark warns of and nobody can act on; neutral shows it.
SPARKS_WARNINGS = "-Dhalfop.sparks.warnings=neutral"
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
    if {"-v", "--verbose"} & {*job}:
        options = [*options, SPARKS_WARNINGS]
    return " ".join([*map(quoted, options), *(() if _plays_many_runs(job) else FIRST_COMPILER), users]).strip()


def _plays_many_runs(job: Sequence[str]) -> bool:
    return "simulate" in job[:1] or ("follow" in job[:1] and "--once" not in job)


def quoted(option: str) -> str:
    """The option as Spark's launcher takes it apart, if it holds a space."""
    if not re.search(r"[\s\"'\\]", option):
        return option
    return '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'
