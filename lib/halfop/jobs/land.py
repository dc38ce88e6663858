"""Land half and op messages: from files, a broker's store or a live broker."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from halfop.api.halfop import Halfop
from halfop.api.opening import of_job
from halfop.frame.arguments import FailOn, Now, add_fail_on, at_call, failing_on, instant, instant_or_now, offset
from halfop.frame.cli import Context, Job, Options
from halfop.frame.errors import summary_of
from halfop.frame.summary import Summary
from halfop.landing.again import Again, again

_STORE = """\
Land what is new in a broker's store directory: half and op messages, with outcomes from the broker's own final
messages. The broker may be running; a copy of its store works, too. Corrupt places are refused (status 3)."""
_BROKER = """\
Land what is new in running brokers, up to now. They are only read; no consumer group is created or moved.
Credentials come from the environment (ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY), TLS from settings tls.…"""
_FILES = """\
Land half and op rows from exported files: JSON lines or Parquet, with the columns of half_messages and op_messages.
Each file lands once; nothing is written before all files are checked."""


class SourceOptions(Options):
    """Options of a source."""

    source: str
    land: Callable[[Halfop, Any], Summary]
    accept_rewind: bool
    again: list[Again]


class StoreOptions(SourceOptions):
    path: str
    broker_name: str
    known_until: datetime | Now | None
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
    known_until: datetime | Now | None
    skip_bad: bool


class LandOptions(SourceOptions):
    fail_on: list[FailOn]


def add_sources(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Adds a subcommand a source, with its options; `land` lands by them."""
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
    files.set_defaults(land=_land_files)
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
        type=instant_or_now,
        metavar="T",
        help="all ops up to this instant (or now) land with it; default: the newest op's store time, broker by broker",
    )
    files.add_argument("--skip-bad", action="store_true", help="land the good rows; bad rows go to table rejected")


def _add_store(store: argparse.ArgumentParser) -> None:
    store.set_defaults(land=_land_store)
    store.add_argument(
        "--path", required=True, metavar="DIR", help="the store directory: it holds the folder commitlog"
    )
    store.add_argument(
        "--broker-name", default="broker-a", metavar="NAME", help="the broker's name; default: %(default)s"
    )
    store.add_argument(
        "--known-until",
        type=instant_or_now,
        metavar="T",
        help="all ops up to this instant (or now) are in the store, because the broker has stopped; "
        "default: the newest record's store time, less landing.op_lag",
    )
    store.add_argument(
        "--skip-corrupt", action="store_true", help="continue after a corrupt place; lost ranges go to table rejected"
    )


def _land_store(warehouse: Halfop, args: StoreOptions) -> Summary:
    return warehouse.land_store(
        args.path,
        args.broker_name,
        known_until=at_call(args.known_until),
        skip_corrupt=args.skip_corrupt,
        accept_rewind=args.accept_rewind,
        again=args.again,
    )


def _add_broker(broker: argparse.ArgumentParser) -> None:
    broker.set_defaults(land=_land_broker)
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


def _land_broker(warehouse: Halfop, args: BrokerOptions) -> Summary:
    return warehouse.land_broker(
        args.namesrv,
        args.broker,
        broker_name=args.broker_name,
        cluster=args.cluster,
        topics=args.topics,
        since=args.since,
        from_offset=args.from_offset,
        accept_rewind=args.accept_rewind,
        again=args.again,
    )


def _land_files(warehouse: Halfop, args: FilesOptions) -> Summary:
    return warehouse.land_files(
        args.half,
        args.op,
        known_until=at_call(args.known_until),
        skip_bad=args.skip_bad,
        accept_rewind=args.accept_rewind,
        again=args.again,
    )


def land(warehouse: Halfop, args: SourceOptions, fail_on: Sequence[FailOn]) -> Summary:
    """Lands from the source that the options name."""
    return failing_on(fail_on, summary_of(lambda: args.land(warehouse, args)))


def _run(context: Context, args: LandOptions) -> Summary:
    return land(of_job(f"land {args.source}", context), args, args.fail_on)


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
