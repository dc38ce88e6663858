"""Headers of requests and of their answers, by RocketMQ's names, with named fields.

A header is a dataclass that declares its fields once, and reading and writing follow from that: a field's name in a
frame is its own name in camel case, a field with a default may be missing, and one that is None is not written. Numbers
are read as Java reads them. Halfop declares no fields that it neither writes nor reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_type_hints

from halfop.rocketmq.buffers import parse_int, parse_long
from halfop.rocketmq.names import RequestCode

NOT_TYPE, COMMIT_TYPE, ROLLBACK_TYPE = 0, 8, 12  # commitOrRollback of END_TRANSACTION

Int = Annotated[int, parse_int]
Long = Annotated[int, parse_long]
H = TypeVar("H", bound="Header")


class BadHeader(ValueError):
    """A field that is missing, or that is no number that fits, in the words of a broker."""


@dataclass
class Header:
    """The fields of a request, or of an answer, which has no code of its own. Nobody changes them.

    It is not frozen: a gateway makes several for each transaction, and each would take three times as long.
    """

    code: ClassVar[RequestCode]
    letters: ClassVar[str] = ""  # names in a frame, if they are letters

    def __init_subclass__(cls, code: RequestCode | None = None) -> None:
        if code is not None:
            cls.code = code

    @classmethod
    def read(cls: type[H], given: Mapping[str, str]) -> H:
        """Returns the header that a frame's fields hold. Raises BadHeader."""
        header = object.__new__(cls)  # and its attributes, as __init__ makes them, in a third of the time
        values = header.__dict__
        for attribute, name, parse, default in _schema(cls):
            text = given.get(name)
            if text is None:
                if default is MISSING:
                    raise BadHeader(f"the custom field <{name}> is null")
                values[attribute] = default
            elif (found := parse(text) if parse else text) is None:
                raise BadHeader(f"the custom field <{name}> is no number that fits")
            else:
                values[attribute] = found
        return header

    def fields(self) -> dict[str, str]:
        """Returns the fields as a frame has them."""
        given = zip(_schema(type(self)), self.__dict__.values(), strict=True)
        return {
            each[1]: value if value.__class__ is str else _written(value) for each, value in given if value is not None
        }


class _Field(NamedTuple):
    attribute: str
    name: str
    parse: Callable[[str], Any] | None
    default: Any


_SCHEMAS: dict[type[Header], tuple[_Field, ...]] = {}


def _schema(header: type[Header]) -> tuple[_Field, ...]:
    if header not in _SCHEMAS:
        kinds, declared = get_type_hints(header, include_extras=True), fields(header)
        names = header.letters or [each.metadata.get("name") or _camel_case(each.name) for each in declared]
        _SCHEMAS[header] = tuple(
            _Field(each.name, name, _PARSE.get(kinds[each.name]), each.default)
            for each, name in zip(declared, names, strict=True)
        )
    return _SCHEMAS[header]


def _camel_case(name: str) -> str:
    return re.sub("_([a-z])", lambda found: found[1].upper(), name)


def _parse_flag(text: str) -> bool:
    return text.lower() == "true"


_PARSE: Mapping[Any, Callable[[str], Any]] = {Int: parse_int, Long: parse_long, bool: _parse_flag}


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- messages and transactions ----


@dataclass
class SendMessage(Header, code=RequestCode.SEND_MESSAGE):
    producer_group: str
    topic: str
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    default_topic: str = "TBW102"
    default_topic_queue_nums: Int = 4
    properties: str = ""
    reconsume_times: Int = 0
    unit_mode: bool = False
    batch: bool = False


class SendMessageV2(SendMessage, code=RequestCode.SEND_MESSAGE_V2):
    letters = "abefghcdijkm"


@dataclass
class Sent(Header):
    """The answer to SEND_MESSAGE."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str = ""
    region: str = field(default="DefaultRegion", metadata={"name": "MSG_REGION"})
    trace_on: bool = field(default=True, metadata={"name": "TRACE_ON"})


@dataclass
class EndTransaction(Header, code=RequestCode.END_TRANSACTION):
    """`commit_or_rollback` is COMMIT_TYPE, ROLLBACK_TYPE, or NOT_TYPE, which is not answered."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None
    topic: str | None = None


@dataclass
class CheckTransactionState(Header, code=RequestCode.CHECK_TRANSACTION_STATE):
    """A broker's request to a producer."""

    topic: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str
    transaction_id: str
    offset_msg_id: str
    bname: str


@dataclass
class ResumeCheckHalfMessage(Header, code=RequestCode.RESUME_CHECK_HALF_MESSAGE):
    topic: str
    msg_id: str


@dataclass
class UnregisterClient(Header, code=RequestCode.UNREGISTER_CLIENT):
    client_id: str | None = field(default=None, metadata={"name": "clientID"})
    producer_group: str | None = None


class HeartBeat(Header, code=RequestCode.HEART_BEAT): ...


# ---- queues ----


@dataclass
class GetMaxOffset(Header, code=RequestCode.GET_MAX_OFFSET):
    topic: str
    queue_id: Int


class GetMinOffset(GetMaxOffset, code=RequestCode.GET_MIN_OFFSET): ...


@dataclass
class SearchOffset(GetMaxOffset, code=RequestCode.SEARCH_OFFSET_BY_TIMESTAMP):
    timestamp: Long


@dataclass
class QueryConsumerOffset(GetMaxOffset, code=RequestCode.QUERY_CONSUMER_OFFSET):
    consumer_group: str


@dataclass
class Offset(Header):
    """The answer to a question about an offset of a queue."""

    offset: Long


@dataclass
class PullMessage(GetMaxOffset, code=RequestCode.PULL_MESSAGE):
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    consumer_group: str = ""
    subscription: str = "*"
    sub_version: Long = 0
    commit_offset: Long = 0
    suspend_timeout_millis: Long = 0


@dataclass
class Pulled(Header):
    """The answer to PULL_MESSAGE."""

    next_begin_offset: Long = -1
    min_offset: Long = 0
    max_offset: Long = 0
    suggest_which_broker_id: Long = 0


@dataclass
class QueryConsumeQueue(GetMaxOffset, code=RequestCode.QUERY_CONSUME_QUEUE):
    index: Long
    count: Int


@dataclass
class ViewMessage(Header, code=RequestCode.VIEW_MESSAGE_BY_ID):
    offset: Long


@dataclass
class QueryMessage(Header, code=RequestCode.QUERY_MESSAGE):
    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique: bool = field(default=False, metadata={"name": "_UNIQUE_KEY_QUERY"})


# ---- brokers ----


class GetAllTopicConfig(Header, code=RequestCode.GET_ALL_TOPIC_CONFIG): ...


class GetBrokerConfig(Header, code=RequestCode.GET_BROKER_CONFIG): ...


class GetBrokerRuntimeInfo(Header, code=RequestCode.GET_BROKER_RUNTIME_INFO): ...


class GetBrokerClusterInfo(Header, code=RequestCode.GET_BROKER_CLUSTER_INFO): ...


@dataclass
class GetTopicConfig(Header, code=RequestCode.GET_TOPIC_CONFIG):
    topic: str


@dataclass
class GetRouteinfo(Header, code=RequestCode.GET_ROUTEINFO_BY_TOPIC):
    topic: str


@dataclass
class UnregisterBroker(Header, code=RequestCode.UNREGISTER_BROKER):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@dataclass
class RegisterBroker(UnregisterBroker, code=RequestCode.REGISTER_BROKER):
    ha_server_addr: str
    compressed: bool
    body_crc32: Int
