"""Options from the entry script to Java, in a checkout whose Python, Java and Spark only say how they are called."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import copy, copytree, ignore_patterns, which

import pytest
from halfop import __version__
from halfop.frame.errors import UsageError
from halfop.start import FIRST_COMPILER, Archive
from halfop.warehouse.spark_versions import SPARKS, spark_in
from support.another_user import POWERLESS, give_to_another, needs_another_user
from support.places import ROOT

pytestmark = pytest.mark.process

ALONE = " ".join(FIRST_COMPILER)
_PARTS = ("conf", "jobs", "lib", "requirements", "tools")
# As the environment's Python; it makes an archive at once, unless there is a reason to fail.
_PYTHON = """#!/bin/sh
if [ "$2" = halfop.training ]; then
    echo trained >>"$HALFOP_HOME/trained"
    exec {python} -I -c 'import sys; sys.path.insert(0, sys.argv.pop(1))
from pathlib import Path; from halfop.start import Archive
archive, part = Archive.at(*sys.argv[1:]), Path(sys.argv[1], "part")
if archive.java.with_name("fails").exists(): sys.exit("no archive today")
part.parent.mkdir(exist_ok=True); part.touch(); archive.keep(part, "")' "$HALFOP_HOME/lib" "$3" "$4" "$5" "$6"
fi
exec {python} "$@"
"""
_SPARK_SUBMIT = """#!/bin/sh
printf %s "${SPARK_SUBMIT_OPTS-}" >"$HALFOP_HOME/opts"
env >"$HALFOP_HOME/environment"
echo '{"job": "any"}'
"""


class Checkout:
    """A checkout that is set up but for the archive."""

    def __init__(self, home: Path, java: Path, spark: Path) -> None:
        self.home, self.java, self.spark = home, java, spark

    def called(self, *arguments: str, before: Sequence[str] = (), **environ: str) -> subprocess.CompletedProcess[str]:
        """`before`: the words of a command that calls the script."""
        return subprocess.run(
            [*before, str(self.home / "spark-submit.sh"), *arguments],
            env={"PATH": os.environ["PATH"], "HALFOP_JAVA": str(self.java), "SPARK_HOME": str(self.spark)} | environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def options(self, *arguments: str, **environ: str) -> str:
        """The options of a job's Java; stdout holds the summary alone."""
        done = self.called(*arguments, **environ)
        assert (done.returncode, done.stdout) == (0, '{"job": "any"}\n'), done.stderr
        return (self.home / "opts").read_text()

    def environment(self, *arguments: str, **environ: str) -> dict[str, str]:
        """The environment of a job's Java."""
        self.options(*arguments, **environ)
        lines = (self.home / "environment").read_text().splitlines()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}

    def set_up(self, *arguments: str) -> str:
        """The output of a set-up."""
        done = self.called("setup", *arguments)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return done.stderr

    @property
    def trained(self) -> int:
        """How often an archive was made, or tried."""
        log = self.home / "trained"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def archives(self) -> list[Path]:
        return sorted((self.home / ".halfop/classes").glob("*.jsa"))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    home, java, spark = tmp_path / "a checkout", tmp_path / "java/bin/java", tmp_path / "spark"
    for part in _PARTS:
        copytree(ROOT / part, home / part, ignore=ignore_patterns("__pycache__"))
    copy(ROOT / "spark-submit.sh", home)
    _script(home / ".halfop/venv/bin/python", _PYTHON.replace("{python}", sys.executable))
    copy(ROOT / "requirements/runtime.lock", home / ".halfop/venv")
    sources = sorted((ROOT / "lib/java/halfop").glob("*.java"))
    for jars in (home / ".halfop/jars" / each for each in SPARKS):
        _script(jars / "halfop.jar", "")
        copy(ROOT / "requirements/jars.lock", jars)
        (jars / "halfop.java").write_text("".join(source.read_text() for source in sources))
    _script(java, "#!/bin/sh\n")
    (tmp_path / "java/release").write_text('JAVA_VERSION="17.0.1"\n')
    return Checkout(home, java, spark_of(spark, "spark-core_2.13-4.2.0"))


def spark_of(home: Path, *cores: str) -> Path:
    """A Spark that only says how it is called."""
    for core in cores:
        _script(home / f"jars/{core}.jar", "")
    _script(home / "bin/spark-submit", _SPARK_SUBMIT)
    return home


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_set_up_makes_the_archive_once_and_every_job_starts_with_it(checkout: Checkout) -> None:
    assert "archiving the classes that jobs load" in checkout.set_up()
    assert checkout.set_up() == ""
    (archive,) = checkout.archives()
    assert f'"-XX:SharedArchiveFile={archive}"' in checkout.options("maintain")
    assert checkout.trained == 1


def test_a_job_that_sets_nothing_up_makes_no_archive(checkout: Checkout) -> None:
    assert checkout.options("maintain") == ALONE
    assert checkout.trained == 0


def test_after_a_change_of_java_jobs_start_without_it_until_the_next_set_up(checkout: Checkout) -> None:
    checkout.set_up()
    (checkout.java.parents[1] / "release").write_text('JAVA_VERSION="17.0.2"\n')
    assert checkout.options("maintain") == ALONE
    checkout.set_up()
    assert "SharedArchiveFile" in checkout.options("maintain")
    assert checkout.trained == 2


def test_another_spark_starts_without_it(checkout: Checkout, tmp_path: Path) -> None:
    checkout.set_up()
    copytree(checkout.spark, tmp_path / "another")
    assert checkout.options("maintain", SPARK_HOME=str(tmp_path / "another")) == ALONE


@pytest.mark.parametrize("spark", SPARKS)
def test_each_spark_gets_its_own_jars_and_its_own_python(checkout: Checkout, tmp_path: Path, spark: str) -> None:
    home = spark_of(tmp_path / "a spark", f"spark-core_2.13-{spark}.7-vendor")
    _script(home / "python/lib/pyspark.zip", "")
    found = checkout.environment("maintain", SPARK_HOME=str(home))
    assert found["HALFOP_JARS"] == str(checkout.home / ".halfop/jars" / spark)
    done = checkout.called("exec", "sh", "-c", "echo $PYTHONPATH", SPARK_HOME=str(home), PYTHONPATH="mine")
    assert done.stdout == f"{home}/python/lib/pyspark.zip:{checkout.home}/lib:mine\n"
    assert spark_in(home) == spark


def test_versions_are_shown_before_the_first_set_up(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.home / ".halfop").rename(tmp_path / "not yet")
    spark = spark_of(tmp_path / "a spark", "spark-core_2.13-4.1.7-vendor")
    for home, found in ((spark, "4.1.7-vendor"), (tmp_path, "has no jars")):
        done = checkout.called("--version", SPARK_HOME=str(home))
        assert done.stdout == f"halfop {__version__}\nSpark {found} ({home})\nDelta 4.4.0\n"
    assert not (checkout.home / ".halfop").exists()


@pytest.mark.parametrize("core", ["", "spark-core_2.12-3.5.9", "spark-core_2.13-4.3.0", "spark-core_2.12-4.1.0"])
def test_another_spark_is_refused_by_its_name(checkout: Checkout, tmp_path: Path, core: str) -> None:
    home = spark_of(tmp_path / "another", *filter(None, [core]))
    what = f"{core}, Spark 4.0, 4.1 or 4.2 (Scala 2.13)" if core else "no Spark, Spark 4.0, 4.1 or 4.2"
    for call in ("maintain", "setup"):
        done = checkout.called(call, SPARK_HOME=str(home))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"halfop: SPARK_HOME ({home}) holds {what} is needed\n"
    with pytest.raises(UsageError, match=r" holds .+, Spark 4\.0, 4\.1 or 4\.2 \(Scala 2\.13\) is needed"):
        spark_in(home)


def test_the_lock_has_delta_for_each_spark() -> None:
    lock = (ROOT / "requirements/jars.lock").read_text()
    assert tuple(re.findall(r":delta-spark_([\d.]+)_2\.13:", lock)) == SPARKS


def test_no_cache_holds_until_a_set_up_without_it(checkout: Checkout) -> None:
    checkout.set_up()
    assert checkout.set_up("--no-cache") == ""
    assert (checkout.archives(), checkout.options("maintain")) == ([], ALONE)
    assert checkout.trained == 1
    checkout.set_up()
    assert checkout.trained == 2


def test_an_archive_that_cannot_be_made_does_no_harm(checkout: Checkout) -> None:
    checkout.java.with_name("fails").touch()
    said = checkout.set_up()
    assert said.endswith("that failed, so jobs start slower; .halfop/setup.log says why\n")
    assert "no archive today" in (checkout.home / ".halfop/setup.log").read_text()
    assert checkout.options("maintain") == ALONE


def test_java_gets_one_compiler_and_the_users_options_come_last(checkout: Checkout) -> None:
    assert checkout.options("maintain", SPARK_SUBMIT_OPTS="-Xss4m") == f"{ALONE} -Xss4m"


def test_a_follow_that_stays_gets_both_compilers(checkout: Checkout) -> None:
    assert checkout.options("follow", "store", "--every", "5s") == ""
    assert checkout.options("follow", "store", "--once") == ALONE


def test_a_driver_in_the_cluster_is_not_this_java(checkout: Checkout) -> None:
    checkout.set_up()
    assert checkout.options("--deploy-mode", "cluster", "--master", "yarn", "explain", "b/0/1") == ""


@pytest.mark.parametrize(
    ("options", "own", "address"),
    [
        ([], None, "127.0.0.1"),
        (["--master", "local[2]"], None, "127.0.0.1"),
        (["--conf", "spark.master=local"], None, "127.0.0.1"),
        (["--properties-file", "FILE"], "spark.master = local[3]", "127.0.0.1"),
        (["--properties-file", "FILE"], "spark.ui.enabled true", "127.0.0.1"),
        (["--properties-file", "FILE"], "spark.master  spark://a:7077", None),
        (["--properties-file", "FILE", "--master", "yarn"], "spark.master local", None),
        (["--master", "spark://a:7077"], None, None),
        (["--master", "k8s://https://a"], None, None),
    ],
)
def test_with_a_local_master_nothing_listens_beyond_this_machine(
    checkout: Checkout, tmp_path: Path, options: list[str], own: str | None, address: str | None
) -> None:
    (tmp_path / "own.conf").write_text(own or "")
    options = [each.replace("FILE", str(tmp_path / "own.conf")) for each in options]
    found = checkout.environment(*options, "explain", "b/0/1", HOSTNAME="localhost")
    assert found.get("SPARK_LOCAL_IP") == address


def test_the_users_own_address_counts(checkout: Checkout) -> None:
    assert checkout.environment("demo", SPARK_LOCAL_IP="10.0.0.1")["SPARK_LOCAL_IP"] == "10.0.0.1"


@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C"}, {"LANG": "en_US.ISO-8859-1"}])
def test_java_and_python_name_files_in_utf_8_whatever_the_caller_has(
    checkout: Checkout, locale: dict[str, str]
) -> None:
    found = checkout.environment("demo", **locale)
    assert (found["LC_ALL"], found["PYTHONUTF8"]) == ("C.UTF-8", "1")


FEW_FILES = ("bash", "-c", 'ulimit -n 256; exec "$0" "$@"')


@pytest.mark.parametrize("arguments", [("maintain",), ("exec", "true")])
def test_too_few_open_files_are_refused_before_java_meets_them(checkout: Checkout, arguments: tuple[str, ...]) -> None:
    done = checkout.called(*arguments, before=FEW_FILES)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("halfop: a process may have 256 files open here, and Spark needs 512 or more")
    assert "ulimit -n 4096" in done.stderr


def test_a_temporary_folder_that_takes_no_files_is_refused_before_java_meets_it(checkout: Checkout) -> None:
    done = checkout.called("maintain", TMPDIR="/proc")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"halfop: /proc: this temporary folder takes no files \(.+\), and .+ by TMPDIR\n", done.stderr)


def test_a_java_that_is_named_and_is_none_is_refused(checkout: Checkout) -> None:
    """No other one is taken in its place."""
    for none in (checkout.java.parents[1], checkout.java.with_name("absent"), Path("/bin/false")):
        done = checkout.called("maintain", HALFOP_JAVA=str(none), JAVA_HOME=str(checkout.java.parents[1]))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"halfop: HALFOP_JAVA ({none}) is no Java 17 or newer: name the program, as ")


NAMELESS = ("unshare", "--user", "--map-user=1000660000", "--map-group=0")


def may_be_nameless() -> bool:
    return which("unshare") is not None and not subprocess.run([*NAMELESS, "true"], check=False).returncode


@pytest.mark.skipif(not may_be_nameless(), reason="no user namespaces here")
def test_a_user_without_a_name_is_refused_before_hadoop_meets_it(checkout: Checkout) -> None:
    """OpenShift starts containers so."""
    done = checkout.called("maintain", before=NAMELESS)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"halfop: user 1000660000 has no name on this machine, .+ /etc/passwd, .+\n", done.stderr)


def test_java_has_the_temporary_folder_that_the_user_names(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    assert checkout.options("maintain", TMPDIR=str(tmp_path / "a b")) == f'"-Djava.io.tmpdir={tmp_path}/a b" {ALONE}'


def test_no_file_of_java_gets_the_number_of_a_stream_that_the_caller_has_closed(checkout: Checkout) -> None:
    shows = '#!/bin/sh\nopen=$(readlink /proc/$$/fd/[012])\necho "$open" >"$HALFOP_HOME/open"\n'
    _script(checkout.spark / "bin/spark-submit", shows)
    done = checkout.called("maintain", before=("bash", "-c", 'exec "$0" "$@" <&- >&- 2>&-'))
    assert (done.returncode, (checkout.home / "open").read_text()) == (0, "/dev/null\n" * 3)


def test_a_job_writes_past_sparks_pipe_and_behind_what_its_caller_wrote(checkout: Checkout, tmp_path: Path) -> None:
    """So a full disk is seen: Spark's pipe hides it."""
    writes = """'import os; os.write(1, b"of the job\\n"); os.write(2, b"of its log\\n")'"""
    _script(
        checkout.spark / "bin/spark-submit",
        f'#!/bin/sh\n"$PYSPARK_DRIVER_PYTHON" -c {writes} 2>&1 | cat >"$HALFOP_HOME/pipe"\n',
    )
    around = f"{{ echo before; \"$0\" \"$@\"; echo after; }} >'{tmp_path}/out' 2>'{tmp_path}/err'"
    assert checkout.called("maintain", before=("bash", "-c", around)).returncode == 0
    assert (tmp_path / "out").read_text() == "before\nof the job\nafter\n"
    assert ((tmp_path / "err").read_text(), (checkout.home / "pipe").read_text()) == ("of its log\n", "")


@needs_another_user
def test_a_checkout_of_another_user_must_be_set_up_by_that_user(checkout: Checkout) -> None:
    (checkout.home / ".halfop/jars/4.2/jars.lock").unlink()
    give_to_another(checkout.home, 0o755)
    for program in ("spark-submit.sh", ".halfop/venv/bin/python"):
        (checkout.home / program).chmod(0o755)
    done = checkout.called("maintain", before=POWERLESS)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        rf"halfop: {checkout.home}/.halfop must be set up first, and user root may not write there: its owner calls "
        rf"{checkout.home}/spark-submit.sh setup, or you take a checkout of your own\n",
        done.stderr,
    )


@needs_another_user
def test_a_python_that_only_its_owner_may_run_is_named(checkout: Checkout) -> None:
    give_to_another(checkout.home, 0o755)
    (checkout.home / "spark-submit.sh").chmod(0o755)
    done = checkout.called("maintain", before=POWERLESS)
    assert (done.returncode, done.stdout) == (2, "")
    python = checkout.home / ".halfop/venv/bin/python"
    assert done.stderr.startswith(f"halfop: user root may not run {python}: its owner removes ")


@needs_another_user
@pytest.mark.parametrize("has_run", [False, True])
def test_a_checkout_of_another_user_runs_jobs(checkout: Checkout, tmp_path: Path, has_run: bool) -> None:
    """With the zip of the owner's, unless there is none."""
    if has_run:
        checkout.options("maintain")
    scripts = [path for path in checkout.home.rglob("*") if path.is_file() and path.stat().st_mode & 0o100]
    give_to_another(checkout.home, 0o755)
    for path in scripts:
        path.chmod(0o755)
    os.chown(checkout.home, os.getuid(), os.getgid())  # where the stand-in for Spark says what it got
    done = checkout.called("maintain", before=POWERLESS, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout) == (0, '{"job": "any"}\n'), done.stderr
    assert list((tmp_path / "cache").glob("halfop/lib/*.zip")) or has_run


def test_exec_starts_java_as_jobs_do(checkout: Checkout) -> None:
    checkout.set_up()
    done = checkout.called("exec", "sh", "-c", "echo $SPARK_SUBMIT_OPTS")
    assert "SharedArchiveFile" in done.stdout
    assert done.stdout.endswith(f"{ALONE}\n")


def test_the_callers_cdpath_leads_to_no_other_checkout(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / checkout.home.name).mkdir(parents=True)
    relative = ("bash", "-c", 'cd "${0%/*/*}" && "a checkout/spark-submit.sh" "$@"')
    done = checkout.called("maintain", before=relative, CDPATH=str(tmp_path / "elsewhere"))
    assert (done.returncode, done.stdout) == (0, '{"job": "any"}\n'), done.stderr


def test_no_script_heeds_cdpath() -> None:
    scripts = [*ROOT.glob("*.sh"), *ROOT.glob("*/run"), ROOT / "tests" / "quick", *ROOT.glob("tests/**/*.sh")]
    texts = {path.relative_to(ROOT): path.read_text() for path in scripts}
    assert len(texts) > 6
    assert [str(path) for path, text in texts.items() if "unset CDPATH" not in text.partition("cd ")[0]] == []


def test_set_up_refuses_what_it_does_not_know(checkout: Checkout) -> None:
    done = checkout.called("setup", "--cache")
    assert (done.returncode, checkout.trained) == (2, 0)
    assert "not --cache" in done.stderr


@pytest.mark.parametrize("word", ["-h", "--help"])
@pytest.mark.parametrize("what", ["setup", "lab", "exec", "pack"])
def test_help_of_what_is_no_job_does_nothing_else(checkout: Checkout, tmp_path: Path, what: str, word: str) -> None:
    (checkout.home / ".halfop").rename(tmp_path / "not yet")
    done = checkout.called(what, word)
    assert (done.returncode, done.stdout.partition(" [")[0]) == (0, "usage: ./spark-submit.sh"), done.stderr
    assert not (checkout.home / ".halfop").exists()


@pytest.mark.parametrize("words", [("--force",), ("a.tar.gz", "b.tar.gz"), ("-o", "a.tar.gz")])
def test_pack_refuses_what_is_no_file(checkout: Checkout, words: tuple[str, ...]) -> None:
    done = checkout.called("pack", *words)
    assert (done.returncode, done.stderr) == (2, f"halfop: pack takes one file, not {' '.join(words)}\n")


@pytest.mark.parametrize("content", ["no archive", ""])
def test_the_java_that_is_there_ignores_an_archive_in_silence(tmp_path: Path, content: str) -> None:
    java = os.environ["HALFOP_JAVA"]
    archive = Archive.at(str(tmp_path), java, str(tmp_path), str(tmp_path))
    made = archive.file()
    if made is None:
        pytest.skip("a Java without a file `release`")
    made.write_text(content)
    done = subprocess.run([java, *archive.options(), "--version"], capture_output=True, text=True, check=True)
    plain = subprocess.run([java, "--version"], capture_output=True, text=True, check=True)
    assert (done.stdout.replace(", sharing", ""), done.stderr) == (plain.stdout.replace(", sharing", ""), "")
