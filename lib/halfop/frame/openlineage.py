"""Events of OpenLineage: this module imports its Python client, which is not always installed."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlparse

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
    tags_run,
)
from openlineage.client.uuid import generate_new_uuid

from halfop.frame.lineage import Call, Written

log = logging.getLogger("halfop.lineage")

_PRODUCER = "https://github.com/halfop/halfop"


class OpenLineage:
    """Sends events to where the client's own configuration says."""

    def __init__(self, namespace: str) -> None:
        self._namespace, self._client = namespace, OpenLineageClient()

    def tell(self, call: Call) -> None:
        """Sends when the call began and how it ended. A failure to send is a warning: no work is lost by it."""
        job = Job(self._namespace, call.job, {"jobType": job_type_job.JobTypeJobFacet("BATCH", "HALFOP", "JOB")})
        run = Run(str(generate_new_uuid()), _about(call))
        inputs = [InputDataset(*named(uri), facets=_version(of)) for uri, of in sorted(call.touched.read.items())]
        outputs = [_output(uri, written) for uri, written in sorted(call.touched.written.items())]
        state = RunState.COMPLETE if call.failure is None else RunState.FAIL
        about: dict[str, Any] = {"run": run, "job": job, "producer": _PRODUCER}
        now = datetime.now(timezone.utc).isoformat()
        try:
            self._client.emit(RunEvent(**about, eventTime=call.began.isoformat(), eventType=RunState.START))
            self._client.emit(RunEvent(**about, eventTime=now, eventType=state, inputs=inputs, outputs=outputs))
        except Exception as error:  # whatever the transport that the user has chosen raises
            log.warning("no lineage is told: %s", error)


def _about(call: Call) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if call.parent is not None:
        run, job = parent_run.Run(call.parent.run), parent_run.Job(call.parent.namespace, call.parent.job)
        found["parent"] = parent_run.ParentRunFacet(run, job)
    if call.run_id is not None:
        tag = tags_run.TagsRunFacetFields("halfop.run_id", str(call.run_id), "HALFOP")
        found["tags"] = tags_run.TagsRunFacet([tag])
    if call.failure is not None:
        found["errorMessage"] = error_message_run.ErrorMessageRunFacet(call.failure, "PYTHON")
    return found


def _version(version: int | None) -> dict[str, Any]:
    return {} if version is None else {"version": dataset_version_dataset.DatasetVersionDatasetFacet(str(version))}


def _output(uri: str, written: Written) -> OutputDataset:
    fields = [schema_dataset.SchemaDatasetFacetFields(*column) for column in written.columns]
    counts = written.rows, written.bytes, written.files
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(*counts)
    return OutputDataset(
        *named(uri),
        {"outputStatistics": statistics} if written.files else {},
        facets={"schema": schema_dataset.SchemaDatasetFacet(fields)},
    )


def named(uri: str) -> tuple[str, str]:
    """Returns the namespace and the name of a table or file by OpenLineage's rules."""
    parts = urlparse(uri)
    if parts.scheme in ("", "file"):
        return "file", parts.path.rstrip("/")
    scheme = {"s3a": "s3", "s3n": "s3"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    return f"{scheme}://{parts.netloc}", path if scheme in ("hdfs", "abfs", "abfss") else path.lstrip("/")
