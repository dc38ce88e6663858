"""pack_env.py FILE: archive the environment's packages of runtime.lock and its Python for --archives.

Without Spark itself, which is there wherever a driver or executor starts. The Python is a link: every node needs the
same version at the same path.
"""

import re
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
VENV = Path(sys.prefix)
SPARK = {"pyspark", "py4j"}


def packages() -> list[str]:
    lock = (HOME / "requirements/runtime.lock").read_text()
    return sorted(set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)) - SPARK)


def main(target: Path) -> None:
    files = {VENV / "pyvenv.cfg", *(VENV / "bin").glob("python*")}
    for name in packages():
        files |= {Path(str(file.locate())).resolve() for file in distribution(name).files or ()}
    part = target.with_name(f"{target.name}.part")
    with tarfile.open(part, "w:gz", compresslevel=5) as archive:
        for file in sorted(f for f in files if f.exists() and "__pycache__" not in f.parts):
            archive.add(file, file.relative_to(VENV))
    part.replace(target)
    print(f"--archives {target}#env --conf spark.pyspark.python=./env/bin/python")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
