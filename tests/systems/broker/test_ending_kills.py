"""Answers to a real broker, killed on the way and started again: each transaction ends once, as it was planned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from halfop.ending.owner import Masters, NoMaster
from halfop.ending.plan import COMMIT, ROLLBACK, Row
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.wire.client import HalfPlace, end_transaction
from halfop.rocketmq.wire.remoting import RemotingSettings
from programs.ending_process import rows_to
from support.ending_rows import Written, connected, delivered, halves, open_still, originals, row_of
from support.places import IMPORTS, PROGRAMS

from systems.broker.real_broker import Plan, RealBroker, broker

pytestmark = pytest.mark.broker
OPEN, DISCARDED, COPIED = 1_000, 200, 200
POINTS = [
    *(("sent", number) for number in (1, 7, 40, 63, 64, 230)),
    *(("answered", number) for number in (1, 2, 30, 101, 199)),
    *(("recording", number) for number in (1, 2, 3)),
    *(("recorded", number) for number in (1, 2, 3)),
    *(("looked", number) for number in (1, 2, 3)),
]


def killed(running: RealBroker, folder: Path, event: str, number: int, *options: str) -> int:
    """The status of a process that ends what is left of the plan, and dies at that event."""
    script = [sys.executable, str(PROGRAMS / "ending_process.py")]
    files = [str(folder / name) for name in ("rows", "endings")]
    command = [*script, running.address, *files, event, str(number), *options]
    ran = subprocess.run(command, env=os.environ | IMPORTS, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
    return ran.returncode


def prepared(running: RealBroker) -> list[Row]:
    """Discarded messages, then ones that the broker has put back, then open ones; the broker's check goes on."""
    running.produce([Plan("kills", "U")] * DISCARDED)
    with connected(running) as there:
        while there.max_offset("TRANS_CHECK_MAX_TIME_TOPIC", 0) < DISCARDED:
            time.sleep(0.2)
    running.stop()
    conf = running.home / "conf" / "broker.conf"
    conf.write_text(conf.read_text().replace("transactionCheckMax=2\n", "transactionCheckMax=100000\n"))
    running.start()
    running.produce([Plan("kills", "U")] * COPIED)
    with connected(running) as there:
        while sum(row["marked"] for row in halves(there)[-COPIED:]) < COPIED:
            time.sleep(0.2)
        running.produce([Plan("kills", "U")] * OPEN)
        found = originals(there, "kills")
    assert len(found) == OPEN + DISCARDED + COPIED
    return [row_of(half, ROLLBACK if n % 4 == 0 else COMMIT) for n, half in enumerate(found)]


@pytest.mark.parametrize("version", [4, 5])
def test_killed_at_twenty_points(version: int, tmp_path: Path) -> None:
    # what waits in the broker's queue is refused soon, so that a doubt is over soon
    settings = {"transactionCheckMax": 2, "waitTimeMillsInTransactionQueue": 1000}
    with broker(version, tmp_path / "broker", settings) as running:
        rows = prepared(running)
        rows_to(tmp_path / "rows", rows)
        statuses = Counter(killed(running, tmp_path, *point) for point in POINTS)
        assert statuses[-signal.SIGKILL] >= len(POINTS) - 1, statuses
        assert killed(running, tmp_path, "never", 0) == 0
        with connected(running) as there:
            assert delivered(there, "kills") == {row.uniq_key: 1 for row in rows if row.kind == COMMIT}
            assert open_still(there, "kills") == []
            before = len(halves(there))
            time.sleep(3)
            assert len(halves(there)) == before, "the chains have stopped"
        endings = Written(tmp_path / "endings")
        assert endings.states() == {"VERIFIED": len(rows)}


def test_without_a_look_messages_are_delivered_twice(tmp_path: Path) -> None:
    """The control of the test before."""
    settings = {"transactionCheckMax": 100_000, "waitTimeMillsInTransactionQueue": 1000}
    with broker(5, tmp_path / "broker", settings) as running, connected(running) as there:
        running.produce([Plan("control", "U")] * 60)
        rows_to(tmp_path / "rows", [row_of(half) for half in originals(there, "control")])
        for number in (40, 40, 40):
            killed(running, tmp_path, "sent", number, "unguarded")
        killed(running, tmp_path, "never", 0, "unguarded")
        assert max(delivered(there, "control").values()) > 1


@pytest.mark.parametrize("version", [4, 5])
def test_a_slave_ends_nothing(version: int, tmp_path: Path) -> None:
    with broker(version, tmp_path / "broker", {"brokerRole": "SLAVE", "brokerId": 1}) as running:
        where = Masters(RemotingSettings(give_up_after=1), broker=running.address)
        with pytest.raises(NoMaster, match="is a slave of broker-a"), where.owner("broker-a"):
            pass
        request = end_transaction(HalfPlace("g", "K", "T", 0, 0), commit=True)
        with connected(running) as there:
            ((_, answer),) = there.remote.stream_once([request])
            assert isinstance(answer, Frame)
            assert answer.code == AnswerCode.SLAVE_NOT_AVAILABLE
        if version == 4:  # a slave of 5.x without a master does not register
            with pytest.raises(NoMaster, match="broker-a has no master now"):
                Masters(RemotingSettings(give_up_after=1), namesrv=running.namesrv).master("broker-a")
