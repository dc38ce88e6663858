"""halfop on a schedule: **follow** (land and reconcile, once), **alert**; and **maintain** once a week.

Variable `halfop` (JSON) says what to land and where, connection `halfop` (Spark) which master: docs/airflow.md.
This file needs no other and can be copied; a second warehouse is a copy with another `NAME`.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, AssetAlias, BaseHook, Context, Param, Variable, get_current_context, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

NAME = "halfop"
"""The name of the DAG, its variable and its connection."""

# Airflow asks at every parse how a DAG is made, so that comes from the environment; all else is read when a task
# runs. The names don't begin with HALFOP_: the jobs would take those for settings of theirs.
_SCHEDULE = os.environ.get("AIRFLOW_HALFOP_SCHEDULE", "*/5 * * * *")
_MAINTAIN_SCHEDULE = os.environ.get("AIRFLOW_HALFOP_MAINTAIN_SCHEDULE", "32 3 * * 0")
_ON_FAILURE = os.environ.get("AIRFLOW_HALFOP_ON_FAILURE")

# Repeats are safe. A landing that was cut short goes on where it was; a run that was cut short is finished first, with
# the inputs and the instant that it had. This holds after a try that was killed, after one that Airflow only believes
# dead, and for two at once: the second ends with status 4, or loses its commits.
_SAFE_REPEATS = {
    "retries": 5,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=10),
    "execution_timeout": timedelta(hours=3),
    # max_active_runs does not count the runs of a backfill
    "max_active_tis_per_dag": 1,
}

_TABLES = AssetAlias(f"{NAME}_tables")
"""Stands for the assets NAME_decisions and NAME_topics, each with an event for each run that has written there."""

_PROBLEMS = ("error", "failed_sinks", "failed_brokers", "failed_catalog", "rejected", "findings")
"""The fields of a summary that explain a status other than 0. Its `transient` is there if something failed."""


# ---- settings ----


@dataclass(frozen=True)
class Settings:
    """Variable `halfop`, a JSON object; arguments are lists, as a command line has them."""

    home: str = str(Path(__file__).resolve().parents[1])
    warehouse: str = ""
    options: list[str] = field(default_factory=list)
    land: list[str] = field(default_factory=list)
    reconcile: list[str] = field(default_factory=list)
    maintain: list[str] = field(default_factory=list)
    conf: dict[str, str] = field(default_factory=dict)
    open_limit: int = 0
    open_growth: int = 12

    @staticmethod
    def read() -> Settings:
        given = Variable.get(NAME, default=None, deserialize_json=True)
        if not isinstance(given, dict):
            raise AirflowFailException(f"variable {NAME} is needed, a JSON object with at least the key land")
        if wrong := sorted(_wrong(given)):
            raise AirflowFailException(f"variable {NAME}: " + "; ".join(wrong))
        return Settings(**given)

    @property
    def launcher(self) -> str:
        path = Path(self.home) / "spark-submit.sh"
        if not path.is_file():
            raise AirflowFailException(f"variable {NAME}: home must be a checkout of halfop, there is no {path}")
        return str(path)

    def arguments(self, job: str) -> list[str]:
        if job == "follow" and not self.land:
            raise AirflowFailException(f'variable {NAME}: land is needed, as ["store", "--path", "/data/store"]')
        own = self.maintain if job == "maintain" else [*self.land, "--once", *self.reconcile]
        return [*own, *self.options, *(["--warehouse", self.warehouse] if self.warehouse else [])]


def _wrong(given: Mapping[str, Any]) -> Iterator[str]:
    expected = {each.name: str(each.type) for each in fields(Settings)}
    for key, value in given.items():
        if key not in expected:
            yield f"unknown key {key!r}, known are {', '.join(expected)}"
        elif not _fits(value, expected[key]):
            yield f"{key}: expected {expected[key]}, given {type(value).__name__}"  # it may be secret


def _fits(value: Any, expected: str) -> bool:
    if expected == "list[str]":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return type(value).__name__ == expected.partition("[")[0]


# ---- a job as a task ----


class SummaryHook(SparkSubmitHook):
    """Keeps the job's summary: the last of its lines that is one, since it shares the stream with what Spark logs."""

    summary: dict[str, Any] | None = None

    def _process_spark_submit_log(self, itr: Iterable[str]) -> None:
        super()._process_spark_submit_log(self._noting(itr))

    def _noting(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            self.summary = summary_of(line) or self.summary
            yield line

    @property
    def status(self) -> int | None:
        return None if self._submit_sp is None else self._submit_sp.returncode

    @property
    def is_done(self) -> bool:
        """The work is done though the status is not 0: --fail-on has found something, a table got no name in the
        catalog, or a broker could not land now, which the next run tries again. `alert` shows it.
        """
        if self._ended is None:
            return False
        parts = [self._ended, *steps_of(self._ended).values()]
        if any(part.get("error") or part.get("failed_sinks") for part in parts):
            return False
        return all(part.get("transient", True) or not part.get("failed_brokers") for part in parts)

    @property
    def is_in_vain(self) -> bool:
        """The same call would fail again."""
        return self._ended is not None and self._ended.get("transient") is False

    @property
    def _ended(self) -> dict[str, Any] | None:
        """The summary, unless the process ended in another way afterwards."""
        return self.summary if self.summary is not None and self.summary["status"] == self.status else None


def summary_of(line: str) -> dict[str, Any] | None:
    if not line.startswith('{"job": '):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found.get("status"), int) else None


def steps_of(summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The summaries of the landing and the run that a cycle's summary holds."""
    return {step: summary[step] for step in ("landing", "run") if isinstance(summary.get(step), dict)}


def written(summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What a cycle's run has written for others to read, by table: the run's number, and how many rows."""
    run = steps_of(summary).get("run", {})
    rows = {name: run.get("rows_written", {}).get(name) for name in ("decisions", "topics")}
    return {name: {"run_id": run["run_id"], "rows": number} for name, number in rows.items() if number}


class HalfopOperator(SparkSubmitOperator):
    """The job of the task's name. ./spark-submit.sh brings Java, Delta and the package along. Its summary is the XCom.

    The driver runs here (client mode), wherever the executors are: the summary is what the driver prints.
    """

    _hook: SummaryHook | None

    def __init__(self, *, task_id: str, **kwargs: Any) -> None:
        super().__init__(task_id=task_id, application=task_id, conn_id=NAME, **kwargs)

    def execute(self, context: Context) -> None:
        settings = Settings.read()
        _need_connection()
        self.conf, self.application_args = settings.conf, self._arguments(settings, context)
        self._launcher = settings.launcher
        try:
            super().execute(context)
        except AirflowException as error:
            if self._hook is None or (not self._hook.is_done and not self._hook.is_in_vain):
                raise
            if not self._hook.is_done:
                raise AirflowFailException(_complaint(self.application, self._summary or {})) from error
        finally:
            context["ti"].xcom_push("return_value", self._summary)
        if self._summary is None:
            raise AirflowException(f"{self.application} has ended without a summary as its last line")
        for table, about in written(self._summary).items():
            context["outlet_events"][_TABLES].add(Asset(f"{NAME}_{table}"), extra=about)

    @property
    def _summary(self) -> dict[str, Any] | None:
        return self._hook.summary if self._hook else None

    def _get_hook(self) -> SummaryHook:
        """Asked for when the operator has added its own to `conf` (OpenLineage's parent job)."""
        return SummaryHook(
            conn_id=NAME,
            conf=self.conf,
            name=f"{NAME} {self.application}",
            spark_binary=self._launcher,
            deploy_mode="client",
            application_args=self.application_args,
        )

    def _arguments(self, settings: Settings, context: Context) -> list[str]:
        arguments = settings.arguments(self.application)
        if self.application != "follow":
            return arguments
        now = context["params"]["now"]
        if now == "logical_date":
            if context.get("logical_date") is None:
                raise AirflowFailException("now: logical_date, but this run has none; give an instant")
            now = context["logical_date"].isoformat()
        return [*arguments, "--fail-on", "conflicts", *(["--now", now] if now else [])]


def _need_connection() -> None:
    try:
        BaseHook.get_connection(NAME)
    except AirflowNotFoundException as error:  # the Spark hook would go to YARN
        add = f"airflow connections add {NAME} --conn-type spark --conn-host 'local[*]'"
        raise AirflowFailException(f"connection {NAME} is needed, it says which Spark: {add}") from error


# ---- alerts ----


def complaints(summaries: Mapping[str, Mapping[str, Any] | None]) -> Iterator[str]:
    """A line for every job that did not simply end with 0."""
    for job, summary in summaries.items():
        if summary is None:
            yield f"{job} has not run, or left no summary: see its log"
        elif summary["status"]:
            yield _complaint(job, summary)


def _complaint(job: str, summary: Mapping[str, Any]) -> str:
    return f"{job} ended with status {summary['status']}: {json.dumps(_problems(summary))}"


def _problems(summary: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: summary[key] for key in _PROBLEMS if summary.get(key)}
    of_steps = {step: _problems(found) for step, found in steps_of(summary).items()}
    return own | {step: problems for step, problems in of_steps.items() if problems}


def open_set(summary: Mapping[str, Any] | None, before: Mapping[str, int] | None) -> dict[str, int] | None:
    """How many messages are open after a run, and for how many runs that number has been growing without a break."""
    if summary is None or "open_messages" not in summary:
        return dict(before) if before else None
    now = summary["open_messages"]
    return {"open": now, "growing": before["growing"] + 1 if before and now > before["open"] else 0}


def open_complaints(found: Mapping[str, int] | None, settings: Settings) -> Iterator[str]:
    if found and 0 < settings.open_limit < found["open"]:
        yield f"{found['open']} messages are open, open_limit is {settings.open_limit}"
    if found and 0 < settings.open_growth <= found["growing"]:
        yield f"{found['open']} messages are open, more and more for {found['growing']} runs"


def _on_failure() -> list[Callable[[Context], None]]:
    if not _ON_FAILURE:
        return []
    module, _, name = _ON_FAILURE.rpartition(".")
    return [getattr(importlib.import_module(module), name)]


@task(trigger_rule="all_done", retries=0, on_failure_callback=_on_failure())
def alert() -> None:
    """Fails where a job did, where a transaction was ended both ways, and where open messages pile up."""
    ti: Any = get_current_context()["ti"]
    summary = ti.xcom_pull(task_ids="follow")
    last = ti.get_previous_dagrun()
    before = ti.xcom_pull(task_ids="alert", key="open_set", run_id=last.run_id) if last else None
    found = open_set(steps_of(summary or {}).get("run"), before)
    ti.xcom_push("open_set", found)
    if wrong := [*complaints({"follow": summary}), *open_complaints(found, Settings.read())]:
        raise AirflowFailException("\n".join(wrong))


# ---- the DAGs ----

_COMMON: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1, tzinfo=timezone.utc),
    "catchup": False,  # one run takes in all that has landed
    "max_active_runs": 1,
    "default_args": _SAFE_REPEATS,
    "tags": ["halfop"],
    "doc_md": __doc__,
}
_NOW = Param(
    None,
    type=["null", "string"],
    description="--now: empty for the clock, logical_date in a backfill, or an instant, 2026-06-15T15:06:40Z",
)

with DAG(NAME, schedule=_SCHEDULE, params={"now": _NOW}, **_COMMON):
    HalfopOperator(task_id="follow", outlets=[_TABLES]) >> alert()

with DAG(f"{NAME}_maintain", schedule=_MAINTAIN_SCHEDULE, **_COMMON):
    HalfopOperator(task_id="maintain", on_failure_callback=_on_failure())
