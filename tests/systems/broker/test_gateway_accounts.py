"""What a gateway decides with accounts as mqadmin prints them (ACL 2.0), and what the real broker that had them did."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.rocketmq.frames import Frame, Splitter
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.wire.remoting import VERSION, Credentials, RemotingSettings
from halfop.warehouse.kernel import KernelWarehouse
from support.gateway.clients import raw
from support.gateway.gateways import gateway
from support.gateway.policies import CLUSTER, RECORDED, SOURCES, TOPICS, Request, User, end, generated, requests, send

from systems.broker.followed import LOG
from systems.broker.real_broker import RealBroker, broker
from systems.broker.tools import MqAdmin

pytestmark = pytest.mark.broker
OWNER = Credentials("owner", "secret-of-owner")
CREATE_USER, CREATE_ACL = 3001, 3006
COUNT, OF_PLAIN_SUITE = 500, 100


def settings() -> dict[str, object]:
    """A broker's settings by which users must sign, and may do what their policies allow."""
    account = {"username": OWNER.access_key, "password": OWNER.secret_key}
    own = {"accessKey": OWNER.access_key, "secretKey": OWNER.secret_key}
    return {
        "authenticationEnabled": True,
        "authenticationProvider": provider("authentication", "Default"),
        "authenticationMetadataProvider": provider("authentication", "Local", "Metadata"),
        "initAuthenticationUser": json.dumps(account),
        "innerClientAuthenticationCredentials": json.dumps(own),
        "authorizationEnabled": True,
        "authorizationProvider": provider("authorization", "Default"),
        "authorizationMetadataProvider": provider("authorization", "Local", "Metadata"),
        "brokerClusterName": CLUSTER,
    }


def provider(what: str, kind: str, of: str = "") -> str:
    return f"org.apache.rocketmq.auth.{what}.provider.{kind}{what.title()}{of}Provider"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    with broker("proxy", tmp_path_factory.mktemp("broker"), settings()) as found:
        yield found


class Connection:
    """A connection of a user from an address, by which requests go out together."""

    def __init__(self, address: str, credentials: Credentials, source: str = SOURCES[0]) -> None:
        self._socket, self._credentials = raw(address, source), credentials

    def answers(self, asked: Iterable[tuple[int, dict[str, str], bytes]]) -> list[Frame]:
        """The answers, in the order of their requests."""
        signed = [(code, self._credentials.signed(fields, body), body) for code, fields, body in asked]
        frames = [
            Frame(code, 0, n, fields, body=body, version=VERSION).packed()
            for n, (code, fields, body) in enumerate(signed)
        ]
        self._socket.sendall(b"".join(frames))
        splitter, found = Splitter(1 << 20), dict[int, Frame]()
        while len(found) < len(frames):
            content = self._socket.recv(1 << 20)
            assert content, "the connection was closed"
            found |= {each.opaque: each for each in splitter.feed(content)}
        return [found[n] for n in range(len(frames))]

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def create(address: str, users: Sequence[User]) -> None:
    with Connection(address, OWNER) as owner:
        asked = list[tuple[int, dict[str, str], bytes]]()
        for user in users:
            about = {"username": user.name, "password": user.secret, "userType": user.kind, "userStatus": user.status}
            asked.append((CREATE_USER, {"username": user.name}, orjson.dumps(about)))
            subject = f"User:{user.name}"
            rights = {"subject": subject, "policies": user.policies}
            asked.append((CREATE_ACL, {"subject": subject}, orjson.dumps(rights)))
        for each in asked:  # one after the other: the user must be there
            (answer,) = owner.answers([each])
            assert answer.code == AnswerCode.SUCCESS, answer.remark


def printed(home: Path, running: RealBroker) -> str:
    """What mqadmin prints, with the owner's key."""
    home.mkdir()
    mqadmin = MqAdmin(home, running.namesrv)
    mqadmin.signs(OWNER)
    return mqadmin("listUser", "-b", running.address) + mqadmin("listAcl", "-b", running.address)


def asked_at(address: str) -> list[Request]:
    """The requests, with the ends of half messages that are there."""
    with Connection(address, OWNER) as owner:
        sent = owner.answers((send(topic).code, send(topic).fields(), b"body") for topic in TOPICS)
    assert {each.code for each in sent} == {AnswerCode.SUCCESS}, [each.remark for each in sent]
    places = {
        topic: (each.fields["queueOffset"], each.fields["msgId"]) for topic, each in zip(TOPICS, sent, strict=True)
    }
    return requests(lambda topic: end(topic, int(places[topic][0]), int(places[topic][1][-16:], 16)))


def decisions(address: str, users: Iterable[User]) -> dict[str, list[str]]:
    """By user, and for each source: a 1 for each request that is allowed."""
    asked, found = asked_at(address), dict[str, list[str]]()
    for user in users:
        for source in SOURCES:
            with Connection(address, Credentials(user.name, user.secret), source) as connection:
                answers = connection.answers((each.header.code, each.header.fields(), each.body) for each in asked)
            refused = [each.code == AnswerCode.NO_PERMISSION for each in answers]
            found.setdefault(user.name, []).append("".join("01"[not each] for each in refused))
    return found


@pytest.mark.timeout(600)
def test_it_decides_as_a_broker_does(running: RealBroker, tmp_path: Path) -> None:
    users = generated(COUNT)
    create(running.address, users)
    text = printed(tmp_path / "mqadmin", running)
    (tmp_path / "accounts.txt").write_text(text)
    theirs = decisions(running.address, users)
    given = ("--set", f"gateway.acl_file={tmp_path}/accounts.txt", "--set", f"gateway.cluster={CLUSTER}")
    with gateway(tmp_path, *given) as ours:
        assert decisions(ours.address, users) == theirs
    (tmp_path / "printed.txt").write_text("".join(rows_of(users[:OF_PLAIN_SUITE], text)))
    (tmp_path / "decisions.json").write_text(
        "".join(f"{json.dumps({user.name: theirs[user.name]})}\n" for user in users[:OF_PLAIN_SUITE])
    )
    for name in ("printed.txt", "decisions.json"):
        assert (tmp_path / name).read_text() == (RECORDED / name).read_text()


def rows_of(users: Iterable[User], text: str) -> Iterator[str]:
    """The tables' heads, and the rows of these users."""
    names = {user.name for user in users}
    for line in text.splitlines(keepends=True):
        if line.startswith("#") or line.split()[0].removeprefix("User:") in names:
            yield line


def user(name: str, *allowed: tuple[str, str]) -> User:
    """A user that may do these actions on these resources."""
    entries = [{"resource": each, "actions": actions.split(), "decision": "Allow"} for each, actions in allowed]
    return User(name, f"secret-of-{name}", "Normal", "enable", [{"policyType": "Custom", "entries": entries}])


def test_an_end_that_names_another_topic_is_refused_by_a_gateway_alone(running: RealBroker, tmp_path: Path) -> None:
    orders = user("orders", ("Topic:orders", "Pub"))
    create(running.address, [orders])
    (tmp_path / "accounts.txt").write_text(printed(tmp_path / "mqadmin", running))
    with gateway(tmp_path, "--set", f"gateway.acl_file={tmp_path}/accounts.txt") as ours:
        for address, code in ((running.address, AnswerCode.SUCCESS), (ours.address, AnswerCode.NO_PERMISSION)):
            ends = {each.name: each.header for each in asked_at(address)}
            fields = ends["end payments"].fields() | {"topic": "orders"}
            with Connection(address, Credentials(orders.name, orders.secret)) as connection:
                (answer,) = connection.answers([(ends["end payments"].code, fields, b"")])
            assert answer.code == code, answer.remark


def test_a_broker_lands_with_the_rights_that_the_page_names(
    running: RealBroker, warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lander = user("lander", ("Topic:*", "Sub Get"), ("Group:TOOLS_CONSUMER", "Sub"))
    create(running.address, [lander])
    asked_at(running.address)  # sends
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", lander.name)
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", lander.secret)
    remoting = RemotingSettings(credentials=Credentials.from_environment())
    landed = land_broker(warehouse, BrokerRequest(remoting, timedelta(0), namesrv=running.namesrv), LOG)
    assert landed.status == 0, landed.to_json()
    assert warehouse.read("half_messages").count() >= len(TOPICS)
