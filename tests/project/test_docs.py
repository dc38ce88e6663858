"""The pages: links lead somewhere, commands are calls, and jobs, tables and pages are listed where readers look."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from halfop.frame.cli import _parse, _parser
from halfop.frame.errors import UsageError
from halfop.settings.load import load_settings
from halfop.submit import command_line
from support.entry_points import job_of
from support.places import ROOT

NOT_JOBS = ("setup", "exec", "lab", "pack", "JOB")

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("bench/*.md"),
        *ROOT.glob("demo/*.md"),
        *ROOT.glob("deploy/*.md"),
    ]
)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> list[str]:
    """The links of a page to places in the checkout; one may be broken over two lines."""
    found = re.findall(r"\]\(([^)]+)\)", re.sub(r"\n\s*", " ", text_of(page)))
    return [link for link in found if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def commands(page: Path) -> list[str]:
    """The calls that a page shows to copy; not forms of calls with words to fill in."""
    lines = re.findall(r"^ *(\./spark-submit\.sh .*)", text_of(page).replace("\\\n", " "), re.MULTILINE)
    calls = [
        call for line in lines for call in re.split(r" +# | && | > ", line) if call.startswith("./spark-submit.sh")
    ]
    return [call for call in calls if not re.search(r"[…\[]|HOST:PORT", call)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_calls_of_jobs(page: Path) -> None:
    """Their words are those that the job takes; nothing runs."""
    assert [(call, wrong) for call in commands(page) if (wrong := fault(call))] == []


def fault(call: str) -> str:
    """Why a call is none of a job; empty if it is one, or of what is no job."""
    if call.split()[1] in NOT_JOBS:
        return ""
    try:
        line = command_line([word for word in shlex.split(call)[1:] if word != "&"])
        job = job_of(line.job)
        _parse(_parser(job), line.options, job.options)
    except (UsageError, FileNotFoundError) as error:
        return str(error)
    except SystemExit:  # --help
        return ""
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_shown_are_settings(page: Path, tmp_path: Path) -> None:
    """Whole ones: a block that begins with a space is part of one."""
    for shown in re.findall(r"^```yaml\n(\S.*?)^```", text_of(page), re.DOTALL | re.MULTILINE):
        (config := tmp_path / "halfop.yaml").write_text(shown)
        load_settings(config, [], {})


def test_a_wrong_command_is_noticed() -> None:
    assert "unrecognized arguments: --know-until" in fault("./spark-submit.sh land files --half h --know-until now")
    assert fault("./spark-submit.sh reconsile") != ""


def test_the_index_names_every_page() -> None:
    index = set(links(ROOT / "docs/README.md"))
    assert {page.name for page in ROOT.glob("docs/*.md")} - index == {"README.md"}


@pytest.mark.parametrize(
    ("page", "files"), [("docs/jobs.md", "jobs/*.py"), ("docs/tables.md", "schemas/*.yaml")], ids=["jobs", "tables"]
)
def test_every_job_and_table_is_listed(page: str, files: str) -> None:
    names = {file.stem for file in ROOT.glob(files)} - {"real_topic"}  # which is topics/<directory>
    rows = " ".join(line for line in text_of(ROOT / page).splitlines() if line.startswith("|"))
    assert {name for name in names if f"`{name}" not in rows} == set()


def locked(files: str, package: str) -> set[str]:
    """The versions of a package in locks."""
    found = (re.search(rf"\b{package}\W+v?(\d+\.\d+\.\d+)", text_of(file)) for file in ROOT.glob(files))
    return {each[1] for each in found if each}


def test_what_was_tested_is_what_the_suites_start() -> None:
    broker, proxy = "tests/systems/broker/jars-*.lock", "tests/systems/broker/jars-proxy.lock"
    started = {
        "RocketMQ's brokers": locked(broker, "rocketmq-broker"),
        "clients of a gateway": locked(broker, "rocketmq-client")
        | locked("tests/programs/go_producer/go.mod", "github.com/apache/rocketmq-client-go/v2")
        | locked(proxy, "rocketmq-proxy")
        | locked(proxy, "rocketmq-client-java")
        | locked("requirements/grpc.lock", "rocketmq-python-client")
        | locked("tests/programs/node_producer/package.json", "rocketmq-client-nodejs"),
        "Spark": locked("requirements/runtime.lock", "pyspark")
        | locked("requirements/spark-*.lock", "pyspark")
        | locked("requirements/jars.lock", "delta-storage"),
    }
    rows = {
        line.split("|")[1].strip().partition(" (")[0]: line
        for line in text_of(ROOT / "README.md").splitlines()
        if line.startswith("| ")
    }
    assert {what: set(re.findall(r"\d+\.\d+\.\d+", rows[what])) for what in started} == started
