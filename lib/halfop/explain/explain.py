"""The text of `explain`: the timeline of every transaction that a key names, and its state now."""

from __future__ import annotations

from halfop.explain.life import MOST, Life, find
from halfop.explain.outlook import Outlook, outlook
from halfop.explain.timeline import timeline
from halfop.frame.log import escaped
from halfop.frame.summary import Summary
from halfop.settings.model import Settings
from halfop.warehouse.opened import refuse_empty
from halfop.warehouse.tables import Warehouse


def explain(warehouse: Warehouse, settings: Settings, wanted: str) -> tuple[Summary, str]:
    """Returns the summary and the text; no control character of a message is in it."""
    summary = Summary("explain")
    refuse_empty(warehouse)
    with summary.phase("look up"):
        found, more = find(warehouse, wanted)
        looks = [outlook(warehouse, settings, life) for life in found]
    if more:
        summary.notes.append(
            f"more than {MOST} half messages have this UNIQ_KEY; give a half key to see one that is not shown"
        )
    summary.extra["messages"] = {str(life.keys[-1]): look.state for life, look in zip(found, looks, strict=True)}
    lines = [line for life, look in zip(found, looks, strict=True) for line in [*_lines(life, look), ""]]
    return summary, "".join(f"{escaped(line)}\n" for line in lines)


def _lines(life: Life, look: Outlook) -> list[str]:
    first, *others = look.lines
    return [*timeline(life), "", f"  state: {first}", *[f"         {line}" for line in others]]
