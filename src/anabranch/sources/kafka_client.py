"""Talking to Kafka: how to reach a cluster, what it has, and the messages between two offsets of a partition.

What is here runs on the driver and in Spark's tasks alike. It knows neither streams nor their rows.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from anabranch.errors import AnabranchError, SourceError, did_you_mean
from anabranch.sources import secrets
from anabranch.sources.registry import Option

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

#: How a cluster is reached, for sources and sinks.
CONNECTION = (
    Option(name="brokers", doc="addresses, as in 'one:9092,two:9092'", required=True),
    Option(
        name="security",
        doc="how connections are guarded",
        default="plaintext",
        choices=("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    ),
    Option(
        name="mechanism",
        doc="how a user is made sure of",
        default="PLAIN",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    ),
    Option(name="username", doc="of SASL"),
    Option(name="password", doc="of SASL", secret=True),
    Option(name="ca", doc="a PEM file: who signed the certificates of the brokers"),
    Option(name="certificate", doc="a PEM file: that of this client"),
    Option(name="certificate_key", doc="a PEM file: the key of it"),
    Option(name="certificate_password", doc="of that key", secret=True),
)
_NAMES = {
    "brokers": "bootstrap.servers",
    "security": "security.protocol",
    "mechanism": "sasl.mechanism",
    "username": "sasl.username",
    "password": "sasl.password",
    "ca": "ssl.ca.location",
    "certificate": "ssl.certificate.location",
    "certificate_key": "ssl.key.location",
    "certificate_password": "ssl.key.password",
}
#: How long one answer of a broker is waited for; and a cluster that was there before, until it is back. In seconds.
ANSWER, RETURN = 10.0, 90.0
#: Names of topics; what else a broker says is none.
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: How many messages are taken from the client at a time.
_AT_A_TIME = 10_000


class Range(NamedTuple):
    """The messages of a partition from one offset to before another."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Partition:
    """A partition as the cluster has it: the first offset that is still there, and the one behind the last."""

    topic: str
    number: int
    low: int
    high: int


def settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """What librdkafka is told, secrets and all: never to be written down or shown."""
    given = secrets.resolve({name: options[name] for name in _NAMES if name in options})
    made = {_NAMES[name]: value for name, value in given.items()}
    if not made.get("security.protocol", "").startswith("sasl"):
        made.pop("sasl.mechanism", None)
    elif "sasl.mechanism" not in made:
        made["sasl.mechanism"] = "PLAIN"
    return {**made, "log_level": 0, "client.id": "anabranch", "topic.metadata.refresh.interval.ms": 30_000}


class Cluster:
    """What there is in a cluster, by one connection."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.name = str(options["brokers"])
        self._admin: AdminClient | None = None
        self.known = False  # whether it was there before, so that it is waited for
        self._denied: str | None = None  # what a broker said of the user or the certificates

    @property
    def admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({**settings(self.options), "error_cb": self._hear})
        return self._admin

    def _hear(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._denied = error.str()

    def matching(self, pattern: str) -> list[str]:
        """The topics whose whole names match a pattern; those of Kafka itself do not count."""
        wanted = re.compile(pattern)
        names = self._retried(lambda: list(self.admin.list_topics(timeout=ANSWER).topics))
        return sorted(
            name for name in names if not name.startswith("__") and TOPIC.fullmatch(name) and wanted.fullmatch(name)
        )

    def describe(self, topics: Sequence[str]) -> dict[str, tuple[str, int]]:
        """For each topic what tells it apart from others that had its name, and the number of its partitions."""
        from confluent_kafka import TopicCollection

        if not topics:
            return {}

        def request() -> dict[str, tuple[str, int]]:
            futures = self.admin.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER)
            found = {topic: future.result() for topic, future in futures.items()}
            return {topic: (str(each.topic_id), len(each.partitions)) for topic, each in found.items()}

        return self._retried(request)

    def look(self, counts: Mapping[str, int], *, committed: bool) -> list[Partition]:
        """Every partition as it is now; with `committed` it ends where transactions are decided."""
        from confluent_kafka.admin import OffsetSpec

        lows = self.offsets(counts, OffsetSpec.earliest(), committed=committed)
        highs = self.offsets(counts, OffsetSpec.latest(), committed=committed)
        return [Partition(topic, number, lows[topic, number], highs[topic, number]) for topic, number in sorted(lows)]

    def since(self, counts: Mapping[str, int], milliseconds: int) -> dict[tuple[str, int], int]:
        """The first offset of each partition with a message of a time or later; -1 where there is none."""
        from confluent_kafka.admin import OffsetSpec

        return self.offsets(counts, OffsetSpec.for_timestamp(milliseconds), committed=False)

    def offsets(self, counts: Mapping[str, int], wanted: Any, *, committed: bool) -> dict[tuple[str, int], int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def request() -> dict[tuple[str, int], int]:
            asked = {TopicPartition(topic, n): wanted for topic, count in counts.items() for n in range(count)}
            futures = self.admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER) if asked else {}
            return {(each.topic, each.partition): int(future.result().offset) for each, future in futures.items()}

        return self._retried(request)

    def _retried(self, request: Callable[[], T]) -> T:
        """An answer of the cluster; one that was there and went away is waited for."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + (RETURN if self.known else ANSWER)
        while True:
            try:
                found = request()
                self.known = True
                return found
            except KafkaException as error:
                self.admin.poll(0)  # has what brokers said of the user told
                if not _passes(error) or self._denied is not None or time.monotonic() > until:
                    raise self.problem(error) from None
                time.sleep(0.2)

    def problem(self, error: Exception) -> SourceError:
        """What a cluster refused, without the secrets that it may repeat."""
        from confluent_kafka import KafkaError

        found = error.args[0] if error.args else None
        code = found.code() if isinstance(found, KafkaError) else None
        message = secrets.hide(found.str() if isinstance(found, KafkaError) else str(error), self.options)
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
            topic = str(self.options.get("topic", ""))
            hint = None
            with contextlib.suppress(Exception):
                hint = did_you_mean(topic, list(self.admin.list_topics(timeout=ANSWER).topics))
            return SourceError(f"there is no topic {topic} at {self.name}", hint=hint or "create it, or check its name")
        if self._denied is not None:
            message, self._denied = secrets.hide(self._denied, self.options), None
        elif code is not None and _passes(error):
            return SourceError(f"Kafka at {self.name} does not answer: {message}", hint="check brokers and security")
        return SourceError(
            f"Kafka at {self.name} refused: {message}", hint="check the user, its password and its rights"
        )


def _passes(error: Exception) -> bool:
    """Whether an error is one of the kind that goes away when a broker is back."""
    from confluent_kafka import KafkaError

    found = error.args[0] if error.args else None
    return isinstance(found, KafkaError) and (
        found.retriable()
        or found.code()
        in (
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._TIMED_OUT,
            KafkaError._TIMED_OUT_QUEUE,
            KafkaError._RESOLVE,
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.OFFSET_NOT_AVAILABLE,
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.NOT_COORDINATOR,
        )
    )


def _silent(_: Any) -> None:
    """Errors are told by the calls that fail, not by a thread of the client."""


# ---- messages

_CONSUMERS: dict[tuple[int, tuple[tuple[str, Any], ...]], list[Consumer]] = {}
_LOCK = threading.Lock()


@contextlib.contextmanager
def _consumer(consumer_settings: Mapping[str, Any]) -> Iterator[Consumer]:
    """A consumer of its own for as long as it is needed; connections are kept for the next one of this process."""
    from confluent_kafka import Consumer

    key = os.getpid(), tuple(sorted(consumer_settings.items()))
    with _LOCK:
        idle = _CONSUMERS.setdefault(key, [])
        consumer = idle.pop() if idle else None
    if consumer is None:
        own = {
            "group.id": "anabranch",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,  # an end that only a marker of a transaction stands before is told after it
            "fetch.queue.backoff.ms": 5,  # else a second passes once as many wait as the client likes to keep
            "error_cb": _silent,
        }
        consumer = Consumer({**consumer_settings, **own})
    try:
        yield consumer
    except BaseException:
        consumer.close()
        raise
    consumer.unassign()
    with _LOCK:
        idle.append(consumer)


def fetch(consumer_settings: Mapping[str, Any], wanted: Range, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The messages of a range in their order, as often as there are; exactly those, or an error.

    It ends by offset, not by number: a compacted topic lacks some, and markers of transactions are none.
    """
    from confluent_kafka import KafkaError, Message, TopicPartition

    where = f"topic {wanted.topic}, partition {wanted.partition}"
    at = wanted.start
    with _consumer(consumer_settings) as consumer:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        until = time.monotonic() + RETURN
        while at < wanted.end:
            taken: list[Message] = []
            # It waits until there are so many; where offsets are missing, for as long as it may.
            came = consumer.consume(min(_AT_A_TIME, wanted.end - at), 0.1)
            if came and not any(map(Message.error, came)) and came[-1].offset() < wanted.end:
                at, taken, came = came[-1].offset() + 1, came, []  # as nearly always: nothing to look at one by one
            for message in came:
                error = message.error()
                if error is None:
                    at = message.offset() + 1
                    if at <= wanted.end:
                        taken.append(message)
                    if at >= wanted.end:
                        break
                elif error.code() == KafkaError._PARTITION_EOF:
                    at = max(at, message.offset())
                elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                    raise SourceError(f"{where}: offset {at} is gone, and was there when the run began")
                elif error.fatal():
                    raise SourceError(f"{where}: {error.str()}")
            if taken:
                until = time.monotonic() + RETURN
                yield batch_of(taken, wanted, columns)
            elif time.monotonic() > until:
                raise SourceError(f"{where}: offset {at} did not arrive", hint="check that the brokers are there")


def batch_of(messages: list[Any], wanted: Range, columns: Collection[str]) -> pa.RecordBatch:
    """These columns of messages of a range."""
    import pyarrow as pa
    from confluent_kafka import Message

    made: dict[str, Callable[[], Any]] = {
        "topic": lambda: pa.repeat(pa.scalar(wanted.topic, pa.string()), len(messages)),
        "partition": lambda: pa.repeat(pa.scalar(wanted.partition, pa.int32()), len(messages)),
        "offset": lambda: pa.array(list(map(Message.offset, messages)), pa.int64()),
        "milliseconds": lambda: pa.array([each.timestamp()[1] for each in messages], pa.int64()),
        "key": lambda: pa.array(list(map(Message.key, messages)), pa.binary()),
        "value": lambda: pa.array(list(map(Message.value, messages)), pa.binary()),
        "headers": lambda: pa.array([_headers(each) for each in messages], _headers_type()),
    }
    chosen = [name for name in COLUMNS if name in columns]
    return pa.RecordBatch.from_arrays([made[name]() for name in chosen], names=chosen)


#: The columns that `fetch` can give, with their types in Spark.
COLUMNS = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "milliseconds": "bigint",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}


def _headers_type() -> Any:
    import pyarrow as pa

    return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _headers(message: Any) -> list[dict[str, Any]]:
    return [{"key": name, "value": _bytes(value)} for name, value in message.headers() or ()]


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def fetch_ranges(
    consumer_settings: Mapping[str, Any],
    ranges: Sequence[Range],
    columns: Collection[str],
    places: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """What a task of Spark does: the messages of the ranges whose places it is given."""
    for batch in places:
        for place in batch.column(0).to_pylist():
            try:
                yield from fetch(consumer_settings, ranges[place], columns)
            except AnabranchError as error:  # says all; a traceback of this file adds nothing
                raise RuntimeError(str(error)) from None
