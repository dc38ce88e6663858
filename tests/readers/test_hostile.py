"""Hostile texts in messages of producers: nothing of them becomes a path, a statement, a line of the log, an escape."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from halfop.report.report import render
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from model.oracle import half_of
from model.reference import undeliverable
from pyspark.sql import SparkSession
from support.brokers.scripted import answering, serving
from support.crash import ended, job
from support.json_lines import T0
from support.json_lines import half as half_row
from support.json_lines import op as op_row
from support.pages import AT, Tags, everything
from support.seeds import SEED

NUMBER = 20_000  # each with seven hostile values
LEGAL = ["_delta_log", "_staging", "-rf", "%2e%2e%2f", "||", "CON", "%RETRY%_x", "part-0", "_", "a" * 127, "%DLQ%%DLQ%"]
NASTY = [
    *(
        "../../../etc/passwd",
        "..\\..\\",
        "/abs",
        "file:///etc/passwd",
        "s3a://x/y",
        "`; DROP TABLE runs; --",
        "' OR 1=1 --",
    ),
    *("</script><script>alert(1)</script>", '" onload="x', "{{7*7}}", "${jndi:ldap://x/y}", "%s%n%x", "$(id)", "`id`"),
    *(
        "\n2026-01-01 INFO forged",
        "\r\n",
        "\x1b[2J\x1b]0;x\x07",
        "\x00",
        "\u202e",
        "\u2028",
        "\ufeff",
        "\U0001f600",
        "\x7f",
        "\x85",
    ),
    *(
        '{"status": 0}',
        "\\",
        "\\u0000",
        "'",
        '"',
        "`",
        "\x01",
        "\x02",
        "NULL",
        "NaN",
        "-0",
        "1e999",
        "9" * 400,
        "\U0010ffff",
        "é́",
    ),
]


class Message(NamedTuple):
    """A delivered message; `offset`: of its half message."""

    offset: int
    topic: str
    tags: str | None
    keys: str | None
    body: bytes
    transaction_id: str


def values(chance: random.Random) -> Iterator[str]:
    while True:
        parts = chance.choices([*NASTY, "x", " ", "~"], k=chance.randint(1, 4))
        yield "".join(parts) if chance.random() < 0.95 else "".join(chr(chance.randrange(1, 0xD800)) for _ in range(40))


def written(folder: Path) -> list[dict[str, Any]]:
    """Half messages with legal topics and without, and a commit for each."""
    chance = random.Random(SEED)
    nasty = values(chance)
    rows = []
    for n in range(NUMBER):
        topic = chance.choice(LEGAL) if n % 2 else next(nasty)
        properties = {
            "UNIQ_KEY": f"{next(nasty)}{n}",
            "PGROUP": next(nasty),
            "REAL_TOPIC": topic,
            "REAL_QID": "1",
            next(nasty): next(nasty),
        }
        body = base64.b64encode(next(nasty).encode()).decode()
        rows.append(half_row(n, properties=properties, tags=next(nasty), keys=next(nasty), body=body))
    (folder / "half.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ops = [op_row(n, ",".join(map(str, range(n, n + 1_000)))) for n in range(0, NUMBER, 1_000)]
    (folder / "op.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ops))
    return rows


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_hostile_values(spark: SparkSession, tmp_path: Path) -> None:
    rows = written(tmp_path)
    warehouse, names = tmp_path / "warehouse", {each.name for each in tmp_path.iterdir()}
    files = ["--half", str(tmp_path / "half.jsonl"), "--op", str(tmp_path / "op.jsonl")]
    at = ["--warehouse", str(warehouse)]
    for command in (["land", "files", *files, *at], ["reconcile", "-v", "--now", str(T0 + 10), *at]):
        status, said = ended(job(*command))
        assert status == 0, said
        assert [line for line in said.splitlines() if not line.isprintable()] == []
        assert json.loads(said.splitlines()[-1])["status"] == 0
    assert {each.name for each in tmp_path.iterdir()} == names | {"warehouse"}, "nothing is written beside it"
    _shown(tmp_path, at, rows)
    found = KernelWarehouse(spark, str(warehouse))
    topics = {row["topic"]: row["directory"] for row in found.rows("topics_index")}
    wanted = deliverable(rows)
    assert set(LEGAL) <= set(topics) == {topic for _, topic, *_ in wanted}, "no illegal name has a table"
    assert {each.name for each in (warehouse / "topics").iterdir()} == set(topics.values())
    assert delivered(found, topics.values()) == wanted


def deliverable(rows: list[dict[str, Any]]) -> Counter[Message]:
    """The messages that RocketMQ could deliver, by the model's reading of topic names: all of them are committed."""
    legal = [row for row in rows if undeliverable(half_of(row)) is None]
    return Counter(
        Message(
            row["queue_offset"],
            row["properties"]["REAL_TOPIC"],
            row["tags"],
            row["keys"],
            base64.b64decode(row["body"]),
            row["properties"]["UNIQ_KEY"],
        )
        for row in legal
    )


def delivered(warehouse: Warehouse, directories: Iterable[str]) -> Counter[Message]:
    columns = ["half_queue_offset", "topic", "tags", "keys", "body", "transaction_id"]
    found = [row for name in directories for row in warehouse.read(f"topics/{name}").select(columns).collect()]
    return Counter(Message(row[0], row[1], row[2], row[3], bytes(row[4]), row[5]) for row in found)


def _shown(folder: Path, at: list[str], rows: list[dict[str, Any]]) -> None:
    """The report, and the lives of some messages, two of them by their UNIQ_KEY."""
    page = folder / "report.html"
    status, said = ended(job("report", "--out", str(page), *at))
    assert status == 0, said
    html = page.read_text(encoding="utf-8")
    own = Tags(render(everything("plain"), Settings(), AT)).found
    assert Tags(html).found <= own
    assert [line for line in html.splitlines() if not line.isprintable()] == []
    # no argument has a NUL, and Spark's launcher takes carriage returns out
    keys = [key for row in rows if not {"\x00", "\r"} & set(key := row["properties"]["UNIQ_KEY"])]
    for wanted in ("b/0/0", "b/0/1", *keys[:2]):
        status, said = ended(job("explain", *at, "--", wanted))
        assert status == 0, said
        assert [line for line in said.splitlines() if not line.isprintable()] == []
        assert json.loads(said.splitlines()[-1])["messages"]


@pytest.mark.slow
def test_secrets_are_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret is in a landing's messages about a broker that refuses it, with -v or without, nor in its tables."""
    secrets = {"ROCKETMQ_SECRET_KEY": "s3cr3t-key", "ROCKETMQ_SECURITY_TOKEN": "s3cr3t-token"}
    for name, value in ({"ROCKETMQ_ACCESS_KEY": "access"} | secrets).items():
        monkeypatch.setenv(name, value)

    with serving(answering(lambda asked: {"code": 1, "remark": f"no permission: {asked.fields['AccessKey']}"})) as at:
        options = ["--broker", at, "--set", "landing.give_up_after=2s", "-v", "--warehouse", str(tmp_path / "w")]
        status, said = ended(job("land", "broker", *options))
    assert status != 0
    assert "no permission" in said
    left = b"".join(path.read_bytes() for path in (tmp_path / "w").rglob("*") if path.is_file())
    assert not any(secret in said or secret.encode() in left for secret in secrets.values())
