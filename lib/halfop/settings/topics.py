"""The settings of the topics' tables: those of all, and those that a topic has of its own."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from halfop.rocketmq.names import is_legal
from halfop.settings.ddl import parsed
from halfop.settings.values import Section

Text = Annotated[str, StringConstraints(min_length=1)]
INFER = "infer"
_BYTES = "base64:"
_MOST_COLUMNS = 4  # of Delta's clustering
_EXPECTED_COLUMNS = f"at most {_MOST_COLUMNS} names of columns with , between, each once, as committed_at,keys"


def _read_columns(value: object) -> object:
    names = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if isinstance(names, list) and len(names) == len({*map(str, names)}) <= _MOST_COLUMNS:
        given = [name for name in names if name != ""]
        if all(isinstance(name, str) and re.fullmatch(r"\w+(\.\w+)*", name) for name in given):
            return given
    raise PydanticCustomError("columns", "{expected}", {"expected": f"expected {_EXPECTED_COLUMNS}"})


Columns = Annotated[list[str], BeforeValidator(_read_columns)]


class ValueSettings(Section):
    """How the bodies of a topic become values in its table: docs/topics.md."""

    format: Literal["json", "avro", "protobuf", "text"] | None = Field(
        default=None,
        description="What the bodies are: the topic's table gets the columns `value` and `value_error`. null: none.",
    )
    schema_: Text | None = Field(
        default=None,
        alias="schema",
        description="json: the fields, as `id BIGINT, at TIMESTAMP`, or `infer`. avro: an .avsc file, or its JSON. "
        "protobuf: a file by `protoc --descriptor_set_out --include_imports`. A path begins at the settings' file.",
    )
    message: Text | None = Field(default=None, description="protobuf: the message's full name, as `shop.Order`.")

    @property
    def infers(self) -> bool:
        """Returns whether the schema is still to be found."""
        return self.format == "json" and self.schema_ == INFER

    @model_validator(mode="after")
    def _is_whole(self) -> ValueSettings:
        if (problem := self._problem()) is not None:
            raise PydanticCustomError("value", "{problem}", {"problem": problem})
        return self

    def _problem(self) -> str | None:
        needed = {"schema": self.format not in (None, "text"), "message": self.format == "protobuf"}
        given = {"schema": self.schema_ is not None, "message": self.message is not None}
        if self.format is None and any(given.values()):
            return "expected format, too: json, avro, protobuf or text"
        for name, is_needed in needed.items():
            if is_needed != given[name]:
                return f"format {self.format} {'needs' if is_needed else 'has no'} {name}"
        if self.format == "json" and not self.infers:
            try:
                parsed(self.schema_ or "")
            except ValueError as error:
                return f"schema: {error}"
        return None


class TopicOverride(Section):
    """The settings of one topic's table."""

    value: ValueSettings = ValueSettings()
    cluster_by: Columns | None = Field(
        default=None,
        description="The columns that readers filter by, at most four, as `committed_at,keys` or `value.id`: "
        "`maintain` lays rows out by them. `[]`: none. null: as the table is.",
    )
    change_feed: bool | None = Field(
        default=None,
        description="Whether the table has a change feed. null: as it is.",
    )


class TopicSettings(Section):
    """The tables of the real topics. Below it each topic may have settings of its own, by its name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, TopicOverride] = Field(init=False)

    layout: Literal["per_topic", "single"] = Field(
        default="per_topic",
        description="`per_topic`: one table a real topic. `single`: one table `real_topics`, for hundreds of topics.",
    )
    threads: int = Field(default=8, ge=1, description="How many topic tables are written at the same time.")
    decompress: bool = Field(
        default=True, description="Whether bodies that producers compressed are written decompressed."
    )

    @property
    def values(self) -> dict[str, ValueSettings]:
        """The topics whose bodies become values."""
        return {topic: each.value for topic, each in self.own.items() if each.value.format}

    @property
    def own(self) -> Mapping[str, TopicOverride]:
        """The topics that have settings of their own."""
        return {topic: each for topic, each in (self.__pydantic_extra__ or {}).items() if each != TopicOverride()}

    @model_validator(mode="after")
    def _fits(self) -> TopicSettings:
        unfit = [name for name in self.__pydantic_extra__ or {} if not is_legal(name)]
        problem = None
        if unfit:
            problem = f"{unfit[0]!r} is no name of a topic: expected letters, digits, %, |, _ and -"
        elif self.layout == "single" and self.own:
            problem = (
                f"layout single has one table for all topics, which cannot have settings of {', '.join(self.own)}: "
                "set layout per_topic, or remove them"
            )
        if problem is not None:
            raise PydanticCustomError("topics", "{problem}", {"problem": problem})
        return self


def schema_content(form: object, given: str, folder: Path) -> str:
    """A schema as a run records it: what a file holds in the place of its path, so that a later change cannot matter.

    OSError and ValueError: it cannot be read.
    """
    if form == "avro" and given.lstrip()[:1] not in ("{", "[", '"'):
        return (folder / Path(given).expanduser()).read_text(encoding="utf-8")
    if form == "protobuf" and not given.startswith(_BYTES):
        return _BYTES + base64.b64encode((folder / Path(given).expanduser()).read_bytes()).decode()
    return given


def schema_bytes(content: str) -> bytes:
    """The bytes of a file that is no text."""
    return base64.b64decode(content.removeprefix(_BYTES))
