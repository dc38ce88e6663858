"""sbom.py FILE: write what halfop brings along as CycloneDX JSON: Python packages, the Java runtime, Delta's jars.

It reads the locks in requirements/, and needs what release.lock there has. Spark's own jars are part of pyspark.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parent.parent
LOCKS = HOME / "requirements"
ROOT = "root-component"  # cyclonedx-py's name for the project itself


def packages() -> dict[str, Any]:
    """The document of Python's locks, as cyclonedx-py makes it."""
    command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "-", "--output-reproducible"]
    command += ["--short-PURLs", "--pyproject", str(HOME / "pyproject.toml")]
    locks = "".join((LOCKS / f"{name}.lock").read_text() for name in ("runtime", "java"))
    done = subprocess.run(command, input=locks, stdout=subprocess.PIPE, text=True, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    for each in document["components"]:
        del each["description"]  # the lock's line
    return document


def jars() -> Iterator[dict[str, Any]]:
    """A component for each jar; a Spark gets those that name it, and those that name none."""
    for line in (LOCKS / "jars.lock").read_text().splitlines():
        if line and not line.startswith("#"):
            sha256, coordinate = line.split()[:2]
            group, name, version = coordinate.split(":")
            known = {"type": "library", "bom-ref": coordinate, "group": group, "name": name, "version": version}
            hashes = [{"alg": "SHA-256", "content": sha256}]
            yield known | {"purl": f"pkg:maven/{group}/{name}@{version}", "hashes": hashes}


def main(file: Path) -> None:
    document = packages()
    document["components"] += jars()
    every = [each["bom-ref"] for each in document["components"]]
    document["dependencies"] = [{"ref": ROOT, "dependsOn": every}]
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    version = importlib.import_module("cyclonedx.schema").SchemaVersion.from_version(document["specVersion"])
    validator = importlib.import_module("cyclonedx.validation.json").JsonStrictValidator(version)
    if wrong := validator.validate_str(text):
        sys.exit(f"this is no CycloneDX {document['specVersion']}: {wrong}")
    file.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
