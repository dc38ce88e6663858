"""The parts of the models of settings: a section, durations, and texts of a certain form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from halfop.rocketmq.names import LEGAL_NAME, is_legal
from halfop.settings.values import parse_duration

RocketName = Annotated[str, StringConstraints(pattern=f"^{LEGAL_NAME}$")]


def _read_names(value: object) -> object:
    names = [each.strip() for each in value.split(",") if each.strip()] if isinstance(value, str) else value
    if isinstance(names, list) and all(isinstance(each, str) and is_legal(each) for each in names):
        return names
    raise PydanticCustomError("names", "expected names with , between: letters, digits, %, |, _ and -")


Names = Annotated[list[str], BeforeValidator(_read_names)]


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
