"""A table whose rows can be filtered and chosen, and commands made from the choice: choices.js does it in the page.

Without JavaScript the table is there, and nothing else. With it, filters and commands appear. The script gets numbers,
and words that are quoted for a shell or for SQL already; it makes no markup of any text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from halfop.html.page import Cells, Markup, element, packaged, table


class Option(NamedTuple):
    """A value of a filter: its text, and the condition in SQL that holds for its rows."""

    text: str
    condition: str


class Filter(NamedTuple):
    """A filter of rows. A row fits the n-th option if its value is n; `least`: if its value is at least `least[n]`."""

    name: str
    label: str
    options: Sequence[Option]
    least: Sequence[int] = ()


class Choice(NamedTuple):
    """A row: its cells, the option that names it in a command, and its value for each filter, None if it fits none."""

    cells: Cells
    named: str
    values: Mapping[str, int | None]


class Commands(NamedTuple):
    """The parts of a choice's command: `start`, one of `endings`, then the rows' names; or `where` and the conditions.

    If more rows are named than `limit`, the command says how many it means.
    """

    start: str
    endings: Sequence[str]
    where: str
    limit: int


def script() -> str:
    """Returns the code that a page with choices needs."""
    return packaged("choices.js")


def choices(header: Sequence[str], rows: Sequence[Choice], filters: Sequence[Filter], commands: Commands) -> Markup:
    """Returns the filters, the commands and the table; a page has this once, and `script`."""
    values = [
        {f"data-{name}": n for name, n in row.values.items() if n is not None} | {"data-named": row.named}
        for row in rows
    ]
    listed = element("div", {"class": "listed"}, table(header, [row.cells for row in rows], values))
    return element("div", {"id": "choices"}, _chooser(filters, commands), listed)


def _chooser(filters: Sequence[Filter], commands: Commands) -> Markup:
    given = {"data-start": commands.start, "data-where": commands.where, "data-limit": commands.limit}
    endings = [Option(name, name) for name in commands.endings]
    return element(
        "details",
        {"class": "chooser", "hidden": "", **given},
        element("summary", {}, "Filter, select, and make the command that ends them"),
        element("div", {"class": "filters"}, *[_filter(each) for each in filters]),
        element("p", {"class": "chosen", "aria-live": "polite"}),
        element(
            "div",
            {"class": "filters"},
            _button("all", "select all that fit, or none"),
            _button("more", "show more"),
            _select("ending", "end the selected", "choose", endings),
        ),
        _made("by-key", "The selected messages"),
        _made("by-where", "All messages that the filters fit, also those that this page does not list"),
    )


def _filter(each: Filter) -> Markup:
    return _select(each.name, each.label, "all", each.options, each.least)


def _select(name: str, label: str, none: str, options: Sequence[Option], least: Sequence[int] = ()) -> Markup:
    shown = [element("option", {"value": ""}, none)]
    for n, option in enumerate(options):
        at_least = {"data-least": least[n]} if least else {}
        shown.append(element("option", {"value": n, "data-sql": option.condition, **at_least}, option.text))
    return element("label", {}, element("span", {}, label), element("select", {"name": name}, *shown))


def _button(name: str, text: str) -> Markup:
    return element("button", {"type": "button", "name": name}, text)


def _made(name: str, title: str) -> Markup:
    command = element("pre", {"class": "command"})
    return element("div", {"class": f"made {name}"}, element("h3", {}, title), command, _button("copy", "copy"))
