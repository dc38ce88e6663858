"""build_jar.py JAVA DIR: compile lib/java to DIR/halfop.jar, against Spark's jars and DIR's.

The compiler is Janino, one of Spark's jars: a Java runtime has none.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

SOURCES = Path(__file__).resolve().parent.parent / "lib" / "java"
COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"  # takes javac's options


def main(java: str, folder: Path) -> None:
    target = folder / "halfop.jar"
    target.unlink(missing_ok=True)
    jars = [*(Path(pyspark.__file__).parent / "jars").glob("*.jar"), *folder.glob("*.jar")]
    path = os.pathsep.join(map(str, jars))
    with tempfile.TemporaryDirectory() as classes:
        command = [java, "-cp", path, COMPILER, "-classpath", path, "-d", classes]
        subprocess.run([*command, *map(str, SOURCES.rglob("*.java"))], check=True)
        with zipfile.ZipFile(target, "w") as archive:
            for file in Path(classes).rglob("*.class"):
                archive.write(file, file.relative_to(classes))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
