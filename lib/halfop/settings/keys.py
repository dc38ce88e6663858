"""Every setting by its path and its environment variable; and docs/settings.md, made of them.

Prints docs/settings.md, and with `yaml` conf/halfop.yaml: python -m halfop.settings.keys [yaml]."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from annotated_types import Ge
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from halfop.settings.model import Settings

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


_INTRO = """\
# Settings

Generated from `lib/halfop/settings/model.py` by `python -m halfop.settings.keys`.

A setting comes from one of these places. A later place wins, key by key:

1. the defaults below;
2. a YAML file: `--config FILE`, else `conf/halfop.yaml`;
3. the environment: `HALFOP_` and the key in capitals with `__` for each dot, as `HALFOP_RULES__TRANSACTION_TIMEOUT=6s`.
   The name of a group or topic keeps its case: `HALFOP_RULES__TOPICS__TopicPayment__TRANSACTION_TIMEOUT=1m`;
4. `--set rules.topics.TopicPayment.transaction_timeout=1m`, repeatable, and options that stand for one setting, as
   `--warehouse` and `--wait`.

A duration is a whole number and its unit: `500ms`, `6s`, `15m`, `72h`, `7d`. An unknown key or variable, a wrong value,
or a key that the file has twice is an error: status 2, and nothing has been touched.

These are no settings: RESERVED, and variables that Kubernetes makes for services named `halfop…`.
"""

_CONFIG_INTRO = """\
# halfop's settings with their defaults. The environment, as HALFOP_RULES__TRANSACTION_TIMEOUT=6s, and --set win over
# this file: docs/settings.md. Generated from lib/halfop/settings/model.py: python -m halfop.settings.keys yaml.
"""

_TYPES = {
    timedelta: "duration",
    int: "whole number",
    bool: "`true` or `false`",
    str: "text",
    list[str]: "names with `,` between",
    dict[str, str]: "texts by name",
}


def _type_text(field: FieldInfo) -> str:
    least = [f", at least {limit.ge}" for limit in field.metadata if isinstance(limit, Ge)]
    null = " or `null`" if NoneType in get_args(field.annotation) else ""
    return "".join([_base_text(type_of(field)), *least, null])


def _base_text(base: Any) -> str:
    if get_origin(base) is Literal:
        return " or ".join(f"`{_yaml(value)}`" for value in get_args(base))
    return _TYPES[base]


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def reference() -> str:
    """docs/settings.md."""
    lines = [_INTRO.replace("RESERVED", ", ".join(f"`{name}`" for name in sorted(RESERVED_VARIABLES)))]
    lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{'.'.join(path)}` | {_type_text(field)} | `{default_text(field)}` | {field.description} |"
        for path, field in KEYS.items()
    ]
    return "\n".join(lines) + "\n"


def _config_lines(model: type[BaseModel], indent: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from ("", f"# {field.annotation.__doc__}", f"{key}:")
            yield from _config_lines(field.annotation, indent + "  ")
        elif is_by_name(field):
            yield f"{indent}# {field.description} As {key}: {default_text(field)}"
            yield f"{indent}{key}: {{}}"
        else:
            yield from (f"{indent}# {field.description}", f"{indent}{key}: {default_text(field)}")


def default_config() -> str:
    """conf/halfop.yaml."""
    return "\n".join([_CONFIG_INTRO, *_config_lines(Settings)]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(default_config() if sys.argv[1:] == ["yaml"] else reference())
