"""Half messages a second of one core's time, the best of some rounds, from the bytes of a commit log to Arrow.

./spark-submit.sh exec python bench/decode.py [--records N] [--body BYTES]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from halfop.rocketmq.batches import half_batch
from halfop.rocketmq.buffers import as_bytes
from halfop.rocketmq.message import Message, Place, body_crc, host_bytes
from halfop.rocketmq.record import Records, chain

WINDOW = 8 << 20
ROUNDS = 9
CLIENTS, BROKER = [host_bytes("10.0.0.1", 40000 + n) for n in range(64)], host_bytes("10.0.0.2", 10911)


def log(records: int, body_size: int) -> bytes:
    """Half records as a 5.x broker writes them, physical offsets from 0."""
    bodies = np.random.default_rng(7).bytes(body_size * 1000)
    parts, at = [], 0
    for n in range(records):
        body = bodies[n % 1000 * body_size :][:body_size]
        parts.append(half(n, at, body))
        at += len(parts[-1])
    return b"".join(parts)


def half(n: int, at: int, body: bytes) -> bytes:
    topic = b"RMQ_SYS_TRANS_HALF_TOPIC"
    properties = (
        f"REAL_TOPIC\x01orders\x02KEYS\x01order-{n}\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01{n:032X}\x02WAIT\x01true\x02"
        f"TAGS\x01paid\x02PGROUP\x01producers\x02REAL_QID\x01{n % 4}\x02"
    ).encode()
    message = Message(topic, body, properties, 10**12 + n, CLIENTS[n % 64], BROKER, body_crc(body))
    return message.packed(Place(n, at, message.size(checked=False), 10**12 + n), checked=False)


def windows(content: bytes) -> int:
    """Heads only: how many records there are."""
    at = count = 0
    while at < len(content):
        found = chain(as_bytes(content)[at : at + WINDOW], at)
        count, at = count + len(found.records), at + found.end
    return count


def batches(content: bytes) -> int:
    """Whole batches, CRCs checked."""
    at = count = 0
    while at < len(content):
        found = chain(as_bytes(content)[at : at + WINDOW], at)
        count, at = count + rows(found.records), at + found.end
    return count


def rows(records: Records) -> int:
    if records.wrong_body_crc().any() or records.wrong_property_crc().any():
        raise SystemExit("CRC")
    return int(half_batch(records).num_rows)


def speed(name: str, work: Callable[[bytes], int], content: bytes, count: int) -> None:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        if work(content) != count:
            raise SystemExit(f"{name}: not {count} records")
        best = min(best, time.process_time() - start)
    print(f"{name:<14} {count / best:>12,.0f} messages/s {len(content) / best / 1e6:>8,.0f} MB/s")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=300_000)
    options.add_argument("--body", type=int, default=200)
    given = options.parse_args()
    content = log(given.records, given.body)
    speed("heads", windows, content, given.records)
    speed("half batches", batches, content, given.records)


if __name__ == "__main__":
    main()
