"""Prints docs/settings.md, and with `yaml` conf/halfop.yaml: python tools/settings_reference.py [yaml]."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge
from halfop.settings.keys import KEYS, RESERVED_VARIABLES, default_text, is_by_name, type_of
from halfop.settings.model import Settings
from pydantic import BaseModel
from pydantic.fields import FieldInfo

_INTRO = """\
# Settings

Generated from `lib/halfop/settings/model.py` by `python tools/settings_reference.py`.

A setting comes from these places; a later one wins, key by key:

1. the defaults below;
2. a YAML file: `--config FILE`, else `conf/halfop.yaml`, with nested or dotted keys;
3. the environment: `HALFOP_` and the key in capitals with `__` for each dot, as `HALFOP_RULES__TRANSACTION_TIMEOUT=6s`.
   The name of a group or topic keeps its case: `HALFOP_RULES__TOPICS__TopicPayment__TRANSACTION_TIMEOUT=1m`;
4. `--set rules.topics.TopicPayment.transaction_timeout=1m`, repeatable, and options that stand for one setting, as
   `--warehouse` and `--wait`.

A duration is a whole number and its unit: `500ms`, `6s`, `15m`, `72h`, `7d`. An unknown key or variable, a wrong value,
or a key that the file has twice is an error: status 2, nothing touched.

These are no settings: RESERVED, and variables that Kubernetes makes for services named `halfop…`.
"""

_CONFIG_INTRO = """\
# halfop's settings with their defaults. The environment, as HALFOP_RULES__TRANSACTION_TIMEOUT=6s, and --set win over
# this file: docs/settings.md. Generated from lib/halfop/settings/model.py: python tools/settings_reference.py yaml.
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
