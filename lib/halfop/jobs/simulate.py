"""What other settings of the rules would have done over what has landed."""

from __future__ import annotations

import argparse
from pathlib import Path

from halfop.frame.cli import Context, Job, duration, instant, positive_int
from halfop.frame.summary import Summary
from halfop.frame.units import instant as instant_text
from halfop.html import page
from halfop.settings.model import duration_text
from halfop.simulation.comparison import html, in_summary, text
from halfop.simulation.schedule import Schedule
from halfop.simulation.simulate import MOST_STEPS, Span, scheduled, simulate
from halfop.simulation.variants import variants
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="what_if",
        action="append",
        default=[],
        metavar="RULE=VALUE[,VALUE…]",
        help="a setting of the rules as it might be, as transaction_timeout=30s (or rules.transaction_timeout=30s); "
        "of several values each is tried, with each of the others' (repeatable)",
    )
    parser.add_argument(
        "--every",
        type=duration,
        metavar="DURATION",
        help="how often a run takes place; default: rules.transaction_check_interval as configured",
    )
    add = parser.add_argument
    add("--from", dest="since", type=instant, metavar="T", help="leave out what was stored before")
    add(
        "--to",
        dest="until",
        type=instant,
        metavar="T",
        help="the last run's instant; default: up to where all is known",
    )
    most = f"no more runs of a variant than this; default {MOST_STEPS}"
    add("--out", type=Path, metavar="FILE.html", help="write a page with plots, too")
    add("--max-steps", type=positive_int, default=MOST_STEPS, metavar="N", help=most)


def _run(context: Context, args: argparse.Namespace) -> Summary:
    settings, summary = context.settings, Summary("simulate")
    if args.out:
        page.refuse_no_folder(args.out)
    tried = variants(settings, args.config, args.what_if)
    warehouse = Warehouse(spark_session("simulate"), settings.warehouse_root)
    span = Span(args.since, args.until, args.every, args.max_steps)
    schedule = scheduled(warehouse, span, settings.rules)
    if schedule is None:
        summary.notes.append(f"nothing has landed in {warehouse.root} yet")
        return summary
    with summary.phase("simulate"):
        outcomes = simulate(warehouse, tried, span, schedule)
    summary.extra = {"runs": len(schedule.instants), "every": schedule.every, "outcomes": in_summary(outcomes)}
    if schedule.every and schedule.every > span.wanted(settings.rules):
        summary.notes.append(
            f"runs are {duration_text(schedule.every)} apart, so that there are no more than {args.max_steps}, and "
            "nobody is asked more often; a shorter --from and --to, or more --max-steps, bring them closer together"
        )
    if not settings.rules.ask:
        summary.notes.append("rules.ask is false: the broker asks. Here halfop asks in its place")
    print(text(outcomes), end="")
    if args.out:
        page.write(args.out, html(outcomes, _about(warehouse.root, schedule)))
    return summary


def _about(root: str, schedule: Schedule) -> list[tuple[str, str]]:
    first, last = instant_text(schedule.instants[0]), instant_text(schedule.instants[-1])
    every = duration_text(schedule.every) if schedule.every else ""
    return [("warehouse", root), ("first run", first), ("last run", last), ("every", every)]


JOB = Job(
    "simulate",
    "Play what has landed under other settings of the rules, and compare with the configured ones. Nothing is changed.",
    _run,
    _arguments,
    examples=(
        "--set transaction_timeout=30s",
        "--set transaction_timeout=6s,30s,60s --set transaction_check_max=5",
        "--set topics.TopicPayment.transaction_timeout=1m --every 30s --from 2025-06-15 --to 2025-06-16",
    ),
    pages=("simulate.md", "settings.md"),
)
