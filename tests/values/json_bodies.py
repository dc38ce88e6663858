"""Generated bodies of JSON: sound ones, and every fault that a producer may have."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

from halfop.settings.ddl import Kind

SCHEMA = (
    "t TINYINT, s SMALLINT, i INT, id BIGINT, f FLOAT, x DOUBLE, price DECIMAL(9,2), big DECIMAL(38,18), name STRING, "
    "ok BOOLEAN, raw BINARY, day DATE, at TIMESTAMP, `名` STRING, tags ARRAY<STRING>, counts MAP<STRING, INT>, "
    "items ARRAY<STRUCT<sku: STRING, n: INT, sold: ARRAY<TIMESTAMP>>>, `in` STRUCT<`in`: STRUCT<price: DECIMAL(9,2)>>"
)
TEXTS = ["", "a", "né", "订单 😀", '"\\/\b\n', "\x00", "x" * 300, "null", "1", "\u2028", "e\u0301"]
NUMBERS = ["0", "-0", "7", "-1", "127", "128", "-32769", "2147483647", "2147483648", "-9223372036854775808", "1e2"]
NUMBERS += [
    "9223372036854775808",
    "1.5",
    "0.1",
    "1E-3",
    "3.4028235e38",
    "1e39",
    "1e308",
    "1e400",
    "12345678901234567890",
]
NUMBERS += ["9" * 400, "9" * 5000, "1234567.89", "1234567.891", "12345678.9", "0.000000000000000001", "1.50000", "-0.0"]
# beyond Decimal's own exponents
NUMBERS += ["1e1000000000000000000", "0e1000000000000000000", "-1.5E-1000000000000000000"]
TIMES = ["2026-01-31T09:30:00Z", "2026-01-31T09:30:00.123456+08:00", "2026-01-31 09:30:00", "0001-01-01T00:00:00+10:00"]
TIMES += ["2026-02-30T00:00:00Z", "2026-01-31", "yesterday", "9999-12-31T23:59:59.999999Z", "2026-01-31T24:00:00Z"]
RAW = [base64.b64encode(text.encode()).decode() for text in TEXTS] + ["aGk", "a b=", "===="]
FOREIGN = ['"x"', "null", "true", "[]", "{}", '[{"a":[1,{}]}]', "1e999", '{"id":"no"}', '"\\ud83d\\ude00"', '"\\ud83d"']


def bodies(chance: random.Random, kind: Kind, number: int) -> Iterator[bytes]:
    for n in range(number):
        faults = chance.choice([0.0, 0.0, 0.02, 0.2])
        body = _struct(chance, kind, faults).encode()
        yield (_spoilt(chance, body) if n % 10 == 9 else _odd(chance) if n % 100 == 50 else body)


def _odd(chance: random.Random) -> bytes:
    deep = chance.choice([150, 200, 201, 5000])
    odd = [b"", b" ", b"null", b"[]", b'"x"', b"1", b"{}", b" {} \n", b"\xef\xbb\xbf{}", b"{} {}", b"NaN", b'{"x":NaN}']
    odd += [
        b'{"other":' + b"[" * deep + b"]" * deep + b"}",
        b'{"tags":[' + b'"[",' * 3000 + b'"{"]}',
        b'{"name":"\xff"}',
    ]
    odd += [b'{"other":"\xff"}', b"{'id':1}", b'{"id":01}', b'{"id":1,}', b'{"id":+1}', b'{"name":"a\tb"}']
    return chance.choice(odd)


def _spoilt(chance: random.Random, body: bytes) -> bytes:
    at = chance.randrange(len(body) + 1)
    return body[:at] + chance.choice([b"", b"\xff", b",", b'"', b"}", b"0", b"\\"]) + body[at + chance.randrange(2) :]


def _struct(chance: random.Random, kind: Kind, faults: float) -> str:
    names = [name for name, _ in kind.fields if chance.random() < 0.7]
    names += chance.choices(names, k=1) if names and chance.random() < 0.1 else []
    fields = dict(kind.fields)
    pairs = [f"{_text(chance, name)}:{_any(chance, fields[name], faults)}" for name in names]
    pairs += [f'"other{n}":{chance.choice(FOREIGN)}' for n in range(chance.choice([0, 0, 1, 2]))]
    chance.shuffle(pairs)
    return f"{{{chance.choice([',', ' , '])[0:3].join(pairs)}}}"


def _text(chance: random.Random, text: str) -> str:
    return json.dumps(text, ensure_ascii=chance.random() < 0.5)


def _any(chance: random.Random, kind: Kind, faults: float) -> str:
    if chance.random() < 0.1:
        return "null"
    if chance.random() < faults:
        return chance.choice([*FOREIGN, chance.choice(NUMBERS), _text(chance, chance.choice([*TEXTS, *TIMES, *RAW]))])
    return _fit(chance, kind, faults)


def _fit(chance: random.Random, kind: Kind, faults: float) -> str:
    if kind.name == "STRUCT":
        return _struct(chance, kind, faults)
    if kind.name == "ARRAY":
        return f"[{','.join(_any(chance, kind.parts[0], faults) for _ in range(chance.choice([0, 1, 3])))}]"
    if kind.name == "MAP":
        names = [*chance.sample(TEXTS, chance.choice([0, 1, 3])), "a"]
        return f"{{{','.join(f'{_text(chance, name)}:{_any(chance, kind.parts[0], faults)}' for name in names)}}}"
    return _scalar(chance, kind.name)


def _scalar(chance: random.Random, name: str) -> str:
    made: dict[str, Any] = {
        "STRING": lambda: _text(chance, chance.choice(TEXTS)),
        "BOOLEAN": lambda: chance.choice(["true", "false"]),
        "BINARY": lambda: _text(chance, chance.choice(RAW[:-3])),
        "DATE": lambda: _text(chance, chance.choice(["2026-01-31", "0001-01-01", "9999-12-31"])),
        "TIMESTAMP": lambda: chance.choice([_text(chance, chance.choice(TIMES[:3])), "1769851800123", "-1"]),
        "DECIMAL": lambda: chance.choice(["1234567.89", '"-0.10"', "5", "1.5e3", "0", "1.50000"]),
        "FLOAT": lambda: chance.choice(["0.1", "-1", "3.4e38"]),
        "DOUBLE": lambda: chance.choice(["0.1", "1e308", "-5e-324", "12345678901234567890"]),
    }
    return str(made[name]()) if name in made else str(chance.randrange(-128, 128))
