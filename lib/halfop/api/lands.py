"""Landing in the API: from files, a broker's store, or running brokers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from halfop.api.calls import WarehouseCalls, refuse_failed_parts, refuse_no_instant, refuse_text
from halfop.ending.owner import remoting
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.landing.again import Again
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest, real_topics
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.landed import log_landed
from halfop.landing.progress import keep_tidy
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.warehouse.catalog import Catalog
from halfop.warehouse.tables import Warehouse

_LOG = logging.getLogger("halfop.land")


class Lands(WarehouseCalls):
    """The methods that land."""

    def land_files(
        self,
        half: Sequence[str | Path] = (),
        op: Sequence[str | Path] = (),
        *,
        known_until: datetime | None = None,
        skip_bad: bool = False,
        accept_rewind: bool = False,
        again: Sequence[Again] = (),
    ) -> Summary:
        """Lands half and op rows of JSON lines or Parquet: files, folders or globs, each file once.

        >>> wh.land_files(half=[halves], op=[ops]).rows_written
        {'half_messages': 2, 'op_messages': 1}
        """
        refuse_no_instant(known_until=known_until)
        refuse_text(half=half, op=op, again=again)
        if not half and not op:
            raise UsageError("give at least one path of half or op rows (half=…, op=…; --half, --op)")
        wait = self.settings.lock.wait
        halves, ops = ([os.fspath(path) for path in each] for each in (half, op))
        request = FilesRequest(halves, ops, known_until, skip_bad, wait, accept_rewind, tuple(again))
        return self._land(lambda warehouse: land_files(warehouse, request, _LOG))

    def land_store(
        self,
        path: str | Path,
        broker_name: str = "broker-a",
        *,
        known_until: datetime | None = None,
        skip_corrupt: bool = False,
        accept_rewind: bool = False,
        again: Sequence[Again] = (),
    ) -> Summary:
        """Lands what is new in a broker's store directory, which holds the folder commitlog."""
        refuse_no_instant(known_until=known_until)
        refuse_text(again=again)
        wait, op_lag = self.settings.lock.wait, self.settings.landing.op_lag
        request = StoreRequest(
            os.fspath(path), broker_name, op_lag, known_until, skip_corrupt, wait, accept_rewind, again=tuple(again)
        )
        return self._land(lambda warehouse: land_store(warehouse, request, _LOG))

    def land_broker(
        self,
        namesrv: str | None = None,
        broker: str | None = None,
        *,
        broker_name: str | None = None,
        cluster: str | None = None,
        topics: Sequence[str] | None = None,
        since: datetime | None = None,
        from_offset: int | None = None,
        accept_rewind: bool = False,
        again: Sequence[Again] = (),
    ) -> Summary:
        """Lands what is new in all running brokers that name servers know, or in one broker, each as host:port."""
        refuse_no_instant(since=since)
        refuse_text(topics=topics, again=again)
        landing = self.settings.landing
        request = BrokerRequest(
            settings=remoting(self.settings, landing.in_flight),
            op_lag=landing.op_lag,
            namesrv=namesrv,
            broker=broker,
            broker_name=broker_name,
            cluster=cluster,
            since=since,
            from_offset=from_offset,
            topics=real_topics(topics),
            wait=self.settings.lock.wait,
            accept_rewind=accept_rewind,
            again=tuple(again),
        )
        return self._land(lambda warehouse: land_broker(warehouse, request, _LOG))

    def _land(self, land: Callable[[Warehouse], Summary]) -> Summary:
        with self._writing() as warehouse:
            catalog = Catalog.of(warehouse, self.settings)
            summary = land(warehouse)
            log_landed(summary, _LOG)
            self._later(lambda: keep_tidy(warehouse, _LOG))
            return refuse_failed_parts(catalog.publish(summary))
