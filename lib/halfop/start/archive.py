"""The class archive: the classes that jobs load, as Java has read and checked them, kept for later starts.

Java calls it AppCDS. An archive fits one Java, one class path of jars that nobody has touched since, and one form of
references in the heap. Java goes on without an archive that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from halfop.frame.errors import HalfopError

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
