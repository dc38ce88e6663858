"""Kinds of values that settings have: durations as people write them, names, texts without a secret; and a section."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints, ValidationInfo
from pydantic_core import PydanticCustomError

from halfop.rocketmq.names import LEGAL_NAME

UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
LONGEST = timedelta(days=36500)  # far inside what an instant minus a duration can be
EXPECTED_DURATION = "a duration: a whole number and its unit, as 500ms, 6s, 15m, 72h or 7d (at most 36500d)"


def parse_duration(text: str) -> timedelta:
    """Returns the duration that a text as `6s` means; a ValueError says what was expected."""
    match = re.fullmatch(r"([0-9]{1,15})(ms|s|m|h|d)", text)
    if match is None or (amount := int(match[1])) > LONGEST // UNITS[match[2]]:
        raise ValueError(f"expected {EXPECTED_DURATION}")
    return amount * UNITS[match[2]]


def duration_text(duration: timedelta) -> str:
    """The shortest text that means exactly this duration."""
    unit, size = next((u, s) for u, s in UNITS.items() if not duration % s and (duration or u == "s"))
    return f"{duration // size}{unit}"


def _read_duration(value: object) -> timedelta:
    if isinstance(value, timedelta) and timedelta(0) <= value <= LONGEST and not value % UNITS["ms"]:
        return value
    try:
        return parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise PydanticCustomError("duration", "{expected}", {"expected": str(error)}) from None


Duration = Annotated[timedelta, BeforeValidator(_read_duration), PlainSerializer(duration_text, return_type=str)]


RECORDED = "recorded"  # the context of settings of an earlier run, which a version may have let pass
_MOST = 2**31 - 1  # of a column


def _at_most(value: object, info: ValidationInfo) -> object:
    return min(value, _MOST) if info.context == RECORDED and isinstance(value, int) else value


Limit = Annotated[int, BeforeValidator(_at_most), Field(le=_MOST)]


# Names that end with `id` name no secret, but where one is kept.
_NAME = r"(?:passw|passphrase|pwd|token|secret|credential|(?:access|account|api|private|shared)[_-]?key)[\w.-]*(?<!id)"
_NAMED = re.compile(rf"(?i){_NAME}$")
_SECRETS = tuple(
    re.compile("(?i)" + form)
    for form in (
        rf"({_NAME}\s*=\s*)[^;&,)}}@\"\s]*",  # name=value of a URL
        rf"""({_NAME}(?:\\*["']\s*:\s*|\s*:\s+))(?:"(?:[^"\\]|\\.)*|.*)""",  # of JSON or YAML
        r"(s3[an]?://[^/@]*:).*(?=@)",  # a key of S3's, which may have a /
        r"(://[^/@\s]*:(?!\d+[/;?,]))(?:[^]?;&=\s]*|[^/\s]*)(?=@)",  # user:password before a host; no port
        r"(:thin:[^/@]+/)[^@]*(?=@)",  # Oracle's user/password
    )
)


def names_secret(name: str) -> bool:
    """Returns whether a value of this name is a secret."""
    return bool(_NAMED.search(name))


def holds_secret(text: str) -> bool:
    """Returns whether a URL has a password or a token in it."""
    return any(form.search(text) for form in _SECRETS)


def redacted(text: str) -> str:
    """Returns a text to show, with *** in place of what is secret."""
    for form in _SECRETS:
        text = form.sub(r"\1***", text)
    return text


RocketName = Annotated[str, StringConstraints(pattern=f"^{LEGAL_NAME}$")]


def _names(pattern: str, expected: str) -> BeforeValidator:
    def read(value: object) -> object:
        names = [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value
        if isinstance(names, list) and all(isinstance(each, str) and re.fullmatch(pattern, each) for each in names):
            return names
        raise PydanticCustomError("names", "{expected}", {"expected": f"expected names with , between{expected}"})

    return BeforeValidator(read)


Names = Annotated[list[str], _names(LEGAL_NAME, ": letters, digits, %, |, _ and -")]
BrokerNames = Annotated[list[str], _names("[^,]+", "")]  # a broker is named as its machine, if by nobody


def _read_ask(value: object) -> object:
    if value == "auto" or isinstance(value, bool):
        return value
    raise PydanticCustomError("ask", "expected auto, true or false")


Ask = Annotated[Literal["auto", True, False], BeforeValidator(_read_ask)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def duration(default: str, doc: str) -> Any:
    """Returns a field for a duration."""
    return Field(default=parse_duration(default), description=doc, examples=[default])


def like(pattern: str, expected: str) -> Callable[[str], str]:
    """Returns a validator of texts that fit the pattern as a whole."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError("text", "expected {expected}", {"expected": expected})
        return text

    return check


# ---- settings as a run records them: one line, which later versions read, too ----


# A group's null in a record is a limit that was not given: earlier versions recorded it so.
_NO_LIMIT = "no limit"


def as_line(settings: dict[str, Any], unlimited: Collection[str]) -> str:
    """Returns one stable line, in which groups that are asked without a limit differ from the others."""
    for group in unlimited:
        settings["rules"]["groups"][group]["checks_a_run"] = _NO_LIMIT
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))


def of_line(text: str) -> Any:
    """Returns what was recorded; a run of an older version stays as it was, without limits that it could not have."""
    recorded = json.loads(text)
    if isinstance(recorded, dict) and isinstance(rules := recorded.get("rules"), dict):
        _restore_limits(rules.get("groups", {}))
    return recorded


def _restore_limits(groups: Mapping[str, dict[str, object]]) -> None:
    for own in groups.values():
        limit = own.pop("checks_a_run", None)
        if limit is not None:
            own["checks_a_run"] = None if limit == _NO_LIMIT else limit
