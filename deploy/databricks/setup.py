"""The wheel of the bundle: the task, and halfop's package beside it, without PySpark and Delta.

On serverless compute a wheel that brings its own PySpark ends the session.
"""

import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.config.pyprojecttoml import read_configuration

HOME = Path(__file__).resolve().parents[2]
# setuptools', since Python 3.10 reads no TOML
PROJECT = read_configuration(HOME / "pyproject.toml", expand=False)["project"]
NOT_THERE = ("pyspark", "delta", "uvloop")  # the platform's, and what only the gateway needs


class WithHalfop(build_py):
    def run(self) -> None:
        super().run()
        for name, path in runpy.run_path(str(HOME / "tools" / "zip_lib.py"))["sources"]().items():
            target = Path(self.build_lib, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


setup(
    name="halfop_databricks",
    version=PROJECT["version"],
    description="halfop as the task of a Databricks job",
    python_requires=PROJECT["requires-python"],
    py_modules=["halfop_databricks"],
    install_requires=[each for each in PROJECT["dependencies"] if not each.startswith(NOT_THERE)],
    entry_points={"console_scripts": ["run = halfop_databricks:run"]},
    cmdclass={"build_py": WithHalfop},
)
