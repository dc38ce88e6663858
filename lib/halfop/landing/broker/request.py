"""The options of `land broker`, and what they name: brokers, and where the first landing of one begins."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta

from halfop.frame.errors import InputRefused, UsageError
from halfop.landing import progress
from halfop.landing.again import Again
from halfop.landing.broker.sampling import Progress, Since, stored
from halfop.landing.identity import refuse_name
from halfop.rocketmq.names import HALF_TOPICS, is_real_topic, queue_number
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.name_servers import BrokerAddress, NameServers
from halfop.rocketmq.wire.pull import QueueRange
from halfop.rocketmq.wire.remoting import RemotingSettings


@dataclass(frozen=True)
class BrokerRequest:
    """The options of `land broker`: name servers, all of theirs or one cluster, or one broker's address.

    `broker_name`: what this one lands as, None: its own name. `since` or `from_offset` (of the half queue) is where the
    first landing of a broker begins. `topics`: the only real topics that are pulled, None: all.
    """

    settings: RemotingSettings
    op_lag: timedelta
    namesrv: str | None = None
    broker: str | None = None
    broker_name: str | None = None
    cluster: str | None = None
    since: datetime | None = None
    from_offset: int | None = None
    topics: frozenset[str] | None = None
    wait: timedelta = timedelta(0)
    accept_rewind: bool = False
    again: tuple[Again, ...] = ()

    def __post_init__(self) -> None:
        if (self.namesrv is None) == (self.broker is None):
            raise UsageError("which brokers? Give --namesrv or --broker")
        if self.cluster and not self.namesrv:
            raise UsageError("--cluster names a cluster of --namesrv; --broker is one broker")
        if self.broker_name is not None and not self.broker:
            raise UsageError("--broker-name is for --broker; brokers of --namesrv land under their own names")
        if self.broker_name is not None:
            refuse_name(self.broker_name)
        if self.from_offset is not None and not self.broker:
            raise UsageError(
                "--from-offset names a place in one broker's half queue: give --broker, or --since T for all"
            )


def real_topics(given: Sequence[str] | None) -> frozenset[str] | None:
    """Returns the real topics to pull; None: all. Raises UsageError for a name that is none."""
    for topic in given or ():
        if not is_real_topic(topic):
            raise UsageError(f"--topics {topic}: no message can be committed to that topic; give names of real topics")
    return None if given is None else frozenset(given)


def addresses(request: BrokerRequest) -> list[BrokerAddress]:
    """Returns the brokers to land, as the name servers know them now, or by a single broker's own name."""
    if request.namesrv is None:
        at = str(request.broker)
        return [BrokerAddress(request.broker_name or _own_name(at, request.settings), "", at, True)]
    servers = NameServers(request.namesrv, request.settings)
    try:
        found = servers.brokers()
    finally:
        servers.close()
    mine = [each for each in found if request.cluster in (None, each.cluster)]
    if found and not mine:
        known = ", ".join(sorted({each.cluster for each in found}))
        raise InputRefused(request.namesrv, None, f"no broker of cluster {request.cluster}", f"it knows {known}")
    return mine


def _own_name(address: str, settings: RemotingSettings) -> str:
    with closing(Broker(address, settings)) as broker:
        return broker.role().name


def begin_of(request: BrokerRequest, broker: Broker, rows: Progress) -> Since | None:
    """Returns where the first landing of a broker begins; None for its beginning, and for later landings."""
    if any(row.next_offset is not None for row in rows.values()):
        return None
    if request.from_offset is None:
        return None if request.since is None else Since(progress.micros(request.since) // 1000)
    queues = [(topic, queue_number(topic, 0)) for topic in HALF_TOPICS]
    ends = dict(zip(queues, broker.max_offsets(queues), strict=True))
    topic, queue = max(ends, key=lambda each: ends[each])
    wanted = QueueRange(topic, queue, request.from_offset, ends[topic, queue])
    at = stored(broker, wanted) if wanted.start < wanted.end else None
    if at is None:
        problem = (
            f"--from-offset {request.from_offset}: no half message is there, queue 0 of {topic} ends at {wanted.end}"
        )
        raise InputRefused(broker.remote.address, None, problem, "give an offset of it, or --since T")
    return Since(at // 1000, request.from_offset, topic)
