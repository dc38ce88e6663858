"""`land store` of half messages, their final messages and ops, against a plain copy of the rows from Parquet to Delta.

bench/run store [--rows 700000] [--rounds 3]. The bound holds for the median.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from decode import half
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.message import BLANK_SIZE, Message, Place, blank, body_crc
from halfop.rocketmq.store.consumequeue import PACKED
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import spark_session
from pyspark.sql import SparkSession

_BOUND = 1.0
FILE = 256 << 20
NOWHERE = bytes(7) + b"\1"
TABLES = ("half_messages", "final_messages", "op_messages")
BATCH = 800  # half messages that one op message ends


def at(message: Message) -> Callable[[int, int], bytes]:
    """Makes the message's record, without a CRC of its own, at the offset and place that it gets."""
    size = message.size(checked=False)
    return lambda offset, physical: message.packed(Place(offset, physical, size, 10**12 + physical), checked=False)


def other(topic: bytes, body: bytes, properties: bytes, born: int = 0) -> Message:
    """A message that is no half message."""
    return Message(topic, body, properties, 10**12 + born, NOWHERE, NOWHERE, body_crc(body))


class Writer:
    """A store as a broker leaves it."""

    def __init__(self, root: Path) -> None:
        self.root, self.at, self.queues = root, 0, dict[tuple[str, int], bytearray]()
        (root / "commitlog").mkdir(parents=True)
        self.file = (root / "commitlog" / f"{0:020d}").open("wb")

    def append(self, topic: str, queue: int, make: Callable[[int, int], bytes]) -> int:
        """`make` gets queue offset and physical offset."""
        units = self.queues.setdefault((topic, queue), bytearray())
        content = make(len(units) // PACKED.size, self.at)
        room = FILE - self.at % FILE
        if len(content) + BLANK_SIZE > room:
            self.file.write(blank(room) + bytes(room - BLANK_SIZE))
            self.at += room
            self.file.close()
            self.file = (self.root / "commitlog" / f"{self.at:020d}").open("wb")
            content = make(len(units) // PACKED.size, self.at)
        units += PACKED.pack(self.at, len(content), 0)
        self.file.write(content)
        self.at += len(content)
        return self.at - len(content)

    def close(self) -> None:
        self.file.truncate(FILE)
        self.file.close()
        for (topic, queue), units in self.queues.items():
            folder = self.root / "consumequeue" / topic / str(queue)
            folder.mkdir(parents=True)
            (folder / f"{0:020d}").write_bytes(units)


def write_store(root: Path, rows: int, body_size: int) -> None:
    """Half messages, three of five committed, all ended by batched ops; another message comes first, as most
    a log have some: place 0 would also mean none."""
    writer, bodies = Writer(root), [bytes((n * 31 + i * 7) % 251 for i in range(body_size)) for n in range(1000)]
    writer.append("other", 0, at(other(b"other", b"first", b"")))
    for start in range(0, rows, BATCH):
        block = range(start, min(start + BATCH, rows))
        for n in block:
            body = bodies[n % 1000]
            place = writer.append("RMQ_SYS_TRANS_HALF_TOPIC", 0, lambda _, at, n=n, body=body: half(n, at, body))
            if n % 5 < 3:
                properties = f"UNIQ_KEY\x01{n:032X}\x02TRAN_MSG\x01true\x02".encode()
                message = other(b"orders", body, properties, n)
                committed = message._replace(queue_id=n % 4, sys_flag=8, prepared_offset=place)
                writer.append("orders", n % 4, at(committed))
        ended = "".join(f"{n}," for n in block).encode()
        op = other(b"RMQ_SYS_TRANS_OP_HALF_TOPIC", ended, b"TAGS\x01d\x02")
        writer.append("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, at(op))
    writer.close()


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def landed(spark: SparkSession, store: Path, folder: str) -> tuple[float, dict[str, float]]:
    warehouse = KernelWarehouse(spark, folder)
    request = StoreRequest(str(store), "broker-a", timedelta(seconds=5))
    seconds: dict[str, float] = {}
    took = timed(lambda: seconds.update(land_store(warehouse, request, logging.getLogger("bench")).seconds))
    return took, seconds


def copied(spark: SparkSession, source: str, folder: str) -> float:
    def copy() -> None:
        for name in TABLES:
            spark.read.parquet(f"{source}/{name}").write.format("delta").save(f"{folder}/{name}")

    return timed(copy)


def rounds(spark: SparkSession, store: Path, work: Path, number: int) -> Iterator[float]:
    """Prints each round; returns what a landing takes, in times of a copy."""
    small = work / "small"
    write_store(small, 20_000, 200)
    landed(spark, small, str(work / "warm"))
    source = str(work / "parquet")
    for n in range(number):
        took, seconds = landed(spark, store, str(work / f"landed-{n}"))
        if n == 0:
            for name in TABLES:
                spark.read.format("delta").load(f"{work}/landed-0/{name}").write.parquet(f"{source}/{name}")
            copied(spark, source, str(work / "copy-warm"))
        plain = copied(spark, source, str(work / f"copy-{n}"))
        told = {"round": n, "land_s": round(took, 2), "copy_s": round(plain, 2), "ratio": round(took / plain, 2)}
        print(json.dumps(told | {"phases": seconds}), flush=True)
        yield took / plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=700_000)
    parser.add_argument("--body", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    spark = spark_session("bench store", **{"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    work = Path(tempfile.mkdtemp(prefix="halfop-bench-"))
    try:
        write_store(work / "store", options.rows, options.body)
        ratio = statistics.median(rounds(spark, work / "store", work, options.rounds))
    finally:
        shutil.rmtree(work)
    print(json.dumps({"rows": options.rows, "ratio": round(ratio, 2), "bound": _BOUND}))
    raise SystemExit(1 if ratio > _BOUND else 0)


if __name__ == "__main__":
    main()
