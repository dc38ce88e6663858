"""A chart of one message's life: the events of `explain`, by their time."""

from __future__ import annotations

import altair as alt

from halfop.charts.look import ACCENT, INK, Drawn, chart, shown
from halfop.explain.explain import events
from halfop.explain.life import MessageLife
from halfop.explain.look_up import find
from halfop.frame.log import escaped
from halfop.warehouse.tables import Warehouse
from halfop.wording import refuse_empty

_MOST = 70  # characters of an event


def life(warehouse: Warehouse, key: str) -> Drawn:
    """Draws the events of a message, or of those that share a UNIQ_KEY."""
    refuse_empty(warehouse)
    lives, _ = find(warehouse, key)
    told = sorted((event for each in lives for event in events(each)), key=lambda event: (event.at, event.rank))
    start = told[0].at
    rows = [
        {"after": (event.at - start) / 1e3, "place": place, "text": _short(escaped(event.text))}
        for place, event in enumerate(told)
    ]
    base = chart(rows).encode(
        x=alt.X("after:Q", title="seconds after the first event", scale=alt.Scale(padding=8, nice=False)),
        y=alt.Y("place:O", axis=None),
    )
    texts = base.mark_text(align="left", dx=9, color=INK).encode(text="text:N")
    made = base.mark_circle(size=70, color=ACCENT) + texts
    finding = ", ".join(_stands(each, start) for each in lives)
    return shown(made, finding, "what happened to it, in its order", height=alt.Step(26), width=420)


def _short(text: str) -> str:
    return text.partition(" - ")[0].partition(";")[0][:_MOST]


def _stands(message: MessageLife, start: int) -> str:
    last = message.last
    if last is None:
        return "No run has decided yet"
    return f"{last['decision']} {last['reason'] or ''}".strip() + f" after {(last['at'] - start) / 1e3:,.1f} s"
