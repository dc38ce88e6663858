"""Show the life of one message: what landed, what was decided and why, and what comes next"""

from __future__ import annotations

import argparse

from halfop.api.opening import of_job
from halfop.frame.cli import Context, Job, Options
from halfop.frame.summary import Summary


class ExplainOptions(Options):
    key: str


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "key",
        metavar="KEY|UNIQ_KEY",
        help="the half message's place as BROKER/QUEUE/OFFSET of the half queue (a broker's name may hold a slash), or "
        "its UNIQ_KEY, which is the client's message id and transaction id; if several messages share that, each is "
        "shown",
    )


def _run(context: Context, args: ExplainOptions) -> Summary:
    found = of_job("explain", context).explain(args.key)
    context.output.text(found.text)
    return found.summary


JOB = Job(
    "explain",
    "Show the life of one message as a timeline: when it was stored and landed, the ops that name it, what each run\n"
    "decided and which line of the rules held (docs/rules.md), checks, rejects and resumes. Then show where it is,\n"
    "what comes next and when at the earliest. A message and its put-back copies are one life. Nothing is written.",
    _run,
    _arguments,
    examples=("broker-a/0/17", "7F0000010001251A69D78B2E4C5D0000", "-- -broker/0/3"),
    pages=("report.md", "rules.md"),
    options=ExplainOptions,
)
