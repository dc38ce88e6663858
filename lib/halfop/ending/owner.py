"""The master that owns a broker's half messages, found again whenever it changes, and how it is connected to."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from halfop.frame.errors import InputRefused
from halfop.landing.identity import refuse_rocksdb_broker
from halfop.rocketmq.names import GATEWAY_CONFIG
from halfop.rocketmq.wire.client import Broker, NameServers, is_rocksdb_alone
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
    """Raises InputRefused for another broker or one with RocksDB alone, NoMaster for a slave."""
    conf, address = broker.configuration(), broker.remote.address
    if conf.get("brokerName") != name:
        problem = f"it is broker {conf.get('brokerName')}, but the messages are of {name}"
        raise InputRefused(address, None, problem, "give the address of that broker, or --namesrv")
    if conf.get("brokerRole") == "SLAVE":
        raise NoMaster(f"{address} is a slave of {name}: only a master ends transactions")
    refuse_rocksdb_broker(broker, name, is_rocksdb_alone(conf))
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
