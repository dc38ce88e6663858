"""build_jar.py JAVA SPARK DIR: compile lib/java to DIR/halfop.jar, against the jars of SPARK and DIR.

SPARK is a folder, as SPARK_HOME is. The compiler is Janino, one of Spark's jars: a Java runtime has none.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "lib" / "java"
COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"  # takes javac's options


def main(java: str, spark: Path, folder: Path) -> None:
    target = folder / "halfop.jar"
    target.unlink(missing_ok=True)
    jars = [*(spark / "jars").glob("*.jar"), *folder.glob("*.jar")]
    path = os.pathsep.join(map(str, jars))
    with tempfile.TemporaryDirectory() as classes:
        command = [java, "-cp", path, COMPILER, "-classpath", path, "-d", classes]
        subprocess.run([*command, *map(str, SOURCES.rglob("*.java"))], check=True)
        with zipfile.ZipFile(target, "w") as archive:
            for file in Path(classes).rglob("*.class"):
                archive.write(file, file.relative_to(classes))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
