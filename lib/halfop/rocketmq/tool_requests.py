"""Headers of requests that operators' tools send, mqadmin above all."""

from __future__ import annotations

from dataclasses import dataclass

from halfop.rocketmq.names import RequestCode
from halfop.rocketmq.requests import Header, Long


@dataclass
class GetTopicStatsInfo(Header, code=RequestCode.GET_TOPIC_STATS_INFO):
    topic: str


@dataclass
class GetProducerConnectionList(Header, code=RequestCode.GET_PRODUCER_CONNECTION_LIST):
    producer_group: str


@dataclass
class GetConsumerConnectionList(Header, code=RequestCode.GET_CONSUMER_CONNECTION_LIST):
    consumer_group: str


@dataclass
class GetConsumeStats(Header, code=RequestCode.GET_CONSUME_STATS):
    consumer_group: str


class GetAllTopicList(Header, code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER): ...


@dataclass
class QueryTopicConsumeByWho(Header, code=RequestCode.QUERY_TOPIC_CONSUME_BY_WHO):
    topic: str


@dataclass
class Queried(Header):
    """The answer to QUERY_MESSAGE: up to when and where the index goes."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long
