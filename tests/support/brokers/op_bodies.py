"""The table of cases for an op message's body."""

from __future__ import annotations

LONG_MAX = 2**63 - 1

NUMBERS = {
    "3": 3,
    "+3": 3,
    "03": 3,
    "-0": 0,
    str(LONG_MAX): LONG_MAX,
    "0" * 30 + "7": 7,
    str(LONG_MAX + 1): None,
    "-1": None,
    " 3": None,
    "3 ": None,
    "3\n": None,
    "3.0": None,
    "3e0": None,
    "3L": None,
    "0x3": None,
    "+": None,
    "+-3": None,
    "": None,
    "abc": None,
    "\u0663": None,  # a digit, but not of ASCII
}

# body, tag, item, half_offset, outcome, outcomes → the rows (item, body, half_offset, outcome)
BODIES: list[tuple[tuple[object, ...], list[tuple[object, ...]]]] = [
    (("5", "d", None, None, "COMMIT", None), [(0, "5", 5, "COMMIT")]),
    (("5,6,", "d", None, None, "COMMIT", None), [(0, "5", 5, "COMMIT"), (1, "6", 6, "COMMIT")]),
    ((",,5,, 6,x,", "d", None, None, None, None), [(0, "5", 5, None), (1, " 6", None, None), (2, "x", None, None)]),
    (
        ("5,+6,7", "d", None, None, "COMMIT", {"6": "ROLLBACK", "7": "odd"}),
        [(0, "5", 5, "COMMIT"), (1, "+6", 6, "ROLLBACK"), (2, "7", 7, "odd")],
    ),
    (("05", "d", None, None, None, {"05": "ROLLBACK"}), [(0, "05", 5, "ROLLBACK")]),
    ((None, "d", None, None, "COMMIT", None), [(0, None, None, "COMMIT")]),
    (("", "d", None, None, "COMMIT", None), [(0, "", None, "COMMIT")]),
    ((",,", "d", None, None, "COMMIT", None), [(0, ",,", None, "COMMIT")]),
    (("5,6", "x", None, None, "COMMIT", None), [(0, "5,6", None, "COMMIT")]),
    (("5", None, None, None, "COMMIT", None), [(0, "5", None, "COMMIT")]),
    (("5,6", "d", 4, None, "COMMIT", None), [(4, "5,6", None, "COMMIT")]),
    (("+5", "d", 4, None, "COMMIT", None), [(4, "+5", 5, "COMMIT")]),
    (("5", "d", 4, 9, "COMMIT", {"9": "ROLLBACK"}), [(4, "5", 9, "ROLLBACK")]),
    ((None, "d", 4, 9, "COMMIT", None), [(4, None, 9, "COMMIT")]),
    (("5", "d", 4, -9, "COMMIT", None), [(4, "5", None, "COMMIT")]),
    (("5", "d", None, 9, "COMMIT", None), [(0, "5", 5, "COMMIT")]),
]
