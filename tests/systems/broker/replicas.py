"""More processes of a real broker: a slave of it, or a master that takes its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from systems.broker.real_broker import RealBroker

SLAVE: Mapping[str, object] = {"brokerId": 1, "brokerRole": "SLAVE"}


class Beside(RealBroker):
    """A broker of the same name behind the name server of the first one, over a store of its own or a given one."""

    def __init__(
        self, first: RealBroker, home: Path, settings: Mapping[str, object], store: Path | None = None
    ) -> None:
        super().__init__(first.version, home, (), {**settings, "namesrvAddr": first.namesrv})
        self.namesrv = first.namesrv
        if store is not None:
            conf = home / "conf" / "broker.conf"
            conf.write_text(conf.read_text().replace(str(self.store), str(store)))
            self.store = store

    def start(self) -> None:
        """The broker alone."""
        self._start("broker", "-Xmx384m", "-XX:MaxDirectMemorySize=256m")

    restart = start


@contextmanager
def beside(
    first: RealBroker, home: Path, settings: Mapping[str, object], store: Path | None = None
) -> Iterator[Beside]:
    """A process that is not started yet, and is killed at the end if it runs."""
    found = Beside(first, home, settings, store)
    try:
        yield found
    finally:
        found.close()
