"""A real master that dies or stands still while `end --apply` runs: another one takes its place, or a slave is left."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from halfop.ending import plan as plans
from halfop.ending.answers import SentAnswer
from halfop.ending.plan import COMMIT, ROLLBACK
from halfop.ending.sender import Sender
from halfop.frame.cli import main
from halfop.rocketmq.names import HALF_TOPIC
from halfop.warehouse.kernel import KernelWarehouse
from support.ending_rows import Written, connected, delivered, end, halves, open_still, originals, row_of
from support.entry_points import job_of

from systems.broker.land_and_decide import followed
from systems.broker.real_broker import Plan, RealBroker, broker
from systems.broker.replicas import SLAVE, beside

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("logging_as_before")]
# an answer that waits in the broker's queue is refused soon, as with RocketMQ's own 3 s, and the doubt is over
SETTINGS = {"transactionCheckMax": 100_000, "waitTimeMillsInTransactionQueue": 1000}
NUMBER = 400


@pytest.fixture
def called(warehouse: KernelWarehouse, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*options: str) -> dict[str, Any]:
        common = ("--warehouse", warehouse.root, "--set", "end.brokers=broker-a", "--set", "end.min_age=0s")
        status = main(job_of("end"), [*common, *options])
        said: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert said["status"] == status
        return said

    return call


@pytest.fixture
def at_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Does something when the broker has answered so many times."""
    noted, number, todo = Sender._noted, [0], dict[int, Callable[[], None]]()

    def count(self: Sender, sent: SentAnswer) -> SentAnswer:
        number[0] += 1
        if number[0] in todo:
            todo.pop(number[0])()
        return noted(self, sent)

    monkeypatch.setattr(Sender, "_noted", count)
    return todo.__setitem__


@contextmanager
def aside() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Starts something that takes time; it is over at the end."""
    threads: list[threading.Thread] = []

    def start(what: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=what))
        threads[-1].start()

    try:
        yield start
    finally:
        for thread in threads:
            thread.join()


def planned(running: RealBroker, warehouse: KernelWarehouse, called: Any, folder: Path) -> tuple[str, dict[str, str]]:
    """A plan for new messages, of commits and rollbacks in turn, and their UNIQ_KEYs with their kinds."""
    running.produce([Plan("moved", "U")] * NUMBER)
    followed(warehouse, running)
    assert called("--where", "true", "--commit", "--plan", str(folder / "commits.jsonl"))["planned"] == NUMBER
    made = plans.read(str(folder / "commits.jsonl"))
    kinds = [ROLLBACK if n % 3 == 0 else COMMIT for n in range(NUMBER)]
    rows = made.rows.set_column(0, "kind", pa.array(kinds, pa.string()))
    plans.write(plans.EndingPlan(made.head, rows), str(folder / "plan.jsonl"))
    return str(folder / "plan.jsonl"), dict(zip(rows["uniq_key"].to_pylist(), kinds, strict=True))


def each_once(running: RealBroker, kinds: dict[str, str], topic: str = "moved") -> None:
    """Every commit is there once, no rollback is, and the chains of copies have stopped."""
    with connected(running) as there:
        assert delivered(there, topic) == dict.fromkeys((key for key in kinds if kinds[key] == COMMIT), 1)
        assert open_still(there, topic) == []
        before = len(halves(there))
        time.sleep(3)
        assert len(halves(there)) == before


@pytest.mark.parametrize("version", [4, 5])
def test_another_master_over_the_same_store(
    version: int, tmp_path: Path, warehouse: KernelWarehouse, called: Any, at_answer: Any
) -> None:
    """At another address, which only the name server knows, some seconds later; no broker is known meanwhile."""
    with (
        broker(version, tmp_path / "first", SETTINGS) as first,
        beside(first, tmp_path / "second", SETTINGS, first.store) as second,
        aside() as start,
    ):
        file, kinds = planned(first, warehouse, called, tmp_path)

        def move() -> None:
            first.kill()
            start(second.start)

        at_answer(137, move)
        said = called("--apply", file, "--namesrv", first.namesrv)
        assert (said["status"], said["endings"]) == (0, {"VERIFIED": NUMBER}), said
        each_once(second, kinds)
        assert {key: kind for key, (kind, _) in followed(warehouse, second).items()} == kinds


@pytest.mark.parametrize("version", [4, 5])
def test_a_slave_is_left(version: int, tmp_path: Path, warehouse: KernelWarehouse, called: Any, at_answer: Any) -> None:
    """It acts as the master where it can (5.x), but ends nothing: that is reported, and the master returns."""
    acting = SETTINGS | ({"enableSlaveActingMaster": True} if version == 5 else {})
    with (
        broker(version, tmp_path / "first", acting) as first,
        beside(first, tmp_path / "second", {**acting, **SLAVE}) as slave,
    ):
        slave.start()
        file, kinds = planned(first, warehouse, called, tmp_path)
        at_answer(137, first.kill)
        options = ("--apply", file, "--namesrv", first.namesrv)
        said = called(*options, "--set", "landing.give_up_after=8s")
        assert said["status"] != 0
        assert "has no master now" in said["failed_brokers"]["broker-a"], said
        assert said["endings"]["SENT"] >= 136
        assert said["endings"]["UNKNOWN"] > 0
        assert set(said["endings"]) <= {"SENT", "UNKNOWN", "INTENDED"}
        first.restart()
        said = called(*options)
        assert (said["status"], said["endings"]) == (0, {"VERIFIED": NUMBER}), said
        each_once(first, kinds)


@pytest.mark.parametrize("version", [4, 5])
def test_a_slave_that_lacks_the_last_answers_becomes_the_master(
    version: int, tmp_path: Path, warehouse: KernelWarehouse, called: Any, at_answer: Any
) -> None:
    """What it never had ends there once, with another call if nobody can know at first."""
    with (
        broker(version, tmp_path / "first", SETTINGS) as first,
        beside(first, tmp_path / "second", {**SETTINGS, **SLAVE}) as slave,
        beside(first, tmp_path / "third", SETTINGS, slave.store) as promoted,
        aside() as start,
    ):
        slave.start()
        file, kinds = planned(first, warehouse, called, tmp_path)
        with connected(first) as there, connected(slave) as its:
            while "moved" not in its.topics() or its.max_offset(HALF_TOPIC, 0) < there.max_offset(HALF_TOPIC, 0):
                time.sleep(0.2)

        def move() -> None:
            first.kill()
            start(promoted.start)

        at_answer(100, slave.kill)
        at_answer(250, move)
        said = called("--apply", file, "--namesrv", first.namesrv)
        assert set(said["endings"]) <= {"VERIFIED", "SENT"}, said
        with connected(promoted) as there:
            once = delivered(there, "moved")
        assert set(once.values()) == {1}
        assert {kinds[key] for key in once} == {COMMIT}
        assert len(once) < sum(kind == COMMIT for kind in kinds.values()), "some were lost"
        said = called("--apply", file, "--namesrv", first.namesrv)
        assert (said["status"], said["endings"]) == (0, {"VERIFIED": NUMBER}), said
        each_once(promoted, kinds)


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_that_stands_still(version: int, tmp_path: Path, at_answer: Any) -> None:
    """Longer than an answer may take: what it has met before it goes on with, while we look."""
    with broker(version, tmp_path / "broker", SETTINGS) as running, aside() as start:
        running.produce([Plan("stood", "U")] * NUMBER)
        with connected(running) as there:
            rows = [row_of(half, COMMIT if n % 3 else ROLLBACK) for n, half in enumerate(originals(there, "stood"))]

        def stand() -> None:
            running.signal(signal.SIGSTOP)
            start(go_on)

        def go_on() -> None:
            time.sleep(7)
            running.signal(signal.SIGCONT)

        at_answer(137, stand)
        written = Written(tmp_path / "endings")
        end(running, rows, written, namesrv=True)
        assert written.states() == {"VERIFIED": NUMBER}
        assert "UNKNOWN" in {each.state for each in written.rows}
        each_once(running, {row.uniq_key: row.kind for row in rows}, "stood")
