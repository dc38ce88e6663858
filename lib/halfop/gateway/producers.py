"""Producer groups and the channels by which their producers can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from halfop.gateway.connection import Channel


class Producers:
    """Learns channels from heartbeats and sends, and gives a group's in turn."""

    def __init__(self) -> None:
        self._channels: dict[str, dict[Channel, None]] = {}

    @property
    def groups(self) -> Mapping[str, int]:
        """The groups that have a channel, with its number of them."""
        return {group: len(channels) for group, channels in self._channels.items()}

    def __contains__(self, group: str) -> bool:
        return group in self._channels

    def add(self, group: str, channel: Channel) -> None:
        channel.groups.add(group)
        self._channels.setdefault(group, {})[channel] = None

    def remove(self, groups: Iterable[str], channel: Channel) -> None:
        for group in list(groups):
            channel.groups.discard(group)
            channels = self._channels.get(group, {})
            channels.pop(channel, None)
            if not channels:
                self._channels.pop(group, None)

    def in_turn(self, group: str) -> Iterator[Channel]:
        """The group's channels, each once, beginning with the one that was asked longest ago."""
        channels = self._channels.get(group, {})
        for channel in list(channels):
            if channel in channels and channel.is_open:
                del channels[channel]
                channels[channel] = None
                yield channel
