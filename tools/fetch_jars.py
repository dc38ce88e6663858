"""fetch_jars.py JAVA SPARK LOCK DIR: fetch the jars of LOCK that fit SPARK into DIR by its Ivy, and check their sums.

SPARK is a folder, as SPARK_HOME is. A jar for one Spark names it, as delta-spark_4.2_2.13 does, or its line ends with
that Spark. What is no jar ends with its kind, as in GROUP:NAME:VERSION@tar.gz.

Ivy knows Maven Central by itself; HALFOP_IVY_SETTINGS names a settings file for a company's mirror. It keeps its cache
beside DIR, so that nothing in the user's own Ivy or Maven folders can hide or break this.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

SETTINGS = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>"""
DEPENDENCY = """<dependency org="{0}" name="{1}" rev="{2}" transitive="false" conf="default->master">
<artifact name="{1}" type="{3}" ext="{3}"/></dependency>"""
_OWN = ("localhost", "127.*", "[::1]")  # as Java has it if nobody says anything
MODULE = """<ivy-module version="2.0"><info organisation="halfop" module="jars"/>
<dependencies>{}</dependencies></ivy-module>"""


def proxy_options() -> list[str]:
    """Java does not read https_proxy and no_proxy by itself."""
    given = getproxies()
    proxies = ((scheme, urlsplit(given.get(scheme, ""))) for scheme in ("http", "https"))
    options = [f"-D{s}.proxyHost={p.hostname} -D{s}.proxyPort={p.port or 80}" for s, p in proxies if p.hostname]
    named = (each.strip().partition(":")[0] for each in given.get("no", "").split(","))
    direct = [form for name in named for form in ([name] if name == "*" else _with_all_below(name.lstrip("*.")))]
    return [*options, *([f"-Dhttp.nonProxyHosts={'|'.join([*_OWN, *direct])}"] if direct else [])]


def _with_all_below(name: str) -> list[str]:
    return [name, f"*.{name}"] if name else []


def fits(line: str, spark: Path) -> bool:
    named = re.search(r":delta-spark_([\d.]+)_|(?<= )[\d.]+$", line)
    return named is None or any(spark.glob(f"jars/spark-core_*-{named[1] or named[0]}.*.jar"))


def parts(coordinate: str) -> list[str]:
    name, _, kind = coordinate.partition("@")
    return [*name.split(":"), kind or "jar"]


def main(java: str, spark: Path, lock: Path, target: Path) -> None:
    lines = [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    locked = [(line.split()[0], parts(line.split()[1])) for line in lines if fits(line, spark)]
    work = target.with_name("ivy")
    for folder in (target, work):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    settings, module = work / "ivysettings.xml", work / "ivy.xml"
    settings.write_text(SETTINGS)
    module.write_text(MODULE.format("".join(DEPENDENCY.format(*of) for _, of in locked)))

    trust = os.environ.get("HALFOP_TRUST_STORE")
    command = [java, *" ".join(proxy_options()).split(), *([f"-Djavax.net.ssl.trustStore={trust}"] if trust else [])]
    command += ["-cp", f"{spark}/jars/*", "org.apache.ivy.Main"]
    command += ["-settings", os.environ.get("HALFOP_IVY_SETTINGS", str(settings)), "-cache", str(work / "cache")]
    command += ["-ivy", str(module), "-retrieve", f"{target}/[artifact]-[revision].[ext]"]
    if subprocess.run(command, check=False).returncode:
        sys.exit(
            "the jars could not be fetched; HALFOP_IVY_SETTINGS can name the settings of a mirror of Maven Central"
        )

    for expected, of in locked:
        jar = target / "{1}-{2}.{3}".format(*of)
        if hashlib.sha256(jar.read_bytes()).hexdigest() != expected:
            sys.exit(f"{jar.name} is not the file that {lock.name} names: its sha256 differs")
    shutil.rmtree(work)
    shutil.copy(lock, target)


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
