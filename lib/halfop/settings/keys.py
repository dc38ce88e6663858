"""Every setting by its path, and the environment variable that sets it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from halfop.settings.model import Settings
from halfop.settings.topics import TopicOverride, TopicSettings

Key = tuple[str, ...]


def _leaves(model: type[BaseModel], prefix: Key = ()) -> Iterator[tuple[Key, FieldInfo]]:
    for name, field in model.model_fields.items():
        path = (*prefix, field.alias or name)
        if is_by_name(field):
            yield from _leaves(get_args(field.annotation)[1], (*path, f"<{name[:-1]}>"))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, path)
        else:
            yield path, field
    if model is TopicSettings:
        yield from _leaves(TopicOverride, (*prefix, "<topic>"))


def is_by_name(field: FieldInfo) -> bool:
    """Returns whether there is a section under each of some names that the user chooses."""
    kinds = get_args(field.annotation)
    return get_origin(field.annotation) is dict and isinstance(kinds[1], type) and issubclass(kinds[1], BaseModel)


KEYS = dict(_leaves(Settings))
"""Every setting by its path; `<group>`, `<topic>` and `<table>` stand for any name."""

RESERVED_VARIABLES = frozenset(
    {"HALFOP_HOME", "HALFOP_JARS", "HALFOP_JAVA", "HALFOP_TRUST_STORE", "HALFOP_IVY_SETTINGS"}
)
"""The launcher's own: no settings."""

# Kubernetes gives every pod such variables for a service named halfop or halfop-…
SERVICE_LINK = re.compile(
    r"HALFOP_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def type_of(field: FieldInfo) -> Any:
    """A setting's type without null and constraints."""
    options: tuple[Any, ...] = get_args(field.annotation)
    base: Any = options[0] if NoneType in options else field.annotation
    return get_args(base)[0] if get_origin(base) is Annotated else base


def default_text(field: FieldInfo) -> str:
    """Returns a setting's default as YAML writes it."""
    return str(field.examples[0]) if field.examples else yaml.safe_dump(field.default).splitlines()[0]


def _covers(known: Key, path: Key) -> bool:
    return len(path) <= len(known) and all(k == p or k.startswith("<") for k, p in zip(known, path, strict=False))


def field_of(path: Key) -> FieldInfo | None:
    return next((field for known, field in KEYS.items() if len(known) == len(path) and _covers(known, path)), None)


def of_all_topics(path: Key) -> bool:
    """Returns whether the path goes on below a setting of all topics: no topic of that name has settings."""
    return path[0] == "topics" and len(path) > 1 and path[1] in TopicSettings.model_fields


def is_section(path: Key) -> bool:
    return any(len(known) > len(path) and _covers(known, path) for known in KEYS)


def with_name_of(known: Key, path: Key) -> Key:
    """The known path with the group's or topic's name that the given one has in its place."""
    return tuple(path[i] if k.startswith("<") and i < len(path) - 1 else k for i, k in enumerate(known))


def variable(path: Key) -> str:
    """A setting's environment variable; a group's or topic's name stands in it as it is."""
    return "HALFOP_" + "__".join(part if part.startswith("<") else part.upper() for part in path)


def path_of_variable(name: str) -> Key | None:
    for known in KEYS:
        pattern = re.sub(r"<\w+>", "(.+)", variable(known))
        if match := re.fullmatch(pattern, name):
            names = iter(match.groups())
            return tuple(next(names) if part.startswith("<") else part for part in known)
    return None
