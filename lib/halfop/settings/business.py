"""The settings of `resolve`: for each producer group, where its business data is and how it shows an outcome."""

from __future__ import annotations

import re
from datetime import date, datetime, timezone
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from halfop.settings.values import RECORDED, Duration, Names, RocketName, Section, holds_secret, like, names_secret

OPEN_TRANSACTIONS = "open_transactions"

_BY = like(r"uniq_key|keys|body\.\$[^*]+", "uniq_key, keys, or body and a JSON path to one value, as body.$.order.id")
_VIEW = like(rf"(?i)(?!{OPEN_TRANSACTIONS}$)[A-Z_]\w*", f"a name of SQL other than {OPEN_TRANSACTIONS}")

_WHY = {
    "watermark": "old data must not roll back what is alive",
    "complete_since": "the time since which the data has all, or a query for it; what is older is not absent from it",
}


def fixed_instant(text: str) -> datetime | None:
    """Returns the instant that a text is, in UTC if it names no zone; None if it is a query."""
    if not re.match(r"\s*[0-9]", text):
        return None
    found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def _read_since(value: object) -> object:
    text = value.isoformat() if isinstance(value, date) else value  # YAML reads a time without quotes as a time
    try:
        if isinstance(text, str):
            fixed_instant(text)
    except ValueError:
        raise PydanticCustomError("since", "expected a time, as 2024-01-01T00:00:00Z, or a query") from None
    return text


class TableSource(Section):
    """A table of business data: a folder, a table of Spark's catalog, or one that JDBC reaches."""

    path: str | None = Field(default=None, description="The folder of a Delta or Parquet table: a path or a URI.")
    format: Literal["delta", "parquet"] = Field(default="delta", description="What lies in the folder `path`.")
    table: str | None = Field(default=None, description="The name of a table in Spark's catalog, as `sales.orders`.")
    url: str | None = Field(
        default=None,
        description="The JDBC URL of a database; no password: it is recorded with every run. Its driver comes by "
        "`--packages` or `--jars`.",
    )
    dbtable: str | None = Field(
        default=None, description="With `url`: a table of the database, or a query in parentheses with an alias."
    )
    properties: dict[str, str] = Field(
        default={}, description="With `url`: options of Spark's JDBC source, as `user`, `driver`, `fetchsize`."
    )
    password_env: str | None = Field(
        default=None, description="With `url`: the environment variable that holds the password."
    )

    @model_validator(mode="after")
    def _is_one_source(self, info: ValidationInfo) -> TableSource:
        if sum(place is not None for place in (self.path, self.table, self.url)) != 1:
            raise PydanticCustomError("source", "expected one of path, table and url")
        if (self.url is None) != (self.dbtable is None):
            raise PydanticCustomError("source", "expected url and dbtable together")
        if info.context != RECORDED and holds_secret(self.path or ""):
            raise PydanticCustomError("source", "expected no secret in path: every run would record it")
        if info.context != RECORDED and self._has_secret():
            raise PydanticCustomError("source", "expected no password, but password_env, the variable that holds it")
        return self

    def _has_secret(self) -> bool:
        texts = (self.url or "", *self.properties.values())
        return any(map(names_secret, self.properties)) or any(map(holds_secret, texts))


class Resolution(Section):
    """The business data of a producer group, and how it shows the outcomes of open transactions."""

    query: str = Field(
        default="",
        description="SQL over `tables` and the view `open_transactions` that gives `key`, `outcome` (COMMIT, ROLLBACK, "
        "or null: not known) and the columns of `evidence`.",
    )
    by: Annotated[str, AfterValidator(_BY)] = Field(
        default="uniq_key",
        description="What `key` is of a message: its `uniq_key`, one of its `keys`, or a field of its JSON body, as "
        "`body.$.order.id`.",
    )
    tables: dict[Annotated[str, AfterValidator(_VIEW)], TableSource] = Field(
        default={}, description="The tables that `query` and `watermark` name."
    )
    evidence: Names = Field(
        default=[], description="Columns of `query` that are kept with each outcome, in the plan and in `endings`."
    )
    absent_after: Duration | None = Field(
        default=None,
        description="A transaction for which `query` gives no row is rolled back if the business data is fresh up to "
        "this long after its born time. null: it stays open.",
    )
    watermark: str | None = Field(
        default=None,
        description="With `absent_after`: SQL over `tables` that gives the instant up to which the business data is "
        "complete, as `SELECT max(updated_at) FROM orders`.",
        validate_default=True,
    )
    complete_since: Annotated[str, BeforeValidator(_read_since)] | None = Field(
        default=None,
        description="With `absent_after`: the instant since which the business data has all, as "
        "`2024-01-01T00:00:00Z`, or SQL over `tables` that gives it, as `SELECT min(created_at) FROM orders`. A "
        "transaction that was born before it is not absent.",
        validate_default=True,
    )

    @field_validator("watermark", "complete_since")
    @classmethod
    def _bounds_absence(cls, bound: str | None, info: ValidationInfo) -> str | None:
        if bound is None and info.data.get("absent_after") is not None:
            raise PydanticCustomError("bound", "expected with absent_after: {why}", {"why": _WHY[str(info.field_name)]})
        return bound

    @model_validator(mode="after")
    def _is_whole(self) -> Resolution:
        if not self.query.strip():
            raise PydanticCustomError("query", "expected a query")
        return self


class ResolveSettings(Section):
    """Outcomes from business data: docs/ending.md."""

    groups: dict[RocketName, Resolution] = Field(
        default={},
        description="Where the outcomes of producer groups are found.",
        examples=["{payment_group: {tables: {orders: {path: /lake/orders}}, query: SELECT key, outcome FROM orders}}"],
    )
