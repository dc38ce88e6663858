"""What `explain` prints: the timeline of every transaction that a key names, and where each is now."""

from __future__ import annotations

from halfop.explain.life import MOST, Life, lives
from halfop.explain.outlook import Outlook, outlook
from halfop.explain.timeline import timeline
from halfop.frame.log import escaped
from halfop.frame.summary import Summary
from halfop.report.figures import refuse_empty
from halfop.settings.model import Settings
from halfop.warehouse.tables import Warehouse


def explain(warehouse: Warehouse, settings: Settings, wanted: str) -> tuple[Summary, str]:
    """The summary, and the text: nothing in it can drive a terminal."""
    summary = Summary("explain")
    refuse_empty(warehouse)
    with summary.phase("look up"):
        found, more = lives(warehouse, wanted)
        looks = [outlook(warehouse, settings, life) for life in found]
    if more:
        summary.notes.append(f"more than {MOST} half messages have this UNIQ_KEY; give a half key to see another one")
    summary.extra["messages"] = {str(life.keys[-1]): look.state for life, look in zip(found, looks, strict=True)}
    told = [line for life, look in zip(found, looks, strict=True) for line in [*_lines(life, look), ""]]
    return summary, "".join(f"{escaped(line)}\n" for line in told)


def _lines(life: Life, look: Outlook) -> list[str]:
    first, *others = look.lines
    return [*timeline(life), "", f"  now: {first}", *[f"       {line}" for line in others]]
