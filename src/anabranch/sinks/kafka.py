"""Sinks that write a topic of Kafka: the changes of a view, the newest row of each key, or what Debezium would send.

A version of the view is one transaction, and each message says in its headers which version it is of, which place it
has in it, and whether it is the last: so the topic itself says how far it is. Without transactions a version that a
crash cut off is written again as a whole, and the headers tell the messages that came twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anabranch.errors import SinkError, SourceError, did_you_mean
from anabranch.ledger.crash import reach
from anabranch.sinks.base import Owner
from anabranch.sinks.formats import json_text
from anabranch.sinks.kinds import SinkKind
from anabranch.sources.kafka_client import CONNECTION, RETURN, TOPIC, Cluster, Range, fetch, settings
from anabranch.sources.registry import Option, WrongOption
from anabranch.types import Field

if TYPE_CHECKING:
    from confluent_kafka import Producer

#: The headers of a message: whose it is, its version, its place in the version, and what is said of the version.
SINK, VERSION, ORDINAL, SAID = "anabranch-sink", "anabranch-version", "anabranch-ordinal", "anabranch-said"
#: What is said of a version: nothing, that this is its last message, that it is the whole answer.
LAST, WHOLE = "last", "whole"
#: How long a transaction may take before brokers give it up: the longest that they allow unless told otherwise.
_TRANSACTION = 900_000
#: How many offsets are looked at first, from the end of a partition, for the last message of this sink.
_TAIL = 64

#: Key and value of a message.
Message = tuple[str | None, str | None]


class KafkaTopic:
    """A topic that belongs to one sink."""

    whole = False

    def __init__(self, options: Mapping[str, Any], owner: Owner) -> None:
        self.options = options
        self.owner = owner
        self.topic = str(options["topic"])
        self.mode = str(options.get("mode", "changes"))
        self.key = [name.strip() for name in str(options.get("key", "")).split(",") if name.strip()]
        self.transactional = bool(options.get("exactly_once", True))
        self.cluster = Cluster(options)

    def check(self, fields: Sequence[Field]) -> None:
        names = {field.name.lower(): field.name for field in fields}
        missing = next((name for name in self.key if name.lower() not in names), None)
        if missing is not None:
            raise SinkError(f"the view shows no column {missing}", hint=did_you_mean(missing, names.values()))
        if self.topic not in self.cluster.matching(".*"):
            self._make()
        elif any(each.high for each in self._partitions(committed=False)):
            raise SinkError(
                f"the topic {self.topic} has messages already", hint="give each sink a topic of its own, and a new one"
            )

    def _make(self) -> None:
        from confluent_kafka.admin import NewTopic

        kept = {"cleanup.policy": "compact"} if self.mode == "upsert" else {"retention.ms": "-1"}
        wanted = NewTopic(self.topic, int(self.options.get("partitions", 1)), -1, config=kept)
        future = self.cluster.admin.create_topics([wanted])[self.topic]
        try:
            future.result()
        except Exception as error:
            raise SinkError(f"the topic {self.topic} could not be created: {error}", hint="create it by hand") from None

    def position(self) -> int | None:
        """The last version that is wholly in the topic, as its last messages say."""
        partitions = self._partitions(committed=True)
        tails = [
            tail for each in partitions if (tail := self._tail(Range(each.topic, each.number, each.low, each.high)))
        ]
        if tails:
            version = max(version for version, _, _ in tails)
            recorded = {word for number, _, words in tails if number == version for word in words}
            return version if LAST in recorded else None if WHOLE in recorded else version - 1
        # One that was never written to is empty from the start; aborted messages leave offsets behind, and no others.
        if any(each.low for each in partitions):
            raise SinkError(
                f"no message of this sink is left in the topic {self.topic}, so its position is not known",
                hint="keep messages for longer (retention.ms); drop the sink, and create another one with a new topic",
            )
        return None

    def _partitions(self, *, committed: bool) -> list[Any]:
        try:
            counts = {topic: count for topic, (_, count) in self.cluster.describe([self.topic]).items()}
            return self.cluster.look(counts, committed=committed)
        except SourceError as error:
            raise SinkError(error.message, hint=error.hint) from None

    def _tail(self, whole: Range) -> tuple[int, int, list[str]] | None:
        """Version, ordinal and what is said by the last message of this sink in a partition; None if there is none."""
        consumer_settings = {**settings(self.options), "isolation.level": "read_committed"}
        end, width = whole.end, _TAIL
        while end > whole.start:
            part = whole._replace(start=max(whole.start, end - width), end=end)
            for batch in reversed(list(fetch(consumer_settings, part, ("headers",)))):
                for headers in reversed(batch.column(0).to_pylist()):
                    marks = {each["key"]: (each["value"] or b"").decode(errors="replace") for each in headers}
                    if marks.get(SINK) == self.owner.application:
                        return int(marks[VERSION]), int(marks[ORDINAL]), marks.get(SAID, "").split()
            end, width = part.start, width * 8
        return None

    def tidy(self) -> None:
        """Have the brokers give up what a process that died left unfinished."""
        if self.transactional:
            _ = self._producer

    @cached_property
    def _producer(self) -> Producer:
        from confluent_kafka import KafkaException, Producer

        settings_of_producer = {
            **settings(self.options),
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",  # the same partitions for the same keys as of producers in Java
        }
        if not self.transactional:
            return Producer(settings_of_producer)
        made = Producer(
            {**settings_of_producer, "transactional.id": self.owner.application, "transaction.timeout.ms": _TRANSACTION}
        )
        try:
            made.init_transactions(RETURN)
        except KafkaException as error:
            raise self._sink_error(error) from None
        return made

    def start(self, version: int, rows: Any) -> None:
        self._write(version, self._messages(version, rows, start=True), (WHOLE,))

    def apply(self, version: int, changes: Any) -> None:
        self._write(version, self._messages(version, changes, start=False), ())

    def _write(self, version: int, messages: Iterator[Message], marks: tuple[str, ...]) -> None:
        """One version; its last message only after all others have arrived.

        What an error leaves unfinished is given up by the brokers when the next one who writes begins (`tidy`).
        """
        from confluent_kafka import KafkaException

        last = next(messages, None)
        if last is None:
            return
        producer = self._producer
        try:
            if self.transactional:
                producer.begin_transaction()
            self._failed: list[str] = []
            ordinal = 0
            for message in messages:
                self._send(producer, last, version, ordinal, marks)
                last, ordinal = message, ordinal + 1
            self._flush(producer)
            self._send(producer, last, version, ordinal, (*marks, LAST))
            self._flush(producer)
            reach("before-sink-commit")
            if self.transactional:
                producer.commit_transaction(RETURN)
        except KafkaException as error:
            raise self._sink_error(error) from None
        reach("after-sink-commit")

    def _send(self, producer: Producer, message: Message, version: int, ordinal: int, marks: tuple[str, ...]) -> None:
        headers = [(SINK, self.owner.application), (VERSION, str(version)), (ORDINAL, str(ordinal))]
        if marks:
            headers.append((SAID, " ".join(marks)))
        while True:
            try:
                producer.produce(self.topic, message[1], message[0], headers=headers, on_delivery=self._delivered)
                producer.poll(0)
                return
            except BufferError:
                producer.poll(0.1)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(error.str())

    def _flush(self, producer: Producer) -> None:
        until = time.monotonic() + RETURN
        while producer.flush(1.0) and time.monotonic() < until:
            pass
        if self._failed or len(producer):
            raise self._sink_error(self._failed[0] if self._failed else "messages did not arrive")

    def _sink_error(self, error: Any) -> SinkError:
        found = error.args[0].str() if isinstance(error, Exception) and hasattr(error.args[0], "str") else str(error)
        hint = "check the brokers and the user's rights; it is tried again"
        return SinkError(f"the topic {self.topic} at {self.cluster.name} could not be written: {found}", hint=hint)

    # ---- messages

    def _messages(self, version: int, changes: Any, *, start: bool) -> Iterator[Message]:
        names = [name for name in changes.column_names if name != "_diff"]
        lower = {name.lower(): name for name in names}
        own = [lower[name.lower()] for name in self.key]
        if self.mode == "changes":
            for row in _rows(changes):
                key = _object(own, row) if own else None
                yield key, _object([*names, "_diff", "_version"], {**row, "_version": version})
            return
        before: dict[str, str | None] = {}
        after: dict[str, str | None] = {}
        net: dict[str, Counter[str]] = {}
        for row in _rows(changes):
            net.setdefault(_object(own, row), Counter())[_object(names, row)] += row["_diff"]
        for key, counts in net.items():
            shown, gone = list((+counts).elements()), list((-counts).elements())
            if len(shown) > 1 or len(gone) > 1:
                columns = ", ".join(self.key)
                raise SinkError(
                    f"the view shows two rows for the key {key}",
                    hint=f"{columns} must tell its rows apart: drop the sink, and name other columns in key => '...'",
                )
            if shown or gone:
                before[key], after[key] = gone[0] if gone else None, shown[0] if shown else None
        for key, row_after in after.items():
            if self.mode == "upsert":
                yield key, row_after
            else:
                yield from _envelope(key, before[key], row_after, version, start)


def _rows(changes: Any) -> Iterator[dict[str, Any]]:
    for batch in changes.to_batches(10_000):
        yield from batch.to_pylist()


def _object(names: Sequence[str], row: Mapping[str, Any]) -> str:
    return "{" + ",".join(f"{json_text(name)}:{json_text(row[name])}" for name in names) + "}"


def _envelope(key: str, before: str | None, after: str | None, version: int, start: bool) -> Iterator[Message]:
    """What Debezium sends for a change of a row: an envelope, and a tombstone behind one that is gone."""
    operation = "d" if after is None else "r" if start else "c" if before is None else "u"
    source = f'{{"connector":"anabranch","version":{version}}}'
    yield key, f'{{"before":{before or "null"},"after":{after or "null"},"source":{source},"op":"{operation}"}}'
    if after is None:
        yield key, None


def _check(options: Mapping[str, Any]) -> None:
    if not TOPIC.fullmatch(str(options["topic"])):
        raise WrongOption("topic", f"{options['topic']!r} cannot be the name of a topic")
    if options.get("mode", "changes") != "changes" and not options.get("key"):
        raise SourceError(
            f"the mode {options['mode']} needs a key", hint="the columns that tell rows apart: key => 'k, window_start'"
        )


KINDS = (
    SinkKind(
        name="kafka",
        doc="a topic of Kafka",
        example="kafka(brokers => 'localhost:9092', topic => 'totals', mode => 'upsert', key => 'k')",
        options=(
            *CONNECTION[:1],
            Option(name="topic", doc="a topic of its own, made if it is not there", required=True),
            Option(
                name="mode",
                doc="'changes' with _diff and _version, the newest row of each key, or envelopes as of Debezium",
                default="changes",
                choices=("changes", "upsert", "debezium"),
            ),
            Option(name="key", doc="the columns that make the key of a message, with commas between them"),
            Option(name="exactly_once", doc="one transaction a version; else at least once", type="flag", default=True),
            Option(name="partitions", doc="of a topic that is made", type="whole", default=1, low=1),
            *CONNECTION[1:],
        ),
        check=_check,
        modules=("confluent_kafka",),
        extra="kafka",
        open=KafkaTopic,
        where=lambda options: f"{options['topic']} at {options['brokers']}",
    ),
)
