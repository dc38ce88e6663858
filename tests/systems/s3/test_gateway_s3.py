"""A gateway whose warehouse is on S3: it takes questions from there, and says there what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from halfop.gateway.producer import Producer
from support.gateway.clients import Asked
from support.gateway.gateways import gateway
from support.gateway.questions import ask_for, make_deliveries, outcomes

from systems.s3.local_s3 import S3, local_s3

pytestmark = [pytest.mark.s3, pytest.mark.timeout(600)]
SECONDS = 30.0


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # the local server has no TLS
    with local_s3() as running:
        yield running


def test_questions_come_from_s3_and_deliveries_go_there(s3: S3, tmp_path: Path) -> None:
    root = s3.uri("warehouse").replace("s3a://", "s3://")
    make_deliveries(root)
    options = ("--set", "gateway.look_every=200ms", "--set", "rules.transaction_check_interval=1h")
    silent = Asked("UNKNOWN")
    with (
        gateway(tmp_path, *options, warehouse=s3.uri("warehouse")) as running,
        Producer(running.address, "group", silent) as producer,
    ):
        first, second = (producer.send("orders", body) for body in (b"1", b"2"))
        one = ask_for(root, first, "group", 1)
        assert silent.questions.get(timeout=SECONDS).sent == first
        outcomes(root, lambda rows: rows == [(one, "SENT"), (one, "UNKNOWN")])
        silent.answer = "COMMIT"
        two = ask_for(root, second, "group", 2)
        assert silent.questions.get(timeout=SECONDS).sent == second
        outcomes(root, lambda rows: rows[2:] == [(two, "SENT"), (two, "ANSWERED")])
        assert running.stop() == 0
    assert "Traceback" not in running.log.read_text()
