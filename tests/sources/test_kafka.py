"""Topics as streams, against a real broker: whatever the cut and the crash, answers are those of a plain count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from anabranch.errors import SourceError, SqlError
from anabranch.sources import kafka, kafka_offsets
from anabranch.sources.kafka_client import Range
from anabranch.sql.checking import check_script
from anabranch.testing import Harness
from sources.kafka_help import COLUMNS, START, VIEWS, Topic, rows, totals, windows
from sources.kafka_server import PASSWORD, Broker, broker

pytestmark = [pytest.mark.spark]


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as found:
        yield found


@pytest.fixture
def topic(server: Broker) -> Topic:
    return Topic(server)


# ---- without a broker


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("topic => 't'", "kafka needs the option brokers"),
        ("brokers => 'b'", "needs a topic, or a pattern"),
        ("brokers => 'b', topic => 't', pattern => 'x'", "needs a topic, or a pattern"),
        ("brokers => 'b', topic => 'a b'", "cannot be the name of a topic"),
        ("brokers => 'b', pattern => '('", "not a regular expression"),
        ("brokers => 'b', topic => 't', start => 'now'", "cannot start at 'now'"),
        ("brokers => 'b', topic => 't', start => '{\"0\": \"x\"}'", "not offsets"),
        ("brokers => 'b', topic => 't', password => 'hunter2'", "must not be written down"),
        ("brokers => 'b', topic => 't', isolation => 'none'", "isolation cannot be"),
    ],
)
def test_options_are_checked_before_anything_is_opened(options: str, message: str) -> None:
    (wrong,) = check_script(f"CREATE STREAM s (id BIGINT) FROM kafka({options})")[0]
    assert message in wrong.message


def test_what_is_there_is_shared_fairly() -> None:
    ranges = [Range("t", 0, 0, 1000), Range("t", 1, 3, 3), Range("t", 2, 10, 14)]
    taken = kafka_offsets.share(ranges, 24)
    assert [each.end - each.start for each in taken] == [20, 0, 4]
    assert [each.end - each.start for each in kafka_offsets.share(ranges, 1)] == [0, 0, 1]
    assert kafka_offsets.share(ranges, 10**6) == ranges
    assert kafka_offsets.sliced(Range("t", 0, 5, 12), 3) == [
        Range("t", 0, 5, 8),
        Range("t", 0, 8, 11),
        Range("t", 0, 11, 12),
    ]


# ---- rows


def test_any_cut_into_runs_gives_the_answers_of_a_batch(home: Harness, topic: Topic) -> None:
    """Three partitions, times out of order, one partition 40 s behind; then more of it, and a new partition."""
    from confluent_kafka.admin import NewPartitions

    sent = rows(400)
    topic.send(sent)
    home.session._core.run_rows = 130
    script = f"CREATE STREAM s {COLUMNS} FROM {topic.source(format='json')}; {VIEWS.format(s='s')}"
    home.session.run(script, until_idle=True)
    assert home.table("total") == totals(sent)
    runs = [record for record in home.session._core.ledger.records() if record.kind == "run"]
    assert len(runs) >= 4 and all(sum(run.rows for run in each.streams.values()) <= 130 for each in runs)
    shown = home.query("SELECT max(window_start) FROM closed")[0][0]
    latest = [max(row["ts"] for number, row in sent if number == partition) for partition in range(3)]
    assert shown + timedelta(seconds=15) <= datetime.fromisoformat(min(latest).removesuffix("Z"))

    future = topic.admin.create_partitions([NewPartitions(topic.name, 4)])[topic.name]
    future.result()
    more = [(3, {**row, "id": row["id"] + 1000}) for _, row in rows(50, seed=2)]
    more += [(number, {"id": -1, "ts": "2024-05-01T01:00:00Z", "k": "z", "n": 0}) for number in range(4)]
    topic.send(more)
    home.session._core.run_rows = 1000
    assert home.table("total") == totals(sent + more)
    assert home.table("closed") == [row for row in windows(sent + more) if row[0] != "z"]


def test_columns_of_messages(home: Harness, topic: Topic) -> None:
    """Key, value and offset as they are; what is known besides for streams that ask for it; tombstones are NULL."""
    topic.send([(0, "one")], key="a", headers=[("h", b"x"), ("h", None)], timestamp=1_714_521_600_123)
    topic.send([(0, None), (0, b"\xff\x00"), (1, "two")], key="b")
    home.sql(f"CREATE STREAM plain FROM {topic.source()}")
    assert sorted(home.query("SELECT * FROM plain"), key=str) == sorted(
        [("a", "one", 0), ("b", None, 1), ("b", "two", 0)], key=str
    )
    (bad,) = home.query("SELECT source, offset, reason FROM sys.bad_rows")
    assert bad == (f"{topic.name}/0", 2, "it is no text in UTF-8")
    home.sql(f"CREATE STREAM bytes FROM {topic.source(format='raw')}")
    assert (b"b", b"\xff\x00", 2) in home.query("SELECT key, value, offset FROM bytes")
    hidden = "_topic STRING, _partition STRING, _offset BIGINT, _timestamp TIMESTAMP, _key STRING"
    home.sql(
        f"CREATE STREAM all_of (value STRING, {hidden}, _headers ARRAY<STRUCT<key: STRING, value: BINARY>>)"
        f" FROM {topic.source()}"
    )
    first = home.query("SELECT * FROM all_of WHERE _partition = '0' AND _offset = 0")
    at = START + timedelta(milliseconds=123)
    headers = [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    assert first == [("one", topic.name, "0", 0, at, "a", headers)]
    with pytest.raises(SqlError, match="no column other"):
        home.sql(f"CREATE STREAM wrong (other STRING) FROM {topic.source(format='text')}")
    with pytest.raises(SqlError, match="leading underscore"):
        home.sql(f"CREATE STREAM wrong (_other STRING) FROM {topic.source()}")
    with pytest.raises(SqlError, match="_offset of a message is a BIGINT"):
        home.sql(f"CREATE STREAM wrong (_offset STRING) FROM {topic.source()}")


def test_a_value_that_is_no_row_is_a_bad_row_with_its_place(home: Harness, topic: Topic) -> None:
    good = {"id": 1, "ts": "2024-05-01T00:00:00Z", "k": "a", "n": 1}
    topic.send([(0, good), (0, "{"), (1, {**good, "n": "x"}), (2, [good, good]), (2, ""), (1, None), (0, b"\xff")])
    home.sql(f"CREATE STREAM s {COLUMNS} FROM {topic.source(format='json')}; {VIEWS.format(s='s')}")
    assert home.table("total") == [("a", 1, 1)]
    found = {row[:2]: row[2] for row in home.query("SELECT source, offset, reason FROM sys.bad_rows")}
    name = topic.name
    assert found.pop((f"{name}/1", None)) == "it has no event time (ts is NULL)"  # the tombstone
    assert set(found) == {(f"{name}/0", 1), (f"{name}/0", 2), (f"{name}/1", 0), (f"{name}/2", 0), (f"{name}/2", 1)}
    assert "n is no BIGINT: 'x'" in found[f"{name}/1", 0] and "not JSON" in found[f"{name}/0", 1]

    lines = Topic(topic.server, 1)
    lines.send([(0, "1;x;2024-05-01 00:00:00"), (0, '2;"a;b"""'), (0, '3;"a;b""";2024-05-01 00:00:01')])
    home.sql(f"CREATE STREAM c (id INT, t STRING, ts TIMESTAMP) FROM {lines.source(format='csv', sep=';')}")
    assert [row[:2] for row in sorted(home.query("SELECT * FROM c"))] == [(1, "x"), (3, 'a;b"')]
    assert (f"{lines.name}/0", 1) in {row[:2] for row in home.query("SELECT source, offset FROM sys.bad_rows")}


@pytest.mark.parametrize("by_driver", [True, False])
def test_transactions_are_understood(
    home: Harness, server: Broker, monkeypatch: pytest.MonkeyPatch, by_driver: bool
) -> None:
    """What was aborted is not seen, what is open not yet; a range may end with markers."""
    if not by_driver:
        monkeypatch.setattr(kafka, "BY_DRIVER", -1)
    topic = Topic(server, 1)
    through = topic.producer(**{"transactional.id": topic.name})
    through.init_transactions()
    for text, commits in (("a", True), ("b", False), ("c", True), ("d", False)):
        through.begin_transaction()
        topic.send([(0, text), (0, text)], through)
        through.commit_transaction() if commits else through.abort_transaction()
    through.begin_transaction()
    topic.send([(0, "open")], through)
    home.sql(f"CREATE STREAM s FROM {topic.source()}")
    home.sql(f"CREATE STREAM raw FROM {topic.source(isolation='read_uncommitted')}")
    home.sql("CREATE VIEW seen AS SELECT value, count(*) AS c FROM s GROUP BY value")
    assert home.table("seen") == [("a", 2), ("c", 2)]
    assert Counter(value for (value,) in home.query("SELECT value FROM raw")) == Counter("aabbccdd") + Counter(["open"])
    through.commit_transaction()
    assert home.table("seen") == [("a", 2), ("c", 2), ("open", 1)]


def test_a_stream_starts_where_it_is_told_to(home: Harness, topic: Topic) -> None:
    topic.send([(0, "old"), (0, "older"), (1, "old")], timestamp=1_714_521_600_000)
    topic.send([(0, "new"), (2, "new")], timestamp=1_714_608_000_000)
    for name, start in (("late", "latest"), ("timed", "2024-05-01 12:00:00"), ("at", '{"0": 1, "1": 1}')):
        home.sql(f"CREATE STREAM {name} FROM {topic.source(start=start)}")
        home.sql(f"CREATE VIEW v_{name} AS SELECT value, count(*) AS c FROM {name} GROUP BY value")
    assert home.table("v_late") == []
    assert home.table("v_timed") == [("new", 2)]
    assert home.table("v_at") == [("new", 2), ("older", 1)]
    topic.send([(1, "next")])
    home.reopen()
    assert home.table("v_late") == [("next", 1)]
    assert home.table("v_timed") == [("new", 2), ("next", 1)]
    with pytest.raises(SourceError, match="partition 0: cannot start at offset 99: it has 0 to 3"):
        home.sql(f"CREATE STREAM far FROM {topic.source(start=json.dumps({0: 99}))}; SELECT * FROM far")


def test_several_topics_by_a_pattern(home: Harness, server: Broker) -> None:
    one, two = Topic(server, 1), Topic(server, 2)
    one.send([(0, "1")])
    two.send([(1, "2")])
    source = one.source(pattern=f"({one.name}|{two.name})").replace(f"topic => '{one.name}', ", "")
    home.sql(f"CREATE STREAM s (value STRING, _partition STRING) FROM {source}")
    assert home.table("s") == [("1", f"{one.name}/0"), ("2", f"{two.name}/1")]


def test_a_value_with_two_documents_is_a_bad_row(home: Harness, topic: Topic) -> None:
    topic.send(
        [(0, '{"id": 1}'), (0, '{"id": 2}{"id": 3}'), (1, '{"id": 4, "x": {"y": 1}}'), (1, '{"x": {}} {"id": 5}')]
    )
    home.sql(f"CREATE STREAM s (id BIGINT) FROM {topic.source()}")
    assert home.table("s") == [(1,), (4,)]
    bad = sorted(home.query("SELECT source, offset, reason FROM sys.bad_rows"))
    reason = "there is more in it than one JSON document"
    assert bad == [(f"{topic.name}/{part}", 1, reason) for part in (0, 1)]


# ---- what is gone


def test_a_gap_is_an_error_that_names_it_or_is_skipped_and_reported(home: Harness, topic: Topic) -> None:
    topic.send([(0, str(n)) for n in range(5)])
    for name, gap in (("strict", "FAIL"), ("loose", "SKIP")):
        home.sql(f"CREATE STREAM {name} FROM {topic.source()} KEEP ALL ON GAP {gap}")
        home.sql(f"CREATE VIEW v_{name} AS SELECT value FROM {name}")
        assert len(home.table(f"v_{name}")) == 5
    topic.send([(0, str(n)) for n in range(5, 9)])
    topic.delete_before(0, 7)
    with pytest.raises(SourceError, match=f"topic {topic.name}, partition 0: offset 5 to 6 is gone"):
        home.table("v_strict")
    assert home.table("v_loose") == [(str(n),) for n in (0, 1, 2, 3, 4, 7, 8)]
    home.sql("DROP VIEW v_strict; DROP STREAM strict")
    (bad,) = home.query("SELECT source, offset, reason FROM sys.bad_rows")
    assert bad == (f"{topic.name}/0", 5, "offset 5 to 6 is gone before it was read")

    topic.admin.delete_topics([topic.name])[topic.name].result()
    from confluent_kafka.admin import NewTopic

    topic.admin.create_topics([NewTopic(topic.name, 1, 1)])[topic.name].result()
    topic.send([(0, str(n)) for n in range(20, 40)])
    assert len(home.table("v_loose")) == 27
    assert any("recreated" in reason for (reason,) in home.query("SELECT reason FROM sys.bad_rows"))


def test_no_topic_no_broker_and_no_password(
    home: Harness, topic: Topic, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from anabranch.sources import kafka_client

    monkeypatch.setattr(kafka_client, "ANSWER", 2.0)
    with pytest.raises(SourceError, match=f"there is no topic {topic.name[:-1]} at"):
        home.sql(f"CREATE STREAM a FROM {topic.source(topic=topic.name[:-1])}; SELECT * FROM a")
    with pytest.raises(SourceError, match="does not answer"):
        home.sql(f"CREATE STREAM b FROM {topic.source(brokers='127.0.0.1:1')}; SELECT * FROM b")
    topic.send([(0, "x")])
    guarded = {"brokers": topic.server.guarded, "security": "sasl_plaintext", "username": "reader"}
    guarded["password"] = "env('KAFKA_PASSWORD')"
    monkeypatch.setenv("KAFKA_PASSWORD", "wrong-password")
    home.sql(f"CREATE STREAM c FROM {topic.source(**guarded)}")
    with pytest.raises(SourceError, match="refused") as refused:
        home.query("SELECT * FROM c")
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    home.reopen()
    monkeypatch.setattr(kafka, "BY_DRIVER", -1)
    assert home.query("SELECT value FROM c") == [("x",)]
    plan = home.query("EXPLAIN SELECT value FROM c")
    for text in (str(refused.value), str(plan), *capfd.readouterr(), *_texts(home.path)):
        assert PASSWORD not in text and "wrong-password" not in text


def _texts(folder: Path) -> list[str]:
    return [path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file()]
