"""`examine`: whatever file of whatever table is damaged, each message ends as it should, and is delivered once."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from halfop.examine import logs
from halfop.examine.examine import examine
from halfop.examine.logs import Aside, TableLog
from halfop.examine.repair import Repair
from halfop.frame.cli import main
from halfop.frame.errors import InputRefused, WarehouseBusy
from halfop.frame.summary import Summary
from halfop.landing.again import again
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.schema import delta_table
from model import reference as m
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support import rows as r
from support.brokers import store_writer as w
from support.brokers.stores import transactions
from support.entry_points import job_of

LOG = logging.getLogger("halfop.test")
RULES = m.Settings(ask=True, check_max=2, transaction_timeout=1_000, check_interval=1_000)
NOW = w.BORN_MS + 60_000
TABLES = [
    *("half_messages", "op_messages", "final_messages", "landing_progress", "runs", "decisions", "topics/orders"),
    *("topics_index", "trans_check_max_time", "check_requests", "rejected"),
]


class History(NamedTuple):
    """A warehouse with runs over a store, and the store as it goes on."""

    root: Path
    store: w.Store


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Messages that ended, two that were asked about and given up, an op that is none: rows in each table."""
    folder = tmp_path_factory.mktemp("examine")
    store, warehouse = w.Store(folder / "store"), KernelWarehouse(spark, str(folder / "warehouse"))
    for n in (100, 101):
        store.append(w.half(n))
    transactions(store, range(6), commit=3, op_ms=NOW)
    land(warehouse, store)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    transactions(store, range(6, 14), commit=3, op_ms=NOW + 5_000)
    land(warehouse, store)
    r.run(warehouse, RULES, NOW + 5_000, layout="per_topic")
    store.append(w.op("x,", store_ms=NOW + 10_000))
    land(warehouse, store)
    r.run(warehouse, RULES, NOW + 10_000, layout="per_topic")
    assert all(newest_file(folder / "warehouse" / table) for table in TABLES)
    return History(folder / "warehouse", store)


def land(warehouse: KernelWarehouse, store: w.Store, *ranges: str) -> Summary:
    request = StoreRequest(str(store.root), "broker-a", timedelta(0), again=tuple(map(again, ranges)))
    return land_store(warehouse, request, LOG)


def newest_commit(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.json"))


def newest_file(table: Path) -> Path | None:
    for commit in sorted((table / "_delta_log").glob("*.json"), reverse=True):
        for line in commit.read_text().splitlines():
            if add := json.loads(line).get("add"):
                return table / str(add["path"]).removeprefix(f"file://{table}").removeprefix(f"file:{table}").lstrip(
                    "/"
                )
    return None


def emptied(table: Path) -> None:
    newest_commit(table).write_bytes(b"")


def cut(table: Path) -> None:
    commit = newest_commit(table)
    commit.write_bytes(commit.read_bytes()[: commit.stat().st_size // 2])


def vanished(table: Path) -> None:
    newest_commit(table).unlink()


def file_missing(table: Path) -> None:
    path = newest_file(table)
    assert path is not None
    path.unlink()


def file_cut(table: Path) -> None:
    path = newest_file(table)
    assert path is not None
    path.write_bytes(path.read_bytes()[:100])


def delivered(warehouse: KernelWarehouse) -> Counter[str]:
    return Counter(row["transaction_id"] for row in warehouse.read("topics/orders").collect())


def ends(warehouse: KernelWarehouse) -> dict[str, set[str]]:
    rows = warehouse.read("decisions").where(F.col("decision").isin("COMMIT", "ROLLBACK")).collect()
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["uniq_key"], set()).add(row["decision"])
    return found


def commands_done(warehouse: KernelWarehouse, summary: Summary, store: w.Store) -> None:
    """Does what the summary says is left to do."""
    for command in summary.extra["commands"]:
        job = command.removeprefix("./spark-submit.sh ")
        if job.startswith("land store"):
            land(warehouse, store, *job.partition("--again ")[2].split())
        else:
            assert job == "examine --repair"
            examine(warehouse, r.settings(RULES, "per_topic"), deep=False, repair=True)


def check(spark: SparkSession, history: History, folder: Path, tables: list[str], harm: Callable[[Path], None]) -> None:
    root = folder / "warehouse"
    shutil.copytree(history.root, root)
    for table in tables:
        harm(root / table)
    settings, warehouse = r.settings(RULES, "per_topic"), KernelWarehouse(spark, str(root))
    found = examine(warehouse, settings, deep=True, repair=False)
    assert found.status == 3, found
    summary = examine(warehouse, settings, deep=False, repair=True)
    commands_done(warehouse, summary, history.store)
    land(warehouse, history.store)
    r.run(warehouse, RULES, NOW + 20_000, layout="per_topic")
    keys = {n: f"{n:032X}" for n in range(14)}
    committed = [n for n in range(14) if n % 3 == 0]
    assert delivered(warehouse) == Counter(keys[n] for n in committed)
    assert ends(warehouse) == {keys[n]: {"COMMIT" if n in committed else "ROLLBACK"} for n in range(14)}
    assert not any(row[1] == "CONFLICT" for row in r.rejected(warehouse))
    assert examine(warehouse, settings, deep=False, repair=True).extra["repaired"] == []


# One of each kind of table and of harm is looked at by the plain suite.
_PLAIN = [(["half_messages", "topics/orders", "runs"], file_cut), (["runs", "decisions"], vanished)]
_MORE = [([table], harm) for table in TABLES for harm in (emptied, cut, vanished, file_missing, file_cut)]
_MORE += [(TABLES, harm) for harm in (emptied, file_missing)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("tables", "harm"), [*_PLAIN, *(pytest.param(*case, marks=pytest.mark.slow) for case in _MORE)]
)
def test_every_fate_is_right_after_a_repair(
    spark: SparkSession, history: History, tmp_path: Path, tables: list[str], harm: Callable[[Path], None]
) -> None:
    check(spark, history, tmp_path, tables, harm)


@pytest.mark.thorough
def test_rows_that_topics_lack_are_named_until_they_are_back(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    """Their bodies were lost, too: after these have landed again, the logs show no damage any more."""
    root = tmp_path / "warehouse"
    shutil.copytree(history.root, root)
    for table in ("half_messages", "topics/orders"):
        file_cut(root / table)
    warehouse, settings = KernelWarehouse(spark, str(root)), r.settings(RULES, "per_topic")
    calls = examine(warehouse, settings, deep=False, repair=True).extra["commands"]
    assert [call.split()[1] for call in calls] == ["land", "examine"]
    land(warehouse, history.store, *calls[0].partition("--again ")[2].split())
    looked = examine(warehouse, settings, deep=False, repair=False)
    assert (looked.status, looked.extra["commands"]) == (3, ["./spark-submit.sh examine --repair"])
    assert any(line.startswith("topics/orders lacks") for line in looked.extra["remains"])
    assert examine(warehouse, settings, deep=False, repair=True).status == 0
    assert examine(warehouse, settings, deep=False, repair=False).status == 0


def test_what_is_whole_stays_as_it_is(spark: SparkSession, history: History, tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    shutil.copytree(history.root, root)
    warehouse, settings = KernelWarehouse(spark, str(root)), r.settings(RULES, "per_topic")
    before = {path: path.read_bytes() for path in root.rglob("*.json")}
    found = examine(warehouse, settings, deep=True, repair=False)
    assert (found.status, found.extra["remains"], found.extra["commands"]) == (0, [], [])
    assert examine(warehouse, settings, deep=False, repair=True).extra["repaired"] == []
    assert {path: path.read_bytes() for path in root.rglob("*.json")} == before


def test_the_job_itself_does_not_refuse_what_is_damaged(
    spark: SparkSession, history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str], logging_as_before: None
) -> None:
    root = tmp_path / "warehouse"
    shutil.copytree(history.root, root)
    emptied(root / "topics_index")
    job = job_of("examine")
    assert main(job, ["--warehouse", str(root)]) == 3
    assert f"{newest_commit(root / 'topics_index')} is empty" in capsys.readouterr().out
    assert main(job, ["--repair", "--warehouse", str(root)]) == 0


def test_a_repair_that_is_stopped_is_finished_by_the_next(
    spark: SparkSession, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs are whole by then, and show no longer what they lack: no job may work on them."""
    root = tmp_path / "warehouse"
    shutil.copytree(history.root, root)
    emptied(root / "topics" / "orders")
    warehouse, settings = KernelWarehouse(spark, str(root)), r.settings(RULES, "per_topic")
    with monkeypatch.context() as patch:
        patch.setattr(Repair, "bring_back", _dies)
        with pytest.raises(KeyboardInterrupt):
            examine(warehouse, settings, deep=False, repair=True)
    with pytest.raises(InputRefused, match="examine --repair"):
        land(warehouse, history.store)
    assert examine(warehouse, settings, deep=False, repair=False).status == 3
    assert examine(warehouse, settings, deep=False, repair=True).status == 0
    land(warehouse, history.store)
    assert max(delivered(warehouse).values()) == 1
    assert len(delivered(warehouse)) == 5


def _dies(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_commit_that_comes_while_a_log_is_repaired_stands(tmp_path: Path) -> None:
    """A gateway writes its deliveries without a lock."""
    folder = tmp_path / "check_deliveries"
    commits = [folder / "_delta_log" / f"{version:020}.json" for version in range(3)]
    commits[0].parent.mkdir(parents=True)
    commits[0].write_text('{"metaData":{}}\n')
    commits[1].touch()

    class Meanwhile(Aside):
        def copy(self, path: Path) -> None:
            if path == commits[2]:
                path.write_text("of the gateway")

    with pytest.raises(WarehouseBusy, match=r"00002\.json: another process has just written; call examine --repair"):
        TableLog(folder, Meanwhile(tmp_path, "now"), bytes).repair()
    assert commits[2].read_text() == "of the gateway"
    assert sorted(commits[0].parent.iterdir()) == commits


def test_a_table_with_in_commit_timestamps_is_written_again_after_a_repair(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    """Delta wants one in each commit, and that they rise: without it no writer could go on."""
    folder = Path(warehouse.path("runs"))
    warehouse.make("runs")
    given = "('delta.enableInCommitTimestamps' = 'true')"
    warehouse.spark.sql(f"ALTER TABLE {delta_table(str(folder))} SET TBLPROPERTIES {given}")
    for run_id in range(2, 7):
        warehouse.commit("runs", [{"run_id": run_id}])
    commits = [folder / "_delta_log" / f"{version:020}.json" for version in range(12)]
    commits[3].unlink()
    commits[4].write_bytes(b"")
    commits[6].write_bytes(b"")
    log = TableLog(folder, Aside(tmp_path, "now"), bytes)
    log.repair()
    assert log.pad(9)
    again = KernelWarehouse(warehouse.spark, warehouse.root)
    again.commit("runs", [{"run_id": 10}])
    again.connector.commit(str(folder), again.spec("runs"), again.read("runs").where("run_id = 2"), None)
    assert sorted(row["run_id"] for row in again.rows("runs")) == [2, 2, 5, 10]
    instants = [
        json.loads(commit.read_text().splitlines()[0])["commitInfo"]["inCommitTimestamp"] for commit in commits[1:]
    ]
    assert instants == sorted(set(instants))


def test_a_mark_that_a_power_cut_has_torn_stands_for_all_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable = list[Path]()
    monkeypatch.setattr(logs, "make_durable", durable.extend)
    aside = Aside(tmp_path, "now")
    aside.begin(["runs"])
    assert (aside.unfinished, durable[0].name) == (["runs"], "tables.json"), "its content first"
    for name in ("decisions/_delta_log", "topics/orders/_delta_log"):
        (tmp_path / name).mkdir(parents=True)
    for torn in ("", '["deci'):
        (tmp_path / "_damaged" / "unfinished").write_text(torn)
        assert aside.unfinished == ["decisions", "topics/orders"]
