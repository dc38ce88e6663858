"""Reads settings: the defaults, then a YAML file, environment variables and KEY=VALUE overrides."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from halfop.frame.errors import UsageError
from halfop.frame.nearest import nearest
from halfop.settings.home import checkout
from halfop.settings.keys import (
    KEYS,
    RESERVED_VARIABLES,
    SERVICE_LINK,
    Key,
    field_of,
    is_section,
    of_all_topics,
    path_of_variable,
    type_of,
    variable,
    with_name_of,
)
from halfop.settings.model import Settings
from halfop.settings.topics import TopicOverride, schema_content
from halfop.settings.values import names_secret, redacted

_PREFIX = "HALFOP_"  # of every variable, so it makes none like another


class _Loader(yaml.SafeLoader):
    """Refuses what YAML would drop silently: a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.MarkedYAMLError(problem=f"{name} is given twice", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


_EXPECTED = {
    "bool_type": "expected true or false",
    "dict_type": "expected texts by their names, as {user: me}",
    "string_pattern_mismatch": "expected the names of catalog and schema, as lake.halfop",
    "string_too_short": "expected a text",
}


@dataclass(frozen=True)
class _Given:
    value: object
    shown: str
    source: str


class _Layers:
    """Values by path, later layers over earlier ones, and every problem found on the way.

    Paths of schemas that come from `source` begin at its folder.
    """

    def __init__(self, source: str = "") -> None:
        self.source, self.values = source, dict[Key, _Given]()
        self.problems: list[str] = []

    def mapping(self, mapping: Mapping[Any, object], source: str, prefix: Key = ()) -> None:
        """Values by their keys, which may be dotted: no name of a group, topic or table has a dot."""
        for key, value in mapping.items():
            path, parts = (*prefix, str(key)), str(key).split(".")
            is_named = is_section(path) and isinstance(value, Mapping)
            if not isinstance(key, str):
                self.problems.append(f"{'.'.join(path)} ({source}): the name {key!r} is no text: put it in quotes")
            elif len(parts) > 1 and not (is_named and not _is_known((*prefix, *parts))):
                self.mapping(_tree(parts, value), source, prefix)
            else:
                self.value(path, value, source)

    def value(self, path: Key, value: object, source: str) -> None:
        name = ".".join(path)
        if isinstance(value, Mapping) and value.keys() & TopicOverride.model_fields.keys() and of_all_topics(path):
            self.no_topic(path, source)
        elif path in self.values and self.values[path].source == source:
            self.problems.append(f"{name} ({source}): is given twice")
        elif field_of(path) is not None:
            self.values[path] = _Given(value, _shown(value), source)
        elif not is_section(path):
            self.unknown(path, source)
        elif isinstance(value, Mapping):
            self.mapping(value, source, path)
        elif value is not None:
            near = nearest(path[-1], [known[-1] for known in KEYS if known[:-1] == path[:-1]])
            meant = "" if near is None else f"; the nearest known one is {'.'.join((*path[:-1], near))}"
            self.problems.append(f"{name} ({source}): expected settings under it, given {_shown(value)}{meant}")

    def no_topic(self, path: Key, source: str) -> None:
        name = ".".join(path[:2])
        self.problems.append(f"{name} ({source}): is a setting of all topics, so a topic of that name can have none")

    def text(self, path: Key, text: str, source: str) -> None:
        if len(path) > 2 and of_all_topics(path):
            self.no_topic(path, source)
        elif (field := field_of(path)) is not None and type_of(field) is str and not text.strip():
            name = ".".join(path)
            self.problems.append(f"{name} ({source}): expected a text, given nothing: leave it out if none is meant")
        elif field is not None:
            self.values[path] = _Given(_read(text, field), redacted(text), source)
        elif is_section(path):
            self.problems.append(f"{'.'.join(path)} ({source}): has settings under it: give one of those")
        else:
            self.unknown(path, source)

    def variable(self, name: str, text: str) -> None:
        if (path := path_of_variable(name)) is not None:
            self.text(path, text, f"environment variable {name}")
        else:
            near = _near(name.removeprefix(_PREFIX), [variable(known).removeprefix(_PREFIX) for known in KEYS], "__")
            self.problems.append(f"environment variable {name}: unknown; {_told(near and _PREFIX + near)}")

    def override(self, override: str) -> None:
        key, equals, text = override.partition("=")
        if equals:
            self.text(tuple(key.strip().split(".")), text, "--set")
        else:
            shown = redacted(override)
            self.problems.append(f"--set {shown}: expected KEY=VALUE, as --set rules.transaction_timeout=6s")

    def unknown(self, path: Key, source: str) -> None:
        near = _near(".".join(path), [".".join(with_name_of(known, path)) for known in KEYS], ".")
        self.problems.append(f"{'.'.join(path)} ({source}): unknown key; {_told(near)}")

    def read_schemas(self) -> None:
        for path, given in self.values.items():
            if path[0] == "topics" and path[2:] == ("value", "schema") and isinstance(given.value, str):
                form = self.values.get((*path[:-1], "format"))
                folder = Path(self.source).parent if given.source == self.source else Path()
                try:
                    text = schema_content(form and form.value, given.value, folder)
                except (OSError, ValueError) as error:
                    why = getattr(error, "strerror", None) or error
                    self.problems.append(f"{'.'.join(path)} ({given.source}): {given.shown} can't be read: {why}")
                else:
                    self.values[path] = replace(given, value=text)

    def settings(self) -> Settings:
        self.read_schemas()
        tree: dict[str, Any] = {}
        for path, given in self.values.items():
            section = tree
            for part in path[:-1]:
                section = section.setdefault(part, {})
            section[path[-1]] = given.value
        try:
            settings = Settings.model_validate(tree)
        except ValidationError as error:
            self.problems += [self.bad_value(each) for each in error.errors()]
        if self.problems:
            raise UsageError("\n".join(self.problems))
        return settings

    def bad_value(self, error: ErrorDetails) -> str:
        path = tuple(str(part) for part in error["loc"])
        expected = re.sub(r"^(Input should be (a valid )?|String should )", "expected ", error["msg"])
        if path[-1] == "[key]":
            of_rocketmq = "expected a name of RocketMQ: letters, digits, %, |, _ and -"
            expected = of_rocketmq if error["type"] == "string_pattern_mismatch" else expected
            return f"{'.'.join(path[:-1])} ({self.nearest(path[:-1]).source}): {expected}"
        given = self.nearest(path)
        expected = _EXPECTED.get(error["type"], expected)
        may_hold_secrets = error["type"] == "dict_type" or names_secret(path[-1])
        is_shown = given is self.values.get(path) and not may_hold_secrets
        shown = f", given {given.shown or 'nothing'}" if is_shown else ""
        return f"{'.'.join(path)} ({given.source}): {expected}{shown}"

    def nearest(self, path: Key) -> _Given:
        """The value at a path, else one of the section that it is, else one that it is a part of or lacks in."""
        starts = ((path[:n], n) for n in range(len(path), 0, -1))
        return next(given for start, n in starts for known, given in self.values.items() if known[:n] == start)


def _is_known(path: Key) -> bool:
    return field_of(path) is not None or is_section(path)


def _tree(parts: Sequence[str], value: object) -> Mapping[str, object]:
    return {parts[0]: _tree(parts[1:], value) if parts[1:] else value}


def _near(given: str, known: list[str], between: str) -> str | None:
    """The known name that is like the given one as a whole, else one whose last part is; None if there is none."""
    lasts = {name.rpartition(between)[2]: name for name in reversed(known)}
    last = nearest(given.rpartition(between)[2], lasts, cutoff=0.8)
    return nearest(given, known) or (None if last is None else lasts[last])


def _told(near: str | None) -> str:
    return "no known one is like it; docs/settings.md has all" if near is None else f"the nearest known one is {near}"


def _shown(value: object) -> str:
    return "nothing" if value is None else redacted(json.dumps(value, default=str))


_KEPT = {list[str]: str | list, dict[str, str]: str | dict}


def _read(text: str, field: FieldInfo) -> object:
    """A text as YAML reads it, but a number in decimal; as it is if text is wanted, or YAML sees another kind."""
    of = type_of(field)
    if of is str or (get_origin(of) is Literal and all(isinstance(each, str) for each in get_args(of))):
        return None if text == "null" else text
    try:
        value = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError):
        return text
    if of is int and re.fullmatch("[-+]?[0-9]+", text):  # 015 is 13 by YAML, and 1:30 is 90
        return int(text)
    return value if value is None or isinstance(value, _KEPT.get(of, str | bool)) else text


def default_config(environ: Mapping[str, str]) -> tuple[str, bytes]:
    home = checkout(environ)
    if home is not None and (file := home / "conf" / "halfop.yaml").is_file():
        return str(file), file.read_bytes()
    packaged = importlib.resources.files("halfop").joinpath("conf").joinpath("halfop.yaml")
    return str(packaged), packaged.read_bytes() if packaged.is_file() else b""


def _read_config(config: Path | None, environ: Mapping[str, str]) -> tuple[str, Mapping[object, object]]:
    try:
        source, content = default_config(environ) if config is None else (str(config), config.read_bytes())
        mapping = yaml.load(content, _Loader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise UsageError(
            f"{config or 'conf/halfop.yaml'}: can't be read: {error.strerror}; expected a YAML file of settings"
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{source}: no valid YAML: {redacted(str(error))}") from error
    if mapping is not None and not isinstance(mapping, dict):
        raise UsageError(f"{source}: expected settings by key, as `rules:`; given {_shown(mapping)}")
    return source, mapping or {}


def load_settings(
    config: Path | None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    given: Mapping[str, object] | None = None,
) -> Settings:
    """The defaults, then the file, HALFOP_ variables, KEY=VALUE overrides and values that a program gives.

    A UsageError names every problem.
    """
    environ = os.environ if environ is None else environ
    source, mapping = _read_config(config, environ)
    layers = _Layers(source)
    layers.mapping(mapping, source)
    for name in sorted(environ):
        if name.startswith(_PREFIX) and name not in RESERVED_VARIABLES and not SERVICE_LINK.fullmatch(name):
            layers.variable(name, environ[name])
    for override in overrides:
        layers.override(override)
    layers.mapping(given or {}, "settings=")
    return layers.settings()


def changed(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Returns the settings with KEY=VALUE overrides."""
    layers = _Layers()
    layers.mapping(settings.model_dump(exclude_unset=True, by_alias=True), "settings=")
    for override in overrides:
        layers.override(override)
    return layers.settings()


def check_override(key: str, text: str) -> None:
    """Raises UsageError if `text` is no value for the setting `key`."""
    layers = _Layers()
    layers.text(tuple(key.split(".")), text, "command line")
    layers.settings()
