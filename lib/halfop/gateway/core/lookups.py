"""Reads, routes, topics and keys: what clients ask a gateway about, and pulls that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from halfop.gateway.core.accounts import GET, check_may
from halfop.gateway.core.administration import Administration, RunningState
from halfop.gateway.core.clients import Client
from halfop.gateway.core.effects import Answer, Effects, FindRoute, Instant, LogView, Read
from halfop.gateway.core.keys import Keys
from halfop.gateway.core.pulls import WaitingPulls
from halfop.gateway.core.reads import Description, Reads, cluster_info, route_of, topic_config
from halfop.gateway.core.refusals import header_of
from halfop.gateway.core.transactions import Terms, answer
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import TRACE_TOPIC, AnswerCode, RequestCode
from halfop.rocketmq.requests import GetRouteinfo, GetTopicConfig, PullMessage

_LONGEST_PULL = 20.0  # seconds that a pull waits; clients give up after 30


class Lookups:
    """Answers what clients ask about; `handlers` has a method for each request's code."""

    def __init__(self, log: LogView, broker: Description, terms: Terms, state: RunningState, started: Instant) -> None:
        self._broker, self._terms = broker, terms
        self._pulls, self._reads, self._keys = WaitingPulls(), Reads(log, broker, started.ms), Keys(log, broker)
        self._administration = Administration(log, broker, terms, state, started)
        self._quick = {**self._reads.quick, **self._administration.quick}
        self._slow = {**self._reads.slow, **self._administration.slow}
        self.handlers: Mapping[int, Callable[[Client, Frame, Instant], Effects]] = {
            **dict.fromkeys(self._quick, self._read_now),
            **dict.fromkeys(self._slow, self._read_later),
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
            RequestCode.GET_TOPIC_CONFIG: self._topic_config,
        }

    def tick(self, now: float) -> Iterator[Answer]:
        """Answers pulls that have waited long enough; called some ten times a second."""
        self._administration.tick(now, self._reads.pulled)
        return self._pulls.over(now)

    def _read_now(self, client: Client, request: Frame, now: Instant) -> Effects:
        return answer(client, request, self._quick[request.code](request, client.account))

    def _read_later(self, client: Client, request: Frame, now: Instant) -> Effects:
        return (Read(client, request, partial(self._slow[request.code], request, client.account)),)

    def _query(self, client: Client, request: Frame, now: Instant) -> Effects:
        return (Read(client, request, partial(self._keys.query, request, client.account), is_search=True),)

    def _pull(self, client: Client, request: Frame, now: Instant) -> Effects:
        """A pull that is to wait, and finds nothing, is answered when its time is over. No message ends it earlier."""
        asked = header_of(PullMessage, request)
        nothing = self._reads.nothing_new(asked, request, client.account, self._terms)
        if nothing is None:
            return self._read_later(client, request, now)
        until = now.steady + min(max(asked.suspend_timeout_millis, 0) / 1000, _LONGEST_PULL)
        return () if self._pulls.add(client, nothing, until) else (Answer(client, nothing),)

    def _topic_config(self, client: Client, request: Frame, now: Instant) -> Effects:
        topic = header_of(GetTopicConfig, request).topic
        check_may(client.account, topic, GET)
        return answer(client, request, request.answer(AnswerCode.SUCCESS, body=topic_config(topic, self._terms)))

    def _cluster(self, client: Client, request: Frame, now: Instant) -> Effects:
        return answer(client, request, request.answer(AnswerCode.SUCCESS, body=cluster_info(self._broker)))

    def _route(self, client: Client, request: Frame, now: Instant) -> Effects:
        topic = header_of(GetRouteinfo, request).topic
        body = route_of(topic, self._broker, self._terms)
        if body is None or topic == TRACE_TOPIC:  # other brokers may keep traces
            return (FindRoute(client, request, topic, body),)
        return answer(client, request, request.answer(AnswerCode.SUCCESS, body=body))
