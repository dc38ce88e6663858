"""Ask the tables and topics by one statement of SQL that only reads."""

from __future__ import annotations

import argparse
from pathlib import Path

from halfop.api.opening import of_job
from halfop.frame.arguments import positive_int
from halfop.frame.cli import Context, Job, Options
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.output import JsonOutput, Table, write_alone
from halfop.frame.summary import Summary
from halfop.sql.forms import FORMS, cells, refuse_same

_MOST = 1_000


class SqlOptions(Options):
    statement: str | None
    file: Path | None
    format: str
    limit: int | None


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("statement", nargs="?", metavar="STATEMENT", help='as "SELECT * FROM decisions"')
    parser.add_argument("-f", "--file", type=Path, metavar="FILE", help="the file that has the statement, in UTF-8")
    parser.add_argument(
        "--format",
        choices=("table", *FORMS),
        default="table",
        help="table: for people; csv, or json (an object a line): the rows, which must fit into the driver's memory, "
        "and nothing else on stdout; default: table",
    )
    parser.add_argument(
        "--limit", type=positive_int, metavar="N", help=f"the most rows; default: {_MOST:,} of a table, else all"
    )


def _run(context: Context, args: SqlOptions) -> Summary:
    statement, warehouse = _statement(args), of_job("sql", context)
    summary = Summary("sql")
    if form := FORMS.get(args.format):
        for part in form(warehouse.sql(statement, args.limit)):
            write_alone(part)
        return summary
    most = args.limit or _MOST
    found = warehouse.sql(statement, most + 1)
    if isinstance(context.output, JsonOutput):
        refuse_same(found.column_names)
    rows = cells(found.slice(0, most))
    context.output.tables(Table(found.column_names, rows))
    if found.num_rows > most:
        summary.notes.append(f"these are the first {most:,} rows: --limit N shows more, --format csv or json all")
    elif not rows:
        summary.notes.append("no rows")
    return summary


def _statement(args: SqlOptions) -> str:
    if (args.statement is None) == (args.file is None):
        raise UsageError('give one statement, as "SELECT * FROM decisions", or -f FILE')
    if args.file is None:
        return str(args.statement)
    try:
        return args.file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputRefused(args.file, None, f"it cannot be read: {error}") from error


JOB = Job(
    "sql",
    "Ask the tables and topics by one statement of SQL, which only reads: SELECT, WITH, DESCRIBE, EXPLAIN or SHOW.\n"
    "Every table and every topic has its own name (docs/tables.md); backticks quote a name with dots or dashes.",
    _run,
    _arguments,
    examples=(
        '"SELECT decision, reason, count(*) FROM decisions GROUP BY ALL"',
        "'SELECT * FROM `orders-eu` ORDER BY committed_at DESC LIMIT 10'",
        "-f query.sql --format csv > rows.csv",
    ),
    pages=("tables.md",),
    options=SqlOptions,
    alone=lambda args: args.format in FORMS,
)
