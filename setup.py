"""The wheel: the package as ./spark-submit.sh zips it, what its command needs to start Spark, and the demo's sample.

All else is in pyproject.toml.
"""

import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HOME = Path(__file__).resolve().parent
ADDED = (
    ("conf/spark-defaults.conf", "conf/spark-defaults.conf"),
    ("conf/log4j2.properties", "conf/log4j2.properties"),
    ("jars.lock", "requirements/jars.lock"),
    ("sample/passes.json", "demo/passes.json"),
    ("sample/store.tar.gz", "demo/store.tar.gz"),
    *((str(path.relative_to(HOME)),) * 2 for path in sorted((HOME / "lib" / "java").rglob("*.java"))),
    ("tools/build_jar.py", "tools/build_jar.py"),
    ("tools/fetch_jars.py", "tools/fetch_jars.py"),
    ("tools/java/bin/java", "tools/java/bin/java"),
)


class WholePackage(build_py):
    def run(self) -> None:
        super().run()
        files: dict[str, Path] = runpy.run_path(str(HOME / "tools" / "zip_lib.py"))["sources"]()
        files |= {f"halfop/{name}": HOME / path for name, path in ADDED}
        for name, path in files.items():
            target = Path(self.build_lib, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


setup(cmdclass={"build_py": WholePackage})
