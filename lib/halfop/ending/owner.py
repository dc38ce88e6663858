"""The broker that owns half messages: its master, found again whenever it changes, and its queues since they landed."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import pyarrow.compute as pc

from halfop.ending.plan import PlannedPlace, Row
from halfop.ending.table import Ending
from halfop.frame.errors import InputRefused
from halfop.rocketmq.batches import HALF, OP, half_batch, op_batch
from halfop.rocketmq.names import CHECK_TIMES, GATEWAY_CONFIG, PREPARED_QUEUE_OFFSET, ROCKSDB_QUEUES, topics_of
from halfop.rocketmq.properties import Properties
from halfop.rocketmq.record import Records
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.name_servers import NameServers
from halfop.rocketmq.wire.pull import Chunk, QueueRange, checked, pull
from halfop.rocketmq.wire.remoting import Corrupt, Credentials, RemotingError, RemotingSettings, Tls
from halfop.settings.model import Settings

_ONE_MASTER = 10.0  # seconds for which one address is tried; then there may be another master
_TIMES = ("transactionOpBatchInterval", "transactionCheckInterval", "waitTimeMillsInTransactionQueue")
_NONE = 0  # 4.x writes an op message at once
_A_SECOND = timedelta(seconds=1)


class NoMaster(RemotingError):
    """The broker has no master now; name servers may know another one soon."""


@dataclass(frozen=True)
class Masters:
    """The addresses of masters: those that name servers know, or the one given."""

    settings: RemotingSettings
    namesrv: str | None = None
    broker: str | None = None

    def master(self, name: str, was_known: bool = False) -> str:
        """Returns the address of a broker's master. Raises NoMaster, or InputRefused for a broker that never was."""
        if self.broker:
            return self.broker
        servers = NameServers(str(self.namesrv), self.settings)
        try:
            found = {each.name: each for each in servers.brokers()}
        finally:
            servers.close()
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            if was_known:  # its last address has gone, and another one comes soon
                raise NoMaster(f"broker {name} has no address now; the name servers know {known}")
            raise InputRefused(str(self.namesrv), None, f"no broker {name}", f"the name servers know {known}")
        if not found[name].is_master:
            raise NoMaster(f"broker {name} has no master now: only a master ends transactions")
        return found[name].address

    @contextmanager
    def owner(self, name: str, was_known: bool = False) -> Iterator[Owner]:
        """A connection to a broker's master, by its own word, while the block runs."""
        brief = replace(self.settings, give_up_after=min(self.settings.give_up_after, _ONE_MASTER))
        broker = Broker(self.master(name, was_known), brief)
        try:
            yield _checked(broker, name)
        finally:
            broker.close()


@dataclass(frozen=True)
class Owner:
    """A master, and what its configuration shows of how soon its work can be seen.

    A gateway's op messages show at once how a transaction ended, and it delivers nothing twice.
    """

    broker: Broker
    has_index: bool
    op_batch: timedelta
    check_interval: timedelta
    end_queue: timedelta
    is_gateway: bool

    @property
    def shows_commits(self) -> bool:
        return self.has_index or self.is_gateway

    @property
    def settles(self) -> timedelta:
        """The time after which an answer's op message is there to be read."""
        return self.op_batch + _A_SECOND

    @property
    def clears_doubt(self) -> timedelta:
        """The same for a request that perhaps waits in the broker still: it refuses those that wait too long."""
        return max(self.op_batch, self.end_queue) + _A_SECOND


def _checked(broker: Broker, name: str) -> Owner:
    """Raises InputRefused for another broker, NoMaster for a slave."""
    conf, address = broker.configuration(), broker.remote.address
    if conf.get("brokerName") != name:
        problem = f"it is broker {conf.get('brokerName')}, but the messages are of {name}"
        raise InputRefused(address, None, problem, "give the address of that broker, or --namesrv")
    if conf.get("brokerRole") == "SLAVE":
        raise NoMaster(f"{address} is a slave of {name}: only a master ends transactions")
    batch, interval, queue = (_millis(address, conf, key) for key in _TIMES)
    return Owner(broker, conf.get("messageIndexEnable") == "true", batch, interval, queue, GATEWAY_CONFIG in conf)


def _millis(address: str, conf: dict[str, str], key: str) -> timedelta:
    text = conf.get(key, str(_NONE))
    if not text.isdecimal():
        raise Corrupt(address, f"sent a configuration with {key} = {text!r}")
    return timedelta(milliseconds=int(text))


def remoting(settings: Settings, in_flight: int) -> RemotingSettings:
    """Returns the settings of connections to brokers; credentials come from the environment."""
    landing = settings.landing
    tls = Tls(**settings.tls.model_dump(exclude={"enabled"})) if settings.tls.enabled else None
    return RemotingSettings(
        connect_timeout=landing.connect_timeout.total_seconds(),
        answer_timeout=landing.answer_timeout.total_seconds(),
        give_up_after=landing.give_up_after.total_seconds(),
        in_flight=in_flight,
        credentials=Credentials.from_environment(),
        tls=tls,
    )


def add_owner(parser: argparse.ArgumentParser) -> None:
    """Adds the options that name the masters of brokers."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--namesrv", metavar="H:P", help="name servers, host:port;host:port, that know the masters")
    where.add_argument("--broker", metavar="H:P", help="the master's address, if all transactions are one broker's")


def owner_of(settings: Settings, namesrv: str | None, broker: str | None) -> Masters | None:
    """Returns the way to the masters; None if no option names one."""
    if namesrv is None and broker is None:
        return None
    return Masters(remoting(settings, settings.end.in_flight), namesrv, broker)


# ---- the part of a broker's half and op queues that was written since they landed ----


_NO_END = 2**63
_CLOCKS_DIFFER = timedelta(minutes=1)  # this machine's and the broker's, at most


class LandedEnds(NamedTuple):
    """The offsets up to which a broker's half and op queue have landed; None: nothing has."""

    half: int | None = None
    op: int | None = None


class WrittenCopy(NamedTuple):
    """A half message that was written since the landing, `marked` if the broker's own check service has put it back."""

    place: PlannedPlace
    marked: bool
    producer_group: str | None
    born_timestamp: datetime | None


class _Tail:
    """A queue from an offset on; each call reads what is new."""

    def __init__(self, topic: str, queue: int, start: int, kind: str) -> None:
        self.topic, self.queue, self.next, self._kind = topic, queue, start, kind

    def new(self, broker: Broker) -> Iterator[Records]:
        end = broker.max_offset(self.topic, self.queue)
        if end < self.next:
            problem = f"queue {self.queue} of {self.topic} ends at {end}, but has landed up to {self.next}"
            raise InputRefused(broker.remote.address, None, problem, "is it the broker that has landed?")
        asked = QueueRange(self.topic, self.queue, self.next, end)
        for pulled in pull(broker, asked) if end > self.next else ():
            if isinstance(pulled, Chunk):
                yield checked(broker.remote.address, asked, pulled, self._kind)
            self.next = pulled.next


class Tails:
    """The half and op queue of one broker and queue id after what has landed, as far as some transactions need it."""

    def __init__(self, landed: LandedEnds, queue: int, rows: Collection[Row]) -> None:
        lowest = min((place.queue_offset for row in rows for place in row.places), default=0)
        half_topic, op_topic = topics_of(queue)
        self._halves = _Tail(half_topic, queue, lowest if landed.half is None else landed.half, HALF)
        self._ops = _Tail(op_topic, queue, landed.op or 0, OP)
        self._by_place = queue >= ROCKSDB_QUEUES
        self._lowest = min((self._named(place) for row in rows for place in row.places), default=0)
        self._rows: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            self._rows[row.uniq_key].append(row)
        self._copies: dict[str, list[WrittenCopy]] = defaultdict(list)
        self._ended: dict[int, int] = {}
        self._outcomes: dict[int, str] = {}

    def catch_up(self, broker: Broker) -> None:
        """Reads what is new; half messages first, so that an op is never older than the copies that are known."""
        for records in self._halves.new(broker):
            self._add_copies(records)
        for records in self._ops.new(broker):
            self._add_ops(records)

    def copies(self, row: Row) -> list[PlannedPlace]:
        """Returns the newer copies of a transaction, in the order of their offsets; a twin above it has its own."""
        known = [copy for copy in self._copies.get(row.uniq_key, ()) if _is_kin(row, copy)]
        twins = [twin.places[0].queue_offset for twin in self._rows[row.uniq_key] if _is_kin(row, twin)]
        heads = [*twins, *(copy.place.queue_offset for copy in known if not copy.marked)]
        end = min((head for head in heads if head > row.places[0].queue_offset), default=_NO_END)
        mine = (copy.place for copy in known if copy.marked and copy.place.queue_offset < end)
        return [place for place in mine if place.queue_offset > row.places[-1].queue_offset]

    def has_checked(self, broker: Broker, place: PlannedPlace) -> bool:
        """Returns whether the broker's check has passed a half message: a copy that it put back until then is there.

        It puts back no transaction in RocksDB.
        """
        if self._by_place:
            return True
        checked_until = broker.check_offset(self._halves.topic, self._halves.queue)
        return checked_until is not None and checked_until > place.queue_offset

    def op_of(self, place: PlannedPlace) -> int | None:
        """Returns the offset of the op message that names a half message; None if there is none."""
        return self._ended.get(self._named(place))

    def outcome_of(self, place: PlannedPlace) -> str | None:
        """Returns how a half message ended, COMMIT or ROLLBACK, if its op message shows that: a gateway's does."""
        return self._outcomes.get(self._named(place))

    def _named(self, place: PlannedPlace) -> int:
        """Returns the number by which ops name a half message."""
        return place.commit_log_offset if self._by_place else place.queue_offset

    def _add_copies(self, records: Records) -> None:
        properties = Properties(records)
        marked = pc.or_(*(pc.is_valid(properties.strings(name)) for name in (CHECK_TIMES, PREPARED_QUEUE_OFFSET)))
        rows = half_batch(records).select(_COPY_COLUMNS)
        for row, put_back in zip(rows.to_pylist(), marked.to_pylist(), strict=True):
            if row["uniq_key"] in self._rows:
                place = PlannedPlace(row["queue_offset"], row["commit_log_offset"])
                found = WrittenCopy(place, put_back, row["producer_group"], row["born_timestamp"])
                self._copies[row["uniq_key"]].append(found)

    def _add_ops(self, records: Records) -> None:
        rows = op_batch(records)
        for offset, body, outcome in zip(*(rows[name].to_pylist() for name in _OP_COLUMNS), strict=True):
            for item in _offsets(body or ""):
                if item >= self._lowest and item not in self._ended:
                    self._ended[item] = offset
                    self._outcomes |= {item: outcome} if outcome else {}


_OP_COLUMNS = ("queue_offset", "body", "outcome")
_COPY_COLUMNS = ["queue_offset", "commit_log_offset", "uniq_key", "producer_group", "born_timestamp"]


def _is_kin(row: Row, copy: WrittenCopy | Row) -> bool:
    born = row.born_timestamp
    return copy.producer_group == row.producer_group and (born is None or copy.born_timestamp == born)


def _offsets(body: str) -> Iterator[int]:
    for item in body.split(","):
        if item.isascii() and item.isdigit():
            yield int(item)


def since(landed: LandedEnds, broker: Broker, queue: int, endings: Sequence[Ending]) -> LandedEnds:
    """Returns where to read from if these earlier answers, too, must be seen, with the copies that came after them."""
    first = min(each.at for each in endings) - _CLOCKS_DIFFER
    op = broker.offset_at(topics_of(queue)[1], queue, int(first.timestamp() * 1000))
    halves = [each.sent.queue_offset for each in endings if each.sent is not None]
    return landed._replace(half=min(halves, default=landed.half), op=min(op, landed.op or op))


def landed_of(progress: Mapping[tuple[str, int], int | None], queue: int) -> LandedEnds:
    """Returns how far a queue has landed, from the next offsets by topic and queue."""
    return LandedEnds(*(progress.get((topic, queue)) for topic in topics_of(queue)))
