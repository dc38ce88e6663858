"""Rows of files whose every text is markup, a script, or a formula of a spreadsheet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.json_lines import half, lines, op

_IMAGE = "<img src=x onerror=window.broken=1>"
TEXTS = (
    f"</script></style></title></textarea>-->{_IMAGE}<script>window.broken=2</script>",
    "\"'><svg onload=window.broken=3>",
    "javascript:window.broken=4",
    "${window.broken=5}{{window.broken=6}}`window.broken=7`$(window.broken=8)",
    "=cmd|'/c calc'!A0",
    "+1+cmd",
    "-1+cmd",
    "@SUM(A1)",
    "\t=1+cmd",
    "\r=1+cmd",
)
FOLDER = f"warehouse {_IMAGE}"  # names of folders and files have no slash


def hostile_files(folder: Path, now: int) -> list[str]:
    """Returns the options of `land files`: of each text an open, a discarded, an ended and an undeliverable message."""
    old, texts = now - 3_600_000, dict(enumerate(TEXTS))
    halves = [row for n, text in texts.items() for row in _of(n * 4, text, old)]
    ends = [op(n, str(n * 4 + 2), uniq_key=text, store_timestamp=now) for n, text in texts.items()]
    conflicts = [op(n + 100, str(n * 4 + 2), outcome="ROLLBACK", store_timestamp=now) for n in texts]
    bad = [op(n + 200, "1", outcome=text, tag=text, store_timestamp=now) for n, text in texts.items()]
    half_file = lines(folder / f"half {_IMAGE}.jsonl", *halves, *(f"{text!r}" for text in TEXTS))
    op_file = lines(folder / f"op {_IMAGE}=1+1.jsonl", *ends, *conflicts, *bad)
    return ["files", "--half", half_file, "--op", op_file, "--skip-bad", "--known-until", str(now + 60_000)]


def _of(first: int, text: str, born: int) -> list[dict[str, Any]]:
    about = {"UNIQ_KEY": text, "PGROUP": text, "KEYS": text, "TAGS": text, text: text, "CLUSTER": text}
    about |= {"REAL_TOPIC": "T", "REAL_QID": "0"}
    checked = about | {"TRANSACTION_CHECK_TIMES": "15"}
    named = {"born_timestamp": born, "store_timestamp": born + 1, "born_host": text, "store_host": text}
    each = [about, checked, about, about | {"REAL_TOPIC": text}]
    return [half(first + n, properties=of, **named) for n, of in enumerate(each)]
