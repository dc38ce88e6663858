"""deploy/, checked by the programs of those who read it: hadolint, helm, Kubernetes' schemas, Databricks' types."""

from __future__ import annotations

from pathlib import Path

import pytest

from systems.deploy.programs import helm, needs_go, program, said

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(3000)]
INSECURE = ("gateway.insecure=true",)
SAFE = ("gateway.accountsSecret=accounts", "gateway.tlsSecret=tls")
S3 = (*SAFE, "warehouse.root=s3a://lake/halfop", "warehouse.claim=", "environmentSecret=s3")
OPENSHIFT = (*INSECURE, *(f"podSecurityContext.{each}=null" for each in ("runAsUser", "runAsGroup", "fsGroup")))
ALONE = ("gateway.enabled=false", "follow.source={broker,--namesrv,host:9876}")


def test_hadolint_finds_nothing() -> None:
    found = said(program("hadolint"), "container/Containerfile")
    assert (found.returncode, found.stdout) == (0, "")


def test_kubernetes_takes_the_cron_jobs() -> None:
    found = said(program("kubernetes-validate"), "--strict", "kubernetes/cronjob.yaml")
    assert (found.returncode, found.stdout.count(" passed ")) == (0, 2), found.stdout + found.stderr


@needs_go
@pytest.mark.parametrize(
    "values", [INSECURE, SAFE, S3, OPENSHIFT, ALONE], ids=["insecure", "safe", "s3", "openshift", "alone"]
)
def test_kubernetes_takes_what_the_chart_makes(values: tuple[str, ...], tmp_path: Path) -> None:
    options = [word for value in values for word in ("--set", value)]
    linted = said(helm(), "lint", "--strict", "helm/halfop", *options)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    made = said(helm(), "template", "x", "helm/halfop", *options)
    assert made.returncode == 0, made.stderr
    (tmp_path / "made.yaml").write_text(made.stdout)
    found = said(program("kubernetes-validate"), "--strict", tmp_path / "made.yaml")
    assert (found.returncode, found.stdout.count(" passed ")) == (0, 2 if values == ALONE else 4), found.stdout


@needs_go
@pytest.mark.parametrize(
    ("values", "because"),
    [
        ((), "give accountsSecret and tlsSecret, or insecure=true"),
        (("gateway.accountsSecret=a",), "give accountsSecret and tlsSecret"),
        (("gateway.enabled=false",), "follow.source: say what to land"),
        ((*INSECURE, "warehouse.claim="), "a warehouse in a folder needs a volume claim"),
        ((*INSECURE, "warehouse.root=lake"), "does not match pattern"),
        ((*INSECURE, "gatway.port=1"), "'gatway' not allowed"),
        ((*INSECURE, "gateway.port=99999"), "maximum"),
    ],
)
def test_helm_refuses(values: tuple[str, ...], because: str) -> None:
    made = said(helm(), "template", "x", "helm/halfop", *(word for value in values for word in ("--set", value)))
    assert made.returncode == 1
    assert because in made.stderr


def test_databricks_knows_each_key_of_the_jobs() -> None:
    check = """
import sys, yaml
from databricks.bundles.jobs import Job
for job in yaml.safe_load(sys.stdin)["resources"]["jobs"].values():
    Job.from_dict(job)
    job["tasks"][0]["no_such_key"] = 1
    try:
        Job.from_dict(job)
    except Exception:
        continue
    sys.exit("it looks at nothing")
"""
    bundle = Path(__file__).parents[3] / "deploy/databricks/databricks.yml"
    found = said(program("python"), "-c", check, given=bundle.read_text())
    assert (found.returncode, found.stderr) == (0, "")
