"""Name servers, which know where brokers are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halfop.frame.errors import UsageError
from halfop.rocketmq import requests as r
from halfop.rocketmq.wire.remote import Patience, Remote
from halfop.rocketmq.wire.remoting import ConnectionLost, RemotingError, RemotingSettings

_MASTER = 0


@dataclass(frozen=True)
class BrokerAddress:
    """The address at which a broker group is read: its master's, or its first slave's if it has no master now.

    A slave may lag, and answers pulls only with slaveReadEnable.
    """

    name: str
    cluster: str
    address: str
    is_master: bool


class NoNameServer(RemotingError):
    """Name servers answered, but none as it should: each one's fault."""

    transient = False


class NameServers:
    """`addresses` as RocketMQ writes them, `host:port;host:port`: tried in turn."""

    def __init__(self, addresses: str, settings: RemotingSettings) -> None:
        self._remotes = [Remote(each, settings) for each in addresses.split(";") if each.strip()]
        if not self._remotes:
            raise UsageError(f"no name server in {addresses!r}; expected host:port, or several with ; between")
        self._give_up_after = settings.give_up_after

    def brokers(self) -> list[BrokerAddress]:
        """All brokers that are registered now, by name, as the first name server that answers soundly has them."""
        patience = Patience(self._give_up_after)
        while True:
            failed = list[RemotingError]()
            for remote in self._remotes:
                try:
                    found = _brokers_at(remote)
                except RemotingError as error:
                    failed.append(error)
                    continue
                return found
            why = "; ".join(map(str, failed))
            if not any(isinstance(error, ConnectionLost) for error in failed):
                raise failed[0] if len(failed) == 1 else NoNameServer(why)
            patience.pause(why)

    def close(self) -> None:
        for remote in self._remotes:
            remote.close()


def _brokers_at(remote: Remote) -> list[BrokerAddress]:
    request = r.GetBrokerClusterInfo()
    answer = remote.checked(request, remote.try_once(request))
    return remote.body(answer, "brokerAddrTable", _broker_addresses)


def _broker_addresses(groups: Any) -> list[BrokerAddress]:
    return [_broker_address(name, group) for name, group in sorted(groups.items())]


def _broker_address(name: str, group: Any) -> BrokerAddress:
    addresses = {int(number): str(address) for number, address in group["brokerAddrs"].items()}
    first = min(addresses)
    return BrokerAddress(name, str(group["cluster"]), addresses[first], first == _MASTER)
