"""The settings of the gateway."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from halfop.rocketmq.names import LEGAL_NAME
from halfop.settings.values import Duration, Section, duration, like

_TOPICS = like(f"{LEGAL_NAME}(,{LEGAL_NAME})*", "names of topics with commas between")
_ADDRESS = like(r"[^\s:]+:[0-9]{1,5}|\[[0-9a-fA-F:]+\]:[0-9]{1,5}", "host:port")
_MIB = 1 << 20


class GatewaySettings(Section):
    """The gateway, which takes a broker's place for producers of transactional messages: docs/gateway.md."""

    topics: Annotated[str, AfterValidator(_TOPICS)] | None = Field(
        default=None,
        description="The topics that it serves, with commas between. null: every legal topic, if no name server is "
        "given.",
    )
    queues: int = Field(default=4, ge=1, le=1000, description="How many queues each of its topics has.")
    cluster: Annotated[str, AfterValidator(like(LEGAL_NAME, "letters, digits, %, |, _ and -"))] = Field(
        default="halfop", description="The name of its cluster."
    )
    advertise: Annotated[str, AfterValidator(_ADDRESS)] | None = Field(
        default=None, description="The address, host:port, by which producers reach it. null: the one it listens at."
    )
    reject_transactions: bool = Field(
        default=False, description="Whether new messages are refused, as RocketMQ's rejectTransactionMessage does."
    )
    traces: bool = Field(
        default=True,
        description="Whether clients' message traces are taken, and dropped; nobody can read them. false: they are "
        "refused, and clients are told to send none.",
    )
    register_every: Duration = duration("30s", "How often it registers with the name servers.")
    max_connections: int = Field(default=10_000, ge=1, description="How many connections it has at the most.")
    max_body: int = Field(default=4 * _MIB, ge=1, le=32 * _MIB, description="The most bytes of a message's body.")
    frame_time: Duration = duration(
        "10s", "How long a client may take for its TLS handshake, and for a frame that it has begun."
    )
    idle_time: Duration = duration("120s", "How long a client may be silent; RocketMQ's say something every 30 s.")
    unsent_bytes: int = Field(
        default=_MIB,
        ge=1,
        description="Bytes of answers that a client has not taken, above which nothing more is read from it.",
    )
    begun_bytes: int = Field(
        default=256 * _MIB,
        ge=1,
        description="Bytes of frames that clients have begun, all together; above, those that have sent most of one "
        "are dropped.",
    )
    unflushed_bytes: int = Field(
        default=64 * _MIB,
        ge=1,
        description="Bytes not on the disk yet, above which sends are answered with 2; ends above twice as many, and "
        "their messages are asked about.",
    )
    open_messages: int = Field(
        default=5_000_000, ge=1, description="Open half messages, above which sends are answered with 2."
    )
    flush_time: Duration = duration(
        "3s", "How long a send waits for the disk before it is answered with 10; its producer then does nothing."
    )
    disk_percent: int = Field(
        default=90, ge=1, le=100, description="The use of the disk, in percent, above which sends are answered with 14."
    )
    file_size: int = Field(
        default=1024 * _MIB, ge=65_536, description="Bytes of a file of its commit log; a store keeps the size it has."
    )
    look_every: Duration = duration("1s", "How often it looks for new questions in `check_requests`.")
    questions_a_second: int = Field(
        default=100, ge=1, description="How many questions one client gets a second; it drops what it cannot queue."
    )
    ask_sender_first: bool = Field(
        default=True,
        description="Whether a question goes to the client that sent the half message, if it is connected: to its id, "
        "then to its machine. false: to the group's clients in turn.",
    )
    acl_file: str | None = Field(
        default=None,
        description="The file of accounts: RocketMQ's plain_acl.yml, or what mqadmin's listUser and listAcl print. "
        "null: clients need no signature.",
    )
    certificate: str | None = Field(
        default=None, description="The file of its certificate (PEM). null: connections are not encrypted."
    )
    key: str | None = Field(default=None, description="The file of the key of its certificate.")
    client_ca: str | None = Field(
        default=None, description="The file of authorities that sign clients' certificates. null: clients need none."
    )
    audit_file: str | None = Field(
        default=None,
        description="A file of JSON lines: each END_TRANSACTION, account shown and unserved request. SIGHUP opens it "
        "again. null: none.",
    )
    metrics: Annotated[str, AfterValidator(_ADDRESS)] | None = Field(
        default=None, description="The address, host:port, of its pages /metrics and /healthz. null: none."
    )
