"""The settings: each one's name, type, default and documentation."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from halfop.frame.errors import HalfopError, UsageError
from halfop.settings.business import ResolveSettings
from halfop.settings.gateway import GatewaySettings
from halfop.settings.home import checkout
from halfop.settings.topics import TopicSettings
from halfop.settings.values import (
    RECORDED,
    Ask,
    BrokerNames,
    Duration,
    Limit,
    RocketName,
    Section,
    as_line,
    duration,
    holds_secret,
    like,
    of_line,
    parse_duration,
    redacted,
)

Count = Literal["auto", "written", "delivered"]


class RuleOverride(Section):
    """The settings of one group or topic; a topic's win over a group's, and null means the general setting."""

    transaction_timeout: Duration | None = Field(
        default=None, description="`rules.transaction_timeout` for this one alone."
    )
    transaction_check_max: Limit | None = Field(
        default=None, ge=0, description="`rules.transaction_check_max` for this one alone."
    )


class GroupOverride(RuleOverride):
    """The settings of one producer group."""

    checks_a_run: Limit | None = Field(
        default=None,
        ge=0,
        description="`rules.checks_a_run` for this one alone; null: no limit. Left out: the general setting.",
    )

    @property
    def limits_checks(self) -> bool:
        """Returns whether the group has a limit of its own, or is given none by null."""
        return "checks_a_run" in self.model_fields_set


class RuleSettings(Section):
    """The rules, with RocketMQ's names. A change holds from the next run; `reconcile --dry-run` shows its effect."""

    transaction_timeout: Duration = duration(
        "6s", "How long nobody is asked about a message that brings no check immunity of its own."
    )
    transaction_check_max: Limit = Field(
        default=15, ge=0, description="How often a producer is asked before the message is discarded."
    )
    transaction_check_interval: Duration = duration(
        "60s", "The least time between two checks of a message, and between its last check and its discard."
    )
    file_reserved_time: Duration = duration(
        "72h", "The age after which an open message is discarded without another check."
    )
    ask: Ask = Field(
        default="auto",
        description="Whether halfop asks and discards. false: it only watches, and the broker's check service asks. "
        "`auto`: it watches brokers that `land store` or `land broker` landed, and asks for all others.",
    )
    count: Count = Field(
        default="auto",
        description="When a question counts. `written`: when it is written to `check_requests`. `delivered`: when "
        "`check_deliveries` says that a producer was sent it. `auto`: `delivered` for brokers that a gateway serves, "
        "`written` for all others.",
    )
    watch_for: Duration = duration(
        "7d",
        "The age at which a message of a broker that halfop only watches is discarded (END_NOT_SEEN), if halfop would "
        "ask about it or discard it.",
    )
    checks_a_run: Limit | None = Field(
        default=1000,
        ge=0,
        description="How many questions a run gives to a producer group, those about the oldest messages; the others "
        "wait for a later run (CHECK_LIMIT). 0: none. null: no limit.",
    )
    groups: dict[RocketName, GroupOverride] = Field(
        default={},
        description="Other values for some producer groups.",
        examples=["{payment_group: {transaction_timeout: 1m}}"],
    )
    topics: dict[RocketName, RuleOverride] = Field(
        default={},
        description="Other values for some real topics.",
        examples=["{TopicPayment: {transaction_timeout: 1m}}"],
    )


class TlsSettings(Section):
    """Encrypted connections to name servers and brokers (PEM files)."""

    enabled: bool = Field(default=False, description="Whether name servers and brokers expect TLS.")
    ca_file: str | None = Field(
        default=None,
        description="The file of authorities that sign their certificates. null: the system's authorities.",
    )
    certificate: str | None = Field(default=None, description="The file of our own certificate, if they ask for one.")
    key: str | None = Field(default=None, description="The file of the key of our own certificate.")
    verify: bool = Field(default=True, description="Whether their certificates are checked.")
    check_hostname: bool = Field(
        default=True, description="Whether the host names in their certificates are checked, too."
    )


class LandingSettings(Section):
    """Landing from a broker or its store."""

    op_lag: Duration = duration(
        "5s",
        "How much earlier than its newest record an op log counts as complete: RocketMQ 5 holds op messages up to 3 s.",
    )
    in_flight: int = Field(
        default=16, ge=1, description="How many requests are in flight to a running broker in one connection."
    )
    connect_timeout: Duration = duration("5s", "How long a connection to a running broker may take.")
    answer_timeout: Duration = duration("15s", "How long a running broker may take for an answer.")
    give_up_after: Duration = duration("60s", "How long one request is tried again, with new connections.")


class RunSettings(Section):
    """A run of reconcile."""

    max_rows: int | None = Field(
        default=None,
        ge=1,
        description="The most half rows that a run decides: a larger backlog is cut into slices; one with put-back "
        "copies never is. null: no limit.",
    )


class RetentionSettings(Section):
    """How long `maintain` keeps rows and files. `waits` and `landed` may be null: for ever."""

    verify: Duration = duration(
        "30d", "How long the versions that a run read are kept, so that `reconcile --verify` can compute it again."
    )
    files: Duration = duration(
        "7d", "How long files that no version needs are kept, at least. Longer than any job runs or pauses."
    )
    waits: Duration | None = Field(
        default=parse_duration("30d"),
        description="How long WAIT and EARLY_OP rows of a run are kept; at least as long as `retention.verify`.",
        examples=["30d"],
    )
    landed: Duration | None = Field(
        default=parse_duration("90d"),
        description="How long landed rows are kept after their transactions have ended, whole landings at a time.",
        examples=["90d"],
    )
    topics: dict[RocketName, Duration] = Field(
        default={}, description="How long rows of this real topic are kept.", examples=["{TopicPayment: 365d}"]
    )


# Settings are recorded with every run: no place for a password.
_URL = like(r"https?://[^\s@?#]+", "a URL without user and password, as http://push:9091")
_NAME = like(r"[a-zA-Z0-9_-]{1,60}", "letters, digits, _ and -")


class MetricsSettings(Section):
    """Metrics that a job leaves for Prometheus at its end: docs/observability.md."""

    folder: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None,
        description="The folder of node_exporter's textfile collector; each command keeps one file in it. null: none.",
    )
    push_gateway: Annotated[str, AfterValidator(_URL)] | None = Field(
        default=None, description="The URL of a push gateway, as `http://push:9091`. null: none."
    )
    name: Annotated[str, AfterValidator(_NAME)] = Field(
        default="halfop",
        description="The name of this warehouse or schedule in the metrics: a label, and a part of the file's name.",
    )


class CatalogSettings(Section):
    """The catalog in which tables have names."""

    schema_: Annotated[str, StringConstraints(pattern=r"^[\w-]+(\.[\w-]+)?$")] | None = Field(
        default=None,
        alias="schema",
        description="The schema of Spark's catalog in which all tables get names. null: they have only paths.",
    )


class EndSettings(Section):
    """Ending transactions from outside of their producers: docs/ending.md."""

    brokers: BrokerNames = Field(
        default=[], description="The names of the brokers whose transactions `end --apply` may end. Empty: none."
    )
    min_age: Duration = duration(
        "10m", "The age below which a transaction gets into no plan: its producer may answer in the same moment."
    )
    limit: int = Field(default=1000, ge=1, description="The most transactions that a plan may have.")
    in_flight: int = Field(
        default=64, ge=1, description="How many answers are in flight to a broker in one connection."
    )


class DiskSettings(Section):
    """A warehouse on a local disk."""

    sync: bool = Field(
        default=True,
        description="Whether a commit and its data files are on the disk before anybody believes the commit. false: "
        "quicker, but a power cut may damage tables, which every job then refuses; for what can be landed again.",
    )


class LockSettings(Section):
    """The lock of a warehouse on a local disk."""

    wait: Duration = duration("0s", "How long to wait for another process that holds the lock, before status 4.")


class Settings(Section):
    """All settings of a job; recorded with every run."""

    warehouse: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="The root of all tables: a URI or a path. null: `warehouse/` in the checkout."
    )
    rules: RuleSettings = RuleSettings()
    landing: LandingSettings = LandingSettings()
    tls: TlsSettings = TlsSettings()
    topics: TopicSettings = TopicSettings()
    run: RunSettings = RunSettings()
    retention: RetentionSettings = RetentionSettings()
    gateway: GatewaySettings = GatewaySettings()
    catalog: CatalogSettings = CatalogSettings()
    end: EndSettings = EndSettings()
    resolve: ResolveSettings = ResolveSettings()
    metrics: MetricsSettings = MetricsSettings()
    disk: DiskSettings = DiskSettings()
    lock: LockSettings = LockSettings()

    @property
    def warehouse_root(self) -> str:
        """The warehouse as a URI or an absolute path."""
        if self.warehouse is None:
            if (home := checkout(os.environ)) is None:
                raise UsageError("which warehouse? There is no checkout here to hold one: name it with --warehouse URI")
            return str(home.absolute() / "warehouse")
        if holds_secret(self.warehouse):
            raise UsageError(f"--warehouse {redacted(self.warehouse)}: expected no secret: every run would record it")
        if scheme := re.match(r"(?i)s3n?:", self.warehouse):
            raise UsageError(f"--warehouse {self.warehouse}: give it as s3a:, where commits are safe, not {scheme[0]}")
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", self.warehouse):
            return self.warehouse.rstrip("/")
        return str(Path(self.warehouse).expanduser().absolute())

    def as_json(self) -> str:
        """One stable line: equal settings give equal text."""
        unlimited = [name for name, own in self.rules.groups.items() if own.limits_checks and own.checks_a_run is None]
        return as_line(self.model_dump(mode="json", by_alias=True), unlimited)

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Recorded settings; a run of an older version stays as it was, without limits that it could not have."""
        try:
            return cls.model_validate(of_line(text), context=RECORDED)
        except ValueError as error:
            raise HalfopError(
                f"recorded settings that this version of halfop can't read: {error}\nuse the version that wrote them"
            ) from error
