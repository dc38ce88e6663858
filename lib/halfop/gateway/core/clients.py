"""Clients of a gateway, and which producer groups each is of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from halfop.gateway.core.accounts import PUB, Account
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import PROXY_CLIENT

_MOST_GROUPS = 100  # of a client


class Client:
    """A client's connection. `name` is the client's own id, or its address until it has given one."""

    def __init__(self, host: bytes, name: str) -> None:
        self.host, self.name, self.form = host, name, 0
        self.language, self.version = "OTHER", 0  # as its last heartbeat or first send says
        self.groups: set[str] = set()
        self.account: Account | None = None  # whose key signed the last request; none if clients need no key
        self.is_open = True  # whether a frame that is sent now will go out soon: the server says so

    def speaks(self, request: Frame) -> None:
        """Notes what the client is written in, and which version of RocketMQ it is."""
        self.language, self.version = request.language, request.version

    @property
    def address(self) -> bytes:
        """Its machine's address, without the port."""
        return self.host[:-4]

    @property
    def is_proxy(self) -> bool:
        """Whether it is Apache's proxy, which takes questions for others, also while none of them is connected."""
        return self.name == PROXY_CLIENT

    def may_send(self, topic: str) -> bool:
        """Returns whether the client may send to the topic, and so may see the messages of its group there."""
        return self.account is None or self.account.may(topic, PUB)


class Producers:
    """Producer groups, and the clients by which each can be asked.

    A client is of a group if its heartbeat names the group. One that has merely sent is, too, until the group has one
    with a heartbeat: a proxy sends by connections on which it takes no questions.
    """

    def __init__(self) -> None:
        self._clients: dict[str, dict[Client, None]] = {}
        self._learned: set[str] = set()  # groups of which no heartbeat has come
        self._alike: dict[tuple[str, str | bytes], dict[Client, None]] = {}  # by group, and by name or address

    def __len__(self) -> int:
        return len(self._clients)

    def __contains__(self, group: str) -> bool:
        return group in self._clients

    def has_beaten(self, group: str) -> bool:
        """Returns whether the group's clients are those whose heartbeats name it."""
        return group not in self._learned

    def learn(self, group: str, client: Client) -> None:
        """Adds a client that has sent, if no heartbeat names the group."""
        if group not in self._clients:
            self._learned.add(group)
        if group in self._learned:
            self._put(group, client)

    def add(self, group: str, client: Client) -> None:
        """Adds a client whose heartbeat names the group; those that have merely sent are of it no longer."""
        if group in self._learned:
            self._learned.discard(group)
            for each in list(self._clients[group]):
                self.remove([group], each)
        self._put(group, client)

    def rename(self, client: Client, name: str) -> None:
        """Gives a client the id that its heartbeat names."""
        if name != client.name:
            groups = [(group, group in self._learned) for group in client.groups]
            self.remove(client.groups, client)
            client.name = name
            for group, is_learned in groups:
                (self.learn if is_learned else self.add)(group, client)

    def remove(self, groups: Iterable[str], client: Client) -> None:
        """Takes a client out of groups."""
        for group in list(groups):
            client.groups.discard(group)
            for table, key in self._places(group, client):
                clients = table.get(key, {})
                clients.pop(client, None)
                if not clients:
                    table.pop(key, None)
            if group not in self._clients:
                self._learned.discard(group)

    def _put(self, group: str, client: Client) -> None:
        """Notes a client, unless it is of too many groups."""
        if len(client.groups) < _MOST_GROUPS:
            client.groups.add(group)
            for table, key in self._places(group, client):
                table.setdefault(key, {})[client] = None
        elif group not in self._clients:
            self._learned.discard(group)

    def _places(self, group: str, client: Client) -> Iterator[tuple[dict[Any, dict[Client, None]], Any]]:
        yield self._clients, group
        yield self._alike, (group, client.name)
        yield self._alike, (group, client.address)

    def like(self, group: str, *known: str) -> Iterator[Client]:
        """The group's open clients of these names and addresses, in their order."""
        return (each for one in known for each in self._alike.get((group, one), ()) if each.is_open)

    def in_turn(self, group: str) -> Iterator[Client]:
        """The group's open clients, beginning with the one that was asked longest ago."""
        return (each for each in self._clients.get(group, ()) if each.is_open)

    def asked(self, group: str, client: Client) -> None:
        """Puts a client of the group that is asked at the end of the turn."""
        clients = self._clients[group]
        del clients[client]
        clients[client] = None
