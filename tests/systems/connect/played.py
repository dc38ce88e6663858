"""Histories in a session of Spark Connect. test_connect.py starts these in a process of their own."""

from __future__ import annotations

from pathlib import Path

import halfop
import pytest
from halfop.sql.views import as_name
from halfop.warehouse.by_spark import SparkWarehouse
from model import fleet as f
from model import reference as m
from model.strategies import START, Charter, Phase, copied_histories
from pyspark.sql import SparkSession

pytestmark = pytest.mark.connect
MINUTE = 60_000
PHASES = (Phase(START + 7_000, (START + 2 * MINUTE,), (START + 2 * MINUTE,)),)
CHARTER = Charter(m.Settings(check_max=2, file_reserved_time=60 * MINUTE), PHASES, START + 10 * MINUTE)


@pytest.mark.parametrize("seed", [7, 8])
def test_runs_decide_what_the_model_decides(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    ships = f.fleet(f.generated(copied_histories(CHARTER), 12, seed))
    f.assert_agrees(SparkWarehouse(spark, str(tmp_path / "warehouse")), CHARTER, ships)


def test_the_python_api(spark: SparkSession, tmp_path: Path) -> None:
    wh = halfop.open(spark, tmp_path / "warehouse")
    ships = f.fleet(f.generated(copied_histories(CHARTER), 4, 7))
    f.sail(wh.warehouse, CHARTER, ships)
    before = wh.decisions().count()
    assert wh.reconcile().status == 0
    committed = wh.decisions().where("decision = 'COMMIT'")
    first = committed.select("broker_name", "queue_id", "queue_offset", "real_topic").collect()[0]
    life = wh.explain("/".join(map(str, first[:3])))
    assert list(life.summary.extra["messages"].values()) == ["COMMITTED"]
    assert wh.topic(first["real_topic"]).count() == committed.where(f"real_topic = '{first['real_topic']}'").count()
    assert wh.hanging().count() > 0
    left = wh.hanging().where("decision IN ('CHECK', 'WAIT')").count()
    assert wh.plot.open_by_age().to_dict()["title"]["text"].startswith(f"Of {left:,} open messages")
    plots = wh.plot.decided_by_run(), wh.plot.time_to_end(), wh.plot.life("/".join(map(str, first[:3])))
    assert all(plot.to_dict()["datasets"] for plot in plots)
    wh.views()
    assert spark.sql("SELECT * FROM decisions").count() == wh.decisions().count() >= before
    assert wh.sql("SELECT count(*) AS n FROM decisions")["n"].to_pylist() == [wh.decisions().count()]
    topic = as_name(first["real_topic"])
    assert wh.sql(f"TABLE {topic}").num_rows == wh.topic(first["real_topic"]).count()
    for wrong in ("SELECT * FROM decsions", "SELECT decison FROM decisions", "DROP VIEW x", "FROM x INSERT INTO y"):
        with pytest.raises(halfop.UsageError) as told:
            wh.sql(wrong)
        assert "\n" not in str(told.value)
    assert wh.report(tmp_path / "report.html").status == 0
    assert wh.audit().status == 0
    with pytest.raises(halfop.InputRefused, match="where the server of Spark Connect looks"):
        wh.land_files(half=["x"])
    with pytest.raises(halfop.UsageError, match="Spark Connect"):
        wh.simulate({})


def test_a_warehouse_must_be_named(spark: SparkSession) -> None:
    with pytest.raises(halfop.UsageError, match="which warehouse"):
        halfop.open(spark).decisions()
