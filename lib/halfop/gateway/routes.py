"""Routes to this gateway's topics, as a name server gives them."""

from __future__ import annotations

import orjson

from halfop.gateway.log.messages import Topic
from halfop.gateway.reading import Broker
from halfop.gateway.refused import Refused
from halfop.rocketmq.codes import AnswerCode
from halfop.rocketmq.frames import Frame

DEFAULT_TOPIC = "TBW102"  # its route stands for topics that nobody has made yet
_MASTER, _SLAVE = "0", "1"


def route_of(broker: Broker, topic: Topic) -> bytes:
    """The body of the answer to GET_ROUTEINFO_BY_TOPIC."""
    queues = {
        "brokerName": broker.name,
        "perm": topic.perm,
        "readQueueNums": topic.read_queues,
        "writeQueueNums": topic.write_queues,
        "topicSysFlag": 0,
        "topicSynFlag": 0,
    }
    found = {"brokerDatas": [broker_data(broker)], "filterServerTable": {}, "queueDatas": [queues]}
    return orjson.dumps(found)


def cluster_info(request: Frame, broker: Broker) -> bytes:
    """The answer to GET_BROKER_CLUSTER_INFO."""
    table = {"brokerAddrTable": {broker.name: broker_data(broker)}, "clusterAddrTable": {broker.cluster: [broker.name]}}
    return request.answer(AnswerCode.SUCCESS, body=orjson.dumps(table))


def broker_data(broker: Broker) -> dict[str, object]:
    number = _SLAVE if broker.is_slave else _MASTER
    return {"brokerAddrs": {number: broker.address}, "brokerName": broker.name, "cluster": broker.cluster}


def no_route(topic: str) -> Refused:
    return Refused(AnswerCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
