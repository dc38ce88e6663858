"""Files that belong to another user, and processes to which that matters: root's may do with files what they like."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NOBODY = 65534
_POWERS = "-dac_override,-dac_read_search,-fowner"
# Before a command of root's: it then may do with a file what the file's mode says, and no more.
POWERLESS = ("setpriv", f"--inh-caps={_POWERS}", f"--bounding-set={_POWERS}")


def _works() -> bool:
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return False
    return subprocess.run([*POWERLESS, "true"], capture_output=True, check=False).returncode == 0


needs_another_user = pytest.mark.skipif(not _works(), reason="only root may give files to another user, by setpriv")


def give_to_another(folder: Path, mode: int = 0o700) -> None:
    """Makes all files there another user's, open to nobody else but as the mode says."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(mode if path.is_dir() else mode & 0o666)
