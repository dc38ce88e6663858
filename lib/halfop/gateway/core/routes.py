"""What a gateway says of itself: its configuration as a broker's, and routes to its topics as a name server's."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from halfop.gateway.core.accounts import Refused
from halfop.gateway.core.messages import Topic
from halfop.gateway.core.transactions import Terms, check_topic
from halfop.rocketmq.codes import AnswerCode
from halfop.rocketmq.wire.client import GATEWAY_CONFIG

DEFAULT_TOPIC = "TBW102"  # its route stands for topics that nobody has made yet
_MASTER, _SLAVE = "0", "1"
_READ_WRITE, _ANY = 6, 7


@dataclass(frozen=True)
class Broker:
    """A broker's description of itself."""

    name: str
    cluster: str
    address: str
    created: str
    is_slave: bool
    store_host: bytes  # the address as records and message ids have it

    def config(self) -> bytes:
        """The lines of its configuration; a gateway's has its store's id, which no broker's has."""
        lines = {
            "brokerName": self.name,
            "brokerClusterName": self.cluster,
            "brokerId": "1" if self.is_slave else "0",
            "brokerRole": "SLAVE" if self.is_slave else "SYNC_MASTER",
            "flushDiskType": "SYNC_FLUSH",
            GATEWAY_CONFIG: self.created,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items()).encode()


def route_of(topic: str, broker: Broker, terms: Terms) -> bytes | None:
    """The body of the answer to GET_ROUTEINFO_BY_TOPIC; None if the topic is not served here."""
    if not _is_served(topic, terms):
        return None
    new = Topic(terms.queues, terms.queues, _ANY if topic == DEFAULT_TOPIC else _READ_WRITE)
    found = terms.known.get(topic) or new
    queues = {
        "brokerName": broker.name,
        "perm": found.perm,
        "readQueueNums": found.read_queues,
        "writeQueueNums": found.write_queues,
        "topicSysFlag": 0,
        "topicSynFlag": 0,
    }
    return orjson.dumps({"brokerDatas": [_data(broker)], "filterServerTable": {}, "queueDatas": [queues]})


def _is_served(topic: str, terms: Terms) -> bool:
    if terms.topics is None and topic == DEFAULT_TOPIC:
        return True
    try:
        check_topic(topic, terms)
    except Refused:
        return False
    return True


def cluster_info(broker: Broker) -> bytes:
    """The body of the answer to GET_BROKER_CLUSTER_INFO."""
    table = {"brokerAddrTable": {broker.name: _data(broker)}, "clusterAddrTable": {broker.cluster: [broker.name]}}
    return orjson.dumps(table)


def _data(broker: Broker) -> dict[str, object]:
    number = _SLAVE if broker.is_slave else _MASTER
    return {"brokerAddrs": {number: broker.address}, "brokerName": broker.name, "cluster": broker.cluster}


def no_route(topic: str) -> Refused:
    return Refused(AnswerCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
