"""End open or discarded transactions in the brokers that own them: first a plan, then its answers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from halfop.api.opening import of_job
from halfop.columns.keys import Key
from halfop.ending import plan as plans
from halfop.ending.owner import add_owner
from halfop.ending.table import Ending
from halfop.frame.arguments import add_selection
from halfop.frame.cli import Context, Job, Options, setting_option
from halfop.frame.commands import plan_to_review
from halfop.frame.errors import UsageError, listed_of
from halfop.frame.output import Table
from halfop.frame.plan_file import refuse_existing
from halfop.frame.summary import Summary

_SHOWN = 20
_PLANNED = ["kind", "broker_name", "queue_id", "queue_offset", "producer_group", "real_topic", "decision", "reason"]
_ENDED = ["broker_name", "queue_id", "queue_offset", "kind", "state", "code", "remark"]


class EndOptions(Options):
    namesrv: str | None
    broker: str | None
    key: list[Key]
    where: str | None
    apply: str | None
    kind: plans.Kind | None
    plan: str | None
    no_index: bool


def _arguments(parser: argparse.ArgumentParser) -> None:
    which = add_selection(
        parser,
        "plan for a message by its half key",
        "plan for every open or discarded message for which this is true, over the columns of table decisions",
    )
    which.add_argument("--apply", metavar="FILE", help="end the transactions of a plan")
    outcome = parser.add_mutually_exclusive_group()
    for kind in (plans.COMMIT, plans.ROLLBACK):
        outcome.add_argument(f"--{kind.lower()}", dest="kind", action="store_const", const=kind, help="the outcome")
    parser.add_argument(
        "--plan", metavar="FILE", help="the plan's file; Parquet by its suffix .parquet; default: ./end-ID.jsonl"
    )
    setting_option(parser, "--min-age", "end.min_age", "DURATION")
    setting_option(parser, "--limit", "end.limit", "N")
    add_owner(parser)
    parser.add_argument(
        "--no-index", action="store_true", help="commit also at brokers that cannot show what was committed"
    )


def _run(context: Context, args: EndOptions) -> Summary:
    return _apply(context, args, args.apply) if args.apply is not None else _plan(context, args)


def _plan(context: Context, args: EndOptions) -> Summary:
    if args.kind is None:
        raise UsageError("which outcome? Give --commit or --rollback")
    if args.plan is not None:
        refuse_existing(args.plan)
    made = of_job("end", context).plan_end(args.kind, args.key, where=args.where)
    summary = made.summary
    if not len(made.plan):
        summary.notes.append(f"nothing is to be ended: there is no plan{_why_not(summary.extra.get('left_out'))}")
        return summary
    path = args.plan or f"end-{made.plan.head.plan_id}.jsonl"
    made.write(path)
    summary.notes.append(plan_to_review(path, context.settings))
    rows = made.plan.rows.select(_PLANNED).slice(0, _SHOWN).to_pylist()
    context.output.tables(Table(_PLANNED, [list(row.values()) for row in rows]))
    return summary


def _why_not(left_out: Mapping[str, int] | None) -> str:
    """The reasons for which messages are not in a plan, and the option that takes younger ones."""
    if not left_out:
        return ""
    hint = "; --min-age 0s takes younger ones" if "TOO_YOUNG" in left_out else ""
    return f". Left out: {', '.join(f'{n} {reason}' for reason, n in left_out.items())}{hint}"


def _apply(context: Context, args: EndOptions, planned: str) -> Summary:
    if args.kind is not None or args.plan is not None:
        raise UsageError("--apply FILE ends what the plan says: --commit, --rollback and --plan belong to planning")
    warehouse = of_job("end", context)
    ended = listed_of(lambda: warehouse.end(planned, namesrv=args.namesrv, broker=args.broker, no_index=args.no_index))
    context.output.tables(ended_table(ended.rows))
    return ended.summary


def ended_table(endings: Sequence[Ending]) -> Table:
    """Returns some of the endings, those that need a look first."""
    rows = [[*each.key, each.kind, each.state, each.code, each.remark] for each in endings]
    return Table(_ENDED, sorted(rows, key=lambda row: (str(row[4]) == "VERIFIED", row[:3]))[:_SHOWN])


JOB = Job(
    "end",
    "End open or discarded transactions in the brokers that own them. The first call writes a plan, which you may\n"
    "review and shorten; the second, with --apply, sends its answers. Brokers must be allowed by end.brokers.",
    _run,
    _arguments,
    examples=(
        "--key broker-a/0/4711 --commit",
        "--where \"producer_group = 'orders' AND born_timestamp < '2025-06-15'\" --rollback --plan orders.jsonl",
        "--apply orders.jsonl --namesrv 'a:9876;b:9876' --set end.brokers=broker-a",
    ),
    pages=("ending.md", "settings.md"),
    measured=lambda args: "end" if args.apply is not None else None,
    options=EndOptions,
)
