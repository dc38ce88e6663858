"""dags/halfop.py in a real Airflow: imported, run through on real landings, and what it makes of every exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from halfop.demo import store_upto
from support.crash import SPARK
from support.json_lines import half, lines, op
from support.places import ROOT

from systems.airflow.local_airflow import Airflow, local_airflow, python

CONNECTION = {"AIRFLOW_CONN_HALFOP": '{"conn_type": "spark", "host": "local[2]"}'}
QUICK = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
DONE = '{"job": "reconcile", "status": 0, "open_messages": 7}'
pytestmark = [
    pytest.mark.airflow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="Airflow's Spark provider needs Python 3.11"),
]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    return local_airflow(tmp_path_factory.mktemp("airflow"))


def variable(**settings: Any) -> dict[str, str]:
    return {"AIRFLOW_VAR_HALFOP": json.dumps(settings)}


# ---- the file ----


def test_the_file_is_imported_without_variable_or_connection(airflow: Airflow) -> None:
    code = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
dags = {name: {t.task_id: sorted(t.upstream_task_ids) for t in dag.tasks} for name, dag in bag.dags.items()}
print(json.dumps([bag.import_errors, dags, {name: [d.max_active_runs, d.catchup] for name, d in bag.dags.items()}]))
"""
    told = airflow.started("python", "-c", code, str(ROOT / "dags"))
    assert told.returncode == 0, told.stderr
    errors, dags, limits = json.loads(told.stdout.splitlines()[-1])
    assert errors == {}
    assert dags == {
        "halfop": {"follow": [], "alert": ["follow"]},
        "halfop_maintain": {"maintain": []},
    }
    assert limits == {"halfop": [1, False], "halfop_maintain": [1, False]}


def test_the_file_is_typed(airflow: Airflow) -> None:
    """The types are Airflow's own, which the main environment lacks."""
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", python()]
    told = subprocess.run(
        [*mypy, "--cache-dir", str(airflow.home / "mypy"), "dags/halfop.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert told.returncode == 0, told.stdout


# ---- run through ----


@pytest.fixture(scope="module")
def ran(airflow: Airflow, tmp_path_factory: pytest.TempPathFactory) -> tuple[Airflow, Path]:
    """After a run over the demo's store."""
    folder = tmp_path_factory.mktemp("demo")
    store = store_upto(ROOT / "demo", folder / "store", None)
    told = ran_through(airflow, folder, ["store", "--path", str(store)], "2026-11-22T02:02:46", now="logical_date")
    assert told.returncode == 0, told.stdout + told.stderr
    return airflow, folder


def ran_through(
    airflow: Airflow, folder: Path, land: list[str], date: str, now: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    settings = variable(warehouse=str(folder / "warehouse"), land=land, conf=SPARK)
    test = ["airflow", "dags", "test", "halfop", date, "--conf", json.dumps({"now": now})]
    return airflow.started(*test, **(CONNECTION | settings | QUICK | environment))


def test_a_run_lands_and_reconciles_and_its_summaries_are_xcoms(ran: tuple[Airflow, Path]) -> None:
    airflow, folder = ran
    assert airflow.states() == {"follow": "success", "alert": "success"}
    summary = airflow.xcoms()["follow"]
    landed, reconciled = summary["landing"], summary["run"]
    assert (summary["job"], landed["rows_written"]["half_messages"]) == ("follow", 402)
    assert (reconciled["status"], reconciled["now"]) == (0, "2026-11-22T02:02:46.000Z")
    counts = {decision: sum(reasons.values()) for decision, reasons in reconciled["decisions"].items()}
    assert counts["COMMIT"] > 100
    assert reconciled["open_messages"] == counts.get("CHECK", 0) + counts.get("WAIT", 0)
    assert airflow.xcoms("open_set") == {"alert": {"open": reconciled["open_messages"], "growing": 0}}
    assert list((folder / "warehouse" / "topics").iterdir())
    events = "SELECT a.name, e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id"
    assert {name: json.loads(extra) for name, extra in airflow.rows(events)} == {
        f"halfop_{table}": {"run_id": 1, "rows": reconciled["rows_written"][table]} for table in ("decisions", "topics")
    }


def test_conflicts_fire_the_alert(ran: tuple[Airflow, Path], tmp_path: Path) -> None:
    airflow, _ = ran
    (tmp_path / "ours.py").write_text(
        "def note(context):\n"
        f"    open({str(tmp_path / 'called')!r}, 'a').write(context['ti'].task_id + ' ' + str(context['exception']))\n"
    )
    halves = lines(tmp_path / "h.jsonl", half(1), half(2))
    ops = lines(tmp_path / "o.jsonl", op(1, "1"), op(2, "1", outcome="ROLLBACK"))
    ours = {"PYTHONPATH": str(tmp_path), "AIRFLOW_HALFOP_ON_FAILURE": "ours.note"}
    land = ["files", "--half", halves, "--op", ops]
    told = ran_through(airflow, tmp_path, land, "2026-11-22T03:00:00", now="2025-06-15T15:10:00Z", **ours)
    assert told.returncode == 1
    assert airflow.states() == {"follow": "success", "alert": "failed"}
    assert airflow.xcoms()["follow"]["status"] == 5
    said = 'follow ended with status 5: {"run": {"rejected": {"OP.CONFLICT": 1}}}'
    assert (tmp_path / "called").read_text() == f"alert {said}"
    assert airflow.xcoms("open_set") == {"alert": {"open": 1, "growing": 1}}, "the run before had none"


def test_a_landing_that_cannot_succeed_is_not_tried_again_and_holds_up_no_run(
    ran: tuple[Airflow, Path],
) -> None:
    """On the demo's warehouse again, whose open messages the clock has reached."""
    airflow, folder = ran
    told = ran_through(airflow, folder, ["store", "--path", str(folder / "none")], "2026-11-22T04:00:00")
    assert told.returncode == 1
    assert airflow.states() == {"follow": "failed", "alert": "failed"}
    summary = airflow.xcoms()["follow"]
    assert (summary["status"], summary["landing"]["status"], summary["run"]["status"]) == (3, 3, 0)
    assert airflow.xcoms("open_set") == {"alert": {"open": 0, "growing": 0}}
    assert re.search(
        r"AirflowFailException: follow ended with status 3: \{\"landing\": \{\"error\": .*none",
        told.stdout + told.stderr,
    )


def test_maintain_runs_through(ran: tuple[Airflow, Path]) -> None:
    airflow, folder = ran
    settings = variable(warehouse=str(folder / "warehouse"), conf=SPARK)
    test = ["airflow", "dags", "test", "halfop_maintain", "2026-11-22T03:32:00"]
    told = airflow.started(*test, **(CONNECTION | settings | QUICK))
    assert told.returncode == 0, told.stdout + told.stderr
    assert airflow.states() == {"maintain": "success"}
    assert (airflow.xcoms()["maintain"]["job"], airflow.xcoms()["maintain"]["status"]) == ("maintain", 0)


# ---- its parts ----


def test_what_becomes_of_an_exit_status(airflow: Airflow, tmp_path: Path) -> None:
    """The launcher here ends with a given status, and prints its arguments."""
    launcher = tmp_path / "spark-submit.sh"
    launcher.write_text(
        "#!/bin/sh\n"
        'printf \'{"job": "follow", "status": %s, "given": "%s"%s}\\n\' "$ENDS" "$*" "$TOLD"\n'
        'echo "a line that is none"\n'
        "exit $ENDS\n"
    )
    launcher.chmod(0o755)
    settings = variable(
        home=str(tmp_path), warehouse="/w", land=["store"], options=["--set", "a=1"], conf={"spark.x": "y"}
    )
    given = (
        "--master local[2] --conf spark.x=y --name halfop follow --deploy-mode client "
        "follow store --once --set a=1 --warehouse /w --fail-on conflicts --now T"
    )
    error, down = {"error": "E"}, {"failed_brokers": {"b": "down"}}
    catalog, sink = {"failed_catalog": {"t": "taken"}}, {"failed_sinks": {"topics/T": "lost"}}
    passing, staying = {"transient": True}, {"transient": False}
    cases: list[tuple[int, dict[str, Any], str]] = [
        (0, {}, ""),
        (5, {"run": {"rejected": {"OP.CONFLICT": 1}}}, ""),
        (1, error | passing, "AirflowException"),
        (4, error | passing, "AirflowException"),
        (1, error | staying, "AirflowFailException"),
        (3, error | staying, "AirflowFailException"),
        (1, {"landing": down | passing} | passing, ""),
        (3, {"landing": down | staying} | staying, "AirflowFailException"),
        (1, {"landing": error | passing, "run": {"status": 0}} | passing, "AirflowException"),
        (3, {"landing": error | staying, "run": {"status": 0}} | staying, "AirflowFailException"),
        (1, {"run": catalog | staying} | staying, ""),
        (1, {"run": catalog | sink | passing} | passing, "AirflowException"),
        (1, {"run": sink | staying} | staying, "AirflowFailException"),
    ]
    told = [", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in said.items()) for _, said, _ in cases]
    environments = [
        {"ENDS": str(ends), "TOLD": text and f", {text}"} for (ends, _, _), text in zip(cases, told, strict=True)
    ]
    answers = airflow.answers([["status", "follow", CONNECTION | settings | each] for each in environments])
    assert [error.partition(":")[0] for error, _ in answers] == [expected for _, _, expected in cases]
    for (ends, said, _), (_, pushed) in zip(cases, answers, strict=True):
        assert pushed == {"return_value": {"job": "follow", "status": ends, "given": given} | said}
    assert answers[5][0] == 'AirflowFailException: follow ended with status 3: {"error": "E"}'


def test_what_is_missing_is_said_and_not_tried_again(airflow: Airflow) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({}, "variable halfop is needed"),
        (CONNECTION | variable(), 'variable halfop: land is needed, as ["store"'),
        (CONNECTION | variable(lnad=["store"]), "variable halfop: unknown key 'lnad', known are home, "),
        (CONNECTION | variable(land="store"), "variable halfop: land: expected list[str], given str"),
        (CONNECTION | variable(open_limit=True), "variable halfop: open_limit: expected int, given bool"),
        (CONNECTION | variable(land=["store"], home="/nowhere"), "there is no /nowhere/spark-submit.sh"),
        (variable(land=["store"]), "connection halfop is needed, it says which Spark: airflow connections add"),
    ]
    answers = airflow.answers([["status", "follow", environment] for environment, _ in cases])
    for (error, _), (_, said) in zip(answers, cases, strict=True):
        assert error.startswith("AirflowFailException: ")
        assert said in error


def test_a_summary_is_known_among_other_lines(airflow: Airflow) -> None:
    others = ["", "{", '{"job": ', '{"job": "land"}', '{"ts": "2026", "job": "x", "status": 0}', f" {DONE}", f"x{DONE}"]
    found = airflow.answers([["summary_of", line] for line in [DONE, f"{DONE}\n", *others]])
    assert found == [json.loads(DONE)] * 2 + [None] * len(others)


def test_a_cycle_names_the_tables_that_its_run_has_written_to(airflow: Airflow) -> None:
    idle = {"job": "reconcile", "status": 0, "run_id": None, "rows_written": {}}
    wrote = idle | {"run_id": 7, "rows_written": {"decisions": 3, "topics": 0, "rejected": 1}}
    cycles: list[dict[str, Any]] = [{}, {"landing": wrote}, {"run": {"error": "E"}}, {"run": idle}, {"run": wrote}]
    found = airflow.answers([["written", cycle] for cycle in cycles])
    assert found == [{}, {}, {}, {}, {"decisions": {"run_id": 7, "rows": 3}}]


def test_the_open_set_is_watched_from_run_to_run(airflow: Airflow) -> None:
    before = {"open": 5, "growing": 2}
    cases: list[tuple[list[Any], Any]] = [
        (["open_set", {"open_messages": 6}, before], {"open": 6, "growing": 3}),
        (["open_set", {"open_messages": 5}, before], {"open": 5, "growing": 0}),
        (["open_set", {"open_messages": 6}, None], {"open": 6, "growing": 0}),
        (["open_set", None, before], before),
        (["open_set", {"notes": ["nothing has landed"]}, None], None),
        (["open_complaints", {"open": 6, "growing": 3}, {}], []),
        (["open_complaints", {"open": 6, "growing": 3}, {"open_growth": 0}], []),
        (
            ["open_complaints", {"open": 6, "growing": 3}, {"open_growth": 3}],
            ["6 messages are open, more and more for 3 runs"],
        ),
        (["open_complaints", {"open": 6, "growing": 0}, {"open_limit": 6}], []),
        (
            ["open_complaints", {"open": 6, "growing": 0}, {"open_limit": 5}],
            ["6 messages are open, open_limit is 5"],
        ),
        (["open_complaints", None, {"open_limit": 5}], []),
    ]
    assert airflow.answers([call for call, _ in cases]) == [expected for _, expected in cases]


def test_an_alert_names_every_job_and_shows_what_others_wrote_as_ascii(airflow: Airflow) -> None:
    landing = {"job": "land", "status": 1, "failed_brokers": {"b\u202e": "down\n"}, "rows_read": {"x": 1}}
    follow = {"job": "follow", "status": 1, "landing": landing, "run": {"status": 0}}
    (told,) = airflow.answers([["complaints", {"follow": follow, "maintain": None}]])
    assert told == [
        'follow ended with status 1: {"landing": {"failed_brokers": {"b\\u202e": "down\\n"}}}',
        "maintain has not run, or left no summary: see its log",
    ]
