"""The frame of every job: options in, one call, the summary as stdout's last line, one exit status."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from halfop.frame import metrics
from halfop.frame.errors import HalfopError, UsageError, summary_of
from halfop.frame.log import configure, escaped, logged_with
from halfop.frame.nearest import did_you_mean
from halfop.frame.openlineage import Lineage, lineage
from halfop.frame.output import FORMS, Output, output_of
from halfop.frame.people import told
from halfop.frame.summary import Summary
from halfop.frame.trouble import Failure, failure_of
from halfop.settings.home import launcher
from halfop.settings.keys import KEYS, default_text
from halfop.settings.load import check_override, load_settings
from halfop.settings.model import Settings


@dataclass(frozen=True)
class Context:
    """The things that a job gets besides its own options. Calls in `later` come after its result is printed."""

    settings: Settings
    log: logging.Logger
    output: Output
    later: list[Callable[[], None]] = field(default_factory=list)
    lineage: Lineage = field(default_factory=Lineage)


class Options(argparse.Namespace):
    """The options of a command line. A job's own are the fields of its class; a subcommand sets some of them."""

    config: Path | None = None
    verbose: bool = False
    log: str = "text"
    output: str | None = None


@dataclass(frozen=True)
class Job:
    """A command: `run` does the work, `add_arguments` names options and subcommands, `examples` are argument lines.

    `pages` of docs/ have more. `measured` is the name that a call's metrics go by; None: it has none.
    `run` and `measured` get the `options`.
    `alone`: whether stdout gets the result of such a call alone, without a summary.
    A job that needs no Spark is a plain Python process.
    """

    name: str
    description: str
    run: Callable[[Context, Any], Summary]
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    examples: Sequence[str] = ()
    pages: Sequence[str] = ()
    measured: Callable[[Any], str | None] = lambda args: None
    alone: Callable[[Any], bool] = lambda args: False
    needs_spark: bool = True
    options: type[Options] = Options


# ---- options ----


class _Parser(argparse.ArgumentParser):
    """No abbreviations, and a wrong command line is a UsageError; subcommands' parsers are of this class too."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter, **options})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.prog} --help shows its options")

    def options(self) -> set[str]:
        return {o for parser in _with_subcommands(self) for action in parser._actions for o in action.option_strings}


def _with_subcommands(parser: _Parser) -> list[_Parser]:
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return [parser, *(p for action in nested for sub in action.choices.values() for p in _with_subcommands(sub))]


def _setting_text(key: str, text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("needs a value")
    try:
        check_override(key, text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def setting_option(parser: argparse._ActionsContainer, option: str, key: str, metavar: str) -> None:
    """An option that stands for `--set key=…`: it arrives in the job's settings, its help is the setting's doc."""
    parser.add_argument(
        option,
        dest=f"set {key}",
        metavar=metavar,
        type=partial(_setting_text, key),
        default=argparse.SUPPRESS,
        help=_as_help(key).replace("%", "%%"),
    )


def _as_help(key: str) -> str:
    """A setting's doc as the other options' help is written: no capital, no full stop, the default at the end."""
    field = KEYS[tuple(key.split("."))]
    doc, _, if_null = (field.description or "").rstrip(".").partition(". null: ")
    default = if_null or default_text(field)
    return f"{doc[:1].lower()}{doc[1:]}; default: {default} (setting {key})".replace("`", "")


_STATUSES = """\
exit status, and stdout's last line, where that is no terminal: one JSON object
  0    done
  1    something failed: "error" or "failed_…" says what; repair it and start again, which is always safe
  2    wrong usage or settings; no new work was begun
  3    input refused, and where
  4    another process holds the lock; --wait 10m waits for it
  5    done, and --fail-on or --verify has found something, or end could not end all
  52   out of memory; start again with more --driver-memory before the job's name
  74   the disk of a gateway failed
  130  interrupted"""


def _add_common(parser: _Parser, depth: int) -> None:
    # No defaults here: a subcommand's would overwrite what was given before its name.
    common = parser.add_argument_group("common options")
    add = partial(common.add_argument, default=argparse.SUPPRESS)
    add("--config", type=Path, metavar="FILE", help="settings in YAML; default: conf/halfop.yaml")
    if "--set" not in parser.options():  # a job may have a meaning of its own for it
        add(
            "--set",
            dest=f"set {depth}",
            action="append",
            metavar="KEY=VALUE",
            help="one setting, as rules.transaction_timeout=6s; repeatable",
        )
    setting_option(common, "--warehouse", "warehouse", "URI")
    setting_option(common, "--wait", "lock.wait", "DURATION")
    add("-v", "--verbose", action="store_true", help="log more, and show a traceback if something fails")
    add("--log", choices=FORMS, help="form of the log on stderr and of tables on stdout; default: text")
    last = "the summary at the end: lines for people, or a JSON object; default: text on a terminal, else json"
    add("--output", choices=FORMS, help=last)


def _parser(job: Job) -> _Parser:
    return _filled(_Parser(prog=f"{launcher()} {job.name}", description=job.description), job)


def parser_of_all(jobs: Iterable[Job]) -> argparse.ArgumentParser:
    """Returns a parser of whole command lines: each job is a subcommand with its own options."""
    whole = _Parser(prog=launcher())
    commands = whole.add_subparsers()
    for job in jobs:
        _filled(commands.add_parser(job.name, help=job.description.partition("\n")[0].replace("%", "%%")), job)
    return whole


def _filled(parser: _Parser, job: Job) -> _Parser:
    job.add_arguments(parser)
    for depth, each in enumerate(_with_subcommands(parser)):
        _add_common(each, depth)
        each.epilog = _epilog(job, each.prog)
    return parser


def _epilog(job: Job, prog: str) -> str:
    lines = [f"{launcher()} {job.name} {line}".rstrip() for line in job.examples]
    shown = [f"  {line}" for line in lines if line.startswith(prog)]
    pages = ["", "more: " + ", ".join(f"docs/{page}" for page in job.pages)] if job.pages else []
    return "\n".join([*(["examples:", *shown, ""] if shown else []), _STATUSES, *pages])


def _parse(parser: _Parser, argv: Sequence[str] | None, options: type[Options]) -> Options:
    args, unknown = parser.parse_known_args(argv, options())
    if unknown:
        name = unknown[0].partition("=")[0]
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{did_you_mean(name, parser.options())}")
    return args


def _asked_for(argv: Sequence[str] | None) -> Options:
    """The forms of log and summary that a command line asks for, even if the line is wrong otherwise."""
    words = sys.argv[1:] if argv is None else argv
    pairs = {*pairwise(words), *(tuple(word.split("=", 1)) for word in words)}
    log, output = (next((f for f in FORMS if (o, f) in pairs), None) for o in ("--log", "--output"))
    return Options(log=log or "text", output=output)


def _overrides(args: Options) -> list[str]:
    """All --set in their order by depth of command, then the options that stand for a setting."""
    named = {dest.removeprefix("set "): value for dest, value in vars(args).items() if dest.startswith("set ")}
    listed = [each for depth in sorted(filter(str.isdigit, named), key=int) for each in named[depth]]
    return listed + [f"{key}={value}" for key, value in named.items() if not key.isdigit()]


# ---- the frame ----


def _report(job: Job, failure: Failure, args: Options) -> None:
    if args.log == "json":
        logging.getLogger(f"halfop.{job.name}").error(failure.message, exc_info=args.verbose)
        return
    if args.verbose:
        traceback.print_exc()
    lines = [escaped(line) for line in failure.message.splitlines()] or [""]
    sys.stderr.write(f"halfop {job.name}: " + "\n  ".join(lines) + "\n")


@dataclass
class _Ended:
    """The end of a call."""

    status: int
    summary: Summary | None = None
    failure: Mapping[str, object] = field(default_factory=dict)

    def print(self, output: Output) -> None:
        if self.summary is None:
            output.failure(self.failure)
        else:
            output.summary(self.summary)


def main(job: Job, argv: Sequence[str] | None = None, prepare: Callable[[Settings], None] | None = None) -> int:
    """Runs the job, prints its summary or error as stdout's last line, and returns the exit status.

    `prepare` makes Spark ready, once the command line and the settings are known to be right.
    """
    args, settings, began = _asked_for(argv), None, time.perf_counter()
    later: list[Callable[[], None]] = []
    with logged_with(job=job.name):
        try:
            configure(args.verbose, args.log == "json")
            args = _parse(_parser(job), argv, job.options)
            configure(args.verbose, args.log == "json")
            settings = load_settings(args.config, _overrides(args))
            if prepare is not None:
                prepare(settings)
            ended = _run(job, settings, args, later)
        except (Exception, KeyboardInterrupt) as error:
            failure = failure_of(error, args.verbose)
            _report(job, failure, args)
            ended = _Ended(failure.status, failure={"job": job.name, **failure.fields()})
        sys.stderr.flush()
        try:
            if not (isinstance(args, job.options) and job.alone(args)):  # else the line was not read
                ended.print(_output(args, settings))
        except HalfopError as error:  # stdout does not take it
            _report(job, failure_of(error, args.verbose), args)
            ended = replace(ended, status=ended.status or error.exit_status)
        if settings is not None and (command := job.measured(args)) is not None:
            seconds = time.perf_counter() - began
            metrics.report(settings.metrics, metrics.Call(command, seconds, ended.status, ended.summary))
        for work in later:
            work()
    return ended.status


def _output(args: Options, settings: Settings | None) -> Output:
    return output_of(args.log, args.output, lambda summary: told(summary, settings or Settings()))


def _run(job: Job, settings: Settings, args: Options, later: list[Callable[[], None]]) -> _Ended:
    sent = lineage(os.environ) if job.needs_spark else Lineage()
    context = Context(settings, logging.getLogger(f"halfop.{job.name}"), _output(args, settings), later, sent)
    name = job.measured(args)
    run = partial(summary_of, lambda: job.run(context, args))
    summary = run() if name is None else sent.of_call(name, run)
    return _Ended(summary.status, summary)


def run_job(job: Job, argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the job and ends the process with its exit status."""
    sys.exit(main(job, argv))
