"""Half messages of a real broker as rows of a plan, what became of them there, and a record of endings in a file."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from halfop.columns.keys import Key
from halfop.ending.owner import LandedEnds, Masters
from halfop.ending.plan import Kind, PlannedPlace, Row
from halfop.ending.sender import BrokerPart as Part
from halfop.ending.sender import Sender
from halfop.ending.table import Clerk, Ending, newest
from halfop.rocketmq.batches import DISCARD, FINAL, HALF, OP, final_batch, half_batch, op_batch
from halfop.rocketmq.names import CHECK_TIMES, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, PREPARED_QUEUE_OFFSET
from halfop.rocketmq.record import Records
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Chunk, QueueRange, checked, pull
from halfop.rocketmq.wire.remoting import RemotingSettings
from systems.broker.real_broker import RealBroker

QUICK = RemotingSettings(connect_timeout=2, answer_timeout=3, give_up_after=20, in_flight=64)


@contextmanager
def connected(running: RealBroker, settings: RemotingSettings = QUICK) -> Iterator[Broker]:
    with closing(Broker(running.address, settings)) as broker:
        yield broker


def records(broker: Broker, topic: str, kind: str, queues: int = 1) -> Iterator[Records]:
    while topic == HALF_TOPIC and topic not in broker.topics():  # 4.9 knows it from the first check on
        time.sleep(0.1)
    for queue in range(queues):
        asked = QueueRange(topic, queue, 0, broker.max_offset(topic, queue))
        for pulled in pull(broker, asked) if asked.end else ():
            assert isinstance(pulled, Chunk)
            yield checked("", asked, pulled, kind)


def halves(broker: Broker, topic: str = HALF_TOPIC) -> list[dict[str, Any]]:
    """All half messages, or with the discard topic all discard records, with `marked` for a broker's copies."""
    found = records(broker, topic, DISCARD if topic == DISCARD_TOPIC else HALF)
    rows = [row for each in found for row in half_batch(each).to_pylist(maps_as_pydicts="strict")]
    marks = {CHECK_TIMES, PREPARED_QUEUE_OFFSET}
    return [row | {"marked": bool(marks & row["properties"].keys())} for row in rows]


def ended_offsets(broker: Broker) -> list[int]:
    """The half offsets that op messages name."""
    bodies = [body for each in records(broker, OP_TOPIC, OP) for body in op_batch(each)["body"].to_pylist()]
    return [int(item) for body in bodies for item in body.split(",") if item]


def delivered(broker: Broker, topic: str) -> Counter[str]:
    """How often each UNIQ_KEY is in a real topic."""
    queues = broker.topics().get(topic, 0)
    return Counter(
        key for each in records(broker, topic, FINAL, queues) for key in final_batch(each)["uniq_key"].to_pylist()
    )


def row_of(half: dict[str, Any], kind: Kind = "COMMIT", *copies: dict[str, Any]) -> Row:
    """The row of a plan for a half message, whose later copies are not known unless they are given."""
    places = sorted(PlannedPlace(each["queue_offset"], each["commit_log_offset"]) for each in (half, *copies))
    key = Key("broker-a", 0, places[-1].queue_offset)
    texts = (half["uniq_key"], half["producer_group"], half["real_topic"])
    return Row(key, kind, "KEY", None, *texts, "CHECK", half["born_timestamp"], tuple(places))


def originals(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [row for row in halves(broker) if row["real_topic"] == topic and not row["marked"]]


def open_still(broker: Broker, topic: str) -> list[str]:
    """The UNIQ_KEYs whose last half message no op names."""
    ended = set(ended_offsets(broker))
    last = {row["uniq_key"]: row["queue_offset"] for row in halves(broker) if row["real_topic"] == topic}
    return sorted(key for key, offset in last.items() if offset not in ended)


@dataclass
class Written:
    """Endings as lines of a file: each is there before `record` returns."""

    path: Path
    rows: list[Ending] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path.exists():
            self.rows = [_read(line) for line in self.path.read_text().splitlines()]

    def record(self, rows: Sequence[Ending]) -> None:
        self.rows += rows
        with self.path.open("a") as file:
            file.writelines(f"{_line(row)}\n" for row in rows)

    def states(self) -> Counter[str]:
        return Counter(row.state for row in newest(self.rows).values() if row.origin != "SWEEP")


def _line(row: Ending) -> str:
    return json.dumps(row._asdict() | {"at": row.at.isoformat()})


def _read(line: str) -> Ending:
    cells = json.loads(line)
    sent = None if cells["sent"] is None else PlannedPlace(*cells["sent"])
    return Ending(**cells | {"key": Key(*cells["key"]), "at": datetime.fromisoformat(cells["at"]), "sent": sent})


def part_of(address: str, settings: RemotingSettings, landed: LandedEnds | None = None, batch: int = 500) -> Part:
    return Part("broker-a", Masters(settings, broker=address), {0: landed or LandedEnds()}, batch=batch)


def end(
    running: RealBroker,
    rows: Sequence[Row],
    endings: Written,
    *,
    settings: RemotingSettings = QUICK,
    namesrv: bool = False,
    landed: LandedEnds | None = None,
    no_index: bool = False,
    batch: int = 500,
    ended: Sequence[Row] = (),
) -> dict[Key, Ending]:
    """One call of `end --apply` as far as it talks to the broker; returns what counts afterwards."""
    where = Masters(settings, running.namesrv if namesrv else None, None if namesrv else running.address)
    part = part_of(running.address, settings, landed, batch)
    part.where, part.no_index = where, no_index
    known = newest(endings.rows)
    after = max((row.at for row in endings.rows), default=None)
    unfinished = [row for row in rows if row.key not in known or known[row.key].state in GO_ON]
    Sender(part, Clerk("plan", after), endings, known).end(unfinished, ended)
    return newest(endings.rows)


GO_ON = ("INTENDED", "UNKNOWN", "SENT", "VERIFIED")


def discard_records(broker: Broker) -> list[dict[str, Any]]:
    return halves(broker, DISCARD_TOPIC)
