"""producing.py FOLDER WHO SEED TOPIC=ADDRESS …: a producer that writes down what it did, until FOLDER/settle is there.

Then it only answers. It rolls back what it is asked about and nobody has decided, because that local transaction did
not happen; sometimes it does not know. Transactions whose key begins with `hang` are for `end` alone.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from threading import Thread
from typing import NamedTuple, cast

from halfop.frame.errors import TransientError
from halfop.gateway.producer import Answer, Producer, Question
from support.histories.events import Acknowledged, Ended, Fates, Journal, Sent, now

# How often each comes. A broker puts back what hangs, every few seconds.
KINDS = {"commit": 24, "rollback": 8, "silent_commit": 4, "silent_rollback": 2, "hang_commit": 1, "hang_rollback": 1}
NOTE = "note"
_NOTES = ("plain", "ü € 漢字", "a=b;c", "")
_A_SECOND, _UNKNOWN = 2.5, 0.4  # transactions to each address; of the answers


def digest(body: bytes, note: str | None) -> int:
    return zlib.crc32(body + b"|" + (note or "").encode())


class Message(NamedTuple):
    kind: str
    key: str
    body: bytes
    note: str


def messages(seed: int, who: str, topic: str) -> Iterator[Message]:
    chance = Random(f"{seed} {who} {topic}")
    for number in count():
        (kind,) = chance.choices(list(KINDS), list(KINDS.values()))
        key = f"{kind}-{who}-{topic}-{number}"
        body = f"{key} ".encode() + chance.randbytes(chance.choice([0, 100, 600]))
        yield Message(kind, key, body, chance.choice(_NOTES))


class Party:
    """A producer, its journal, and the local transactions of all producers."""

    def __init__(self, folder: Path, who: str, seed: int) -> None:
        self._settle, self._who, self._seed = folder / "settle", who, seed
        self._journal, self._fates = Journal(folder / "history", who), Fates(folder / "fates")
        self._chance = Random(f"{seed} {who}")

    def answer(self, question: Question) -> Answer:
        key = question.sent.transaction_id
        if key.startswith("hang") or (not self._settle.exists() and self._chance.random() < _UNKNOWN):
            return "UNKNOWN"
        return self._decided(key, "ROLLBACK")

    def _decided(self, key: str, outcome: Answer) -> Answer:
        return cast(Answer, self._fates.decide(key, outcome))

    def run(self, topic: str, address: str) -> None:
        """Sends while it may, then stays to be asked; over a new connection if one is lost."""
        following = messages(self._seed, self._who, topic)
        while True:
            with suppress(TransientError, OSError), Producer(address, "nemesis", self.answer) as producer:
                while True:
                    time.sleep(self._chance.expovariate(_A_SECOND))
                    if self._settle.exists():
                        producer.heartbeat()
                        time.sleep(2)
                    else:
                        self._transaction(producer, topic, next(following))
            time.sleep(0.2)

    def _transaction(self, producer: Producer, topic: str, message: Message) -> None:
        kind, key, body, note = message
        self._journal.write(Sent(now(), self._who, key, topic, digest(body, note)))
        sent = producer.send(topic, body, {"UNIQ_KEY": key, NOTE: note})
        self._journal.write(Acknowledged(now(), self._who, key))
        if kind.startswith("hang"):
            return
        outcome = self._decided(key, "COMMIT" if kind.endswith("commit") else "ROLLBACK")
        if kind.startswith("silent"):
            return
        if self._chance.random() < 0.5:
            producer.end(sent, outcome)
        else:
            producer.end_surely(sent, outcome)
            self._journal.write(Ended(now(), self._who, key, outcome))


def main(folder: str, who: str, seed: str, *topics: str) -> None:
    party = Party(Path(folder), who, int(seed))
    threads = [Thread(target=party.run, args=topic.split("=")) for topic in topics]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
