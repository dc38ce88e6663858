"""The kinds of findings. Of one transaction a rule gives the detail: a Column that is null if there is no finding.

A row has `members` (its half messages), `discards`, `ops` and `finals` of all members, and the columns of `Coverage`.
If a part of the log has not been read, or is not known yet, that something is not there proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.columns.keys import micros
from halfop.warehouse.schema import table

TABLE = "audit"

# ---- words ----


def first() -> Column:
    return F.get("members", F.lit(0))


def landed() -> Column:
    """Returns whether there is a half message, and not only what refers to one."""
    return F.coalesce(first()["landed"], F.lit(False))


def later(one: Column, other: Column) -> Column:
    """Returns whether one was written after the other, by their places in the log; by store time if one has none."""
    return F.coalesce(one["place"] > other["place"], one["store"] > other["store"], F.lit(False))


def late_checks() -> Column:
    """Returns the copies that were put back to ask about a message that an op or final message had ended."""
    asked = F.filter("members", lambda m: m["asked"] & F.exists(_ends(), lambda end: later(m, end)))
    return F.when(F.size("members") > 1, asked)


def ended() -> Column:
    """Returns whether an op or a final message has ended it."""
    return _some("ops") | _some("finals")


def answers_a_check() -> Column:
    """Returns whether the producer was asked, and nothing had ended the transaction before."""
    first_check = F.get(F.filter("members", lambda m: m["asked"]), F.lit(0))
    return first_check.isNotNull() & ~F.exists(_ends(), lambda end: later(first_check, end))


def given_up() -> Column:
    """Returns whether it was discarded, and not resumed since."""
    return F.exists("discards", lambda d: ~_resumed_after(d))


def _resumed_after(d: Column) -> Column:
    return F.exists("members", lambda m: m["resumes"] & later(m, d))


def _ends() -> Column:
    def instant(r: Column) -> Column:
        return F.struct(r["store"].alias("store"), r["place"].alias("place"))

    return F.concat(F.transform("finals", instant), F.transform("ops", instant))


def _ops_with(outcome: str) -> Column:
    return F.filter("ops", lambda o: o["outcome"] == outcome)


def _some(rows: Column | str) -> Column:
    return F.size(rows) > 0


def _sure(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _lost_between(one: Column, other: Column) -> Column:
    """Returns whether a part of the log between the two was lost; if a place is not known, any loss may be there."""
    low, high = F.least(one["place"], other["place"]), F.greatest(one["place"], other["place"])
    unknown = one["place"].isNull() | other["place"].isNull()
    return F.exists("gaps", lambda gap: unknown | ((gap["begin"] < high) & (gap["end"] > low)))


def _lost_after(one: Column, until: Column) -> Column:
    """Returns whether a lost part of the log after a record may hold what was stored by `until` (microseconds)."""
    return F.exists("gaps", lambda gap: F.coalesce(gap["end"] > one["place"], F.lit(True)) & (gap["since"] <= until))


# ---- texts ----


def sentence(*parts: Column | str) -> Column:
    """Returns the parts together, null if one of them is null."""
    return F.concat(*[F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts])


def _joined(rows: Column | str, one: Callable[[Column], Column]) -> Column:
    return F.array_join(F.transform(rows, one), ", ")


def _final(f: Column) -> Column:
    half = F.coalesce(sentence(" of half message ", f["half"]), F.lit(""))
    return sentence("final message ", f["topic"], "/", f["queue_id"], "/", f["queue_offset"], half)


def _op(o: Column) -> Column:
    return sentence("op message ", o["op_offset"], " naming half message ", o["half"])


def _if_some(rows: Column | str, *text: Column | str) -> Column:
    """A text if there are rows, else an empty one."""
    return F.when(_some(rows), sentence(*text)).otherwise("")


# ---- the rules ----


def _delivered_twice() -> Column:
    return F.when(F.size("finals") > 1, _joined("finals", _final))


def _conflicting_ends() -> Column:
    back, commits = _ops_with("ROLLBACK"), _ops_with("COMMIT")
    text = sentence(
        "rolled back by ",
        _joined(back, _op),
        _if_some(commits, ", committed by ", _joined(commits, _op)),
        _if_some("finals", ", delivered by ", _joined("finals", _final)),
    )
    return F.when(_some(back) & (_some(commits) | _some("finals")), text)


def _committed_but_missing() -> Column:
    """A commit whose final message is not there, though the log or the real queue has been read around its place."""

    def read(o: Column) -> Column:
        until = micros(o["store"])
        log = (F.col("log_from") <= first()["place"]) & (until <= F.col("known")) & ~_lost_after(first(), until)
        queue = (F.col("topic_since") <= first()["store"]) & (F.col("topic_until") >= o["store"]) & ~_some("gaps")
        return _sure(log) | _sure(queue)

    commits = F.filter(_ops_with("COMMIT"), read)
    text = sentence("committed by ", _joined(commits, _op), ", and there is no final message")
    return F.when(landed() & ~_some("finals") & _some(commits), text)


def _delivered_and_discarded() -> Column:
    """A final message of a discarded transaction that was not resumed between."""

    def both(d: Column, f: Column) -> Column:
        resumed = F.exists("members", lambda m: m["resumes"] & later(m, d) & later(f, m))
        return later(d, f) | ~(resumed | _lost_between(d, f))

    found = F.filter("discards", lambda d: F.exists("finals", lambda f: both(d, f)))
    text = sentence("discarded at ", _joined(found, _stored), ", delivered by ", _joined("finals", _final))
    return F.when(_some(found), text)


def _stored(d: Column) -> Column:
    return sentence(d["store"])


def _discarded_without_check() -> Column:
    """The discarded message is no copy, or a copy stored while the message was immune: nobody was asked before it."""

    def last(d: Column) -> Column:
        return F.try_element_at(F.filter("members", lambda m: m["landed"] & later(d, m)), F.lit(-1))

    def unasked(d: Column) -> Column:
        m = last(d)
        is_it = d["check_times"].isNull() | d["check_times"].isin(m["times"], m["times"] + 1)
        return _sure(~m["asked"] & is_it & ~_lost_between(m, d))

    def text(d: Column) -> Column:
        immune = sentence(" with check times ", last(d)["times"], ", raised within its own immunity of ")
        why = F.when(last(d)["times"] > 0, sentence(immune, first()["check_immunity"], " s"))
        return sentence("discarded at ", _stored(d), F.coalesce(why, F.lit(", never put back with a check")))

    found = F.filter("discards", unasked)
    return F.when(_some(found), _joined(found, text))


def _ended_without_half() -> Column:
    """The end is of an offset, or place in the log, between half messages that have landed."""
    offset, place = first()["queue_offset"], first()["place"]
    in_queue = offset.between(F.col("first_offset"), F.col("last_offset"))
    in_queue &= ~F.exists("offset_gaps", lambda gap: (gap["below"] < offset) & (offset < gap["above"]))
    in_log = place.between(F.col("first_place"), F.col("last_place"))
    in_log &= ~F.exists("gaps", lambda gap: (gap["begin"] <= place) & (place < gap["end"]))
    by_op = F.when(_some("ops") & in_queue, sentence(_joined("ops", _op), ", which is not there"))
    at = sentence(" of a half message at ", place, " in the commit log, which is not there")
    by_final = F.when(_some("finals") & in_log, sentence(_joined("finals", _final), at))
    return F.when(~landed(), F.coalesce(by_op, by_final))


def _delivered_without_op() -> Column:
    """No op names the half message that was delivered, though it should have landed by now."""

    def lost(f: Column) -> Column:
        until = micros(f["store"]) + F.col("op_lag")
        return ~f["op"] & _sure(until <= F.col("known")) & ~_lost_after(f, until)

    found = F.filter("finals", lost)
    text = sentence(_joined(found, _final), ", which no op message names")
    return F.when(landed() & _some(found), text)


def _checked_after_end() -> Column:
    copies = _joined(late_checks(), lambda m: sentence(m["queue_offset"]))
    text = sentence("ended at ", F.array_min(_ends())["store"], ", put back to be checked as half message ", copies)
    return F.when(_some(late_checks()), text)


# ---- all kinds ----

TWINS, CHECK_STUCK, GROUP_FORGOTTEN = "TWINS", "CHECK_STUCK", "GROUP_FORGOTTEN"
FORGOTTEN_BY_BROKER = "FORGOTTEN_BY_BROKER"
COMMIT_ONLY_BY_CHECK, MIXED_GROUP, CLOCK_SKEW = "COMMIT_ONLY_BY_CHECK", "MIXED_GROUP", "CLOCK_SKEW"


class Finding(NamedTuple):
    """A kind of finding. `rule` gives its detail, null if a transaction has none; without it many messages show it.

    `reported`: by issue of apache/rocketmq, if users of RocketMQ have reported it.
    """

    name: str
    meaning: str
    rule: Callable[[], Column] | None = None
    reported: str = ""


# Of one transaction in the order of the harm they do, then those that many messages show.
FINDINGS = (
    Finding("DELIVERED_TWICE", "two final messages of one transaction", _delivered_twice),
    Finding("CONFLICTING_ENDS", "rolled back, and committed or delivered", _conflicting_ends),
    Finding("COMMITTED_BUT_MISSING", "committed, but not in the real topic", _committed_but_missing),
    Finding("DELIVERED_AND_DISCARDED", "in the real topic and in the discard topic", _delivered_and_discarded),
    Finding("DISCARDED_WITHOUT_CHECK", "discarded, though nobody was ever asked", _discarded_without_check),
    Finding("ENDED_WITHOUT_HALF", "an end of a half message that is not there", _ended_without_half),
    Finding("DELIVERED_WITHOUT_OP", "in the real topic, but still open in the half topic", _delivered_without_op),
    Finding("CHECKED_AFTER_END", "the producer was asked again after the end", _checked_after_end),
    Finding(FORGOTTEN_BY_BROKER, "open, but its broker, which kept it in RocksDB, has forgotten it"),
    Finding(TWINS, "half messages that share a UNIQ_KEY and are no copies"),
    Finding(
        CHECK_STUCK,
        "a half queue whose check does not go on: what is due there is not put back",
        reported="9500: open, mended in no release",
    ),
    Finding(
        GROUP_FORGOTTEN,
        "a producer group that is never asked, or from which no answer comes",
        reported="8316: closed unmended",
    ),
    Finding(
        COMMIT_ONLY_BY_CHECK,
        "a producer group whose transactions end only after a check",
        reported="8313, 9431: open, mended in no release",
    ),
    Finding(
        MIXED_GROUP,
        "a producer group in which some hosts send to some topics, and other hosts to others",
        reported="9791: open, mended in no release",
    ),
    Finding(CLOCK_SKEW, "a host whose clock is not the broker's", reported="9640: closed unmended"),
)
NAMES = [each.name for each in FINDINGS]


def row(**cells: Column) -> list[Column]:
    """Returns the columns of table `audit`, null where nothing is known."""
    return [cells.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in table(TABLE).struct]


def found() -> Column:
    """Returns the findings of a transaction, an array of rows."""
    about = {
        "broker_name": F.col("broker_name"),
        "queue_id": first()["queue_id"],
        "queue_offset": first()["queue_offset"],
        "half_offsets": F.filter(F.transform("members", lambda m: m["queue_offset"]), lambda o: o.isNotNull()),
        "uniq_key": first()["uniq_key"],
        "producer_group": F.col("producer_group"),
        "real_topic": F.coalesce("real_topic", F.get("finals", F.lit(0))["topic"]),
        "born_timestamp": F.col("born_timestamp"),
    }
    rules = {each.name: each.rule() for each in FINDINGS if each.rule}
    rows = [
        F.when(detail.isNotNull(), F.struct(*row(finding=F.lit(name), **about, detail=detail)))
        for name, detail in rules.items()
    ]
    return F.array_compact(F.array(*rows))
