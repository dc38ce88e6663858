"""Take a broker's place for producers of transactional messages, and ask them about those that hang."""

from __future__ import annotations

import argparse

from halfop.frame.cli import Context, Job, Options, setting_option
from halfop.frame.summary import Summary
from halfop.gateway.door import GatewayRequest
from halfop.gateway.serve import serve

_DESCRIPTION = """\
Take a broker's place for producers of transactional messages: unmodified clients send half messages, end them, and are
asked about those that hang. Everything is in the gateway's own store, which `follow broker` lands and reconciles like
a broker's. It is a plain Python process without Spark, and serves until SIGTERM or SIGINT (status 0)."""


class GatewayOptions(Options):
    listen: str
    store: str
    name: str
    namesrv: str | None
    role: str
    insecure: bool


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", required=True, metavar="H:P", help="the address to listen at, as 127.0.0.1:10911")
    parser.add_argument("--store", required=True, metavar="DIR", help="the folder of its store; made if it is missing")
    parser.add_argument(
        "--name", required=True, metavar="BROKER", help="its name as a broker, the same as long as the store lives"
    )
    parser.add_argument(
        "--namesrv",
        metavar="H:P",
        help="name servers to register with, host:port;host:port; default: none, it is one itself",
    )
    setting_option(parser, "--topics", "gateway.topics", "T,…")
    setting_option(parser, "--metrics", "gateway.metrics", "H:P")
    parser.add_argument(
        "--role", choices=("master", "slave"), default="master", help="a slave is read alone; default: master"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="listen beyond loopback without accounts or clients' certificates",
    )


def _run(context: Context, args: GatewayOptions) -> Summary:
    is_slave = args.role == "slave"
    request = GatewayRequest(args.listen, args.store, args.name, args.namesrv, is_slave, args.insecure)
    return serve(context.settings, request)


JOB = Job(
    name="gateway",
    description=_DESCRIPTION,
    run=_run,
    add_arguments=_arguments,
    examples=(
        "--listen 127.0.0.1:10911 --store /data/gateway --name gateway-a",
        "--listen 10.0.0.5:10911 --store /data/gateway --name gateway-a --namesrv 'a:9876;b:9876' --topics a,b",
    ),
    pages=("gateway.md", "settings.md"),
    needs_spark=False,
    options=GatewayOptions,
)
