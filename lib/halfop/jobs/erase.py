"""Remove messages from every table that holds parts of them: first a plan, then what it names."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from halfop.api.opening import of_job
from halfop.frame.cli import Context, Job, Options
from halfop.frame.commands import job_here, word
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.output import Table
from halfop.frame.plan_file import refuse_existing
from halfop.frame.summary import Summary


class EraseOptions(Options):
    where: str | None
    keys: str | None
    plan: str | None
    apply: str | None


def _arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--where", metavar="SQL", help="messages for which this is true, over columns of half_messages")
    which.add_argument(
        "--keys", metavar="FILE", help="messages by half key (BROKER/QUEUE/OFFSET) or UNIQ_KEY, one a line"
    )
    which.add_argument("--apply", metavar="FILE", help="erase what a plan names")
    parser.add_argument("--plan", metavar="FILE", help="write a plan; without it, only show what would go")


def _run(context: Context, args: EraseOptions) -> Summary:
    if args.apply is None:
        return _plan(context, args)
    if args.plan is not None:
        raise UsageError("--apply FILE erases what the plan says: --plan belongs to planning")
    done = of_job("erase", context).erase(args.apply)
    context.output.tables(_table(done.rows))
    return done.summary


def _plan(context: Context, args: EraseOptions) -> Summary:
    if args.plan is not None:
        refuse_existing(args.plan)
    keys = () if args.keys is None else _lines(args.keys)
    made = of_job("erase", context).plan_erase(keys, where=args.where)
    summary = made.summary
    context.output.tables(_table([*made.plan.head.tables.items()]))
    if not len(made.plan):
        summary.notes.append("nothing is to be erased: there is no plan")
    elif args.plan is None:
        summary.notes.append("nothing was erased; --plan FILE writes the plan")
    else:
        made.write(args.plan)
        command = f"{job_here('erase', context.settings)} --apply {word(args.plan)}"
        summary.notes.append(f"nothing has been erased; review {args.plan}, then: {command}")
    return summary


def _lines(path: str) -> Sequence[str]:
    """The keys in a file, one a line."""
    try:
        found = [line.strip() for line in Path(path).read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputRefused(path, None, f"it cannot be read: {error}", "expected a file of keys, one a line") from error
    keys = list(dict.fromkeys(line for line in found if line))
    if not keys:
        raise InputRefused(path, None, "it names no key", "expected BROKER/QUEUE/OFFSET or a UNIQ_KEY in each line")
    return keys


def _table(rows: Sequence[tuple[str, int]]) -> Table:
    return Table(["table", "rows"], [list(row) for row in rows])


JOB = Job(
    "erase",
    "Remove personal data: the rows of messages from every table that holds bodies, keys or properties. The first\n"
    "call shows what would go, or writes a plan; the second, with --apply, removes it. Decisions stay, and open\n"
    "messages have to end first.",
    _run,
    _arguments,
    examples=(
        "--where \"keys = 'customer-17'\" --plan erase.jsonl",
        "--keys keys.txt",
        "--apply erase.jsonl --wait 10m",
    ),
    pages=("personal-data.md", "tables.md"),
    measured=lambda args: "erase" if args.apply is not None else None,
    options=EraseOptions,
)
