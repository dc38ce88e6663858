"""The image without an engine: its steps run in a Debian of debootstrap's, and containers in that folder tree.

A container has namespaces of its own for mounts, processes and the network (loopback alone), a root that is read-only,
a user id that nobody has named, group 0, and no capability.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.fetched import fetching, same
from support.places import ROOT

from systems.deploy.containerfile import Image, image

FILE = ROOT / "deploy" / "container" / "Containerfile"
USER = 1000660000
_PACKAGES = "python3,python3-venv,ca-certificates"  # as the base image has them
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_OF_THE_BUILDER = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/apt/apt.conf.d", _CERTIFICATES)
_BUILDER_ENV = ("PIP_", "SSL_", "HALFOP_IVY", "http", "no_proxy")
_NO_POWERS = ("--no-new-privs", "--inh-caps=-all", "--bounding-set=-all")
_BUILD_SECONDS = 1500
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def tools_missing() -> list[str]:
    """Returns what a machine lacks to build it."""
    wanted = ("debootstrap", "unshare", "setpriv", "chroot", "ip")
    return ["root"] * (os.getuid() != 0) + [tool for tool in wanted if shutil.which(tool) is None]


@dataclass(frozen=True)
class Container:
    """The image's folder tree, and a volume at /data."""

    root: Path
    image: Image
    volume: Path

    def called(self, *words: str, entry: Sequence[str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the entry point with the words, or another program."""
        self.volume.mkdir(exist_ok=True)
        os.chown(self.volume, 0, 0)
        self.volume.chmod(0o775)
        start = ["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-ec", _START, "sh"]
        places = [str(self.root), str(self.volume), self.image.folder, str(USER)]
        return subprocess.run(
            [*start, *places, *(self.image.entry if entry is None else entry), *words],
            env={"PATH": PATH} | self.image.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


_START = f"""
root=$1 volume=$2 folder=$3 user=$4
shift 4
ip link set lo up
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$volume" "$root/data"
mount -o remount,ro,bind "$root"
exec chroot "$root" setpriv --reuid="$user" --regid=0 --clear-groups {" ".join(_NO_POWERS)} \
    sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"""


def built() -> Path:
    """Returns the folder tree that the Containerfile makes of the checkout; it is built again if that has changed."""
    with fetching("image") as folder:
        base, root, made = folder / "base", folder / "root", folder / "made"
        _debian(base)
        now = folder / "now"
        now.write_text(_seen())
        if not same(now, made):
            made.unlink(missing_ok=True)
            shutil.rmtree(root, ignore_errors=True)
            copy = ["cp", "-a", "--reflink=auto", str(base), str(root)]
            subprocess.run(copy, check=True)
            _build(root, image(FILE))
            now.replace(made)
    return root


def _debian(base: Path) -> None:
    if not base.is_dir():
        part = base.with_name("part")
        shutil.rmtree(part, ignore_errors=True)
        call = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(part)]
        subprocess.run(call, check=True, capture_output=True, timeout=_BUILD_SECONDS)
        part.rename(base)


def _seen() -> str:
    """Names, sizes and times of what the image is made from."""
    sources = [FILE, *(ROOT / each for word, words in image(FILE).steps if word == "COPY" for each in words[:-1])]
    files = [each for source in sources for each in ([source] if source.is_file() else sorted(source.rglob("*")))]
    kept = [each for each in files if each.is_file() and "__pycache__" not in each.parts]
    seen = [(each.relative_to(ROOT), each.stat()) for each in kept]
    return "".join(f"{name} {stat.st_size} {stat.st_mtime_ns}\n" for name, stat in seen)


def _build(root: Path, made: Image) -> None:
    for each in filter(os.path.exists, _OF_THE_BUILDER):
        copy = ["cp", "-aL", "--parents", each, str(root)]
        subprocess.run(copy, check=True)
    own = {name: value for name, value in os.environ.items() if name.startswith(_BUILDER_ENV)}
    for word, words in made.steps:
        if word == "RUN":
            folder, command = words
            _run(root, folder, command, own | made.env)
        elif word == "COPY":
            _copy(root, words)
        else:
            (root / words[0][1:]).mkdir(parents=True, exist_ok=True)


def _run(root: Path, folder: str, command: str, environ: dict[str, str]) -> None:
    start = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" sh -ec "$1"'
    call = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", start, str(root), f"cd {folder}\n{command}"]
    subprocess.run(call, env={"PATH": PATH} | environ, check=True, timeout=_BUILD_SECONDS)


def _copy(root: Path, words: Sequence[str]) -> None:
    """A folder's content goes into the target, as COPY has it: here from a checkout that only its owner may read."""
    *sources, target = words
    for each in sources:
        source, there = ROOT / each, root / target[1:]
        if source.is_dir():
            shutil.copytree(source, there, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            there = there / source.name if target.endswith("/") or there.is_dir() else there
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, there)
        for path in (there, *there.rglob("*")):
            path.chmod(path.stat().st_mode & 0o700)
