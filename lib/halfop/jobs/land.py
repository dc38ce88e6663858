"""Land half and op messages: from files, a broker's store or a live broker."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from halfop.ending.owner import remoting
from halfop.frame.arguments import FailOn, add_fail_on, failing_on, instant, offset
from halfop.frame.cli import Context, Job, Options
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.frame.units import instant as instant_text
from halfop.frame.units import plural
from halfop.landing.again import Again, again
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.progress import keep_tidy
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.opened import opened
from halfop.rocketmq.names import is_real_topic
from halfop.warehouse.catalog import Catalog
from halfop.warehouse.kernel import KernelWarehouse

_STORE = """\
Land what is new in a broker's store directory: half and op messages, with outcomes from the broker's own final
messages. The broker may be running; a copy of its store works, too. Corrupt places are refused (status 3)."""
_BROKER = """\
Land what is new in running brokers, up to now. They are only read; no consumer group is created or moved.
Credentials come from the environment (ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY), TLS from settings tls.…"""
_FILES = """\
Land half and op rows from exported files: JSON lines or Parquet, with the columns of half_messages and op_messages.
Each file lands once; nothing is written before all files are checked."""


Landing = Callable[[KernelWarehouse], Summary]


class SourceOptions(Options):
    """Options of a source."""

    source: str
    landing: Callable[[Context, Any], Landing]
    accept_rewind: bool
    again: list[Again]


class StoreOptions(SourceOptions):
    path: str
    broker_name: str
    known_until: datetime | None
    skip_corrupt: bool


class BrokerOptions(SourceOptions):
    namesrv: str | None
    broker: str | None
    broker_name: str | None
    cluster: str | None
    topics: list[str] | None
    since: datetime | None
    from_offset: int | None


class FilesOptions(SourceOptions):
    half: list[str]
    op: list[str]
    known_until: datetime | None
    skip_bad: bool


class LandOptions(SourceOptions):
    fail_on: list[FailOn]


def add_sources(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Adds a subcommand a source, with its options; `args.landing(context, args)` makes the Landing of its options."""
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    store = sources.add_parser("store", help="a broker's store directory", description=_STORE)
    broker = sources.add_parser(
        "broker", help="running brokers, over RocketMQ's remoting protocol", description=_BROKER
    )
    files = sources.add_parser("files", help="half and op rows from JSON lines or Parquet files", description=_FILES)
    _add_store(store)
    _add_broker(broker)
    _add_files(files)
    for source in (store, broker, files):
        source.set_defaults(accept_rewind=False, again=[])
    return [store, broker, files]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    for source in add_sources(parser):  # a user accepts a new life, or repairs a table, once: `follow` never does
        once = source.add_mutually_exclusive_group()
        once.add_argument(
            "--accept-rewind",
            action="store_true",
            help="land on if the broker lost the end of its log, or was rebuilt: from the first offset that differs as "
            "a new life, under a name of its own (broker-a~2); what it lost is given up",
        )
        once.add_argument(
            "--again",
            action="extend",
            nargs="+",
            type=again,
            metavar="BROKER/QUEUE/FROM-TO",
            help="land only these half and op offsets, although they have landed, because a table has lost them "
            "(`examine` prints the ranges); BROKER/TOPIC/QUEUE/FROM-TO for another topic's, or for one topic's alone; "
            "repeatable",
        )
        add_fail_on(source, "the landing")


def _add_files(files: argparse.ArgumentParser) -> None:
    files.set_defaults(landing=_files_landing)
    for option in ("--half", "--op"):
        files.add_argument(
            option,
            action="extend",
            nargs="+",
            default=[],
            metavar="PATH",
            help=f"{option[2:]} rows: a file, a directory or a glob; any URI that Hadoop reads; repeatable",
        )
    files.add_argument(
        "--known-until",
        type=instant,
        metavar="T",
        help="all ops up to this instant have landed with this; default: the newest op's store time, broker by broker",
    )
    files.add_argument("--skip-bad", action="store_true", help="land the good rows; bad rows go to table rejected")


def _add_store(store: argparse.ArgumentParser) -> None:
    store.set_defaults(landing=_store_landing)
    store.add_argument(
        "--path", required=True, metavar="DIR", help="the store directory: it holds the folder commitlog"
    )
    store.add_argument(
        "--broker-name", default="broker-a", metavar="NAME", help="the broker's name; default: %(default)s"
    )
    store.add_argument(
        "--known-until",
        type=instant,
        metavar="T",
        help="all ops up to this instant are in the store, because the broker has stopped; "
        "default: the newest record's store time, less landing.op_lag",
    )
    store.add_argument(
        "--skip-corrupt", action="store_true", help="continue after a corrupt place; lost ranges go to table rejected"
    )


def _store_landing(context: Context, args: StoreOptions) -> Landing:
    settings = context.settings
    request = StoreRequest(
        path=args.path,
        broker_name=args.broker_name,
        op_lag=settings.landing.op_lag,
        known_until=args.known_until,
        skip_corrupt=args.skip_corrupt,
        wait=settings.lock.wait,
        accept_rewind=args.accept_rewind,
        again=tuple(args.again),
    )
    return lambda warehouse: land_store(warehouse, request, context.log)


def _add_broker(broker: argparse.ArgumentParser) -> None:
    broker.set_defaults(landing=_broker_landing)
    where = broker.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--namesrv", metavar="H:P", help="name servers, host:port;host:port; all brokers that they know land"
    )
    where.add_argument("--broker", metavar="H:P", help="one broker, without a name server")
    broker.add_argument(
        "--broker-name", metavar="NAME", help="with --broker: the name that it lands under; default: its own"
    )
    broker.add_argument("--cluster", metavar="NAME", help="with --namesrv: only the brokers of this cluster")
    broker.add_argument(
        "--topics",
        action="extend",
        nargs="+",
        metavar="TOPIC",
        help="pull only these real topics; ops of all others land without an outcome, and end nothing until a landing "
        "pulls their topics; repeatable",
    )
    begin = broker.add_mutually_exclusive_group()
    begin.add_argument(
        "--since",
        type=instant,
        metavar="T",
        help="begin a broker's first landing with what was stored at this instant",
    )
    begin.add_argument(
        "--from-offset", type=offset, metavar="N", help="with --broker: begin its first landing with this half message"
    )


def _broker_landing(context: Context, args: BrokerOptions) -> Landing:
    settings = context.settings
    if args.cluster and not args.namesrv:
        raise UsageError("--cluster names a cluster of --namesrv; --broker is one broker")
    if args.from_offset is not None and not args.broker:
        raise UsageError("--from-offset names a place in one broker's half queue: give --broker, or --since T for all")
    request = BrokerRequest(
        settings=remoting(settings, settings.landing.in_flight),
        op_lag=settings.landing.op_lag,
        namesrv=args.namesrv,
        broker=args.broker,
        broker_name=args.broker_name,
        cluster=args.cluster,
        since=args.since,
        from_offset=args.from_offset,
        topics=_topics(args.topics),
        wait=settings.lock.wait,
        accept_rewind=args.accept_rewind,
        again=tuple(args.again),
    )
    return lambda warehouse: land_broker(warehouse, request, context.log)


def _topics(given: Sequence[str] | None) -> frozenset[str] | None:
    """The real topics to pull; None: all."""
    for topic in given or ():
        if not is_real_topic(topic):
            raise UsageError(f"--topics {topic}: no message can be committed to that topic; give names of real topics")
    return None if given is None else frozenset(given)


def _files_landing(context: Context, args: FilesOptions) -> Landing:
    if not args.half and not args.op:
        raise UsageError("give at least one --half PATH or --op PATH")
    request = FilesRequest(
        halves=args.half,
        ops=args.op,
        known_until=args.known_until,
        skip_bad=args.skip_bad,
        wait=context.settings.lock.wait,
        accept_rewind=args.accept_rewind,
        again=tuple(args.again),
    )
    return lambda warehouse: land_files(warehouse, request, context.log)


def _run(context: Context, args: LandOptions) -> Summary:
    landing = args.landing(context, args)
    warehouse = opened(f"land {args.source}", context)
    catalog = Catalog.of(warehouse, context.settings)
    summary = landed(landing, warehouse, context.log)
    context.later.append(lambda: keep_tidy(warehouse, context.log))
    return failing_on(args.fail_on, catalog.publish(summary))


def landed(landing: Landing, warehouse: KernelWarehouse, log: logging.Logger) -> Summary:
    """Lands, and logs the rows by table in a line."""
    summary = landing(warehouse)
    rows = ", ".join(f"{n:,} {table}" for table, n in sorted(summary.rows_written.items()) if n)
    log.info("landed: %s", rows or _no_rows(summary))
    return summary


def _no_rows(summary: Summary) -> str:
    """Returns what a landing without rows has done: files may be empty, and --known-until lets time pass."""
    files, known = summary.extra.get("files_landed", 0), summary.extra.get("known_until", {})
    done = [f"no row in {plural(files, 'new file')}"] if files else []
    if "files_landed" in summary.extra and known.get("queues"):
        done.append(f"{plural(known['queues'], 'queue')} known until {instant_text(known['greatest'])}")
    return "; ".join(done) or "nothing new"


def command(source: str) -> str:
    """The name that the metrics of a source's landings go by."""
    return f"land_{source}"


JOB = Job(
    name="land",
    description="Land half messages and op messages, and how far their queues are known, from one of three sources.",
    run=_run,
    add_arguments=_add_arguments,
    examples=(
        "store --path /data/rocketmq/store --broker-name broker-a",
        "broker --namesrv 'a:9876;b:9876'",
        "files --half halves.jsonl --op ops.jsonl",
        "files --half 'dump/half-*.parquet' --op dump/ops/ --known-until 2025-06-15T15:06:40Z",
    ),
    pages=("landing.md", "settings.md"),
    measured=lambda args: command(args.source),
    options=LandOptions,
)
