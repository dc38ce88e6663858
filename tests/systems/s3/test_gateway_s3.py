"""A gateway whose warehouse is on S3: it takes questions from there, and says there what became of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from gateway.test_gateway_server import Asked
from halfop.gateway.producer import Producer, Sent
from support.gateway.gateways import NAME, gateway

from systems.s3.local_s3 import S3, local_s3

pytestmark = [pytest.mark.s3, pytest.mark.timeout(600)]
SECONDS = 30.0
OPTIONS = {"conditional_put": "etag"}
DELIVERIES = pa.schema(
    [
        *(
            (name, pa.string())
            for name in ("request_id", "broker_name", "producer_group", "outcome", "client", "remark")
        ),
        ("at", pa.timestamp("us", "UTC")),
        ("answered_after", pa.int64()),
    ]
)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # the local server has no TLS
    with local_s3() as running:
        yield running


def asked_for(root: str, sent: Sent, run_id: int) -> str:
    """Writes a request as a run does; returns its id."""
    row = {
        "request_id": f"{run_id}-{sent.queue_offset}",
        "broker_name": NAME,
        "producer_group": "group",
        "real_topic": "orders",
        "tran_state_table_offset": sent.queue_offset,
        "commit_log_offset": sent.physical_offset,
        "run_id": run_id,
        "requested_at": datetime.now(timezone.utc),
    }
    rows = pa.Table.from_pylist([row])
    write_deltalake(f"{root}/check_requests", rows, mode="append", storage_options=OPTIONS)
    return str(row["request_id"])


def deliveries(root: str, number: int) -> list[tuple[str, str]]:
    """The rows of check_deliveries once there are so many."""
    end = time.monotonic() + SECONDS
    while True:
        rows = DeltaTable(f"{root}/check_deliveries", storage_options=OPTIONS).to_pyarrow_table().to_pylist()
        if len(rows) >= number:
            return sorted((row["request_id"], row["outcome"]) for row in rows)
        assert time.monotonic() < end, rows
        time.sleep(0.2)


def test_questions_come_from_s3_and_deliveries_go_there(s3: S3, tmp_path: Path) -> None:
    root = s3.uri("warehouse").replace("s3a://", "s3://")
    write_deltalake(f"{root}/check_deliveries", DELIVERIES.empty_table(), storage_options=OPTIONS)
    options = ("--set", "gateway.look_every=200ms", "--set", "rules.transaction_check_interval=1h")
    silent = Asked("UNKNOWN")
    with (
        gateway(tmp_path, *options, warehouse=s3.uri("warehouse")) as running,
        Producer(running.address, "group", silent) as producer,
    ):
        first, second = (producer.send("orders", body) for body in (b"1", b"2"))
        one = asked_for(root, first, 1)
        assert silent.questions.get(timeout=SECONDS).sent == first
        assert deliveries(root, 2) == [(one, "SENT"), (one, "UNKNOWN")]
        silent.answer = "COMMIT"
        two = asked_for(root, second, 2)
        assert silent.questions.get(timeout=SECONDS).sent == second
        assert deliveries(root, 4)[2:] == [(two, "ANSWERED"), (two, "SENT")]
        assert running.stop() == 0
    assert "Traceback" not in running.log.read_text()
