"""What ./spark-submit.sh leaves to Python: launch.py check WORDS… | version | options | run WORDS…

`check` refuses a wrong call, and prints what it is: `job`, `remote` (a job whose Spark is a server's), `help`,
`version`, `spark` (about Spark itself) or `jobs` (it names none). `version` prints what is installed. `options` prints
what SPARK_SUBMIT_OPTS gets. `run` becomes Spark's own spark-submit, which runs the job. These two need a set-up and the
script's environment.
"""

import fcntl
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOME / "lib"), str(HOME / "tools")]

import zip_lib  # noqa: E402
from halfop.frame.errors import UsageError  # noqa: E402
from halfop.frame.nearest import did_you_mean  # noqa: E402
from halfop.start import Archive, open_closed, refuse_too_little, spark_submit_opts  # noqa: E402
from halfop.submit import CommandLine, command_line  # noqa: E402
from halfop.versions import versions  # noqa: E402

STATE = HOME / ".halfop"
CONF = HOME / "conf" / "spark-defaults.conf"
NO_JOBS = ("lab", "setup", "exec", "pack")
WITHOUT_SPARK = ("gateway", "init")


def check(words: Sequence[str]) -> None:
    call = command_line(words, CONF)
    if call.asks_for_help or call.asks_for_version or call.is_about_spark:
        print("help" if call.asks_for_help else "version" if call.asks_for_version else "spark")
        return
    jobs = [file.stem for file in HOME.glob("jobs/[!_]*.py")]
    if call.job in WITHOUT_SPARK and call.spark:
        raise UsageError(f"{call.job} needs no Spark, so it takes no options of spark-submit")
    if call.job not in jobs:
        wrong = f"no job '{call.job}'{did_you_mean(call.job, [*jobs, *NO_JOBS])}" if call.job else "which job?"
        sys.stderr.write(f"halfop: {wrong}\n")
    if call.remote and call.spark and call.spark != ["--remote", call.remote]:
        raise UsageError("--remote takes no other option of spark-submit: its server has been started")
    print(("remote" if call.remote else "job") if call.job in jobs else "jobs")


def java_options(job: Sequence[str] = ()) -> str:
    """What Java gets besides the user's own: the archive, TMPDIR, and its first compiler alone."""
    refuse_too_little(os.environ)
    named = (str(STATE / "classes"), os.environ["HALFOP_JAVA"], os.environ["HALFOP_JARS"], os.environ["SPARK_HOME"])
    return spark_submit_opts(Archive.at(*named), os.environ, job)


def run(words: Sequence[str]) -> None:
    call, environ = command_line(words, CONF), os.environ
    site = environ.pop("HALFOP_SITE", "")
    job = [str(HOME / "jobs" / f"{call.job}.py"), *call.options]
    if call.job in WITHOUT_SPARK or call.remote:
        path = [HOME / "lib"]
        if call.remote:
            environ["SPARK_REMOTE"] = call.remote
            path.append(STATE / "connect")
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*map(str, path), environ.get("PYTHONPATH")]))
        os.execv(sys.executable, [sys.executable, *job])  # noqa: S606 - the words of the call
    if call.is_local:  # the web page of a Spark in this process follows it, as all else that listens
        environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if call.has_driver_here:
        environ["SPARK_SUBMIT_OPTS"] = java_options([call.job, *call.options])
        _choose_python(call)
        _append_to_files()
    submit = str(Path(environ["SPARK_HOME"], "bin", "spark-submit"))
    os.execv(submit, [submit, *_options(call, site), *job])  # noqa: S606 - the words of the call


def _options(call: CommandLine, site: str) -> list[str]:
    zips = [str(zip_lib.made(STATE / "lib")), call.value("--py-files", "spark.submit.pyFiles")]
    found = [*call.submitted(Path(os.environ["HALFOP_JARS"])), "--py-files"]
    found.append(",".join(filter(None, zips)))
    if site and not call.value("--properties-file"):
        found.append("--load-spark-defaults")  # the site's own count if ours say nothing
    if call.has_driver_here and not call.value("spark.pyspark.driver.python"):
        found += ["--conf", f"spark.pyspark.driver.python={HOME}/tools/python"]
    return found


def _choose_python(call: CommandLine) -> None:
    """The driver runs here, in this environment. The executors' Python is the user's word if they bring their own."""
    if not call.value("--archives", "spark.archives", "spark.yarn.dist.archives"):
        os.environ.pop("PYSPARK_PYTHON", None)
    os.environ.setdefault("PYSPARK_PYTHON", str(STATE / "venv" / "bin" / "python"))
    os.environ["PYSPARK_DRIVER_PYTHON"] = str(HOME / "tools" / "python")


def _append_to_files() -> None:
    """Spark, the job and the caller write to stdout and stderr: if it is a file, none may overwrite the others."""
    for stream in (1, 2):
        if stat.S_ISREG(os.fstat(stream).st_mode):
            fcntl.fcntl(stream, fcntl.F_SETFL, fcntl.fcntl(stream, fcntl.F_GETFL) | os.O_APPEND)


def main(what: str, *words: str) -> None:
    open_closed()
    try:
        if what in ("options", "version"):
            print(java_options() if what == "options" else versions(os.environ).rstrip())
        else:
            (check if what == "check" else run)(words)
    except UsageError as error:
        sys.stderr.write(f"halfop: {error}\n")
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main(*sys.argv[1:])
