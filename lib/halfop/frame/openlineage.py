"""Sends lineage as events of OpenLineage, by its own Python client, if the user has configured and installed that.

It is configured as for any other program: by its environment variables (OPENLINEAGE_URL, OPENLINEAGE__TRANSPORT__…) or
by an openlineage.yml.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple
from uuid import UUID

from halfop.frame.summary import Summary

log = logging.getLogger("halfop.lineage")

_PRODUCER = "https://github.com/halfop/halfop"
_FILE = "openlineage.yml"
_NAMES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")


def lineage(environ: Mapping[str, str]) -> Lineage:
    """Returns the lineage of this process's calls, which is sent if the user has said to whom."""
    if not _wanted(environ):
        return Lineage()
    try:
        return Lineage(OpenLineage(environ.get("OPENLINEAGE_NAMESPACE", "halfop")).send, _parent(environ))
    except ImportError:
        log.warning("no lineage is sent: OpenLineage is configured, but not installed: pip install openlineage-python")
    except Exception as error:  # whatever the client makes of a wrong configuration
        log.warning("no lineage is sent: %s", error)
    return Lineage()


def _wanted(environ: Mapping[str, str]) -> bool:
    if environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = any(name in _NAMES or name.startswith("OPENLINEAGE__") for name in environ)
    return named or os.path.isfile(_FILE) or os.path.isfile(os.path.expanduser(f"~/.openlineage/{_FILE}"))


def _parent(environ: Mapping[str, str]) -> Parent | None:
    """The call that OPENLINEAGE_PARENT_ID names (namespace/job/run), as schedulers set it for what they start."""
    given = environ.get("OPENLINEAGE_PARENT_ID", "").strip()
    parts = given.split("/")
    try:
        return Parent(parts[0], "/".join(parts[1:-1]), str(UUID(parts[-1]))) if given else None
    except ValueError:
        log.warning("OPENLINEAGE_PARENT_ID is %r, and not NAMESPACE/JOB/UUID: the call is sent without a parent", given)
        return None


class OpenLineage:
    """Sends events to where the client's own configuration says."""

    def __init__(self, namespace: str) -> None:
        """Raises ImportError if the client is not installed; who has it waits for it only if it is to be used."""
        from openlineage.client import OpenLineageClient, event_v2, facet_v2  # noqa: PLC0415
        from openlineage.client.uuid import generate_new_uuid  # noqa: PLC0415

        before = {*os.environ}
        self._namespace, self._client, self._new_id = namespace, OpenLineageClient(), generate_new_uuid
        for name in {*os.environ} - before:  # the client leaves them there, an API key too, for whatever is started
            del os.environ[name]
        self._events, self._facets = event_v2, facet_v2

    def send(self, call: EndedCall) -> None:
        """Sends when the call began and how it ended. Any failure is a warning: no work is lost by it."""
        try:
            self._send(call)
        except Exception as error:  # whatever the transport that the user has chosen raises
            log.warning("no lineage is sent: %s", error)

    def _send(self, call: EndedCall) -> None:
        e, touched = self._events, call.touched
        kind = self._facets.job_type_job.JobTypeJobFacet("BATCH", "HALFOP", "JOB")
        about: dict[str, Any] = {
            "run": e.Run(str(self._new_id()), self._about(call)),
            "job": e.Job(self._namespace, call.job, {"jobType": kind}),
            "producer": _PRODUCER,
        }
        inputs = [e.InputDataset(*named(uri), facets=self._version(of)) for uri, of in sorted(touched.read.items())]
        outputs = [self._output(uri, written) for uri, written in sorted(touched.written.items())]
        state = e.RunState.COMPLETE if call.failure is None else e.RunState.FAIL
        now = datetime.now(timezone.utc).isoformat()
        self._client.emit(e.RunEvent(**about, eventTime=call.began.isoformat(), eventType=e.RunState.START))
        self._client.emit(e.RunEvent(**about, eventTime=now, eventType=state, inputs=inputs, outputs=outputs))

    def _about(self, call: EndedCall) -> dict[str, Any]:
        f, found = self._facets, dict[str, Any]()
        if call.parent is not None:
            run, job = f.parent_run.Run(call.parent.run), f.parent_run.Job(call.parent.namespace, call.parent.job)
            found["parent"] = f.parent_run.ParentRunFacet(run, job)
        if call.run_id is not None:
            tag = f.tags_run.TagsRunFacetFields("halfop.run_id", str(call.run_id), "HALFOP")
            found["tags"] = f.tags_run.TagsRunFacet([tag])
        if call.failure is not None:
            found["errorMessage"] = f.error_message_run.ErrorMessageRunFacet(call.failure, "PYTHON")
        return found

    def _version(self, version: int | None) -> dict[str, Any]:
        made = self._facets.dataset_version_dataset.DatasetVersionDatasetFacet
        return {} if version is None else {"version": made(str(version))}

    def _output(self, uri: str, written: WrittenTable) -> Any:
        f, counts = self._facets, (written.rows, written.bytes, written.files)
        fields = [f.schema_dataset.SchemaDatasetFacetFields(*column) for column in written.columns]
        statistics = f.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(*counts)
        return self._events.OutputDataset(
            *named(uri),
            {"outputStatistics": statistics} if written.files else {},
            facets={"schema": f.schema_dataset.SchemaDatasetFacet(fields)},
        )


def named(uri: str) -> tuple[str, str]:
    """Returns the namespace and the name of a table or file by OpenLineage's rules."""
    [(scheme, host, path)] = re.findall(r"^(?:([\w.+-]+):)?(?://([^/]*))?(.*?)/*$", uri, re.DOTALL)
    if scheme in ("", "file"):
        return "file", path
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
    return f"{scheme}://{host}", path if scheme in ("hdfs", "abfs", "abfss") else path.lstrip("/")


_DONE = (0, 5)


class TableColumn(NamedTuple):
    """A column of a table, as an event describes it."""

    name: str
    type: str
    comment: str


@dataclass
class WrittenTable:
    """A table that a call has written, and how much; Spark's own writes are not counted."""

    columns: Sequence[TableColumn] = ()
    rows: int = 0
    bytes: int = 0
    files: int = 0


@dataclass
class Touched:
    """The tables and files that a process has read, each with the last version, and those that it has written."""

    read: dict[str, int | None] = field(default_factory=dict)
    written: dict[str, WrittenTable] = field(default_factory=dict)

    def taken(self) -> Touched:
        """Returns all that was noted, and forgets it."""
        found = Touched(self.read, self.written)
        self.read, self.written = {}, {}
        return found


class Parent(NamedTuple):
    """The call of another program that started this one; `run` is a UUID."""

    namespace: str
    job: str
    run: str


class EndedCall(NamedTuple):
    """A call of a job that has ended; `failure` is None if all is done."""

    job: str
    parent: Parent | None
    began: datetime
    touched: Touched
    run_id: int | None
    failure: str | None


class Lineage:
    """Sends calls, if there is somebody to send them to."""

    def __init__(self, send: Callable[[EndedCall], None] | None = None, parent: Parent | None = None) -> None:
        self.touched = Touched()
        self._send, self._parent = send, parent

    def of_call(self, job: str, work: Callable[[], Summary]) -> Summary:
        """Returns the result of work. It is sent as a call of that job, if it has written a table or failed."""
        if self._send is None:
            self.touched.taken()
            return work()
        began, run_id, failure = datetime.now(timezone.utc), None, None
        try:
            summary = work()
            run_id, failure = summary.run_id, None if summary.status in _DONE else summary.to_json()
        except BaseException as error:
            failure = str(error) or type(error).__name__
            raise
        finally:
            touched = self.touched.taken()
            if touched.written or failure is not None:
                self._send(EndedCall(job, self._parent, began, touched, run_id, failure))
        return summary
