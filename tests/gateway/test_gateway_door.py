"""What stands open at a gateway: the requests that it serves, and its pages."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from halfop.gateway.pages import MOST_CONNECTIONS
from halfop.rocketmq.frames import Frame, Splitter
from halfop.rocketmq.names import AnswerCode
from support.gateway.clients import free, page, raw
from support.gateway.gateways import RunningGateway, gateway

# RocketMQ's administration by strangers (CVE-2023-33246, CVE-2023-37582) came by codes that a client has no need of.
# A code goes in here only after somebody has thought of who may send it.
SERVED = {10, 11, 12, 21, 26, 28, 29, 30, 31, 33, 34, 35, 37, 46, 105, 106}
SERVED |= {202, 203, 204, 206, 208, 300, 310, 320, 321, 351}
SERVED |= {3004, 3009}  # accounts, with their secrets: for admins, who have signed
CODES = range(4000)  # RocketMQ's requests are below


@pytest.fixture(scope="module")
def pages() -> str:
    return f"127.0.0.1:{free()}"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, pages: str) -> Iterator[RunningGateway]:
    with gateway(tmp_path_factory.mktemp("gateway"), "--metrics", pages) as found:
        yield found


def test_only_these_requests_are_served(running: RunningGateway) -> None:
    with raw(running.address) as one:
        one.sendall(b"".join(Frame(code, 0, code, {}).packed() for code in CODES if code != 37))
        one.sendall(Frame(37, 0, 37, {"commitOrRollback": "8"}).packed())
        answers = received(one, len(CODES))
    served = {each.opaque for each in answers if each.code != AnswerCode.NOT_SUPPORTED}
    assert served == SERVED
    refused = {each.remark for each in answers if each.opaque not in SERVED}
    assert refused == {f" request type {code} not supported" for code in CODES if code not in SERVED}


def received(one: socket.socket, number: int) -> list[Frame]:
    splitter, answers = Splitter(1 << 20), list[Frame]()
    while len(answers) < number:
        content = one.recv(1 << 20)
        assert content, "the connection was closed"
        answers += splitter.feed(content)
    return answers


def test_silent_connections_to_its_pages_hold_up_nobody_and_take_few_files(running: RunningGateway, pages: str) -> None:
    before = open_files(running)
    with ExitStack() as opened:
        silent = [opened.enter_context(raw(pages)) for _ in range(100)]
        began = time.monotonic()
        assert "halfop_gateway_open" in page(pages, "metrics")
        assert time.monotonic() - began < 4, "before the silent ones are dropped for their silence"
        assert open_files(running) - before <= 2 * MOST_CONNECTIONS
        assert [each.recv(1) for each in silent[:50]] == [b""] * 50, "the oldest are closed"


def open_files(running: RunningGateway) -> int:
    return len(list(Path(f"/proc/{running.process.pid}/fd").iterdir()))
