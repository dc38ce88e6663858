"""The place that halfop runs from: a checkout, or a package that was installed from its wheel."""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from halfop.frame.errors import UsageError

# The lock of Delta's jars. It lies in the package only in a wheel, which starts Spark without the checkout's launcher.
JARS_LOCK = Path(__file__).absolute().parents[1] / "jars.lock"


def checkout(environ: Mapping[str, str]) -> Path | None:
    """Returns the checkout, which has the default configuration and warehouse; None in a zip or installed package.

    It is HALFOP_HOME, else the checkout that this file lies in.
    """
    if environ.get("HALFOP_HOME"):
        return Path(environ["HALFOP_HOME"])
    lib = Path(__file__).absolute().parents[2]
    return lib.parent if lib.name == "lib" and lib.parent.joinpath("conf").is_dir() else None


def sample(environ: Mapping[str, str]) -> Path | None:
    """Returns the folder of the demo's sample: the checkout's demo/, or the wheel's copy; None in a zip."""
    home = checkout(environ)
    folders = [JARS_LOCK.parent / "sample", *([home / "demo"] if home else [])]
    return next((folder for folder in folders if folder.is_dir()), None)


def launcher() -> str:
    """Returns the command that users start jobs with, wherever they are."""
    if JARS_LOCK.is_file():
        return "halfop"
    home = checkout(os.environ)
    with suppress(OSError):  # a working directory that is gone is no checkout
        if home is None or Path.cwd().samefile(home):
            return "./spark-submit.sh"
    return shlex.quote(f"{home}/spark-submit.sh")


def fetched_jars(lock: Path, spark: str, cache: Path) -> Path:
    """Returns the folder for a Spark's jars that an installed package fetches, named by what is in them."""
    sources = [lock, *sorted((lock.parent / "lib" / "java").rglob("*.java"))]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return cache / f"jars-{spark}-{digest[:16]}"


def cache(environ: Mapping[str, str]) -> Path:
    """Returns the folder for what may be lost: the checkout's .halfop/, else the user's own."""
    home = checkout(environ)
    if home is not None and os.access(home / ".halfop", os.W_OK | os.X_OK):
        return home / ".halfop"
    return user_cache(environ)


def user_cache(environ: Mapping[str, str]) -> Path:
    """Returns the user's folder for what may be lost; one in the temporary folder for a user without a home.

    Raises UsageError if others may write to that: it holds code.
    """
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "halfop"
    home = Path(os.path.expanduser("~"))
    if home.is_dir() and os.access(home, os.W_OK | os.X_OK):
        return home / ".cache" / "halfop"
    folder = Path(tempfile.gettempdir()) / f"halfop-{os.getuid()}"
    try:
        make_own(folder)
        if folder.stat().st_mode & 0o022:
            raise PermissionError(errno.EPERM, "others may write to it")
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be used ({error.strerror}), and halfop keeps code there: name another folder by "
            "XDG_CACHE_HOME"
        ) from error
    return folder


def make_own(folder: Path) -> None:
    """Makes a folder for this user alone. Raises OSError if it is there and is a link, or another user's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise PermissionError(errno.EPERM, "it is a link")
    if found.st_uid != os.getuid():  # who was there first, in a folder that is open to all
        raise PermissionError(errno.EPERM, "another user owns it")
