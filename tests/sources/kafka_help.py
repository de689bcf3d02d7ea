"""What the tests of Kafka share: topics of their own, rows to send, and what a plain count makes of them."""

from __future__ import annotations

import contextlib
import json
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from sources.kafka_server import Broker

START = datetime(2024, 5, 1)
Message = tuple[int, dict[str, Any]]
COLUMNS = "(id BIGINT, ts TIMESTAMP, k STRING, n BIGINT, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
VIEWS = """
CREATE VIEW closed AS SELECT k, window_start, count(*) AS c, sum(n) AS s
  FROM TUMBLE(TABLE {s}, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start EMIT ON WINDOW CLOSE;
CREATE VIEW total AS SELECT k, count(*) AS c, sum(n) AS s FROM {s} GROUP BY k;
"""


class Topic:
    """A topic of its own, and what was sent to it."""

    def __init__(self, server: Broker, partitions: int = 3, *, made: bool = True) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self.server = server
        self.name = f"t-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": server.brokers, "log_level": 0})
        if made:
            self.admin.create_topics([NewTopic(self.name, partitions, 1)])[self.name].result()

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.server.brokers, "linger.ms": 5, "log_level": 0, **settings})

    def send(self, messages: Iterable[tuple[int, Any]], producer: Any = None, **more: Any) -> None:
        """Send (partition, value) pairs; values that are no text or bytes go as JSON."""
        through = producer or self.producer()
        for partition, value in messages:
            text = value if value is None or isinstance(value, str | bytes) else json.dumps(value)
            while True:
                with contextlib.suppress(BufferError):
                    through.produce(self.name, text, partition=partition, **more)
                    break
                through.poll(0.1)
        assert through.flush(600) == 0

    def delete_before(self, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        self.admin.delete_records([TopicPartition(self.name, partition, offset)])
        for future in self.admin.delete_records([TopicPartition(self.name, partition, offset)]).values():
            future.result()

    def messages(self) -> list[Any]:
        """All that is there, as somebody else reads it who does not see what is not committed."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self.server.brokers, "group.id": "test", "enable.partition.eof": True}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "log_level": 0})
        parts = list(self.admin.list_topics(self.name, timeout=10).topics[self.name].partitions)
        consumer.assign([TopicPartition(self.name, part, 0) for part in parts])
        found, ended = [], set[int]()
        while len(ended) < len(parts):
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found.append(message)
        consumer.close()
        return found

    def rows(self) -> list[str]:
        """What the changes in this topic come to: rows as JSON, each as often as it is there."""
        found: Counter[str] = Counter()
        for message in self.messages():
            row = json.loads(message.value())
            count, _ = row.pop("_diff"), row.pop("_version")
            found[json.dumps(row)] += count
        assert min(found.values(), default=0) >= 0
        return sorted(found.elements())

    def source(self, **options: Any) -> str:
        given = {"brokers": self.server.brokers, "topic": self.name, **options}
        return f"kafka({', '.join(f'{name} => {_option(value)}' for name, value in given.items())})"


def _option(value: Any) -> str:
    return value if str(value).startswith(("env(", "secret(")) else f"'{value}'"


def rows(count: int, seed: int = 1, per_second: int = 4) -> list[Message]:
    """Rows out of order over three partitions, of which the last lags 40 s behind the others."""
    return list(generate(count, seed, per_second))


def generate(count: int, seed: int = 1, per_second: int = 4) -> Iterator[Message]:
    """The same, one by one: for more rows than memory should hold."""
    chance = random.Random(seed)
    for id in range(count):
        partition = chance.choice([0, 0, 1, 1, 2])
        second = max(0, id // per_second - (40 if partition == 2 else 0) - chance.choice([0, 0, 0, 3, 15]))
        at = (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
        yield partition, {"id": id, "ts": at, "k": chance.choice("ab"), "n": chance.randrange(9)}


def totals(sent: Iterable[Message]) -> list[tuple[Any, ...]]:
    counts, sums = Counter[str](), Counter[str]()
    for _, row in sent:
        counts[row["k"]] += 1
        sums[row["k"]] += row["n"]
    return sorted((key, count, sums[key]) for key, count in counts.items())


def windows(sent: Iterable[Message]) -> list[tuple[Any, ...]]:
    """All windows, closed: the last row of each partition is far ahead of the others."""
    counts, sums = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for _, row in sent:
        counts[row["k"], row["ts"]] += 1
        sums[row["k"], row["ts"]] += row["n"]
    found: dict[tuple[str, datetime], list[int]] = {}
    for (key, time), count in counts.items():
        second = int((datetime.fromisoformat(time.removesuffix("Z")) - START).total_seconds())
        window = found.setdefault((key, START + timedelta(seconds=second // 10 * 10)), [0, 0])
        window[0] += count
        window[1] += sums[key, time]
    return sorted((key, at, count, total) for (key, at), (count, total) in found.items())
