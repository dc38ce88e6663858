"""The elements of a self-contained HTML page: sections, tables, tiles, notices, commands; and markup itself.

`element` is the one place where values are escaped. Only what these functions and `plots` return goes in as it is.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from halfop.frame.errors import UsageError
from halfop.frame.log import escaped
from halfop.frame.units import count

# No frame, no network and no script but the page's own, whatever slipped in.
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'"
_VOID = frozenset({"meta"})
_OPTION = re.compile(r"(--[a-z][a-z-]*)")
Cells = list[str | int]

# ---- markup ----


class Markup(str):
    """Text that is markup already. All other text is escaped when it enters an element."""

    __slots__ = ()


def element(name: str, attributes: Mapping[str, object], *children: str) -> Markup:
    """Returns one element; everything but `name` and the attributes' names, which are the caller's own, is escaped."""
    given = "".join(f' {key}="{text(str(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{given}>" if name in _VOID else f"<{name}{given}>{join(children)}</{name}>")


def join(parts: Iterable[str]) -> Markup:
    return Markup("".join(text(part) for part in parts))


def text(value: str) -> Markup:
    """Returns markup as it is; of other text, tags and control, bidi and invisible characters are escaped."""
    return value if isinstance(value, Markup) else Markup(html.escape(escaped(value)))


# ---- the page ----


class PageSection(NamedTuple):
    """A section; `anchor` is the target of links to it, `lead` says in a sentence how to read it.

    `narrow`: beside another one, if there is room.
    """

    anchor: str
    title: str
    lead: str
    content: Sequence[str]
    narrow: bool = False


class Tile(NamedTuple):
    """A figure at a glance; `tone` is empty, `good`, `warn` or `bad`."""

    label: str
    value: str
    note: str = ""
    tone: str = ""


def page(
    title: str,
    about: Sequence[tuple[str, str]],
    glance: Sequence[str],
    sections: Sequence[PageSection],
    script: str = "",
) -> str:
    """Returns a whole page: facts about it (name, value), what is seen at once, and the sections with links to them.

    `script` is code of the package: it runs when all is there, and the page's policy allows nothing else to run.
    """
    facts = [element("div", {}, element("dt", {}, name), element("dd", {}, value)) for name, value in about]
    links = [element("a", {"href": f"#{each.anchor}"}, each.title) for each in sections]
    body: list[str] = [
        element("header", {}, element("h1", {}, title), element("dl", {"class": "about"}, *facts)),
        *glance,
        element("nav", {"aria-label": "Sections"}, *links),
        element("main", {}, *[_section(each) for each in sections]),
    ]
    if script:
        body.append(element("script", {}, Markup(script)))
    head = _head(title, f"{_POLICY}; script-src '{_digest(script)}'" if script else _POLICY)
    return f"<!DOCTYPE html>\n{element('html', {'lang': 'en'}, head, element('body', {}, *body))}\n"


def _digest(script: str) -> str:
    """The name by which a policy allows a script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _head(title: str, policy: str) -> Markup:
    return element(
        "head",
        {},
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "referrer", "content": "no-referrer"}),
        element("title", {}, title),
        element("style", {}, Markup(packaged("page.css"))),
    )


def packaged(name: str) -> str:
    """Returns a file of this package."""
    return resources.files("halfop.html").joinpath(name).read_text(encoding="utf-8")


def _section(each: PageSection) -> Markup:
    heading, kind = element("h2", {}, each.title), {"class": "narrow"} if each.narrow else {}
    lead = element("p", {"class": "lead"}, prose(each.lead))
    return element("section", {"id": each.anchor, **kind}, heading, lead, *each.content)


def tiles(each: Sequence[Tile], which: str = "") -> Markup:
    """Returns figures side by side; those that come `first` on a page are larger."""
    return element("div", {"class": f"tiles {which}".strip()}, *[_tile(tile) for tile in each])


def _tile(tile: Tile) -> Markup:
    figure = element("div", {"class": "figure"}, tile.value)
    note = [element("div", {"class": "note"}, tile.note)] if tile.note else []
    return element("div", {"class": f"tile {tile.tone}".strip()}, element("div", {}, tile.label), figure, *note)


def notice(tone: str, *content: str) -> Markup:
    """Returns a sentence that asks for attention; `tone` as of a tile."""
    return element("p", {"class": f"notice {tone}"}, *map(prose, content))


def part(title: str, *content: str, anchor: str = "") -> Markup:
    """Returns a piece of a section with its heading, to which links may point by its anchor."""
    given = {"class": "part", "id": anchor} if anchor else {"class": "part"}
    return element("div", given, element("h3", {}, title), *content)


def parts(*each: str) -> Markup:
    """Returns pieces that stand side by side if there is room."""
    return element("div", {"class": "parts"}, *each)


def paragraph(*content: str) -> Markup:
    return element("p", {}, *map(prose, content))


def prose(value: str) -> Markup:
    """Returns text whose options, as `--apply`, are never broken over two lines; markup as it is."""
    if isinstance(value, Markup):
        return value
    return join(unbroken(word) if n % 2 else word for n, word in enumerate(_OPTION.split(value)))


def nothing(why: str) -> Markup:
    """Returns a sentence in the place of a plot or table without data."""
    return element("p", {"class": "nothing"}, why)


def link(anchor: str, text: str) -> Markup:
    return element("a", {"href": f"#{anchor}"}, text)


def code(text: str) -> Markup:
    return element("code", {}, text)


def unbroken(text: str) -> Markup:
    """Returns a text that is never broken over two lines, such as an instant."""
    return element("span", {"class": "whole"}, text)


def command(*lines: str) -> Markup:
    """Returns lines to copy; a tap selects all of them. An option stays whole, and on one line with its value."""
    shown = [" ".join(element("span", {}, each) for each in _with_values(line)) for line in lines]
    return element("pre", {"class": "command"}, Markup("\n".join(shown)))


def _with_values(line: str) -> list[str]:
    """The line's words, an option with the word after it."""
    found: list[str] = []
    for word in line.split(" "):
        if found and re.fullmatch(_OPTION, found[-1]) and not word.startswith("-"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def table(header: Sequence[str], rows: Sequence[Cells], attributes: Sequence[Mapping[str, object]] = ()) -> Markup:
    """Returns a table that turns into one block a row if there is little room.

    Numbers stand to the right. `attributes` are those of the rows, as the id that links lead to.
    """
    right = [bool(rows) and all(isinstance(row[n], int) for row in rows) for n in range(len(header))]
    heads = [element("th", _aligned(number), name) for name, number in zip(header, right, strict=True)]
    drawn = [
        element("tr", attributes[n] if attributes else {}, *_cells(header, row, right)) for n, row in enumerate(rows)
    ]
    head, body = element("thead", {}, element("tr", {}, *heads)), element("tbody", {}, *drawn)
    return element("div", {"class": "rows"}, element("table", {}, head, body))


def _cells(header: Sequence[str], row: Cells, right: Sequence[bool]) -> list[Markup]:
    return [_cell(name, value, number) for name, value, number in zip(header, row, right, strict=True)]


def _cell(name: str, value: str | int, number: bool) -> Markup:
    kind = _aligned(number) if value != "" else {"class": "empty"}
    shown = element("span", {}, count(value) if isinstance(value, int) else value)
    return element("td", {"data-label": name, **kind}, shown)


def _aligned(number: bool) -> dict[str, object]:
    return {"class": "number"} if number else {}


def more(shown: int, of: int, noun: str, query: str) -> Markup:
    """Returns how many rows there are and how many are shown, and the command that shows all."""
    if shown >= of:
        summary = element("summary", {}, f"All {count(of)} {noun}. By SQL")
        return element("details", {"class": "more"}, summary, command(query))
    text = f"{count(shown)} of {count(of)} {noun}; all of them:"
    return join([element("p", {"class": "more"}, text), command(query)])


def write(out: Path, text: str) -> None:
    """Writes the page in one step, so that nobody who has the old one open, or serves it, sees half of the new one.

    A link stays, and its file is replaced; to a device or a pipe the page is written as it comes.
    """
    place = Path(os.path.realpath(out))
    part = place.with_name(f"{place.name}.{secrets.token_hex(4)}.part")
    try:
        if out.exists() and not out.is_file():
            out.write_text(text, encoding="utf-8")
        else:
            part.write_text(text, encoding="utf-8")
            part.replace(place)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise UsageError(f"--out {out}: {error.strerror or error}; give a file in a folder that is there") from error


def refuse_no_folder(out: Path) -> None:
    """Raises UsageError if there is no folder for the page, before long work for it."""
    folder = Path(os.path.realpath(out)).parent
    if not folder.is_dir():
        raise UsageError(f"--out {out}: there is no folder {folder}")
