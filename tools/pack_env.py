"""pack_env.py FILE: archive a whole Python with the packages of runtime.lock for --archives: executors need none.

It is this environment's own interpreter, its standard library, and the shared libraries that they link to, without
the C library. It works where that is at least as new as here. Spark itself is left out: it is there wherever a
driver or executor starts.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
VENV, BASE = Path(sys.prefix), Path(sys.base_prefix)
SPARK = {"pyspark", "py4j"}
LEFT_OUT = {"__pycache__", "site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip"}
LEFT_OUT_OF = ("config-", "_tkinter")  # what it is linked from, and windows
# of the C library, which every machine has in one piece with its loader
SYSTEM = re.compile(r"^(ld-|lib(c|m|dl|rt|pthread|util|resolv|anl|nsl|crypt|BrokenLocale|mvec)\.so)")
# The libraries are not looked for beside the interpreter by themselves, and a Debian's Python ignores site-packages.
WRAPPER = """\
#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")
export LD_LIBRARY_PATH="$root/lib/shared${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$root/PACKAGES"
exec "$root/bin/NAME" "$@"
"""


def packages() -> list[str]:
    lock = (HOME / "requirements/runtime.lock").read_text()
    return sorted(set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)) - SPARK)


def contents() -> dict[str, Path]:
    """The files by their names in the archive."""
    found = {f"bin/{interpreter().name}": interpreter()}
    found |= {str(file.relative_to(BASE)): file for file in standard_library()}
    for name in packages():
        files = (Path(str(file.locate())).resolve() for file in distribution(name).files or ())
        found |= {str(file.relative_to(VENV)): file for file in files if file.exists() and not left_out(file, VENV)}
    return found | {f"lib/shared/{name}": file for name, file in shared_libraries(found.values()).items()}


def interpreter() -> Path:
    return Path(os.path.realpath(sys.executable))


def standard_library() -> Iterator[Path]:
    places = {name: sysconfig.get_path(name, vars={"platbase": str(BASE)}) for name in ("stdlib", "platstdlib")}
    for place in sorted(set(places.values())):
        yield from (file for file in Path(place).rglob("*") if file.is_file() and not left_out(file, Path(place)))


def left_out(file: Path, root: Path) -> bool:
    parts = file.relative_to(root).parts
    if root == VENV:
        return "__pycache__" in parts or parts[0] == "bin"
    return bool(LEFT_OUT.intersection(parts)) or any(part.startswith(LEFT_OUT_OF) for part in parts)


def shared_libraries(files: Iterable[Path]) -> dict[str, Path]:
    """The libraries that these programs and modules link to, but the C library's and those that come with a package."""
    binaries = [str(file) for file in files if ".so" in file.name or file == interpreter()]
    said = subprocess.run([shutil.which("ldd") or "ldd", *binaries], capture_output=True, text=True, check=False).stdout
    linked = dict(re.findall(r"^\s*(\S+) => (/\S+) \(", said, re.MULTILINE))
    return {
        name: Path(path) for name, path in linked.items() if not SYSTEM.match(name) and VENV not in Path(path).parents
    }


def main(target: Path) -> None:
    part = target.with_name(f"{target.name}.part")
    with tarfile.open(part, "w:gz", compresslevel=5) as archive, tempfile.TemporaryDirectory() as folder:
        for name, file in sorted(contents().items()):
            archive.add(file.resolve(), name)
        wrapper = Path(folder) / "python"
        where = Path(sysconfig.get_path("purelib")).relative_to(VENV)
        wrapper.write_text(WRAPPER.replace("PACKAGES", str(where)).replace("NAME", interpreter().name))
        wrapper.chmod(0o755)
        for name in ("python", "python3"):
            archive.add(wrapper, f"bin/{name}")
    part.replace(target)
    print(f"--archives {target}#env --conf spark.pyspark.python=./env/bin/python")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
