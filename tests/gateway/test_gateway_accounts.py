"""Accounts of a gateway: files of both of RocketMQ's forms, and what a real broker decided about the same users."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from halfop.frame.errors import UsageError
from halfop.gateway.account_files import read_accounts
from halfop.gateway.core.accounts import CLUSTER, GET, GROUP, PUB, SUB, Account, Accounts
from halfop.gateway.core.clients import Client
from halfop.gateway.core.effects import AccountShown, Answer, Read, RefusedRequest
from halfop.gateway.core.refusals import Refused
from halfop.rocketmq.frames import Frame, Splitter
from halfop.rocketmq.message import host_bytes
from halfop.rocketmq.names import HALF_TOPIC, AnswerCode
from halfop.rocketmq.requests import EndTransaction, GetRouteinfo, ViewMessage
from halfop.rocketmq.wire.remoting import VERSION, Credentials
from support.gateway.played import BROKER, TOPIC, Game
from support.gateway.played import account as played
from support.gateway.policies import CLUSTER as THEIRS
from support.gateway.policies import RECORDED, SOURCES, Request, end, generated, requests, send

USERS = "#UserName         #Password               #UserType               #UserStatus           \n"
ENTRIES = "#Subject          #PolicyType  #Resource               #Actions              #SourceIp       #Decision \n"
SENDER = "sender            secret                  Normal                  enable                \n"


def entry(resource: str, actions: str, sources: str = "null", decision: str = "Allow", policy: str = "Custom") -> str:
    """A row, as mqadmin prints it."""
    return f"{'User:sender':16}  {policy:10}  {resource:22}  {actions:20}  {sources:24}  {decision:10}\n"


def account(tmp_path: Path, *rows: str, address: str = "127.0.0.1") -> Account:
    """The account `sender` with these entries, as seen from the address."""
    (tmp_path / "accounts").write_text(USERS + SENDER + ENTRIES + "".join(rows))
    known = read_accounts(str(tmp_path / "accounts")).known["sender"]
    return known.seen_from(host_bytes(address, 0)[:-4])


# ---- ACL 2.0 ----


def test_an_exact_name_counts_before_a_prefix_and_deny_before_allow(tmp_path: Path) -> None:
    found = account(
        tmp_path,
        entry("*", "[All]"),
        entry("Topic:*", "[Pub]"),
        entry("Topic:ord*", "[Pub, Sub]", decision="Deny"),
        entry("Topic:orders*", "[Pub]"),
        entry("Topic:orders-eu", "[Pub]"),
        entry("Topic:orders-eu", "[Pub]", decision="Deny"),
    )
    assert found.may("orders-us", PUB)
    assert not found.may("orders-eu", PUB)
    assert not found.may("ordinary", PUB)
    assert found.may("payments", PUB), "the ANY resource counts last, but nothing else is about it"
    assert found.may("payments", SUB)
    assert not found.may("ordinary", SUB)
    assert found.may("readers", SUB, kind=GROUP)
    assert found.may("halfop", GET, kind=CLUSTER)


def test_default_entries_count_if_no_other_is_about_a_request(tmp_path: Path) -> None:
    found = account(tmp_path, entry("Topic:orders", "[Pub]", policy="Default"), entry("*", "[Sub]", decision="Deny"))
    assert found.may("orders", PUB)
    assert not found.may("orders", SUB)
    assert not account(
        tmp_path, entry("Topic:orders", "[Pub]", policy="Default"), entry("*", "[Pub]", decision="Deny")
    ).may("orders", PUB)


@pytest.mark.parametrize(
    ("sources", "address", "may"),
    [
        ("null", "10.1.2.3", True),
        ("[10.1.2.3]", "10.1.2.3", True),
        ("[10.1.2.3]", "10.1.2.4", False),
        ("[192.168.0.1, 10.1.0.0/16]", "10.1.2.4", True),
        ("[10.1.2.4/31]", "10.1.2.6", False),
        ("[fd00::/8]", "fd00::1", True),
    ],
)
def test_an_entry_counts_for_its_source_addresses(tmp_path: Path, sources: str, address: str, may: bool) -> None:
    assert account(tmp_path, entry("Topic:t", "[Pub]", sources), address=address).may("t", PUB) is may


def test_super_users_may_do_all_and_disabled_ones_are_none(tmp_path: Path) -> None:
    users = "root              x                       Super                   enable\nlost  y  Normal  disable\n"
    (tmp_path / "accounts").write_text(USERS + users + "get user from 127.0.0.1:10911 success.\n")
    known = read_accounts(str(tmp_path / "accounts")).known
    assert set(known) == {"root"}
    assert known["root"].may("any", PUB)


def test_what_each_broker_of_a_cluster_says_alike_counts_once(tmp_path: Path) -> None:
    said = USERS + SENDER + "get user from 127.0.0.1:10911 success.\n"
    (tmp_path / "accounts").write_text(said * 2 + (ENTRIES + entry("Topic:t", "[Pub]")) * 2)
    assert read_accounts(str(tmp_path / "accounts")).known["sender"].may("t", PUB)
    (tmp_path / "accounts").write_text("accounts: [{accessKey: a, secretKey: s}, {accessKey: a, secretKey: s}]")
    assert set(read_accounts(str(tmp_path / "accounts")).known) == {"a"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (USERS + "sender  secret  Normal\n", "line 2 is no row of #UserName"),
        (ENTRIES + entry("Topic:t", "[Pub]"), "User:sender has entries, but is no user here: add what listUser prints"),
        (USERS + SENDER + ENTRIES + entry("Topic:t", "[Publish]"), "PUBLISH is no action"),
        (USERS + SENDER + ENTRIES + entry("Topics:t", "[Pub]", decision="Deny"), "Topics:t is no resource"),
        (USERS + SENDER + ENTRIES + entry("Topic:t", "[Pub]", decision="Maybe"), "MAYBE"),
        (USERS + SENDER + ENTRIES + entry("Topic:t", "[Pub]", "[somewhere]"), "'somewhere' does not appear to be"),
        (
            USERS + SENDER + SENDER.replace("enable ", "disable"),
            "sender is there twice, with different secrets or rights: remove one",
        ),
        ("accounts: [{accessKey: a, secretKey: s}, {accessKey: a, secretKey: t}]", "a is there twice"),
        ("accounts: [{accessKey: a, secretKey: s, groupPerms: [g=READ]}]", "READ is no right: expected PUB, SUB"),
        ("accounts: [{accessKey: a, secretKey: s, groupPerms: [nonsense]}]", "nonsense: expected NAME=PUB"),
        ("nothing here: yet\n" + USERS, "line 1 is no row of a table"),
        ("- neither\n", "expected YAML with `accounts:`"),
        (b"\xff", "expected YAML with `accounts:`"),
    ],
)
def test_a_file_that_is_neither_is_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    path = tmp_path / "accounts"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=f"gateway.acl_file .*{said}"):
        read_accounts(str(path))


# ---- ACL 1.0 ----


def test_the_rights_of_plain_acl(tmp_path: Path) -> None:
    rights = "topicPerms: [orders=PUB, payments=PUB|SUB, secret=DENY], defaultTopicPerm: SUB"
    (tmp_path / "accounts").write_text(f"accounts:\n  - {{accessKey: sender, secretKey: s, {rights}}}\n")
    found = read_accounts(str(tmp_path / "accounts")).known["sender"]
    allowed = {
        name: [each for each in (PUB, SUB, GET) if found.may(name, each)]
        for name in ("orders", "payments", "secret", "others")
    }
    assert allowed == {"orders": [PUB], "payments": [PUB, SUB, GET], "secret": [], "others": [SUB, GET]}
    assert found.may("readers", SUB, kind=GROUP)
    assert not found.may("orders", SUB, GET), "it would read what it may only send"


@pytest.mark.parametrize(
    ("rights", "allowed"),
    [
        ("groupPerms: [TOOLS_CONSUMER=DENY]", ["readers"]),
        ("defaultGroupPerm: DENY", []),
        ("defaultGroupPerm: DENY, groupPerms: [TOOLS_CONSUMER=SUB]", ["TOOLS_CONSUMER"]),
        ("defaultGroupPerm: PUB", []),
    ],
)
def test_the_rights_of_plain_acl_on_groups(tmp_path: Path, rights: str, allowed: list[str]) -> None:
    path = tmp_path / "accounts"
    path.write_text(f"accounts:\n  - {{accessKey: lander, secretKey: s, defaultTopicPerm: SUB, {rights}}}\n")
    found = read_accounts(str(path)).known["lander"]
    assert [name for name in ("TOOLS_CONSUMER", "readers") if found.may(name, SUB, kind=GROUP)] == allowed
    assert found.may("orders", SUB)


@pytest.mark.parametrize("empty", ["accessKey", "secretKey"])
@pytest.mark.parametrize("value", ["", "''"])
def test_an_account_without_a_key_is_refused(tmp_path: Path, empty: str, value: str) -> None:
    """YAML reads nothing as null, whose text was the key: who signed with None was let in."""
    path = tmp_path / "accounts.yml"
    path.write_text(f"accounts:\n- {empty}: {value}\n  {({'accessKey', 'secretKey'} - {empty}).pop()}: given\n")
    with pytest.raises(UsageError, match=f"accounts.yml: {empty} is empty; expected YAML with `accounts:`"):
        read_accounts(str(path))


# ---- what a request needs ----


def test_a_message_is_shown_to_those_who_may_read_its_topic() -> None:
    game = Game()
    half = game.half(game.client())
    game.core.accounts = Accounts({"reader": played("reader", TOPIC, actions=[GET]), "all": played("all", HALF_TOPIC)})
    asked = Request("view", ViewMessage(half.physical_offset))
    for key, allowed in (("reader", True), ("all", False)):
        game.credentials = Credentials(key, "secret")
        assert is_allowed(game, game.client(), asked) is allowed


@pytest.mark.parametrize(
    ("key", "secret", "why"),
    [
        ("sender", "another", "its signature does not match: its secret is another, or it was changed on the way; acc"),
        ("lost", "y", "its account is disabled; access key 'lost'"),
        ("no\nbody", "y", r"there is no such account; access key 'no\nbody'"),
        ("", "", "it is not signed"),
    ],
)
def test_why_a_signature_does_not_count_is_for_the_log_alone(tmp_path: Path, key: str, secret: str, why: str) -> None:
    (tmp_path / "accounts").write_text(USERS + SENDER + "lost  y  Normal  disable\n")
    game = Game()
    game.core.accounts = read_accounts(str(tmp_path / "accounts"))
    client = game.client()
    game.credentials = Credentials("sender", "secret")
    assert game.answer_to(game.asks(client, GetRouteinfo(TOPIC))) is not None
    game.credentials = Credentials(key, secret) if key else None
    answer = game.answer_to(game.asks(client, send(TOPIC), b"body"))
    assert answer is not None
    assert (answer.code, answer.remark[:42]) == (AnswerCode.NO_PERMISSION, "no account of this gateway has signed the ")
    (refused,) = game.effects
    assert isinstance(refused, RefusedRequest)
    assert (refused.remark[: len(why)], refused.account) == (why, None), "nobody is named who has not signed"


def test_an_admin_is_shown_accounts_as_a_broker_shows_them() -> None:
    game = Game()
    orders = played("sender", TOPIC, secret=b"of-sender")
    game.core.accounts = Accounts({"root": Account("root", b"secret", (), admin=True), "sender": orders})
    user, acl = Frame(3004, fields={"username": "sender"}), Frame(3009, fields={"subject": "User:sender"})
    for request in (user, acl):
        answer, shown = asked_by(game, Credentials("sender", "of-sender"), request)
        assert (answer.code, answer.body, shown) == (AnswerCode.NO_PERMISSION, b"", [])
    answer, shown = asked_by(game, Credentials("root", "secret"), user)
    about = {"username": "sender", "password": "of-sender", "userType": "Normal", "userStatus": "enable"}
    assert (json.loads(answer.body), shown) == (about, ["sender"])
    answer, shown = asked_by(game, Credentials("root", "secret"), acl)
    (custom, default) = json.loads(answer.body)["policies"]
    (entry,) = custom["entries"]
    assert (entry["resource"], entry["actions"], entry["decision"]) == ("TOPIC:orders", ["PUB"], "Allow")
    assert (default["entries"], shown) == ([], ["sender"])
    answer, shown = asked_by(game, Credentials("root", "secret"), Frame(3004, fields={"username": "nobody"}))
    assert (answer.code, answer.body, shown) == (AnswerCode.SUCCESS, b"", [])


def asked_by(game: Game, key: Credentials, request: Frame) -> tuple[Frame, list[str]]:
    """The answer, and the accounts that the audit trail has as shown."""
    signed = request._replace(fields=key.signed(request.fields), version=VERSION)
    effects = game.core.request(game.client(), signed, game.now)
    (answer,) = [each.frame for each in effects if isinstance(each, Answer)]
    (frame,) = Splitter(1 << 20).feed(answer)
    return frame, [each.account for each in effects if isinstance(each, AccountShown)]


def test_recorded_decisions_of_a_real_broker() -> None:
    lines = (RECORDED / "decisions.json").read_text().splitlines()
    recorded: dict[str, list[str]] = {name: each for line in lines for name, each in json.loads(line).items()}
    game = Game(broker=replace(BROKER, cluster=THEIRS))
    asked = requests(lambda topic: half_ended(game, topic))
    game.core.accounts = read_accounts(str(RECORDED / "printed.txt"))
    for user in generated(len(recorded)):
        game.credentials = Credentials(user.name, user.secret)
        assert [decisions(game, source, asked) for source in SOURCES] == recorded[user.name], user


def half_ended(game: Game, topic: str) -> EndTransaction:
    """An end of a half message of the topic."""
    game.asks(game.client(), send(topic), b"body")
    game.flush()
    half = next(reversed(game.log.halves.values()))
    return end(topic, half.queue_offset, half.physical_offset)


def decisions(game: Game, source: str, asked: list[Request]) -> str:
    client = game.client(host=host_bytes(source, 1))
    return "".join("01"[is_allowed(game, client, each)] for each in asked)


def is_allowed(game: Game, client: Client, asked: Request) -> bool:
    request = game.asks(client, asked.header, asked.body)
    game.flush()
    answer = game.answer_to(request)
    if answer is None:
        read = game.effects.pop()
        assert isinstance(read, Read)
        try:
            (answer,) = Splitter(1 << 20).feed(read.read())
        except Refused as error:
            return error.code != AnswerCode.NO_PERMISSION
    return answer.code != AnswerCode.NO_PERMISSION
