"""`land files --accept-rewind`: files are compared with what has landed under the keys of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from halfop.columns.keys import present
from halfop.columns.lives import Lives, all_lives, lives_of, own_name
from halfop.frame.errors import InputRefused
from halfop.landing import progress
from halfop.landing.cuts import Cut, LandedQueue
from halfop.landing.files.taking import SOURCE, Taking
from halfop.landing.rewind import KEY_REUSED, TOPICS, Begun, begin
from halfop.landing.table_rows import TABLES
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import equal

_IDENTITY = {"half": ["commit_log_offset", "store_timestamp", "uniq_key"], "op": ["store_timestamp"]}
_PLACE = {"half": ["queue_id", "queue_offset"], "op": ["queue_id", "queue_offset", "item"]}
Firsts = Mapping[tuple[str, int, str], int]  # the first offset that differs, by broker, queue and kind


def accept(warehouse: Warehouse, new: Taking, old: Taking, at: int) -> dict[str, bool]:
    """Begins a new life of each broker of the files whose rows differ, or of which a run has found a reused key.

    All rows of `new` files count; of `old` ones, which have landed, only those that had reused keys.
    Returns the new names, and whether anything differs: if not, the new life begins where the landed rows end.
    """
    known = all_lives(progress_rows(warehouse))
    for kind in TOPICS:
        _refuse_lost_rows(warehouse, new, kind, known)
    differing = {
        key: first for kind in TOPICS for key, first in _first_that_differ(warehouse, new, old, kind, known).items()
    }
    rejected = warehouse.read("rejected", where=equal("reason", KEY_REUSED)).select("broker_name").distinct()
    given = {own_name(queue.broker_name) for piece in (*new.found, *old.found) for queue in piece.spans}
    ended = {name for each in known for name in each.names[:-1]}
    reused = {name for (name,) in rejected.collect() if own_name(name) in given} - ended
    found = {}
    for before in _brokers({name for name, _, _ in differing} | reused, known):
        cuts = _cuts(warehouse, before, differing)
        begin(warehouse, before, cuts, Begun(at, SOURCE, {}))
        found[lives_of(progress_rows(warehouse), before.broker_name).current] = any(cut.is_below for cut in cuts)
    return found


def _brokers(names: Iterable[str], known: Sequence[Lives]) -> list[Lives]:
    """The brokers that have lives of these names."""
    lives_by_name = {name: each for each in known for name in each.names}
    found = [lives_by_name.get(name, Lives(name)) for name in names]
    return sorted({each.broker_name: each for each in found}.values(), key=lambda each: each.broker_name)


def _first_that_differ(warehouse: Warehouse, new: Taking, old: Taking, kind: str, known: Sequence[Lives]) -> Firsts:
    """By the name of the life that wrote a row."""
    rows = [each for each in (_rows(new, kind, known), _reused(warehouse, old, kind, known)) if each is not None]
    if not rows:
        return {}
    key = ["writer", *_PLACE[kind]]
    given = reduce(DataFrame.unionByName, [each.select(*key, "identity") for each in rows])
    landed = _landed(warehouse, given, kind, known).select(*key, "broker", "standing").distinct()
    differs = ~F.col("identity").eqNullSafe(F.col("standing"))
    ends = given.join(landed, key).groupBy("broker", "writer", "queue_id")
    first = F.min(F.when(differs, F.col("queue_offset"))).alias("first")
    same = F.max(F.when(~differs & _is_whole(F.col("identity"), kind), F.col("queue_offset"))).alias("same")
    found = ends.agg(first, same).collect()
    _refuse_bad_rows(found, kind)
    return {(row["writer"], row["queue_id"], kind): row["first"] for row in found if row["first"] is not None}


def _refuse_bad_rows(found: Sequence[Row], kind: str) -> None:
    """Raises InputRefused if a message stands above one that differs: what a broker lost is all above the cut."""
    for broker, queue in sorted({(row["broker"], row["queue_id"]) for row in found}):
        mine = [row for row in found if (row["broker"], row["queue_id"]) == (broker, queue)]
        first = min((row["first"] for row in mine if row["first"] is not None), default=None)
        same = max((row["same"] for row in mine if row["same"] is not None), default=-1)
        if first is not None and first < same:
            problem = f"{kind} row {first} differs from what has landed, but row {same} after it does not"
            hint = "a broker that lost the end of its log keeps nothing after the first row that differs: correct that "
            hint += "row, or leave it out. --accept-rewind without it acknowledges KEY_REUSED; nothing has landed"
            raise InputRefused(f"{broker}/{queue}", None, problem, hint)


def _refuse_lost_rows(warehouse: Warehouse, new: Taking, kind: str, known: Sequence[Lives]) -> None:
    """Raises InputRefused if a new file has a message that stood in an earlier life, and is lost by now."""
    given = _rows(new, kind, known) if known else None
    if given is None:
        return
    landed = _landed(warehouse, given, kind, known).where("identity <=> standing")
    same = [F.col(f"given.{c}") == F.col(f"landed.{c}") for c in ("broker", *_PLACE[kind], "identity")]
    found = given.where(_is_whole(F.col("identity"), kind)).alias("given").join(landed.alias("landed"), same)
    place = F.min(F.struct("given.broker", "given.queue_id", "given.queue_offset", "landed.writer"))
    first = found.where("landed.life < given.life").select(place.alias("first")).collect()[0]["first"]
    if first is not None:
        broker, queue, offset, life = first
        problem = f"{kind} row {offset} is one that the broker has lost: it has landed as {life}/{queue}/{offset}"
        hint = "land what the broker holds now, not what was exported before its new life; nothing has landed"
        raise InputRefused(f"{broker}/{queue}", None, problem, hint)


def _is_whole(identity: Column, kind: str) -> Column:
    return reduce(and_, [identity[c].isNotNull() for c in _IDENTITY[kind]])


def _reused(warehouse: Warehouse, taken: Taking, kind: str, known: Sequence[Lives]) -> DataFrame | None:
    """Rows that had reused keys in the last life in which they landed, without the one that they are of now.

    All others have stood in an earlier life: the broker lost them.
    """
    given = _rows(taken, kind, known)
    if given is None:
        return None
    row = ["broker", *_PLACE[kind], "identity"]
    stands = F.col("identity").eqNullSafe(F.col("standing"))
    landed = _landed(warehouse, given, kind, known).withColumn("stands", stands)
    same = [F.col(f"given.{c}").eqNullSafe(F.col(f"landed.{c}")) for c in row]
    found = given.alias("given").join(landed.alias("landed"), same)
    before = found.where("landed.life != given.life OR NOT landed.stands")
    last = before.groupBy("given.writer", *[f"given.{c}" for c in row])
    return last.agg(F.max_by("landed.stands", "landed.life").alias("stands")).where("NOT stands")


# ---- rows, and what has landed ----


def _rows(taken: Taking, kind: str, known: Sequence[Lives]) -> DataFrame | None:
    rows = taken.rows(kind)
    return None if rows is None else _identified(rows, kind, known)


def _landed(warehouse: Warehouse, given: DataFrame, kind: str, known: Sequence[Lives]) -> DataFrame:
    """Rows that have landed at the places of these, with the identity that landed there first."""
    landed = _identified(warehouse.read(TABLES[kind]), kind, known)
    landed = landed.join(given.select(_PLACE[kind]).distinct(), _PLACE[kind], "left_semi")
    of_key = Window.partitionBy("writer", *_PLACE[kind])
    return landed.withColumn("standing", F.min_by("identity", "landed_at").over(of_key))


def _identified(rows: DataFrame, kind: str, known: Sequence[Lives]) -> DataFrame:
    """The columns of rows that are compared, with broker and life: ops have those of their half message."""
    writer, broker, life = F.col("broker_name"), F.col("broker_name"), F.lit(1)
    for each in known:
        names, mine = F.array(*map(F.lit, each.names)), F.col("broker_name").isin(each.names)
        number = F.array_position(names, F.col("broker_name")).cast("int")
        number = F.coalesce(F.col("life"), number) if kind == "op" else number
        writer = F.when(mine, F.get(names, number - 1)).otherwise(writer)
        broker, life = F.when(mine, each.broker_name).otherwise(broker), F.when(mine, number).otherwise(life)
    cells = [(present(F.col(c)) if c == "uniq_key" else F.col(c)).alias(c) for c in _IDENTITY[kind]]
    place, identity = [F.col(c) for c in _PLACE[kind]], F.struct(*cells).alias("identity")
    return rows.select(
        writer.alias("writer"), broker.alias("broker"), life.alias("life"), *place, identity, F.col("landed_at")
    )


def _cuts(warehouse: Warehouse, before: Lives, differing: Firsts) -> list[Cut]:
    cuts = []
    for (topic, queue_id), row in progress.of_broker(warehouse, before.current).items():
        for kind, topics in TOPICS.items():
            if topic in topics:
                end = max(row.next_offset or 0, row.highest_offset or 0)
                firsts = [differing[key] for name in before.names if (key := (name, queue_id, kind)) in differing]
                cut = min([*firsts, end])
                agreed = LandedQueue(warehouse, before, kind, queue_id).last_below(cut)
                cuts.append(Cut(topic, queue_id, cut, end, agreed))
    return cuts


# ---- files that have landed before ----


def lands_again(warehouse: Warehouse, taken: Taking, lives: Sequence[str]) -> bool:
    """Returns whether a file holds rows of one of these lives that landed with reused keys in an earlier one."""
    known = all_lives(progress_rows(warehouse))
    found = (_reused(warehouse, taken, kind, known) for kind in TOPICS)
    return any(not rows.where(F.col("writer").isin(lives)).isEmpty() for rows in found if rows is not None)
