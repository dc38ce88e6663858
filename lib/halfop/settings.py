"""The settings: each one's name, type, default and doc, and how file, environment and command line make them.

`python -m halfop.settings` prints docs/settings.md, `python -m halfop.settings yaml` conf/halfop.yaml.
"""

from __future__ import annotations

import difflib
import importlib.resources
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from annotated_types import Ge
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from halfop.errors import HalfopError, UsageError

# ---- durations ----

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
    """`6s` and the like; a ValueError says what was expected."""
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

# ---- the model ----

RocketName = Annotated[str, StringConstraints(pattern=r"^[%|a-zA-Z0-9_-]+$")]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _duration(default: str, doc: str) -> Any:
    return Field(default=parse_duration(default), description=doc, examples=[default])


class RuleOverride(_Section):
    """What one group or topic has of its own; a topic's wins over a group's, null is the general setting."""

    transaction_timeout: Duration | None = Field(default=None, description="Its own `rules.transaction_timeout`.")
    transaction_check_max: int | None = Field(default=None, ge=0, description="Its own `rules.transaction_check_max`.")


class RuleSettings(_Section):
    """The rules, with RocketMQ's names. A change holds from the next run; `reconcile --dry-run` tells what it does."""

    transaction_timeout: Duration = _duration(
        "6s", "How long a message without a check immunity of its own is left alone before its producer is asked."
    )
    transaction_check_max: int = Field(
        default=15, ge=0, description="How often a producer is asked before the message is given up."
    )
    transaction_check_interval: Duration = _duration(
        "60s", "The least time between two questions about a message, and after the last one until it is given up."
    )
    file_reserved_time: Duration = _duration("72h", "The age from which an open message is given up unasked.")
    ask: bool = Field(
        default=True,
        description="Whether halfop asks and gives up. false: only observe, where a real broker checks by itself.",
    )
    groups: dict[RocketName, RuleOverride] = Field(default={}, description="Overrides by producer group.")
    topics: dict[RocketName, RuleOverride] = Field(default={}, description="Overrides by real topic.")


class Tls(_Section):
    """Encrypted connections to name servers and brokers (PEM files)."""

    enabled: bool = Field(default=False, description="Whether they expect TLS.")
    ca_file: str | None = Field(default=None, description="Who vouches for them. null: the system's authorities.")
    certificate: str | None = Field(default=None, description="Our own certificate, where they ask for one.")
    key: str | None = Field(default=None, description="The key of our own certificate.")
    verify: bool = Field(default=True, description="Whether their certificates are checked.")
    check_hostname: bool = Field(default=True, description="Whether their names are checked, too.")


class Landing(_Section):
    """Landing from a broker or its store."""

    op_lag: Duration = _duration(
        "5s",
        "How far behind its newest record an op log counts as complete: RocketMQ 5 holds op messages for up to 3 s.",
    )
    in_flight: int = Field(default=16, ge=1, description="Requests under way to a live broker in one connection.")
    connect_timeout: Duration = _duration("5s", "How long a connection to a live broker may take.")
    answer_timeout: Duration = _duration("15s", "How long a live broker may take for an answer.")
    give_up_after: Duration = _duration("60s", "How long one request is tried again, reconnecting included.")


class Topics(_Section):
    """The tables of the real topics."""

    layout: Literal["per_topic", "single"] = Field(
        default="per_topic",
        description="One table a real topic, or all topics in one table `real_topics`: for hundreds of topics.",
    )
    threads: int = Field(default=8, ge=1, description="How many topic tables are written at the same time.")
    decompress: bool = Field(
        default=False, description="Whether bodies that producers compressed are written as they were before."
    )


class Run(_Section):
    """A run of reconcile."""

    max_rows: int | None = Field(
        default=None, ge=1, description="A larger backlog is worked off in slices of this many half rows. null: in one."
    )


class Retention(_Section):
    """What `maintain` keeps; `waits` and `landed` may be null: for ever."""

    verify: Duration = _duration(
        "30d", "How long a run stays verifiable (`reconcile --verify`): the versions that it read are kept that long."
    )
    files: Duration = _duration(
        "7d",
        "How long files that no version needs are kept, at least: longer than any job runs or pauses.",
    )
    waits: Duration | None = Field(
        default=parse_duration("30d"),
        description="How long a run's WAIT and EARLY_OP rows are kept; at least as long as it stays verifiable.",
        examples=["30d"],
    )
    landed: Duration | None = Field(
        default=parse_duration("90d"),
        description="How long landed rows are kept after their transactions have ended, landing by landing.",
        examples=["90d"],
    )


def _like(pattern: str, expected: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError("text", "expected {expected}", {"expected": expected})
        return text

    return check


# Settings are recorded with every run: no place for a password.
_URL = _like(r"https?://[^\s@?#]+", "a URL without user and password, as http://push:9091")
_NAME = _like(r"[a-zA-Z0-9_-]{1,60}", "letters, digits, _ and -")


class Metrics(_Section):
    """What a job tells Prometheus when it has ended: docs/observability.md."""

    folder: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None,
        description="The folder of node_exporter's textfile collector: each command keeps a file in it. null: none.",
    )
    push_gateway: Annotated[str, AfterValidator(_URL)] | None = Field(
        default=None, description="A push gateway's URL, as `http://push:9091`. null: none."
    )
    name: Annotated[str, AfterValidator(_NAME)] = Field(
        default="halfop",
        description="Tells them from another warehouse's, or another schedule's: a label, and in the file's name.",
    )


class Catalog(_Section):
    """Where tables have names."""

    schema_: Annotated[str, StringConstraints(pattern=r"^[\w-]+(\.[\w-]+)?$")] | None = Field(
        default=None,
        alias="schema",
        description="The schema of Spark's catalog that gets all tables by name. null: they are paths alone.",
    )


class Lock(_Section):
    """The lock of a warehouse on a local disk."""

    wait: Duration = _duration("0s", "How long to wait for another process that holds the warehouse, before status 4.")


class Settings(_Section):
    """All settings of a job; recorded with every run."""

    warehouse: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="The root of all tables: a URI or a path. null: `warehouse/` in the checkout."
    )
    rules: RuleSettings = RuleSettings()
    landing: Landing = Landing()
    tls: Tls = Tls()
    topics: Topics = Topics()
    run: Run = Run()
    retention: Retention = Retention()
    catalog: Catalog = Catalog()
    metrics: Metrics = Metrics()
    lock: Lock = Lock()

    @property
    def warehouse_root(self) -> str:
        """The warehouse as a URI or an absolute path."""
        if self.warehouse is None:
            if (home := checkout(os.environ)) is None:
                raise UsageError("which warehouse? There is no checkout here to hold one: name it with --warehouse URI")
            return str(home.absolute() / "warehouse")
        if scheme := re.match(r"(?i)s3n?:", self.warehouse):
            raise UsageError(f"--warehouse {self.warehouse}: give it as s3a:, where commits are safe, not {scheme[0]}")
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", self.warehouse):
            return self.warehouse.rstrip("/")
        return str(Path(self.warehouse).expanduser().absolute())

    def as_json(self) -> str:
        """One stable line: equal settings give equal text."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        try:
            return cls.model_validate(json.loads(text))
        except ValueError as error:
            raise HalfopError(
                f"recorded settings that this version of halfop can't read: {error}\nuse the version that wrote them"
            ) from error


# ---- the keys ----

Key = tuple[str, ...]


def _leaves(model: type[BaseModel], prefix: Key = ()) -> Iterator[tuple[Key, FieldInfo]]:
    for name, field in model.model_fields.items():
        path = (*prefix, field.alias or name)
        if get_origin(field.annotation) is dict:
            yield from _leaves(get_args(field.annotation)[1], (*path, f"<{name[:-1]}>"))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, path)
        else:
            yield path, field


KEYS = dict(_leaves(Settings))
"""Every setting by its path; `<group>` and `<topic>` stand for any name."""

RESERVED_VARIABLES = frozenset(
    {"HALFOP_HOME", "HALFOP_JARS", "HALFOP_JAVA", "HALFOP_TRUST_STORE", "HALFOP_IVY_SETTINGS"}
)
"""The launcher's own: no settings."""

# Kubernetes gives every pod such variables for a service named halfop or halfop-…
_SERVICE_LINK = re.compile(
    r"HALFOP_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def _type(field: FieldInfo) -> Any:
    """A setting's type without null and constraints."""
    options: tuple[Any, ...] = get_args(field.annotation)
    base: Any = options[0] if NoneType in options else field.annotation
    return get_args(base)[0] if get_origin(base) is Annotated else base


def _covers(known: Key, path: Key) -> bool:
    return len(path) <= len(known) and all(k == p or k.startswith("<") for k, p in zip(known, path, strict=False))


def _field(path: Key) -> FieldInfo | None:
    return next((field for known, field in KEYS.items() if len(known) == len(path) and _covers(known, path)), None)


def _is_section(path: Key) -> bool:
    return any(len(known) > len(path) and _covers(known, path) for known in KEYS)


def _nearest(wrong: str, known: Iterator[str]) -> str:
    names = list(known)
    lowered = [name.lower() for name in names]
    return names[lowered.index(difflib.get_close_matches(wrong.lower(), lowered, n=1, cutoff=0.0)[0])]


def _with_name_of(known: Key, path: Key) -> Key:
    """The known path with the group's or topic's name that the given one has in its place."""
    return tuple(path[i] if k.startswith("<") and i < len(path) - 1 else k for i, k in enumerate(known))


def variable(path: Key) -> str:
    """A setting's environment variable; a group's or topic's name stands in it as it is."""
    return "HALFOP_" + "__".join(part if part.startswith("<") else part.upper() for part in path)


def _path_of_variable(name: str) -> Key | None:
    for known in KEYS:
        pattern = re.sub(r"<\w+>", "(.+)", variable(known))
        if match := re.fullmatch(pattern, name):
            names = iter(match.groups())
            return tuple(next(names) if part.startswith("<") else part for part in known)
    return None


# ---- loading ----


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
    "string_pattern_mismatch": "expected the names of catalog and schema, as lake.halfop",
    "string_too_short": "expected a text",
}


@dataclass(frozen=True)
class _Given:
    value: object
    shown: str
    source: str


class _Layers:
    """Values by path, later layers over earlier ones, and every problem found on the way."""

    def __init__(self) -> None:
        self.values: dict[Key, _Given] = {}
        self.problems: list[str] = []

    def mapping(self, mapping: Mapping[object, object], source: str, prefix: Key = ()) -> None:
        for key, value in mapping.items():
            path = (*prefix, str(key))
            if not isinstance(key, str):
                self.problems.append(
                    f"{'.'.join(path)} ({source}): YAML reads the name {key!r} as no text: put it in quotes"
                )
            elif _field(path) is not None:
                self.values[path] = _Given(value, _shown(value), source)
            elif not _is_section(path):
                self.unknown(path, source)
            elif isinstance(value, Mapping):
                self.mapping(value, source, path)
            elif value is not None:
                self.problems.append(f"{'.'.join(path)} ({source}): expected settings under it, given {_shown(value)}")

    def text(self, path: Key, text: str, source: str) -> None:
        if (field := _field(path)) is not None:
            self.values[path] = _Given(_scalar(text, field), text, source)
        elif _is_section(path):
            self.problems.append(f"{'.'.join(path)} ({source}): has settings under it: give one of those")
        else:
            self.unknown(path, source)

    def variable(self, name: str, text: str) -> None:
        if (path := _path_of_variable(name)) is not None:
            self.text(path, text, f"environment variable {name}")
        else:
            nearest = _nearest(name, (variable(known) for known in KEYS))
            self.problems.append(f"environment variable {name}: unknown; the nearest known one is {nearest}")

    def override(self, override: str) -> None:
        key, equals, text = override.partition("=")
        if equals:
            self.text(tuple(key.strip().split(".")), text, "--set")
        else:
            self.problems.append(f"--set {override}: expected KEY=VALUE, as --set rules.transaction_timeout=6s")

    def unknown(self, path: Key, source: str) -> None:
        nearest = _nearest(".".join(path), (".".join(_with_name_of(known, path)) for known in KEYS))
        self.problems.append(f"{'.'.join(path)} ({source}): unknown key; the nearest known one is {nearest}")

    def settings(self) -> Settings:
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
        if path[-1] == "[key]":
            source = next(given.source for known, given in self.values.items() if known[: len(path) - 1] == path[:-1])
            return f"{'.'.join(path[:-1])} ({source}): expected a name of RocketMQ: letters, digits, %, |, _ and -"
        given = self.values[path]
        expected = re.sub(r"^(Input should be (a valid )?|String should )", "expected ", error["msg"])
        expected = _EXPECTED.get(error["type"], expected)
        return f"{'.'.join(path)} ({given.source}): {expected}, given {given.shown or 'nothing'}"


def _shown(value: object) -> str:
    return "nothing" if value is None else json.dumps(value, default=str)


def _scalar(text: str, field: FieldInfo) -> object:
    """A text as YAML reads it; as it is where text is wanted or YAML sees more than a scalar."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if value is None:
        return None
    wants_text = _type(field) is str or get_origin(_type(field)) is Literal
    return value if isinstance(value, str | bool | int | float) and not wants_text else text


def checkout(environ: Mapping[str, str]) -> Path | None:
    """HALFOP_HOME, else the checkout this file lies in; None where halfop runs from a zip or an installed package."""
    if environ.get("HALFOP_HOME"):
        return Path(environ["HALFOP_HOME"])
    lib = Path(__file__).absolute().parents[1]
    return lib.parent if lib.name == "lib" and lib.parent.joinpath("conf").is_dir() else None


def _default_config(environ: Mapping[str, str]) -> tuple[str, bytes]:
    home = checkout(environ)
    if home is not None and (file := home / "conf" / "halfop.yaml").is_file():
        return str(file), file.read_bytes()
    packaged = importlib.resources.files("halfop").joinpath("conf").joinpath("halfop.yaml")
    return str(packaged), packaged.read_bytes() if packaged.is_file() else b""


def _read_config(config: Path | None, environ: Mapping[str, str]) -> tuple[str, Mapping[object, object]]:
    try:
        source, content = _default_config(environ) if config is None else (str(config), config.read_bytes())
        mapping = yaml.load(content, _Loader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise UsageError(
            f"{config or 'conf/halfop.yaml'}: can't be read: {error.strerror}; expected a YAML file of settings"
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{source}: no valid YAML: {error}") from error
    if mapping is not None and not isinstance(mapping, dict):
        raise UsageError(f"{source}: expected settings by key, as `rules:`; given {_shown(mapping)}")
    return source, mapping or {}


def load_settings(
    config: Path | None, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Settings:
    """The defaults, then the file, HALFOP_ variables and KEY=VALUE overrides; a UsageError names every problem."""
    environ = os.environ if environ is None else environ
    layers = _Layers()
    source, mapping = _read_config(config, environ)
    layers.mapping(mapping, source)
    for name in sorted(environ):
        if name.startswith("HALFOP_") and name not in RESERVED_VARIABLES and not _SERVICE_LINK.fullmatch(name):
            layers.variable(name, environ[name])
    for override in overrides:
        layers.override(override)
    return layers.settings()


def check_override(key: str, text: str) -> None:
    """A UsageError where `text` is no value for the setting `key`."""
    layers = _Layers()
    layers.text(tuple(key.split(".")), text, "command line")
    layers.settings()


# ---- the reference ----

_EXAMPLES = {"groups": "payment_group", "topics": "TopicPayment"}

_INTRO = """\
# Settings

Generated from `lib/halfop/settings.py` by `python -m halfop.settings`.

Later ones win, key by key:

1. the defaults below;
2. a YAML file: `--config FILE`, else `conf/halfop.yaml`;
3. environment variables: `HALFOP_` and the key in capitals with `__` for each dot, as
   `HALFOP_RULES__TRANSACTION_TIMEOUT=6s` or `HALFOP_WAREHOUSE=s3a://lake/halfop`. The name of a group or topic stands
   in it as it is: `HALFOP_RULES__TOPICS__TopicPayment__TRANSACTION_TIMEOUT=1m`;
4. `--set KEY=VALUE`, as `--set rules.topics.TopicPayment.transaction_timeout=1m`, repeatable; and the options that
   stand for one setting, as `--warehouse` and `--wait`.

A duration is a whole number and its unit: `500ms`, `6s`, `15m`, `72h`, `7d`. An unknown key or variable, a wrong value
or a key given twice in the file is an error: status 2, and nothing has been touched.

These variables are no settings: RESERVED; and those that Kubernetes makes for services named `halfop…`.
"""

_CONFIG_INTRO = """\
# halfop's settings with their defaults. The environment, as HALFOP_RULES__TRANSACTION_TIMEOUT=6s, and --set win over
# this file: docs/settings.md. Made from lib/halfop/settings.py by `python -m halfop.settings yaml`.
"""


def _type_text(field: FieldInfo) -> str:
    base = _type(field)
    if get_origin(base) is Literal:
        text = " or ".join(f"`{value}`" for value in get_args(base))
    else:
        text = {timedelta: "duration", int: "whole number", bool: "`true` or `false`", str: "text"}[base]
    least = [f", at least {limit.ge}" for limit in field.metadata if isinstance(limit, Ge)]
    return text + "".join(least) + (" or `null`" if NoneType in get_args(field.annotation) else "")


def _default_text(field: FieldInfo) -> str:
    return str(field.examples[0]) if field.examples else yaml.safe_dump(field.default).splitlines()[0]


def reference() -> str:
    """docs/settings.md."""
    lines = [_INTRO.replace("RESERVED", ", ".join(f"`{name}`" for name in sorted(RESERVED_VARIABLES)))]
    lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{'.'.join(path)}` | {_type_text(field)} | `{_default_text(field)}` | {field.description} |"
        for path, field in KEYS.items()
    ]
    return "\n".join(lines) + "\n"


def _config_lines(model: type[BaseModel], indent: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from ("", f"# {field.annotation.__doc__}", f"{key}:")
            yield from _config_lines(field.annotation, indent + "  ")
        elif get_origin(field.annotation) is dict:
            yield f"{indent}# {field.description} As {key}: {{{_EXAMPLES[key]}: {{transaction_timeout: 1m}}}}"
            yield f"{indent}{key}: {{}}"
        else:
            yield from (f"{indent}# {field.description}", f"{indent}{key}: {_default_text(field)}")


def default_config() -> str:
    """conf/halfop.yaml."""
    return "\n".join([_CONFIG_INTRO, *_config_lines(Settings)]) + "\n"


if __name__ == "__main__":
    print(default_config() if sys.argv[1:] == ["yaml"] else reference(), end="")
