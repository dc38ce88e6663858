"""What a Spark with a local master gets, so that it keeps to itself.

It listens on loopback, asks for a secret, and has its own folder. Whoever reaches its ports may otherwise stop its
block manager, and whoever reads its folder reads shuffled rows. Hadoop gives files modes by a umask of its own, 022:
others could read what the user's umask keeps from them, and could not write what it lets them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from halfop.frame.errors import UsageError
from halfop.settings.home import make_own

_LOCAL = re.compile(r"local(\[[^\]]*\])?")
# Open as long as the process lives: by its lock others see that the folder is in use.
_held: list[TextIO] = []


UMASK = "spark.hadoop.fs.permissions.umask-mode"
# The user's own settings, which decide about ours.
USERS = (
    "spark.master",
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.authenticate",
    "spark.local.dir",
    UMASK,
)


def own_settings(given: Mapping[str, str], environ: Mapping[str, str], cache: Path) -> dict[str, str]:
    """Returns the settings that a session with a local master gets besides the user's own, which count."""
    if not _LOCAL.fullmatch(given.get("spark.master", "")):
        return {}
    found = {}
    if not {"spark.driver.host", "spark.driver.bindAddress"} & given.keys() and not environ.get("SPARK_LOCAL_IP"):
        found["spark.driver.host"] = "127.0.0.1"
    if "spark.authenticate" not in given:
        found["spark.authenticate"] = "true"  # Spark draws the secret itself, if its master is local
    if UMASK not in given:
        found[UMASK] = f"{_umask():03o}"
    if "spark.local.dir" not in given and not environ.get("SPARK_LOCAL_DIRS"):
        found["spark.local.dir"] = str(_own_folder(cache / f"spark-{os.getuid()}"))
    return found


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _own_folder(parent: Path) -> Path:
    """Makes a folder for this process alone, and removes those of processes that are dead."""
    try:
        make_own(parent)
        with suppress(OSError):  # some file systems keep other modes: nothing that is there before is used
            parent.chmod(0o700)
        with (parent / "lock").open("a") as lock:  # a folder without its lock must not be taken for a dead one's
            fcntl.flock(lock, fcntl.LOCK_EX)
            for folder in parent.glob("job-*"):
                _remove_if_dead(folder)
            made = Path(tempfile.mkdtemp(prefix="job-", dir=parent))
            _held.append((made / "lock").open("w"))
            fcntl.flock(_held[-1], fcntl.LOCK_EX)
        return made
    except OSError as error:
        raise UsageError(
            f"{parent}: cannot be made or written ({error.strerror}), and Spark needs a folder of its own for what it "
            "shuffles; name another by SPARK_LOCAL_DIRS"
        ) from error


def _remove_if_dead(folder: Path) -> None:
    with suppress(OSError), (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
