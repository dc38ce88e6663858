"""HTML and SVG as text, and the one place where values are escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping

from halfop.frame.log import escaped

_VOID = frozenset({"meta"})


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
