"""What of a machine a nemesis may disturb: networks, disks and clocks of its own, in namespaces that end with it.

What a machine does not allow is left out, with one plain sentence.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_INSIDE = "NEMESIS_INSIDE"  # set in namespaces of its own
_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
# A process that has a network of its own once it has written a line.
_HOLDER = ("unshare", "--net", "sh", "-c", "echo; exec sleep infinity")
_NEAR = "10.77.0.1"
_LIBRARY = "LIBFAKETIME"
# As Debian's package puts it.
_LIBRARIES = "/usr/lib/*/faketime/libfaketime.so.1"
_MIB = 1 << 20


def enter() -> None:
    """Starts this program again in namespaces of its own, where that is allowed."""
    ways = (_UNSHARE, (*_UNSHARE, "--map-root-user"))
    for way in ways if shutil.which("unshare") and _INSIDE not in os.environ else ():
        if not subprocess.run([*way, "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode:
            os.execvpe(way[0], [*way, sys.executable, *sys.argv], os.environ | {_INSIDE: "1"})  # noqa: S606


class Machine:
    """`host` is where servers listen; `far` has a command's beginning for each network from which they are reached."""

    def __init__(self, folder: Path, networks: int) -> None:
        self._folder, self.left_out = folder, list[str]()
        self.host, self.far = "127.0.0.1", [list[str]() for _ in range(networks)]
        self.links, self.disks, self.clocks = list[str](), list[Path](), list[str]()
        if _INSIDE in os.environ:
            self._divide(networks)
        else:
            self.left_out += ["no partitions and no full disk: `unshare` or `ip` is missing, or not allowed here"]
        self._clock = _library()
        if not self._clock:
            self.left_out += [f"no wrong clocks: install faketime, or name libfaketime.so.1 by {_LIBRARY}"]

    def _divide(self, networks: int) -> None:
        """Networks with one link each to this one."""
        self.host = _NEAR
        _ip("link", "set", "lo", "up")
        _ip("addr", "add", f"{_NEAR}/32", "dev", "lo")
        for number in range(1, networks + 1):
            holder = subprocess.Popen(_HOLDER, stdout=subprocess.PIPE)
            assert holder.stdout is not None
            holder.stdout.readline()
            inside, near, far = ["nsenter", "-t", str(holder.pid), "-n"], f"near{number}", f"far{number}"
            _ip("link", "add", near, "type", "veth", "peer", "name", far)
            _ip("link", "set", far, "netns", str(holder.pid))
            for device, end, way in ((near, 1, []), (far, 2, inside)):
                _ip("addr", "add", f"10.77.{number}.{end}/24", "dev", device, way=way)
                _ip("link", "set", device, "up", way=way)
            _ip("route", "add", "default", "via", f"10.77.{number}.1", way=inside)
            self.links.append(near)
            self.far[number - 1] = inside

    # ---- networks ----

    def cut(self, link: str) -> None:
        _ip("link", "set", link, "down")

    def join(self, link: str) -> None:
        _ip("link", "set", link, "up")

    # ---- disks ----

    def disk(self, name: str, mebibytes: int) -> Path:
        """A folder, on a disk of its own if there may be one."""
        path = self._folder / name
        path.mkdir(parents=True)
        if _INSIDE in os.environ:
            _done("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "nemesis", str(path))
            self.disks.append(path)
        return path

    def fill(self, disk: Path) -> None:
        with _filler(disk).open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(_MIB)):
                pass

    def empty(self, disk: Path) -> None:
        _filler(disk).unlink()

    # ---- clocks ----

    def with_clock(self, name: str) -> Mapping[str, str]:
        """The environment of a process whose clock can be set; monotonic clocks and files' times stay right."""
        if not self._clock:
            return {}
        self.set_clock(name, 0)
        self.clocks.append(name)
        own = {"LD_PRELOAD": self._clock, "FAKETIME_TIMESTAMP_FILE": str(self._clock_file(name))}
        return own | {"FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}

    def set_clock(self, name: str, seconds: float) -> None:
        """Sets a clock before or after the right time."""
        new = self._clock_file(f"{name}.new")
        new.write_text(f"{seconds:+.1f}\n")
        new.replace(self._clock_file(name))  # a process that looks now finds a whole file

    def _clock_file(self, name: str) -> Path:
        return self._folder / f"clock-{name}"


def _library() -> str:
    found = sorted(Path("/").glob(_LIBRARIES.lstrip("/")))
    return os.environ.get(_LIBRARY, str(found[0]) if found else "")


def _filler(disk: Path) -> Path:
    return disk / "filler"


def _ip(*words: str, way: Sequence[str] = ()) -> None:
    _done(*way, "ip", *words)


def _done(*command: str) -> None:
    subprocess.run(command, check=True)
