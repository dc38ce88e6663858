"""The end of a call for people: what has landed, what was decided and delivered, and what needs a look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from halfop.frame import commands as c
from halfop.frame.log import escaped
from halfop.frame.summary import Summary
from halfop.frame.units import duration, plural
from halfop.rules.reasons import HARMLESS, known
from halfop.settings.model import Settings

_LANDED = {
    "half_messages": "half message",
    "op_messages": "op",
    "final_messages": "final message",
    "broker_discards": "discard record",
}
_FAILED = ("failed_sinks", "failed_brokers", "failed_catalog")
_OF_STEPS = (*_FAILED, "rejected", "value_errors", "value_errors_in", "queues_behind")
_OF_ONE_STEP = ("open_messages", "oldest_open_seconds", "bad_rows", "lost_ranges", "owed")
_NOT_ENDED = ("GONE", "MISMATCH", "FAILED", "UNKNOWN", "INTENDED")


class Look(NamedTuple):
    """Something that needs a look, and the command to look at it, if the call has not shown it itself."""

    what: str
    command: str = ""


def told(summary: Summary, settings: Settings) -> str:
    """Returns the end of a call in lines, in which no character drives a terminal."""
    lines = [(label, text) for label, text in _facts(summary) if text]
    for label, look in zip(_labels("look at"), _looks(summary, settings), strict=False):
        lines += [(label, look.what)] + ([("", f"  {look.command}")] if look.command else [])
    lines += zip(_labels("note"), summary.notes, strict=False)
    return _text([_title(summary), *(f"  {label:10} {text}" for label, text in lines)])


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{escaped(line)}\n" for line in lines)


def _labels(first: str) -> Iterator[str]:
    """The label of a list's first line, then none."""
    yield first
    while True:
        yield ""


def _title(summary: Summary) -> str:
    cycle = f" {summary.extra['cycle']}" if "cycle" in summary.extra else ""
    run = "" if summary.run_id is None else f", run {summary.run_id}"
    seconds = f" in {duration(1000 * sum(summary.seconds.values()))}" if summary.seconds else ""
    how = "done" if summary.status == 0 else f"ended with status {summary.status}"
    return f"{summary.job}{cycle}{run}: {how}{seconds}"


# ---- what was done ----


def _facts(summary: Summary) -> Iterator[tuple[str, str]]:
    written, extra = _written(summary), summary.extra
    yield "landed", _counted({noun: written.get(name, 0) for name, noun in _LANDED.items()})
    decided = {decision: sum(reasons.values()) for decision, reasons in sorted(summary.decisions.items())}
    yield "decided", ", ".join(f"{n:,} {decision}" for decision, n in decided.items())
    yield "delivered", _counted({"message": written.get("topics", 0)})
    yield "to ask", _counted({"question": written.get("check_requests", 0)})
    yield "resumed", _counted({"message": extra.get("resumed", 0)})
    yield "planned", _counted({"end": extra.get("planned", 0)})
    yield "to erase", _counted({"row": sum(extra.get("to_erase", {}).values())})
    yield "erased", _counted({"row": sum(extra.get("erased", {}).values())})
    yield "open", _open(_both(summary))
    yield "written", str(extra.get("path") or extra.get("plan") or "")


def _written(summary: Summary) -> dict[str, int]:
    """Rows by table; a cycle has those of its landing apart."""
    extra: Mapping[str, Any] = summary.extra
    return {**extra.get("landing", {}).get("rows_written", {}), **summary.rows_written}


def _counted(rows: Mapping[str, int]) -> str:
    return ", ".join(plural(n, noun) for noun, n in rows.items() if n)


def _open(extra: Mapping[str, Any]) -> str:
    if not extra.get("open_messages"):
        return ""
    oldest = extra.get("oldest_open_seconds")
    return plural(extra["open_messages"], "message") + (f", the oldest for {duration(1000 * oldest)}" if oldest else "")


# ---- what needs a look ----


def _both(summary: Summary) -> dict[str, Any]:
    """The extra fields; of a cycle those of its landing and of its run."""
    found: dict[str, Any] = dict(summary.extra)
    for step in (found.get("landing"), found.get("run")):
        if isinstance(step, Mapping):
            found |= {name: step[name] for name in _OF_ONE_STEP if name in step}
            found |= {name: {**found.get(name, {}), **step[name]} for name in _OF_STEPS if name in step}
            if "error" in step:
                found.setdefault("failed_steps", {})[step["job"]] = step["error"]
    return found


def _looks(summary: Summary, settings: Settings) -> Iterator[Look]:
    extra = _both(summary)
    for kind in ("failed_steps", *_FAILED):
        yield from (Look(f"{name} failed: {why}") for name, why in extra.get(kind, {}).items())
    for name, n in extra.get("rejected", {}).items():
        kind, _, reason = name.partition(".")
        if known(reason) not in HARMLESS:
            where = f"WHERE kind = '{kind}' AND reason = '{reason}' ORDER BY rejected_at DESC"
            yield Look(f"{n:,} rejected as {name}", c.select("rejected", where, settings))
    for topic, n in extra.get("value_errors", {}).items():
        name, where = extra["value_errors_in"][topic], "WHERE value_error IS NOT NULL ORDER BY run_id DESC"
        yield Look(f"{plural(n, 'message')} of {topic} without a value: no fit", c.select(name, where, settings))
    if discarded := sum(summary.decisions.get("DISCARD", {}).values()):
        newest = "ORDER BY run_id DESC, discarded_at DESC"
        yield Look(f"{discarded:,} discarded", c.select("trans_check_max_time", newest, settings))
    yield from _states(extra, settings)
    yield from (Look("to do next", command) for command in extra.get("commands", ()))


def _states(extra: Mapping[str, Any], settings: Settings) -> Iterator[Look]:
    if late := len(extra.get("queues_behind", ())):
        what = f"{plural(late, 'queue')} whose ops have not landed up to now"
        yield Look(what, c.select("landing_progress", "ORDER BY known_until", settings))
    if found := sum(extra.get("findings", {}).values()):
        mine = f"WHERE audit_id = '{extra.get('audit_id')}'"
        yield Look(plural(found, "finding"), c.select("audit", mine, settings))
    if not_ended := sum(n for state, n in extra.get("endings", {}).items() if state in _NOT_ENDED):
        yield Look(f"{not_ended:,} not ended", c.select("endings", "ORDER BY at DESC", settings))
    if lost := extra.get("lost_ranges", 0) + extra.get("bad_rows", 0):
        newest = "WHERE kind IN ('RANGE', 'INPUT') ORDER BY rejected_at DESC"
        yield Look(f"{lost:,} that could not land", c.select("rejected", newest, settings))
    for owed in extra.get("owed", ()):
        yield Look(f"not written yet, because it was parked: {owed}")
    if differences := extra.get("differences"):
        yield Look(f"{plural(differences, 'row')} recorded otherwise than computed again")
