"""What a gateway writes of requests: lines of the log about refusals, and the audit trail."""

from __future__ import annotations

import json
import logging
import signal
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from halfop.frame.errors import UsageError
from halfop.gateway.core.clients import Client
from halfop.gateway.core.effects import Counts, Instant, RefusedRequest
from halfop.gateway.journal import Refusals, Trail
from halfop.gateway.pages import Metrics
from halfop.gateway.producer import Producer, Refusal
from halfop.gateway.serve import _Gateway
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import AnswerCode, RequestCode
from halfop.rocketmq.requests import SendMessageV2
from halfop.rocketmq.wire.remoting import Credentials
from support.gateway.clients import free, nothing, page, raw
from support.gateway.gateway_log import CLIENT
from support.gateway.gateways import gateway

ACCOUNTS = """
accounts:
  - {accessKey: sender, secretKey: secret-of-sender, topicPerms: [orders=PUB]}
"""


def refusal(
    code: int = RequestCode.SEND_MESSAGE_V2, answer: int = 16, name: str = "c1", why: str = " no\ntransaction"
) -> RefusedRequest:
    sent = SendMessageV2("pg", "orders", 0, 0, 1, 0)
    return RefusedRequest(Client(CLIENT, name), Frame(code, fields=sent.fields()), answer, why, True, None)


def at(seconds: float) -> Instant:
    return Instant(1_750_000_000 + seconds, seconds)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "halfop.gateway")
    return lambda: [each.getMessage() for each in caplog.records]


def test_a_refusal_is_one_line_that_says_what_of_whom_and_why(lines: Any) -> None:
    Refusals().put(refusal(), at(0))
    expected = "request 310 SEND_MESSAGE_V2, topic orders, group pg, client c1: 16 no\ntransaction"
    assert lines() == [f"refused: {expected}"]


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (38, "38 GET_CONSUMER_LIST_BY_GROUP"),
        (200050, "200050 POP_MESSAGE"),
        (105, "105 GET_ROUTEINFO_BY_TOPIC"),
        (999, "999"),
    ],
)
def test_a_request_that_is_not_served_has_its_name_if_rocketmq_gives_it_one(lines: Any, code: int, shown: str) -> None:
    Refusals().put(refusal(code, 3), at(0))
    assert lines()[0].startswith(f"refused: request {shown}, client c1: 3 ")


def test_refusals_that_are_alike_are_counted_and_the_count_is_logged(lines: Any) -> None:
    refusals = Refusals()
    for n in range(150):
        refusals.put(refusal(name=f"c{n}"), at(n / 100))
    refusals.put(refusal(351, 3), at(2))
    refusals.tick(at(9.9))
    assert len(lines()) == 2
    refusals.tick(at(10))
    assert lines()[2].startswith("refused: 149 more of this kind, the last was request 310 SEND_MESSAGE_V2")
    assert "client c149" in lines()[2]
    refusals.tick(at(20))
    refusals.put(refusal(), at(21))
    assert len(lines()) == 4


def test_a_client_that_is_refused_often_hides_no_other_s_key(lines: Any) -> None:
    refusals = Refusals()
    for why in ("no such account; access key 'a'", "no such account; access key 'b'") * 10:
        refusals.put(refusal(why=why), at(0))
    assert [each[-3:] for each in lines()] == ["'a'", "'b'"]


def test_refusals_of_ever_other_requests_do_not_fill_the_log_or_the_metrics(lines: Any) -> None:
    refusals, counts = Refusals(), Counts()
    for code in range(1000, 3000):
        refusals.put(refusal(code, 3), at(0))
        counts.refuse(code, 3)
    assert len(lines()) == 101
    refusals.tick(at(10))
    assert lines()[-1].startswith("refused: 1899 more of this kind")
    found = Metrics(counts, []).page().decode()
    assert 'halfop_gateway_refusals_total{code="3",request="other"} 1800.0' in found
    assert 'halfop_gateway_refusals_total{code="3",request="1000"} 1.0' in found


def test_an_audit_file_that_cannot_be_written_is_refused_or_said_once(tmp_path: Path, lines: Any) -> None:
    with pytest.raises(UsageError, match=r"gateway.audit_file .*: Is a directory; give a file"):
        Trail(str(tmp_path))
    trail = Trail("/dev/full")
    for _ in range(2):
        trail.refused(refusal(), at(0).at)
        trail.flush()
    found = [line for line in lines() if "audit_file" in line]
    assert found[0] == "gateway.audit_file /dev/full: No space left on device; 1 lines are lost"
    trail.close()


def test_an_audit_file_that_cannot_be_opened_again_stays_open(tmp_path: Path) -> None:
    before, moved = tmp_path / "a", tmp_path / "b"
    before.mkdir()
    trail = Trail(str(before / "audit.jsonl"))
    before.rename(moved)
    with pytest.raises(UsageError, match="No such file or directory; give a file"):
        trail.reopen()
    trail.administered("SIGHUP", at(0).at)
    trail.flush()
    assert json.loads((moved / "audit.jsonl").read_text())["what"] == "SIGHUP"
    before.mkdir()
    trail.reopen()
    trail.administered("again", at(0).at)
    trail.close()
    assert json.loads((before / "audit.jsonl").read_text())["what"] == "again"


def test_a_sighup_whose_audit_file_cannot_be_opened_changes_nothing(tmp_path: Path) -> None:
    accounts, before, moved = tmp_path / "accounts.yml", tmp_path / "a", tmp_path / "b"
    accounts.write_text(ACCOUNTS)
    before.mkdir()
    given = ("--set", f"gateway.acl_file={accounts}", "--set", f"gateway.audit_file={before}/audit.jsonl")
    with gateway(tmp_path / "gateway", *given) as running:
        accounts.write_text(ACCOUNTS.replace("secret-of-sender", "another"))
        before.rename(moved)
        running.process.send_signal(signal.SIGHUP)
        while "give a file that can be appended to; the old ones stay" not in running.log.read_text():
            pass
        with Producer(running.address, "pg", nothing, Credentials("sender", "secret-of-sender")) as producer:
            producer.end_surely(producer.send("orders", b"x"), "COMMIT")
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()
    assert json.loads((moved / "audit.jsonl").read_text())["what"] == "END_TRANSACTION"


def test_a_tick_that_fails_hides_no_full_disk() -> None:
    def fails() -> None:
        raise OSError("any")

    server = SimpleNamespace(tick=fails, connections=SimpleNamespace(look_after=lambda: None))
    core, log = SimpleNamespace(disk_full=False), SimpleNamespace(disk_used=lambda: 0.95)
    of: Any = SimpleNamespace(_server=server, _core=core, _log=log, _own=SimpleNamespace(disk_percent=90))
    with pytest.raises(OSError, match="any"):
        _Gateway._tick(of, looks=True)
    assert core.disk_full


def test_a_gateway_says_whom_it_refused_and_audits_ends_and_administration(tmp_path: Path) -> None:
    accounts, trail, pages = tmp_path / "accounts.yml", tmp_path / "audit.jsonl", f"127.0.0.1:{free()}"
    accounts.write_text(ACCOUNTS)
    given = ("--set", f"gateway.acl_file={accounts}", "--set", f"gateway.audit_file={trail}", "--metrics", pages)
    with gateway(tmp_path / "gateway", *given) as running:
        with pytest.raises(Refusal, match="no account of this gateway has signed the request"):
            Producer(running.address, "pg", nothing, Credentials("sender", "wrong"))
        with Producer(running.address, "pg", nothing, Credentials("sender", "secret-of-sender")) as producer:
            sent = producer.send("orders", b"x")
            producer.end_surely(sent, "COMMIT")
            with pytest.raises(Refusal):
                producer.end_surely(sent._replace(queue_offset=7), "ROLLBACK")
        with closing(raw(running.address)) as client:
            client.sendall(Frame(25, fields={"topic": "orders"}).packed())  # UPDATE_BROKER_CONFIG
            client.recv(100)
        moved = tmp_path / "moved.jsonl"
        trail.rename(moved)
        running.process.send_signal(signal.SIGHUP)
        while "read again" not in running.log.read_text():
            pass
        metrics = page(pages, "metrics")
        assert running.stop() == 0
        log = running.log.read_text()
    assert "refused: request 34 HEART_BEAT, client 127.0.0.1:" in log
    assert ": 16 its signature does not match" in log
    assert "; access key 'sender'" in log
    assert 'halfop_gateway_refusals_total{code="1",request="37"} 1.0' in metrics
    rows = [json.loads(line) for line in moved.read_text().splitlines()]
    assert [(row["what"], row["accepted"]) for row in rows] == [
        ("END_TRANSACTION", True),
        ("END_TRANSACTION", False),
        ("UPDATE_BROKER_CONFIG", False),
    ]
    taken, refused, administration = rows
    assert (taken["outcome"], taken["fate"], taken["topic"], taken["group"]) == ("COMMIT", "ENDED", "orders", "pg")
    assert (taken["uniq_key"], taken["account"]) == (sent.transaction_id, "sender")
    assert taken["client"].startswith("halfop-")
    assert (refused["code"], refused["remark"]) == (AnswerCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    assert (administration["code"], administration["remark"][:16]) == (AnswerCode.NO_PERMISSION, "it is not signed")
    assert [json.loads(line)["what"] for line in trail.read_text().splitlines()] == ["SIGHUP"]
