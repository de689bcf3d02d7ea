"""What a view shows, written to topics: as changes, as the newest row of each key, and as Debezium would send it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.errors import SinkError, SqlError
from anabranch.sinks.base import Owner
from anabranch.sinks.kafka import KafkaTopic
from anabranch.sql.checking import check_script
from anabranch.testing import Harness
from sources.kafka_help import Topic
from sources.kafka_server import Broker, broker

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as found:
        yield found


def newest(topic: Topic) -> dict[str, Any]:
    """The value that each key has at last; partitions are in no order, but keys are in one each."""
    found: dict[str, Any] = {}
    for message in topic.messages():
        found[message.key().decode()] = message.value()
    return {key: json.loads(value) for key, value in found.items() if value is not None}


def test_options_are_checked_before_anything_is_opened() -> None:
    script = "CREATE STREAM s (k INT); CREATE VIEW v AS SELECT k FROM s; CREATE SINK o FROM v INTO kafka({})"
    for options, message in (
        ("brokers => 'b'", "kafka needs the option topic"),
        ("brokers => 'b', topic => 'a/b'", "cannot be the name of a topic"),
        ("brokers => 'b', topic => 't', mode => 'upsert'", "needs a key"),
        ("brokers => 'b', topic => 't', mode => 'all'", "mode cannot be 'all'"),
        ("brokers => 'b', topic => 't', password => 'hunter2'", "must not be written down"),
    ):
        assert message in check_script(script.format(options))[0][0].message


def test_a_topic_follows_a_view(home: Harness, server: Broker) -> None:
    """In every mode, with rows that come, change and go; and in another process where the first one ended."""
    home.sql("CREATE STREAM s (k STRING, n INT)")
    home.sql("CREATE VIEW v AS SELECT k, sum(n) AS n FROM s GROUP BY k HAVING sum(n) <> 0 EMIT CHANGES")
    home.insert("s", [("a", 1), ("b", 2)])
    topics = {mode: Topic(server, made=False) for mode in ("changes", "upsert", "debezium", "often")}
    for mode, topic in topics.items():
        more = {"often": "exactly_once => false"}.get(mode, f"mode => '{mode}', key => 'k', partitions => 3")
        where = f"brokers => '{server.brokers}', topic => '{topic.name}'"
        home.sql(f"CREATE SINK o_{mode} FROM v INTO kafka({where}, {more})")
    home.insert("s", [("a", 5), ("c", 3)])
    home.reopen()
    home.insert("s", [("b", -2), ("d", 4)])
    shown = home.table("v")
    assert shown == [("a", 6), ("c", 3), ("d", 4)]
    sinks = home.query("SELECT name, version, error FROM sys.sinks")
    assert {(version, error) for _, version, error in sinks} == {(home.session.version, None)}

    for mode in ("changes", "often"):
        assert topics[mode].rows() == [json.dumps({"k": k, "n": n}) for k, n in shown]
    rows_by_key = {json.dumps({"k": k}, separators=(",", ":")): {"k": k, "n": n} for k, n in shown}
    assert newest(topics["upsert"]) == rows_by_key
    by_key: dict[str, list[Any]] = {}
    for message in topics["debezium"].messages():
        value = message.value() and json.loads(message.value())
        by_key.setdefault(json.loads(message.key())["k"], []).append(
            value and (value["op"], value["before"], value["after"])
        )
    a, b = {"k": "a", "n": 1}, {"k": "b", "n": 2}
    assert by_key["a"] == [("r", None, a), ("u", a, {"k": "a", "n": 6})]
    assert by_key["b"] == [("r", None, b), ("d", b, None), None]
    assert by_key["c"] == [("c", None, {"k": "c", "n": 3})]

    with pytest.raises(SqlError, match="has messages already"):
        home.sql(
            f"CREATE SINK again FROM v INTO kafka(brokers => '{server.brokers}', topic => '{topics['upsert'].name}')"
        )
    with pytest.raises(SqlError, match="shows no column x"):
        home.sql(f"CREATE SINK again FROM v INTO kafka(brokers => '{server.brokers}', topic => 'new', key => 'x')")


def test_a_version_that_is_not_whole_is_written_again(server: Broker) -> None:
    """Without transactions by the last message; with them nobody sees what was not committed."""
    import pyarrow as pa

    topic = Topic(server, 2)
    options = {"brokers": server.brokers, "topic": topic.name, "exactly_once": False}
    rows = pa.table({"k": ["a", "b", "c"], "_diff": [1, 1, 1]})
    target = KafkaTopic(options, Owner("home", "sink"))
    assert target.position() is None
    target.start(3, rows)
    assert target.position() == 3
    target.apply(5, rows)
    assert KafkaTopic(options, Owner("home", "sink")).position() == 5
    target._failed = []
    target._send(target._producer, (None, "half"), 8, 0, ())
    target._flush(target._producer)
    assert target.position() == 7
    assert KafkaTopic(options, Owner("home", "other")).position() is None
    for partition in range(2):
        topic.delete_before(partition, -1)
    with pytest.raises(SinkError, match="no message of this sink is left"):
        target.position()

    atomic = Topic(server, 1)
    options = {"brokers": server.brokers, "topic": atomic.name, "mode": "upsert", "key": "k"}
    first, second = (KafkaTopic(options, Owner("home", "atomic")) for _ in range(2))
    first.start(1, rows)
    first._producer.begin_transaction()
    first._send(first._producer, ("x", "half"), 2, 0, ())
    first._producer.flush(10)
    assert second.position() == 1
    second.tidy()
    second.apply(2, pa.table({"k": ["a", "d"], "_diff": [-1, 1]}))
    for _ in range(100):  # the broker shows what was committed when it has written its markers, a moment later
        if second.position() == 2:
            break
        time.sleep(0.1)
    assert second.position() == 2 and len(atomic.messages()) == 5
    with pytest.raises(SinkError, match="could not be written"):
        first.apply(3, rows)
    with pytest.raises(SinkError, match="two rows for the key"):
        second.apply(3, pa.table({"k": ["a", "a"], "n": [1, 2], "_diff": [1, 1]}))
