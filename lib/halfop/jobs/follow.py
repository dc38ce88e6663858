"""Land what is new and reconcile, again and again, in one process."""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from halfop.api.opening import of_job
from halfop.follow import Cycle, Measures, Stop, cycle, follow, spark_answers
from halfop.frame.arguments import duration
from halfop.frame.cli import Context, Job
from halfop.frame.errors import TransientError, UsageError
from halfop.frame.summary import Summary
from halfop.jobs.land import SourceOptions, add_sources, command, land
from halfop.jobs.reconcile import RunOptions, add_run_options, run
from halfop.warehouse.signals import pass_on

_DESCRIPTION = """\
Land what is new from files, a broker's store or running brokers, then reconcile, and again, until SIGTERM or SIGINT,
which lets the step at work finish (status 0). A landing or a run that fails is tried again; --once does one cycle,
for a schedule. Each cycle prints one JSON object."""
_EVERY = timedelta(seconds=10)


class FollowOptions(SourceOptions, RunOptions):
    every: timedelta
    once: bool


def _arguments(parser: argparse.ArgumentParser) -> None:
    for source in add_sources(parser):
        often = source.add_mutually_exclusive_group()
        often.add_argument(
            "--every",
            type=duration,
            default=_EVERY,
            metavar="DURATION",
            help="from the start of one cycle to the start of the next; longer while runs fail; default: 10s",
        )
        often.add_argument("--once", action="store_true", help="one cycle; its status is the worse one of the two")
        add_run_options(source, "the landing or the run")


def _run(context: Context, args: FollowOptions) -> Summary:
    if not args.once and (args.now or args.fail_on):
        raise UsageError("--now and --fail-on need --once: they are about one run, and its exit status")
    if not args.once and isinstance(getattr(args, "known_until", None), datetime):
        raise UsageError("--known-until T needs --once: time would stand still at T; give --known-until now")
    if not args.once:  # a turn waits for others at least as long as turns are apart
        context = _with_wait(context, args.every)
    warehouse, stop = of_job("follow", context), Stop()
    pass_on(warehouse.spark)
    stop.listen()
    measures = Measures(context.settings.metrics, command(args.source))

    def turn(number: int) -> Cycle:
        of_call = context.lineage.of_call
        landing = partial(of_call, command(args.source), lambda: land(warehouse, args, args.fail_on))
        due = partial(of_call, "reconcile", lambda: run(warehouse, args, if_due=True))
        return cycle(number, landing, due, lambda: stop.asked, lambda: spark_answers(warehouse.spark))

    def done(ended: Cycle) -> Summary:
        summary = ended.summary()
        measures.report(ended, summary)
        return summary

    if args.once:
        return done(turn(1))
    cycles = follow(turn, lambda ended: _printed(context, done(ended)), stop, args.every)
    return Summary("follow", notes=["stopped by a signal"], extra={"cycles": cycles})


def _with_wait(context: Context, least: timedelta) -> Context:
    """The context of a job that waits at least so long for another process that holds a lock."""
    wait = max(context.settings.lock.wait, least)
    settings = context.settings.model_copy(update={"lock": context.settings.lock.model_copy(update={"wait": wait})})
    return replace(context, settings=settings)


def _printed(context: Context, summary: Summary) -> None:
    """Prints a cycle's result, then does what need not come before it."""
    try:
        context.output.summary(summary)
    except TransientError as error:  # the lines alone are lost, and no cycle
        context.log.warning("no more lines to stdout: %s", error)
    while context.later:
        context.later.pop(0)()


JOB = Job(
    name="follow",
    description=_DESCRIPTION,
    run=_run,
    add_arguments=_arguments,
    examples=(
        "broker --namesrv 'a:9876;b:9876'",
        "broker --namesrv a:9876 --once --fail-on conflicts",
        "store --path /data/rocketmq/store --broker-name broker-a --every 30s",
        "files --half 'in/half-*.jsonl' --op 'in/op-*.jsonl' --every 1m",
    ),
    pages=("operate.md", "landing.md", "settings.md"),
    options=FollowOptions,
)
