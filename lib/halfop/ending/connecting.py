"""Options and settings of connections to brokers, the same for all jobs that talk to one."""

from __future__ import annotations

import argparse

from halfop.ending.owner import Where
from halfop.rocketmq.wire.remoting import Credentials, RemotingSettings, Tls
from halfop.settings.model import Settings


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


def owner_of(settings: Settings, args: argparse.Namespace) -> Where | None:
    """Returns the way to the masters; None if no option names one."""
    if args.namesrv is None and args.broker is None:
        return None
    return Where(remoting(settings, settings.end.in_flight), args.namesrv, args.broker)
