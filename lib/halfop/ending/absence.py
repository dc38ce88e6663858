"""When a transaction without a row of business data is rolled back: that data is fresh, and reaches back far enough."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.ending.business import EVIDENCE
from halfop.settings.values import duration_text

NOT_FRESH, NOT_COVERED = "NOT_FRESH", "NOT_COVERED"
WHY_NOT, ABSENT = "why_not", "absent"


@dataclass(frozen=True)
class Absence:
    """The absence of rows from business data that was complete up to `watermark` before it was read."""

    after: timedelta | None
    watermark: datetime | None

    @property
    def counts(self) -> bool:
        return self.after is not None

    @property
    def is_fresh(self) -> Column:
        """Whether the data is fresh up to long after a transaction's birth; null for none without a born time."""
        if self.after is None or self.watermark is None:
            return F.lit(False)
        return F.coalesce(F.col("born_timestamp") < F.lit(self.watermark - self.after), F.lit(False))

    def covered(self, found: pa.Table, since: datetime | None) -> pa.Table:
        """Returns the rows with evidence of absence, or NOT_COVERED if the data does not reach back to their birth."""
        absent = pc.and_(found[ABSENT], pc.is_null(found[WHY_NOT]))
        young = pa.scalar(False) if since is None else pc.greater_equal(found["born_timestamp"], pa.scalar(since))
        too_old = pc.and_(absent, pc.invert(pc.fill_null(young, False)))
        columns = {
            WHY_NOT: pc.if_else(too_old, NOT_COVERED, found[WHY_NOT]),
            EVIDENCE: pc.if_else(absent, self._evidence(since), found[EVIDENCE]),
        }
        for name, column in columns.items():
            found = found.set_column(found.column_names.index(name), name, column)
        return found

    def _evidence(self, since: datetime | None) -> str | None:
        if self.after is None or self.watermark is None or since is None:
            return None
        known = {"absent_after": duration_text(self.after), "watermark": self.watermark, "complete_since": since}
        return json.dumps(known, separators=(",", ":"), default=datetime.isoformat)
