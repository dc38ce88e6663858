"""Format rocketmq takes plain, documented options only; what a landing passes to its workers is JSON."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import store_writer as w
from halfop.frame.errors import InputRefused, UsageError
from halfop.landing.broker import source as broker
from halfop.landing.data_source import RocketMQ
from halfop.landing.store import source
from halfop.rocketmq.batches import HALF
from halfop.rocketmq.store.commitlog import StoreFile
from halfop.rocketmq.store.fault import Fault
from halfop.rocketmq.store.layout import StoreLayout, layout
from halfop.rocketmq.store.stretch import Stretch
from halfop.rocketmq.wire.pull import QueueRange
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.rocketmq.wire.security import Credentials, Tls


class Spark:
    """Stands for a session: keeps the options that a reader is given."""

    def __init__(self) -> None:
        self.read, self.options = self, dict[str, str]()

    def format(self, name: str) -> Spark:
        return self

    def option(self, name: str, value: str) -> Spark:
        self.options[name] = value
        return self

    def load(self) -> None:
        return None


def read_all(reader: Any) -> int:
    return sum(len(batch) for part in reader.partitions() for batch in reader.read(part))


def test_a_store_by_its_options(store: w.Store) -> None:
    for n in range(3):
        store.append(w.half(n))
    for options in ({}, {"KIND": "half", "skipcorrupt": "TRUE"}, {"kind": "op"}):
        asked = RocketMQ({"path": str(store.root)} | options)
        assert "queue_offset" in asked.schema().names
        assert read_all(asked.reader(asked.schema())) == (0 if "kind" in options else 3)


@pytest.fixture
def store(tmp_path: Path) -> w.Store:
    return w.Store(tmp_path / "store")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs option path"),
        ({"path": "p", "kind": "survey"}, "kind 'survey' of format rocketmq: expected one of half"),
        ({"path": "p", "plan": "gASVIw=="}, "has no option plan: expected path, kind, skipCorrupt"),
        ({"path": "p", "queues": "gASVIw=="}, "has no option queues"),
        ({"path": "p", "task": "{}"}, "has no option task"),
        ({"path": "p", "skipCorrupt": "yes"}, "skipCorrupt 'yes' of format rocketmq: expected true or false"),
    ],
)
def test_no_other_options(options: dict[str, str], said: str) -> None:
    asked = RocketMQ(options)
    with pytest.raises(UsageError, match=said):
        asked.reader(asked.schema())


STRETCH = Stretch("s", StoreFile("s/0", 0, 2**40), 1, 2, 3, Fault("crc", "s/0", 1, 2, 3, "é"), True)
LAYOUT = StoreLayout((STRETCH, Stretch("s", STRETCH.file, 2, 2**62, 3, back=STRETCH)), 0, 2**62, True, 1, 2)


def test_a_stores_task_is_json_and_comes_back_as_it_was() -> None:
    spark, far = Spark(), np.array([-1, 2**63 - 1], np.int64)
    task = source.StoreTask(source.ITEMS, LAYOUT, True, source.longs_text(far))
    source.read_task(spark, task)  # type: ignore[arg-type]
    assert json.loads(spark.options["task"])["layout"]["end"] == 2**62
    got = source.StoreSource(spark.options)
    assert got._task == task
    reader: Any = got.reader(got.schema())
    assert (reader._layout, reader._skip, reader._committed_later.tolist()) == (LAYOUT, True, far.tolist())
    source.read_task(spark, source.StoreTask(HALF, LAYOUT, False))  # type: ignore[arg-type]
    assert source.StoreSource(spark.options)._task.committed_later is None


def test_a_brokers_task_is_json_without_credentials() -> None:
    spark, tls = Spark(), Tls(ca_file="ca.pem")
    settings = RemotingSettings(in_flight=3, credentials=Credentials("key", "secret"), tls=tls)
    asked = QueueRange("T", 1, 0, 500_000)
    broker.pull_task(spark, broker.QueueTask("half", "h:1", (asked,), settings))  # type: ignore[arg-type]
    assert "secret" not in spark.options["task"]
    got = broker.QueueSource(spark.options)
    assert got._task == broker.QueueTask("half", "h:1", (asked,), RemotingSettings(in_flight=3, tls=tls))
    assert got.schema().names[-2:] == ["hole_from", "hole_to"]
    parts: list[Any] = got.reader(got.schema()).partitions()  # type: ignore[assignment]
    assert [(part.asked.start, part.asked.end) for part in parts] == [
        (0, 200_000),
        (200_000, 400_000),
        (400_000, 500_000),
    ]


class Armed:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("it was unpickled",))


@pytest.mark.parametrize("kind", [source.StoreSource, broker.QueueSource])
def test_nothing_is_unpickled(kind: type[Any]) -> None:
    import base64

    with pytest.raises(ValueError, match="Invalid JSON"):
        kind({"task": base64.b64encode(pickle.dumps(Armed())).decode()}).schema()


def test_a_store_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputRefused):
        layout(tmp_path)
    asked = RocketMQ({"path": str(tmp_path)})
    with pytest.raises(InputRefused):
        asked.reader(asked.schema())
