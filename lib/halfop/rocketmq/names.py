"""RocketMQ's names and numbers: topics, properties, request and answer codes; which topics a client may send to."""

from __future__ import annotations

import re
from enum import IntEnum

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
HALF_TOPICS = (HALF_TOPIC, "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
OP_TOPICS = (OP_TOPIC, "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
PROXY_CLIENT = "rmq-proxy-producer-client"  # the client id in a heartbeat of Apache's proxy for its producers
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"  # clients send to it what they have sent, if their message trace is on
CHECK_GROUP = "CID_RMQ_SYS_TRANS"  # a broker's check service reads as this consumer group
# Of a broker that keeps its transactions in RocksDB (from RocketMQ 5.4 on, with transRocksDBEnable=true and
# transWriteOriginTransHalfEnable=false): an op names its half message by its place in the log, its body is a zero byte.
ROCKSDB_TOPICS = (HALF_TOPICS[1], OP_TOPICS[1])
TRANS_OFFSET = "TRANS_OFFSET"
# Their queues are numbered from here on, so that no half key is one of the other half topic's.
ROCKSDB_QUEUES = 1_000_000

REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
PRODUCER_GROUP = "PGROUP"
UNIQ_KEY = "UNIQ_KEY"
TRAN_MSG = "TRAN_MSG"
DELAY = "DELAY"
TIMER = (  # of MessageConst; a broker that delays a message removes them before it delivers
    "TIMER_DELAY_LEVEL",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
    "TIMER_IN_MS",
    "TIMER_OUT_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
    "TIMER_ROLL_LABEL",
    "TIMER_DEL_UNIQKEY",
    "TIMER_DEL_MS",
)
TAGS = "TAGS"
KEYS = "KEYS"
CHECK_IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
WHOLE_CRC = "__CRC32#"  # of the whole record, with enabledAppendPropCRC; a broker removes it when it writes again

# Properties that a half message has and its final message has not.
NOT_DELIVERED = (REAL_TOPIC, REAL_QUEUE_ID, TRAN_MSG, WHOLE_CRC, DELAY, *TIMER)

# In a gateway's store: its name, and an id of its own.
GATEWAY_FILE = "gateway.json"
# Properties of a gateway's op message about its END_TRANSACTION; a broker's op message has none of them.
END_OUTCOME = "END_OUTCOME"
END_FROM_CHECK = "END_FROM_CHECK"
END_GROUP = "END_GROUP"
END_TRANSACTION_ID = "END_TRANSACTION_ID"
END_STATE_TABLE_OFFSET = "END_STATE_TABLE_OFFSET"
END_COMMIT_LOG_OFFSET = "END_COMMIT_LOG_OFFSET"
WAIT = "WAIT"

END_TAG = "d"

GATEWAY_CONFIG = "halfopGateway"  # in the configuration of halfop's gateway: the id of its store

LEGAL_NAME = "[%|a-zA-Z0-9_-]+"  # of a topic, a group, a broker
LEGAL_TOPIC = rf"\A{LEGAL_NAME}\z"  # as Java and Rust write it
_LEGAL_NAME = re.compile(LEGAL_NAME)
TOPIC_MAX_LENGTH = 127
RETRY_OR_DLQ_MAX_LENGTH = 255
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # of messages that a broker delays

# TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET
NOT_ALLOWED_SEND = (
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
)
SYSTEM_PREFIX = "rmq_sys_"

TRANSACTION_TYPE_MASK = 0xC
TRANSACTION_PREPARED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK = 0x4, 0x8, 0xC


def is_legal(name: str) -> bool:
    """Returns whether a name has only the characters that RocketMQ allows."""
    return _LEGAL_NAME.fullmatch(name) is not None


def is_reserved(topic: str) -> bool:
    """Returns whether a topic is RocketMQ's own, to which no client may send."""
    return topic in NOT_ALLOWED_SEND or topic.lower().startswith(SYSTEM_PREFIX)


def topic_fault(topic: str) -> str | None:
    """Returns what a topic's name has that none may have, its first wrong character above all; None if it may be."""
    wrong = next((place for place, character in enumerate(topic) if not is_legal(character)), None)
    if wrong is not None:
        code = f"U+{ord(topic[wrong]):04X}"
        return f"character {wrong + 1} of {len(topic)}, {topic[wrong]!r} ({code}), is none that a topic may have"
    longest = RETRY_OR_DLQ_MAX_LENGTH if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_MAX_LENGTH
    return f"{len(topic)} characters, at most {longest} are allowed" if len(topic) > longest else None


def is_real_topic(topic: str) -> bool:
    """Returns whether a client may send to a topic of that name."""
    return is_legal(topic) and not is_reserved(topic)


def queue_number(topic: str, queue: int) -> int:
    """Returns the number under which a broker's queue lands."""
    return queue + ROCKSDB_QUEUES if topic in ROCKSDB_TOPICS else queue


def queue_there(topic: str, number: int) -> int:
    """Returns the broker's own number of a queue."""
    return number - ROCKSDB_QUEUES if topic in ROCKSDB_TOPICS else number


def topics_of(number: int) -> tuple[str, str]:
    """Returns the half topic and the op topic of half messages that land under that queue number."""
    return ROCKSDB_TOPICS if number >= ROCKSDB_QUEUES else (HALF_TOPIC, OP_TOPIC)


class _Code(IntEnum):
    """A number that is shown as such; before Python 3.11 an IntEnum's text is its name."""

    def __str__(self) -> str:
        return str(int(self))


class RequestCode(_Code):
    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    GET_ALL_TOPIC_CONFIG = 21
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    END_TRANSACTION = 37
    CHECK_TRANSACTION_STATE = 39
    CHECK_CLIENT_CONFIG = 46
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    GET_CONSUME_STATS = 208
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    RESUME_CHECK_HALF_MESSAGE = 323
    GET_TOPIC_CONFIG = 351
    AUTH_GET_USER = 3004
    AUTH_GET_ACL = 3009


# Other requests of RocketMQ's clients and tools, which halfop neither sends nor serves, for people to read.
_OTHERS = """
15 UPDATE_CONSUMER_OFFSET 17 UPDATE_AND_CREATE_TOPIC 22 GET_TOPIC_CONFIG_LIST 23 GET_TOPIC_NAME_LIST
25 UPDATE_BROKER_CONFIG 32 GET_EARLIEST_MSG_STORETIME 36 CONSUMER_SEND_MSG_BACK 38 GET_CONSUMER_LIST_BY_GROUP
41 LOCK_BATCH_MQ 42 UNLOCK_BATCH_MQ 43 GET_ALL_CONSUMER_OFFSET 45 GET_ALL_DELAY_OFFSET
200 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP 201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG 207 DELETE_SUBSCRIPTIONGROUP
205 WIPE_WRITE_PERM_OF_BROKER 215 DELETE_TOPIC_IN_BROKER 216 DELETE_TOPIC_IN_NAMESRV 222 INVOKE_BROKER_TO_RESET_OFFSET
224 GET_TOPICS_BY_CLUSTER 304 GET_SYSTEM_TOPIC_LIST_FROM_NS 305 GET_SYSTEM_TOPIC_LIST_FROM_BROKER
307 GET_CONSUMER_RUNNING_INFO 309 CONSUME_MESSAGE_DIRECTLY 315 VIEW_BROKER_STATS_DATA 317 GET_BROKER_CONSUME_STATS
318 UPDATE_NAMESRV_CONFIG 319 GET_NAMESRV_CONFIG 324 SEND_REPLY_MESSAGE 325 SEND_REPLY_MESSAGE_V2
328 GET_ALL_PRODUCER_INFO 343 QUERY_TOPICS_BY_CONSUMER 352 GET_SUBSCRIPTIONGROUP_CONFIG 361 LITE_PULL_MESSAGE
400 QUERY_ASSIGNMENT 901 GET_BROKER_MEMBER_GROUP 3001 AUTH_CREATE_USER 3002 AUTH_UPDATE_USER 3003 AUTH_DELETE_USER
3005 AUTH_LIST_USER 3006 AUTH_CREATE_ACL 3007 AUTH_UPDATE_ACL 3008 AUTH_DELETE_ACL 3010 AUTH_LIST_ACL
200050 POP_MESSAGE 200051 ACK_MESSAGE 200053 CHANGE_MESSAGE_INVISIBLETIME 200054 NOTIFICATION
"""
REQUEST_NAMES: dict[int, str] = {int(code): name for code, name in re.findall(r"(\d+) (\w+)", _OTHERS)}
REQUEST_NAMES |= {int(code): code.name for code in RequestCode}


class AnswerCode(_Code):
    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_NOT_EXIST = 24
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    FLOW_CONTROL = 215
    ILLEGAL_OPERATION = 604
