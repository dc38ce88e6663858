"""Settings: durations, the layers over each other, what is refused and how, and the files made from the model."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import zipfile
from datetime import timedelta
from pathlib import Path

import pytest
from halfop.frame.errors import HalfopError, UsageError
from halfop.settings.keys import RESERVED_VARIABLES
from halfop.settings.load import load_settings
from halfop.settings.model import LandingSettings, Settings
from halfop.settings.values import duration_text, parse_duration, redacted
from hypothesis import given
from hypothesis import strategies as st
from support.places import ROOT

GENERATOR = runpy.run_path(str(ROOT / "tools" / "settings_reference.py"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "halfop.yaml"
    file.write_text(
        "warehouse: /from/file\n"
        "rules:\n"
        "  ask: true\n"
        "  transaction_timeout: 1s\n"
        "  transaction_check_max: 1\n"
        "  groups: {pay: {transaction_timeout: 1s, transaction_check_max: 1}}\n"
    )
    return file


def loaded(config: Path | None, *overrides: str, **environ: str) -> Settings:
    return load_settings(config, overrides, environ)


def refusal(config: Path | None, *overrides: str, **environ: str) -> str:
    with pytest.raises(UsageError) as refused:
        loaded(config, *overrides, **environ)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "milliseconds", "shortest"),
    [
        ("500ms", 500, "500ms"),
        ("6s", 6_000, "6s"),
        ("90s", 90_000, "90s"),
        ("60s", 60_000, "1m"),
        ("15m", 900_000, "15m"),
        ("72h", 259_200_000, "3d"),
        ("7d", 604_800_000, "7d"),
        ("007s", 7_000, "7s"),
        ("0ms", 0, "0s"),
        ("36500d", 36500 * 86_400_000, "36500d"),
    ],
)
def test_duration(text: str, milliseconds: int, shortest: str) -> None:
    assert parse_duration(text) == timedelta(milliseconds=milliseconds)
    assert duration_text(parse_duration(text)) == shortest


@pytest.mark.parametrize(
    "text", ["", "6", "-1s", "1.5h", "6 s", " 6s", "6S", "1h30m", "6sec", "٣s", "36501d", "9" * 15 + "d"]
)
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="500ms, 6s, 15m, 72h or 7d"):
        parse_duration(text)


@given(st.integers(0, 10**12).map(lambda n: timedelta(milliseconds=n)))
def test_duration_survives_its_text(duration: timedelta) -> None:
    assert parse_duration(duration_text(duration)) == duration


@pytest.mark.parametrize("value", [6, 6.0, True, None, timedelta(microseconds=1), timedelta(-1), timedelta(36501)])
def test_no_duration_in_the_model(value: object) -> None:
    with pytest.raises(ValueError, match="a whole number and its unit"):
        LandingSettings.model_validate({"op_lag": value})


def test_later_layers_win_key_by_key(config: Path) -> None:
    environ = {"HALFOP_RULES__TRANSACTION_TIMEOUT": "2s", "HALFOP_RULES__TRANSACTION_CHECK_MAX": "2"}
    settings = loaded(config, "rules.transaction_check_max=3", **environ)
    assert settings.warehouse == "/from/file"
    assert settings.rules.transaction_timeout == timedelta(seconds=2)
    assert settings.rules.transaction_check_max == 3
    assert settings.rules.transaction_check_interval == timedelta(seconds=60)


@pytest.mark.parametrize(
    ("overrides", "environ"),
    [(["rules.ask=false", "rules.transaction_check_max=0"], {}), ([], {"HALFOP_RULES__ASK": "false"})],
)
def test_a_false_value_overrides_a_true_one(config: Path, overrides: list[str], environ: dict[str, str]) -> None:
    settings = loaded(config, *overrides, **environ)
    assert settings.rules.ask is False
    assert settings.rules.transaction_check_max == (0 if overrides else 1)


def test_the_last_set_of_a_key_wins(config: Path) -> None:
    assert loaded(config, "topics.threads=2", "topics.threads=3").topics.threads == 3


def test_a_number_is_a_decimal_one(config: Path) -> None:
    assert loaded(config, "topics.threads=015").topics.threads == 15


def test_an_override_keeps_its_siblings_and_null_takes_one_back(config: Path) -> None:
    changed = loaded(config, "rules.groups.pay.transaction_timeout=9s").rules.groups["pay"]
    assert (changed.transaction_timeout, changed.transaction_check_max) == (timedelta(seconds=9), 1)
    assert loaded(config, "rules.groups.pay.transaction_timeout=").rules.groups["pay"].transaction_timeout is None


@pytest.mark.parametrize("name", ["TopicPayment", "%RETRY%pay", "a|b", "a__b", "rules", "1", "true"])
def test_names_of_rocketmq_in_every_layer(tmp_path: Path, name: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f'rules: {{topics: {{"{name}": {{transaction_check_max: 7}}}}}}')
    by_variable = {f"HALFOP_RULES__TOPICS__{name}__TRANSACTION_CHECK_MAX": "7"}
    empty = tmp_path / "empty.yaml"
    empty.touch()
    for settings in (
        loaded(file),
        loaded(empty, f"rules.topics.{name}.transaction_check_max=7"),
        loaded(empty, **by_variable),
    ):
        assert settings.rules.topics.keys() == {name}
        assert settings.rules.topics[name].transaction_check_max == 7


@pytest.mark.parametrize(
    "content",
    [
        "rules.topics.orders.transaction_timeout: 7s",
        "rules: {topics.orders.transaction_timeout: 7s}",
        "rules.topics: {orders.transaction_timeout: 7s}",
        "rules.topics.orders: {transaction_timeout: 7s}\nrules: {ask: auto}",
    ],
)
def test_keys_of_a_file_may_be_dotted(tmp_path: Path, content: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content + "\ntopics.orders.value.format: text")
    settings = loaded(file)
    assert settings.rules.topics["orders"].transaction_timeout == timedelta(seconds=7)
    assert settings.topics.values["orders"].format == "text"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("s3a://bucket/a=b#c", "s3a://bucket/a=b#c"),
        ("123", "123"),
        ("2025-06-15", "2025-06-15"),
        ("no", "no"),
        ("C: [x", "C: [x"),
        ("~", "~"),
        ("#w", "#w"),
        ("null", None),
    ],
)
def test_a_text_stays_as_it_is(config: Path, text: str, value: str | None) -> None:
    assert loaded(config, f"warehouse={text}").warehouse == value
    assert loaded(config, HALFOP_WAREHOUSE=text).warehouse == value


@pytest.mark.parametrize("name", ["host.example.com", "123", "on", "a%b|c_d e~2"])
def test_every_name_of_a_broker_may_be_allowed(config: Path, name: str) -> None:
    assert loaded(config, f"end.brokers='{name}'").end.brokers == [name]
    assert loaded(config, f"end.brokers={name}").end.brokers == [name]
    assert loaded(config, f"end.brokers={name}, b").end.brokers == [name, "b"]
    assert loaded(config, f"end.brokers=['{name}', b]").end.brokers == [name, "b"]


def test_a_list_in_every_layer(config: Path) -> None:
    for text, names in (("[]", []), ("[a]", ["a"]), ("[a, b]", ["a", "b"])):
        assert loaded(config, f"end.brokers={text}").end.brokers == names
        assert loaded(config, HALFOP_END__BROKERS=text).end.brokers == names
        assert loaded(config, f"topics.T.cluster_by={text}").topics.own["T"].cluster_by == names


def test_variables_of_launcher_and_kubernetes_are_no_settings(config: Path) -> None:
    services = {
        "HALFOP_PORT": "tcp://10.0.0.1:80",
        "HALFOP_GATEWAY_PORT_10911_TCP_ADDR": "10.0.0.1",
        "HALFOP_SERVICE_PORT_RPC": "1",
    }
    assert loaded(config, **dict.fromkeys(RESERVED_VARIABLES - {"HALFOP_HOME"}, "x"), **services) == loaded(config)


@pytest.mark.parametrize(
    ("overrides", "environ", "said"),
    [
        (
            ["rules.transaction_timout=6s"],
            {},
            "rules.transaction_timout (--set): unknown key; the nearest known one is rules.transaction_timeout",
        ),
        (["transactionTimeOut=6s"], {}, "nearest known one is rules.transaction_timeout"),
        (["rules.topic.T.transaction_timeout=6s"], {}, "nearest known one is rules.topics.T.transaction_timeout"),
        (["rules.groups.g.transaction_check_mx=6"], {}, "nearest known one is rules.groups.g.transaction_check_max"),
        (["resolve.groups.g.qery=x"], {}, "nearest known one is resolve.groups.g.query"),
        (["resolve.groups.g.tables.o.pth=x"], {}, "nearest known one is resolve.groups.g.tables.o.path"),
        (["Warehouse=x"], {}, "nearest known one is warehouse"),
        (["max_rows=5"], {}, "nearest known one is run.max_rows"),
        (["xyzzy=3"], {}, "xyzzy (--set): unknown key; no known one is like it; docs/settings.md has all"),
        ([], {"HALFOP_B": "1"}, "HALFOP_B: unknown; no known one is like it; docs/settings.md has all"),
        (["rules=1"], {}, "rules (--set): has settings under it"),
        (["rules.groups.g=1"], {}, "rules.groups.g (--set): has settings under it"),
        (["rules.ask"], {}, "--set rules.ask: expected KEY=VALUE"),
        (["rules.ask=1"], {}, "rules.ask (--set): expected auto, true or false, given 1"),
        (
            ["rules.transaction_timeout=6"],
            {},
            "rules.transaction_timeout (--set): expected a duration: a whole number and its unit",
        ),
        (["rules.transaction_timeout=1:30"], {}, "given 1:30"),
        (["rules.transaction_timeout="], {}, "given nothing"),
        (["rules.transaction_check_max=-1"], {}, "expected greater than or equal to 0, given -1"),
        (["rules.transaction_check_max=2147483648"], {}, "expected less than or equal to 2147483647, given 2147483648"),
        (["rules.groups.g.transaction_check_max=2147483648"], {}, "expected less than or equal to 2147483647"),
        (["rules.checks_a_run=3000000000"], {}, "expected less than or equal to 2147483647, given 3000000000"),
        (["rules.groups.g.checks_a_run=3000000000"], {}, "expected less than or equal to 2147483647"),
        (["rules.transaction_check_max=1.0"], {}, "expected integer, given 1.0"),
        (["rules.transaction_check_max=[1]"], {}, "expected integer, given [1]"),
        (["run.max_rows=0"], {}, "run.max_rows (--set): expected greater than or equal to 1, given 0"),
        (["catalog.schema="], {}, "(--set): expected a text, given nothing: leave it out if none is meant"),
        ([], {"HALFOP_WAREHOUSE": ""}, "environment variable HALFOP_WAREHOUSE): expected a text, given nothing"),
        (["end.brokers=[123]"], {}, "end.brokers (--set): expected names with , between, given [123]"),
        (["end.brokers=['a,b']"], {}, "end.brokers (--set): expected names with , between"),
        (["topics.threads=1:30"], {}, "topics.threads (--set): expected integer, given 1:30"),
        (["topics.layout=both"], {}, "expected 'per_topic' or 'single', given both"),
        (
            ["catalog.schema=a.b.c"],
            {},
            "catalog.schema (--set): expected the names of catalog and schema, as lake.halfop, given a.b.c",
        ),
        (["rules.groups.a b.transaction_check_max=1"], {}, "rules.groups.a b (--set): expected a name of RocketMQ"),
        (
            [],
            {"HALFOP_TOPICS__THREADS": "x"},
            "topics.threads (environment variable HALFOP_TOPICS__THREADS): expected integer, given x",
        ),
        ([], {"HALFOP_RULES__TRANSACTION_TIMOUT": "6s"}, "nearest known one is HALFOP_RULES__TRANSACTION_TIMEOUT"),
        (
            [],
            {"HALFOP_WAREHOSE": "x"},
            "environment variable HALFOP_WAREHOSE: unknown; the nearest known one is HALFOP_WAREHOUSE",
        ),
    ],
)
def test_what_is_refused_names_key_source_and_way_out(
    config: Path, overrides: list[str], environ: dict[str, str], said: str
) -> None:
    assert said in refusal(config, *overrides, **environ)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "rules: {transaction_timout: 6s}",
            "rules.transaction_timout (FILE): unknown key; the nearest known one is rules.transaction_timeout",
        ),
        ("rulez: {}", "rulez (FILE): unknown key"),
        ("rules: {transaction_timeout: 6}", "rules.transaction_timeout (FILE): expected a duration"),
        ("rules: 5", "rules (FILE): expected settings under it, given 5"),
        ("rules: {topics: {1: {transaction_check_max: 1}}}", "put it in quotes"),
        ("rules: {topics: {a.b: {transaction_check_max: 1}}}", "rules.topics.a.b (FILE): expected a name of RocketMQ"),
        ("rules: {ask: true}\nrules: {ask: false}", "rules is given twice"),
        ("rules: {ask: true}\nrules.ask: true", "rules.ask (FILE): is given twice"),
        ("rules.ask: true\nrules: {ask: true}", "rules.ask (FILE): is given twice"),
        ("rules.transaction_timout: 6s", "rules.transaction_timout (FILE): unknown key; the nearest"),
        ("rules.topics.a.b: 1", "rules.topics.a.b (FILE): unknown key"),
        ("topics.threads.value.format: text", "topics.threads (FILE): is a setting of all topics"),
        ("1.5: {ask: true}", "the name 1.5 is no text: put it in quotes"),
        ("topics: {threads: {a: 1}}", 'topics.threads (FILE): expected integer, given {"a": 1}'),
        ('warehouse: ""', "warehouse (FILE): expected a text, given"),
        ("- rules", "FILE: expected settings by key"),
        ("rules: {", "FILE: no valid YAML"),
        ("? [a]\n: 1", "FILE: no valid YAML"),
        (b"\xff\xfe\x00", "FILE: no valid YAML"),
        (b"a: \x00", "FILE: no valid YAML"),
        (None, "FILE: can't be read"),
    ],
)
def test_what_is_refused_in_a_file(tmp_path: Path, content: str | bytes | None, said: str) -> None:
    file = tmp_path / "own.yaml"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert said.replace("FILE", str(file)) in refusal(file)


GROUP = "resolve: {groups: {g: {query: SELECT 1, "


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            GROUP + "qury: x}}}",
            "resolve.groups.g.qury (FILE): unknown key; the nearest known one is resolve.groups.g.query",
        ),
        (GROUP + "by: body.id}}}", "resolve.groups.g.by (FILE): expected uniq_key, keys, or body and a JSON path"),
        (GROUP + "absent_after: 1h}}}", "resolve.groups.g.watermark (FILE): expected with absent_after: old data"),
        (
            GROUP + "absent_after: 1h, watermark: SELECT 1}}}",
            "resolve.groups.g.complete_since (FILE): expected with absent_after: the time",
        ),
        (
            GROUP + "absent_after: 1h, watermark: SELECT 1, complete_since: 3 days}}}",
            "resolve.groups.g.complete_since (FILE): expected a time, as 2024-01-01T00:00:00Z, or a query",
        ),
        (GROUP + "evidence: 3}}}", "resolve.groups.g.evidence (FILE): expected names"),
        ("resolve: {groups: {g: {by: keys}}}", "resolve.groups.g (FILE): expected a query"),
        (
            GROUP + "tables: {t: {path: a, table: b}}}}}",
            "resolve.groups.g.tables.t (FILE): expected one of path, table",
        ),
        (GROUP + "tables: {t: {url: a}}}}}", "resolve.groups.g.tables.t (FILE): expected url and dbtable together"),
        (GROUP + "tables: {a b: {path: a}}}}}", "resolve.groups.g.tables.a b (FILE): expected a name of SQL"),
        (GROUP + "tables: {Open_Transactions: {path: a}}}}}", "expected a name of SQL other than open_transactions"),
        (
            GROUP + "tables: {t: {table: a, properties: {fetchsize: 10}}}}}}",
            "tables.t.properties.fetchsize (FILE): expected",
        ),
        (
            GROUP + "tables: {t: {url: a, dbtable: b, properties: {password: c}}}}}}",
            "expected no password, but password_env",
        ),
        (GROUP + "tables: {t: {path: 's3a://AKIA:hun/ter2@lake/t'}}}}}", "expected no secret in path: every run would"),
        (GROUP + "tables: {t: {url: 'jdbc:x://me:pw@h/d', dbtable: b}}}}}", "expected no password, but password_env"),
    ],
)
def test_what_is_refused_of_business_data(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(content)
    assert said.replace("FILE", str(file)) in refusal(file)


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:sqlserver://h:1433;databaseName=d;user=me;PWD=hush",
        "jdbc:sqlserver://h;authentication=x;accessToken=hush",
        "jdbc:snowflake://h/?user=me&token=hush",
        "jdbc:databricks://h:443;AuthMech=3;UID=token;Pwd=hush",
        "jdbc:mysql://h/d?user=me&password=hush",
        "jdbc:mysql://(host=h,user=me,password=hush)/d",
        "jdbc:bigquery://h;OAuthClientSecret=hush;ProjectId=p",
        "jdbc:postgresql://me:hush@h/d",
        "jdbc:postgresql://me:pw/hush@h/d",
        "jdbc:postgresql://me:pw@hush@h/d",
        "jdbc:postgresql://me:p;w=hush@h/d",
        "jdbc:oracle:thin:me/hush@h:1521:d",
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(GROUP + f"tables: {{t: {{url: '{url}', dbtable: b}}}}}}}}}}")
    said = refusal(file)
    assert "expected no password, but password_env" in said
    assert "hush" not in redacted(url)
    assert "hush" not in said


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:sqlserver://h:1433;databaseName=tokens;user=me",
        "jdbc-secretsmanager:mysql://h:3306/d?secretsManagerSecretId=arn",
        "jdbc:mysql://h:3306/passwords?allowPublicKeyRetrieval=true",
        "jdbc:sqlserver://h:1433;databaseName=d;user=me@tenant",
        "jdbc:postgresql://h1:5432,h2:5432/d?user=me@tenant",
        "jdbc:oracle:thin:@//h:1521/d",
        "jdbc:derby:/data/shop;create=true",
    ],
)
def test_a_url_without_a_secret_is_taken_as_it_is(tmp_path: Path, url: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(GROUP + f"tables: {{t: {{url: '{url}', dbtable: b}}}}}}}}}}")
    assert loaded(file).resolve.groups["g"].tables["t"].url == url == redacted(url)


@pytest.mark.parametrize(
    "given",
    [
        "resolve.groups.g.tables.t.properties.pwd=4711",
        "metrics.push_gateway=http://me:4711@push:9091",
        "resolve.groups.g.tables.t.path={token: '4711'}",
        "rules=[{password: 4711}]",
        "topics.threads=user=me, password: 4711",
        "topics.threads={'password':4711}",
        'topics.threads={"password": "a, b 4711"}',
        *(
            f"resolve.groups.g.tables.t.properties={each}"
            for each in (
                "{user: me, password: 4711}",
                "{user: me, password: '4711'}",
                "{user: me, password: '4711'",
                "user=me, password: 4711",
                "password:4711",
                "pass: |\n 4711",
            )
        ),
    ],
)
def test_no_refusal_shows_a_secret(tmp_path: Path, given: str) -> None:
    key, _, text = given.partition("=")
    file = tmp_path / "own.yaml"
    file.write_text(json.dumps({key: text}))
    for said in (refusal(file), refusal(None, given), refusal(None, **{_variable(key): text})):
        assert "4711" not in said


def _variable(key: str) -> str:
    return "HALFOP_" + "__".join(part if len(part) == 1 else part.upper() for part in key.split("."))


def test_nothing_that_cannot_be_read_shows_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("password: 4711: 1")
    assert "4711" not in refusal(file)
    assert "4711" not in refusal(None, "rules: {password: 4711}")


def test_a_mapping_in_every_layer(tmp_path: Path) -> None:
    table = "resolve.groups.g.tables.t"
    others = ["resolve.groups.g.query=SELECT 1", f"{table}.url=jdbc:x://h/d", f"{table}.dbtable=o"]
    text = "{user: me, fetchsize: '10'}"
    for settings in (
        loaded(None, *others, f"{table}.properties={text}"),
        loaded(None, *others, **{_variable(f"{table}.properties"): text}),
    ):
        found = settings.resolve.groups["g"].tables["t"].properties
        assert found == {"user": "me", "fetchsize": "10"}
    said = refusal(None, *others, f"{table}.properties=me")
    assert said == f"{table}.properties (--set): expected texts by their names, as {{user: me}}"
    assert f"{table}.properties.1 (--set): expected string" in refusal(None, *others, f"{table}.properties={{1: a}}")


@pytest.mark.parametrize("secret", ["4711", "hun/ter2", "47/11", "a=/b"])
def test_no_warehouse_has_a_secret_in_its_name(secret: str) -> None:
    with pytest.raises(UsageError, match=r"s3a://AKIA:\*\*\*@lake/w: expected no secret"):
        assert Settings(warehouse=f"s3a://AKIA:{secret}@lake/w").warehouse_root


@pytest.mark.parametrize("root", ["hdfs://nn:8020/user/me@b.com/w", "abfss://c@a.dfs.core.windows.net/w"])
def test_a_warehouse_without_a_secret_is_taken(root: str) -> None:
    assert Settings(warehouse=root).warehouse_root == root


def test_settings_that_an_older_version_recorded_with_a_secret_can_be_read() -> None:
    recorded = json.loads(Settings().as_json())
    table = {"url": "jdbc:sqlserver://h;PWD=hush", "dbtable": "b"}
    recorded["resolve"] = {"groups": {"g": {"query": "SELECT 1", "tables": {"t": table}}}}
    assert Settings.from_json(json.dumps(recorded)).resolve.groups["g"].tables["t"].dbtable == "b"


def test_every_problem_is_told_at_once(config: Path) -> None:
    assert len(refusal(config, "a=1", "rules.ask=7", "run.max_rows=x", HALFOP_B="1").splitlines()) == 4


@pytest.mark.parametrize(
    "content", ["", "# nothing", "rules:\n  # all commented out", "rules: {groups: , topics: {T: }}"]
)
def test_an_empty_file_or_section_sets_nothing(tmp_path: Path, content: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    assert loaded(file) == Settings()


def test_recorded_settings_come_back(config: Path) -> None:
    settings = loaded(config, "rules.topics.T.transaction_timeout=1m", "catalog.schema=lake.half")
    assert Settings.from_json(settings.as_json()) == settings
    assert "\n" not in settings.as_json()
    assert (
        loaded(config, "rules.transaction_timeout=60s").as_json()
        == loaded(config, "rules.transaction_timeout=1m").as_json()
    )


def test_a_group_without_a_limit_is_recorded_as_such(config: Path) -> None:
    """Left out, the general limit counts: so an earlier version recorded null."""
    unlimited = loaded(config, "rules.groups.g.checks_a_run=null", "rules.groups.other.transaction_timeout=1m")
    both = [unlimited, Settings.from_json(unlimited.as_json())]
    assert [each.rules.groups["g"].limits_checks for each in both] == [True, True]
    assert [each.rules.groups["other"].limits_checks for each in both] == [False, False]
    earlier = unlimited.as_json().replace('"no limit"', "null")
    assert not Settings.from_json(earlier).rules.groups["g"].limits_checks


def test_a_limit_that_an_older_version_let_pass_is_read_as_the_greatest_that_a_run_can_go_by() -> None:
    recorded = json.loads(Settings().as_json())
    recorded["rules"] |= {"transaction_check_max": 2**63, "checks_a_run": 3 * 10**9}
    recorded["rules"]["groups"] = {"g": {"checks_a_run": 3 * 10**9}}
    rules = Settings.from_json(json.dumps(recorded)).rules
    assert {rules.transaction_check_max, rules.checks_a_run, rules.groups["g"].checks_a_run} == {2**31 - 1}


@pytest.mark.parametrize("text", ["", "[]", '{"rules": {"new_rule": 1}}'])
def test_settings_recorded_by_another_version_are_named(text: str) -> None:
    with pytest.raises(HalfopError, match="recorded settings that this version of halfop can't read") as refused:
        Settings.from_json(text)
    assert refused.value.exit_status == 1


@pytest.mark.parametrize(
    ("warehouse", "root"),
    [
        (None, "HOME/warehouse"),
        ("s3a://bucket/halfop/", "s3a://bucket/halfop"),
        ("file:/data/w", "file:/data/w"),
        ("/data/w/", "/data/w"),
        ("w", "CWD/w"),
    ],
)
def test_warehouse_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warehouse: str | None, root: str) -> None:
    monkeypatch.setenv("HALFOP_HOME", "/opt/halfop")
    monkeypatch.chdir(tmp_path)
    expected = root.replace("HOME", "/opt/halfop").replace("CWD", str(Path.cwd()))
    assert Settings(warehouse=warehouse).warehouse_root == expected


@pytest.mark.parametrize("scheme", ["s3", "S3n"])
def test_a_scheme_without_safe_commits_is_refused(scheme: str) -> None:
    with pytest.raises(UsageError, match="give it as s3a:"):
        _ = Settings(warehouse=f"{scheme}://bucket/halfop").warehouse_root


def test_the_default_file_is_the_one_in_halfop_home(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/halfop.yaml").write_text("topics: {threads: 3}")
    assert loaded(None, HALFOP_HOME=str(tmp_path)).topics.threads == 3


@pytest.mark.process
def test_from_a_zip_the_packaged_file_is_read_and_no_warehouse_is_guessed(tmp_path: Path) -> None:
    archive = tmp_path / "halfop.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for folder in ("", "frame/", "rocketmq/", "settings/"):
            for file in (ROOT / "lib/halfop" / folder).glob("*.py"):
                packed.write(file, f"halfop/{folder}{file.name}")
        packed.writestr("halfop/conf/halfop.yaml", "topics: {threads: 5}")
    program = (
        "from halfop.settings.load import load_settings; s = load_settings(None); print(s.topics.threads)\n"
        "try: s.warehouse_root\n"
        "except Exception as e: print(e)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HALFOP_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environ | {"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("5\nwhich warehouse?")


def test_shipped_configuration_is_the_defaults() -> None:
    assert loaded(ROOT / "conf/halfop.yaml") == Settings()
    made = GENERATOR["default_config"]()
    assert (ROOT / "conf/halfop.yaml").read_text() == made, "python tools/settings_reference.py yaml"


def test_reference_page_is_the_models() -> None:
    assert (ROOT / "docs/settings.md").read_text() == GENERATOR["reference"](), "python tools/settings_reference.py"


def test_a_topic_has_settings_of_its_own(tmp_path: Path) -> None:
    """A path begins at the file's folder, and a run records what the file of a schema held."""
    (tmp_path / "order.avsc").write_text('{"type": "record", "name": "R", "fields": []}')
    (tmp_path / "order.desc").write_bytes(b"\x00\xff")
    config = tmp_path / "halfop.yaml"
    config.write_text(
        "topics:\n  layout: per_topic\n"
        "  orders: {value: {format: avro, schema: order.avsc}}\n"
        "  pays: {value: {format: protobuf, schema: order.desc, message: shop.Pay}}\n"
    )
    found = loaded(config, "topics.notes.value.format=text", HALFOP_TOPICS__logs__VALUE__FORMAT="text")
    recorded = Settings.from_json(found.as_json())
    assert recorded == found
    assert {topic: value.schema_ for topic, value in recorded.topics.values.items()} == {
        "orders": '{"type": "record", "name": "R", "fields": []}',
        "pays": "base64:AP8=",
        "logs": None,
        "notes": None,
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("topics: {threads: {value: {format: text}}}", "topics.threads (FILE): is a setting of all topics"),
        ("topics: {orders: {value: {schema: a INT}}}", "topics.orders.value (FILE): expected format, too"),
        ("topics: {orders: {value: {format: json}}}", "topics.orders.value (FILE): format json needs schema"),
        ("topics: {orders: {value: {format: text, schema: a INT}}}", "format text has no schema"),
        ("topics: {orders: {value: {format: json, schema: a INTT}}}", "schema: a: expected a type"),
        ("topics: {orders: {value: {format: avro, schema: none.avsc}}}", "can't be read: No such file or directory"),
        ("topics: {layout: single, orders: {value: {format: text}}}", "set layout per_topic, or remove them"),
        ("topics: {layout: single, orders: {change_feed: true}}", "which cannot have settings of orders"),
        ("topics: {orders: {cluster_by: [a, a]}}", "expected at most 4 names of columns with , between, each once"),
        ("topics: {orders: {cluster_by: 'a,b,c,d,e'}}", "expected at most 4 names of columns"),
        ("topics: {threads: {change_feed: true}}", "topics.threads (FILE): is a setting of all topics"),
        ("topics: {layuot: single}", 'topics.layuot (FILE): expected settings under it, given "single"; the nearest'),
        ("topics: {a.b: {value: {format: text}}}", "'a.b' is no name of a topic"),
    ],
)
def test_what_is_refused_of_a_topic(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(content)
    assert said.replace("FILE", str(file)) in refusal(file)


def test_a_topic_named_as_a_setting_of_all_has_none(config: Path) -> None:
    assert "is a setting of all topics" in refusal(config, "topics.threads.value.format=text")
