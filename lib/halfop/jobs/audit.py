"""Find what a real broker did wrong, in its half, op and real topics that have landed."""

from __future__ import annotations

import argparse

from halfop.api.opening import of_job
from halfop.audit.audit import tables
from halfop.audit.findings import NAMES
from halfop.frame.cli import Context, Job, Options
from halfop.frame.errors import summary_of
from halfop.frame.summary import Summary

_ALL = "findings"


class AuditOptions(Options):
    fail_on: list[str]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        choices=[_ALL, *NAMES],
        metavar="FINDING",
        help=f"end with status 5 if there are some: {_ALL} for any, or {', '.join(NAMES)} (repeatable)",
    )


def _run(context: Context, args: AuditOptions) -> Summary:
    summary = summary_of(of_job("audit", context).audit)
    context.output.tables(*tables(summary))
    found = summary.extra["findings"]
    asked = {name for kind in args.fail_on for name in (NAMES if kind == _ALL else [kind])}
    if summary.status == 0 and any(found[name] for name in asked):
        summary.status = 5
    return summary


JOB = Job(
    "audit",
    "Compare the half, op and real topics of a broker that has landed (land store, land broker). Print what it did\n"
    "wrong, and write one row a finding to table audit.",
    _run,
    _arguments,
    examples=("", "--fail-on findings", "--fail-on DELIVERED_TWICE --fail-on DELIVERED_AND_DISCARDED"),
    pages=("audit.md",),
    measured=lambda args: "audit",
    options=AuditOptions,
)
