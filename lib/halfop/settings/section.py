"""What the models of settings are made of: a section, durations, and texts of a certain form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from halfop.settings.durations import parse_duration

RocketName = Annotated[str, StringConstraints(pattern=r"^[%|a-zA-Z0-9_-]+$")]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def duration(default: str, doc: str) -> Any:
    return Field(default=parse_duration(default), description=doc, examples=[default])


def like(pattern: str, expected: str) -> Callable[[str], str]:
    """Returns a validator of texts that fit the pattern as a whole."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError("text", "expected {expected}", {"expected": expected})
        return text

    return check
