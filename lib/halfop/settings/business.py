"""The settings of `resolve`: for each producer group, where its business data is and how it shows an outcome."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from halfop.settings.durations import Duration
from halfop.settings.section import Names, RocketName, Section, like

OPEN_TRANSACTIONS = "open_transactions"

_BY = like(r"uniq_key|keys|body\.\$[^*]+", "uniq_key, keys, or body and a JSON path to one value, as body.$.order.id")
_VIEW = like(rf"(?i)(?!{OPEN_TRANSACTIONS}$)[A-Z_]\w*", f"a name of SQL other than {OPEN_TRANSACTIONS}")
_SECRET = re.compile(r"(?i)passw(or)?d|://[^/@]*:[^/@]*@")


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
    def _is_one_source(self) -> TableSource:
        if sum(place is not None for place in (self.path, self.table, self.url)) != 1:
            raise PydanticCustomError("source", "expected one of path, table and url")
        if (self.url is None) != (self.dbtable is None):
            raise PydanticCustomError("source", "expected url and dbtable together")
        if any(map(_SECRET.search, (self.url or "", *self.properties))):
            raise PydanticCustomError("source", "expected no password, but password_env, the variable that holds it")
        return self


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
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Resolution:
        if not self.query.strip():
            raise PydanticCustomError("query", "expected a query")
        if self.absent_after is not None and self.watermark is None:
            raise PydanticCustomError(
                "watermark", "expected a watermark with absent_after: old data must not roll back what is alive"
            )
        return self


class ResolveSettings(Section):
    """Outcomes from business data: docs/ending.md."""

    groups: dict[RocketName, Resolution] = Field(
        default={},
        description="Where the outcomes of producer groups are found.",
        examples=["{payment_group: {tables: {orders: {path: /lake/orders}}, query: SELECT key, outcome FROM orders}}"],
    )
