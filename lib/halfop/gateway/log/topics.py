"""The topic table, kept as a broker keeps it, so that a broker over this store knows the topics too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time

from halfop.frame.errors import InputRefused
from halfop.gateway.log.disk import replace_file
from halfop.gateway.log.messages import Topic
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC

_OWN = {HALF_TOPIC: Topic(1, 1), OP_TOPIC: Topic(1, 1)}


class TopicTable:
    """The topics of a store. One thread changes it, and one makes that durable by `write`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "config" / "topics.json"
        self._path.parent.mkdir(exist_ok=True)
        self._topics, self._counter = self._read() if self._path.exists() else ({}, 0)
        self._changed = not _OWN.keys() <= self._topics.keys()
        self._topics = _OWN | self._topics
        self.write()

    @property
    def all(self) -> Mapping[str, Topic]:
        return self._topics

    def put(self, name: str, topic: Topic) -> None:
        """Adds or changes a topic."""
        if self._topics.get(name) != topic:
            self._topics[name] = topic
            self._changed = True

    def set_queues(self, names: Iterable[str], queues: int) -> None:
        """Has these topics and all others take messages in so many queues; what has more of them can still be read."""
        found = dict(self._topics)
        for name in {*names, *self._topics} - _OWN.keys():
            known = self._topics.get(name, Topic(0, 0))
            found[name] = known._replace(read_queues=max(queues, known.read_queues), write_queues=queues)
        if found != self._topics:
            self._topics.update(found)
            self._changed = True

    def _read(self) -> tuple[dict[str, Topic], int]:
        try:
            read = json.loads(self._path.read_bytes())
            table = read["topicConfigTable"]
            topics = {name: Topic(t["readQueueNums"], t["writeQueueNums"], t["perm"]) for name, t in table.items()}
            return topics, int(read["dataVersion"]["counter"])
        except (ValueError, LookupError, TypeError) as error:
            raise InputRefused(self._path, None, "no topic table can be read from it", "restore the file") from error

    def write(self) -> None:
        """Makes all changes durable."""
        if not self._changed:
            return
        self._changed = False  # first: what is changed meanwhile is written by the next call
        self._counter += 1
        version = {"counter": self._counter, "stateVersion": 0, "timestamp": int(time() * 1000)}
        table = {name: config_of(name, topic) for name, topic in dict(self._topics).items()}
        content = {"dataVersion": version, "topicConfigTable": table}
        replace_file(self._path, json.dumps(content, indent=1).encode())


def config_of(name: str, topic: Topic) -> dict[str, object]:
    """A topic as a broker's table has it."""
    return {
        "topicName": name,
        "readQueueNums": topic.read_queues,
        "writeQueueNums": topic.write_queues,
        "perm": topic.perm,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }
