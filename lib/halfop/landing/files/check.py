"""The rows of all files, counted: what is refused, and the queues and offsets of good rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from halfop.frame.errors import InputRefused
from halfop.frame.nearest import did_you_mean
from halfop.landing.fields import NEAR, known_names
from halfop.landing.files.pieces import EXAMPLES, Example, PieceFound
from halfop.landing.progress import OffsetSpan, Queue
from halfop.landing.table_rows import TABLES
from halfop.rocketmq.batches import HALF, OP
from halfop.warehouse.files import shown_path
from halfop.wording import Reject

Places = Mapping[tuple[str, int], int]
_SECONDS_AS_MILLIS = range(10**12, 10**13)  # microseconds: of epoch seconds from 2001 to 2286 that are taken for more


@dataclass
class Checked:
    """Rows of one kind: good rows (of ops: items) and bad ones by file, the span of offsets by queue."""

    kind: str
    read: int = 0
    good: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    spans: dict[Queue, OffsetSpan] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def doubts(self) -> Iterator[str]:
        """What of good rows may not be as it was meant."""
        for name in sorted(self.unknown):
            meant = did_you_mean(name, known_names(self.kind), NEAR)
            yield f"column {name} of {self.kind} rows is unknown and not landed{meant}"
        if any(span.newest in _SECONDS_AS_MILLIS for span in self.spans.values()):
            yield f"times of {self.kind} rows lie in January 1970: milliseconds are expected, are these seconds?"


def checked(found: Iterable[PieceFound]) -> list[Checked]:
    """The pieces of each kind together."""
    by_kind: dict[str, Checked] = {}
    for piece in sorted(found, key=lambda each: list(TABLES).index(each.kind)):
        _add(by_kind.setdefault(piece.kind, Checked(piece.kind)), piece)
    return list(by_kind.values())


def _add(all_of_kind: Checked, piece: PieceFound) -> None:
    all_of_kind.read += piece.read
    all_of_kind.good[piece.uri] += piece.good
    all_of_kind.bad[piece.uri] += piece.bad.total()
    all_of_kind.unknown |= piece.unknown
    for queue, span in piece.spans.items():
        all_of_kind.spans[queue] = span.joined(all_of_kind.spans.get(queue, span))


def first_lines(found: Iterable[PieceFound]) -> Places:
    """The number to add to a place in a piece to show it: JSON lines count from 1 on, rows of Parquet from 0 on."""
    places: dict[tuple[str, int], int] = {}
    lines: Counter[str] = Counter()
    for piece in sorted(found, key=lambda each: (each.uri, each.start)):
        places[piece.uri, piece.start] = lines[piece.uri] + 1 if piece.format == "json" else 0
        lines[piece.uri] += piece.lines
    return places


def refuse_bad(kind: str, found: Sequence[PieceFound], way_out: str = "--skip-bad lands the others") -> None:
    """Raises InputRefused, naming the first bad rows and the way out, if there are any of this kind."""
    mine = [piece for piece in found if piece.kind == kind]
    total = sum(piece.bad.total() for piece in mine)
    if total:
        first, formats = first_lines(mine), {piece.uri: piece.format for piece in mine}
        examples = sorted(example for piece in mine for example in piece.examples)
        texts = [_worded(each, first, formats[each.uri]) for each in islice(examples, EXAMPLES)]
        path, line, text = texts[0]
        read = sum(piece.read for piece in mine)
        raise InputRefused(path, line, text, _rest(texts[1:], total, read, _none(mine) if total == read else way_out))


def _none(found: Sequence[PieceFound]) -> str:
    """What may be wrong with files of which no row is good."""
    kind, unknown = found[0].kind, set[str]().union(*(piece.unknown for piece in found))
    other = OP if kind == HALF else HALF
    if unknown & {*known_names(other)}:
        return f"these look like {other} rows: give them by --{other}"
    return f"no row has the form of {kind} messages (docs/landing.md); --skip-bad passes them over"


def rejects(found: Sequence[PieceFound]) -> list[Reject]:
    """The bad rows of all kinds by reason, each with its first one."""
    number: Counter[str] = sum((piece.bad for piece in found), Counter())
    lines, formats = first_lines(found), {piece.uri: piece.format for piece in found}
    examples = sorted(example for piece in found for example in piece.examples)
    first = {each.problem.reason: _worded(each, lines, formats[each.uri]) for each in reversed(examples)}
    return [Reject("INPUT", reason, n, *_placed(*first[reason])) for reason, n in number.items()]


def _placed(path: str, line: int | None, text: str) -> tuple[str, str]:
    return (path if line is None else f"{path}:{line}"), text


def _worded(example: Example, first: Places, format_: str) -> tuple[str, int | None, str]:
    path, text = shown_path(example.uri), f"{example.problem.reason}: {example.problem.detail}"
    line = first[example.uri, example.start] + example.place
    return (path, line, text) if format_ == "json" else (path, None, f"row_index {line}: {text}")


def _rest(others: Iterable[tuple[str, int | None, str]], total: int, read: int, way_out: str) -> str:
    lines = [": ".join(_placed(*each)) for each in others]
    many = f"{total} bad of {read} rows; nothing has landed, {way_out}"
    return "\n".join([*lines, many])
