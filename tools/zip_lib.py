"""The zip of lib/halfop that goes to driver and executors.

Its name holds a hash of its content: a changed source makes a new file, and a job that runs goes on reading the one it
started with.
"""

import hashlib
import os
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
KEEP_SECONDS = 30 * 24 * 3600
sys.path.insert(0, str(HOME / "lib"))

from halfop.settings.home import user_cache  # noqa: E402


def sources() -> dict[str, Path]:
    """Path in the zip -> file."""
    found = {"halfop/conf/halfop.yaml": HOME / "conf/halfop.yaml"}
    for prefix, folder in (("halfop", HOME / "lib/halfop"), ("halfop/schemas", HOME / "schemas")):
        found |= {f"{prefix}/{path.relative_to(folder)}": path for path in folder.rglob("*")}
    return {name: path for name, path in sorted(found.items()) if path.is_file() and "__pycache__" not in path.parts}


def made(folder: Path) -> Path:
    """Returns the zip in the folder, or in the user's own cache if that lacks it and another user owns the checkout."""
    if not os.access(folder.parent, os.W_OK):
        folder = user_cache(os.environ) / folder.name
    contents = {name: path.read_bytes() for name, path in sources().items()}
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(b"%s\0%d\0%s" % (name.encode(), len(content), content))
    target = folder / f"halfop-{digest.hexdigest()[:16]}.zip"
    if target.exists():
        with suppress(PermissionError):  # another user made it, and keeps it
            os.utime(target)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{target.name}.{os.getpid()}"
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                archive.writestr(name, content)
        part.replace(target)
        for old in folder.iterdir():
            if old.stat().st_mtime < time.time() - KEEP_SECONDS:
                old.unlink(missing_ok=True)
    return target
