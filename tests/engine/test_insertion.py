"""Rows from Python: every kind of table and dicts, by name, all of them or none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch import AnabranchError, NotSupported, UnknownName, UsageError, WrongType
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12)
ROWS: list[dict[str, Any]] = [{"k": "a", "n": 1, "ts": NOON}, {"k": None, "n": -2, "ts": NOON + timedelta(seconds=1)}]
WANTED = [(None, -2, NOON + timedelta(seconds=1), None), ("a", 1, NOON, None)]


class Stream:
    """What Polars and others offer: a table by Arrow's own protocol."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.fixture
def rows_home(home: Harness) -> Harness:
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, x DOUBLE)")
    home.sql("CREATE VIEW v AS SELECT k, sum(n) AS n, count(*) AS c FROM s GROUP BY k")
    home.sql("CREATE TABLE t (k STRING, n INT, ts TIMESTAMP, x DOUBLE)")
    return home


def test_every_kind_of_table_goes_in_by_name(rows_home: Harness, spark: SparkSession) -> None:
    home, ab = rows_home, rows_home.session
    table = pa.table(
        {
            "TS": pa.array([row["ts"] for row in ROWS], pa.timestamp("ns")),
            "n": pa.array([row["n"] for row in ROWS], pa.int64()),
            "k": pa.array([row["k"] for row in ROWS], pa.dictionary(pa.int8(), pa.string())),
        }
    )
    kinds: dict[str, Any] = {
        "dicts": ROWS,
        "iterator": iter(ROWS),
        "table": table,
        "batch": table.to_batches()[0],
        "reader": table.to_reader(),
        "pandas": pd.DataFrame(ROWS),
        "protocol": Stream(table),
        "spark": spark.createDataFrame(pa.table({"n": [1, -2], "k": ["a", None]})).selectExpr(
            "n", "k", "timestamp_seconds(1767268800 + if(n = 1, 0, 1)) AS ts"
        ),
    }
    for at, (kind, data) in enumerate(kinds.items(), 1):
        assert ab.insert("s", data).message == "2 rows inserted into s", kind
        assert len(home.runs("s")) == at, kind
        assert sorted(home.table("s"), key=str) == sorted(WANTED * at, key=str), kind
    assert sorted(home.table("v"), key=str) == sorted([("a", 8, 8), (None, -16, 8)], key=str)
    for kind in ("dicts", "table", "spark"):
        ab.insert("t", kinds[kind])
    assert sorted(home.table("t"), key=str) == sorted(WANTED * 3, key=str)
    assert ab.insert("s", []).message == "0 rows inserted into s"
    assert ab.insert("s", [{}]).message == "1 row inserted into s"


def test_values_are_cast_as_insert_casts_them(home: Harness) -> None:
    columns = (
        "b BOOLEAN, i TINYINT, d DECIMAL(6, 2), x FLOAT, s STRING, y BINARY, day DATE, ts TIMESTAMP,"
        " l ARRAY<INT>, m MAP<STRING, INT>, r STRUCT<a: INT, b: STRING>"
    )
    home.sql(f"CREATE TABLE t ({columns}); CREATE TABLE u ({columns})")
    ab = home.session
    east = timezone(timedelta(hours=2))
    ab.insert(
        "t",
        [
            {"b": True, "i": 127, "d": Decimal("1.5"), "x": 0.5, "s": "it's", "y": b"\0", "day": date(2026, 1, 1),
             "ts": NOON.replace(tzinfo=east), "l": [1, None], "m": {"a": 1}, "r": {"a": 1, "b": "x"}},
            {},
        ],
    )  # fmt: skip
    ab.insert(
        "t", [{"i": "-5", "d": 2.25, "x": 1, "s": 7, "ts": "2026-01-01 10:00:00", "day": "2026-01-01", "b": "true"}]
    )
    ab.insert("t", [{"i": 3.0, "ts": 0, "l": [], "m": {}, "r": {"a": 1}}])
    home.sql(
        "INSERT INTO u SELECT true, 127, 1.5, 0.5, \"it's\", X'00', DATE '2026-01-01', TIMESTAMP '2026-01-01 10:00:00',"
        " array(1, NULL), map('a', 1), named_struct('a', 1, 'b', 'x')"
        " UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
        " UNION ALL SELECT 'true', -5, 2.25, 1, '7', NULL, '2026-01-01', '2026-01-01 10:00:00', NULL, NULL, NULL"
        " UNION ALL SELECT NULL, 3, NULL, NULL, NULL, NULL, NULL, CAST(0 AS TIMESTAMP), array(), map(),"
        " named_struct('a', 1, 'b', NULL)"
    )
    assert sorted(map(repr, home.table("t"))) == sorted(map(repr, home.table("u")))


def test_a_value_that_does_not_fit_is_named_and_nothing_goes_in(rows_home: Harness, spark: SparkSession) -> None:
    home, ab = rows_home, rows_home.session
    home.sql("CREATE TABLE deep (r STRUCT<a: INT>, l ARRAY<INT>)")
    frame = spark.sql("SELECT 'x' AS k, explode(array('1', '2', 'three')) AS n")
    version = ab.version
    cases: list[tuple[Any, str]] = [
        ([{"n": 1}, {"n": 2**31}], "column n, row 2: '2147483648' does not fit int"),
        ([{"n": 1}, {"n": "x'"}], 'column n, row 2: "x\'" does not fit int'),
        ([{"n": 1}, {"n": object()}], "column n, row 2: <object"),
        ([{"n": 1.0}, {"n": 1.5}], "column n, row 2: '1.5' does not fit int"),
        ([{"n": "1.5"}], "column n, row 1: '1.5' does not fit int"),
        ([{"n": float("nan")}], "column n, row 1: 'NaN' does not fit int"),
        ([{"ts": "noon"}], "column ts, row 1: 'noon' does not fit timestamp"),
        (pa.table({"n": [1, 2**40]}), "column n, row 2: '1099511627776' does not fit int"),
        (pa.table({"n": pa.array([2**64 - 1], pa.uint64())}), "column n, row 1: '18446744073709551615'"),
        (pa.table({"ts": pa.array([1], pa.timestamp("ns"))}), "column ts: .* would lose data"),
        (pd.DataFrame({"n": [1, "x"]}), "cannot be read: .*column n"),
        (frame, "column n: 'three' does not fit int"),
        (frame.selectExpr("1.5D AS n"), "column n: '1.5' does not fit int"),
    ]
    for data, message in cases:
        with pytest.raises(WrongType, match=message):
            ab.insert("s", data)
    for data, message in (cases[0], cases[3], cases[11]):
        with pytest.raises(WrongType, match=message):
            ab.insert("t", data)
    home.sql("SET spark.sql.ansi.enabled = false")
    for data, message in (cases[1], cases[7], cases[11]):
        with pytest.raises(WrongType, match=message):
            ab.insert("s", data)
    home.sql("SET spark.sql.ansi.enabled = true")
    with pytest.raises(UnknownName, match="column r, row 1: there is no field z"):
        ab.insert("deep", [{"r": {"a": 1, "z": 2}}])
    with pytest.raises(WrongType, match=r"column l, row 2: 1\.5 does not fit int"):
        ab.insert("deep", [{"l": [1]}, {"l": [1, 1.5]}])
    with pytest.raises(UnknownName, match=r"(?s)s has no column kk \(row 2\).*did you mean k\?"):
        ab.insert("s", [{"k": "a"}, {"kk": "b"}])
    with pytest.raises(UnknownName, match="t has no column prise"):
        ab.insert("t", pa.table({"prise": [1]}))
    for wrong in ("a", {"k": "a"}, 5, [("a", 1)], pa.table([[1], [2]], names=["n", "N"])):
        with pytest.raises(UsageError):
            ab.insert("s", wrong)
    with pytest.raises(UnknownName, match=r"(?s)no stream or table tt.*did you mean t\?"):
        ab.insert("tt", [])
    with pytest.raises(AnabranchError, match="v is a view, not a stream or table"):
        ab.insert("v", [])
    home.sql("CREATE STREAM r FROM rate(rows_per_second => 1)")
    with pytest.raises(NotSupported, match="come from rate"):
        ab.insert("r", [])
    assert (home.table("s"), home.table("t"), ab.version) == ([], [], version + 1)


def test_an_iterator_that_fails_leaves_nothing(rows_home: Harness) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"k": "a"}
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        rows_home.session.insert("s", rows())
    assert rows_home.table("s") == []


def test_a_spark_frame_is_never_collected(
    rows_home: Harness, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.range(1000).selectExpr("CAST(id % 3 AS STRING) AS k", "id AS n", "rand() AS x")
    kind = type(frame)
    for name in ("collect", "toPandas", "toLocalIterator", "toArrow"):
        monkeypatch.setattr(kind, name, lambda *_, **__: pytest.fail("collected"))
    rows_home.session.insert("t", frame)
    monkeypatch.undo()
    assert rows_home.query("SELECT count(*), sum(n) FROM t") == [(1000, 499500)]
    rows_home.session.insert("s", frame)
    assert rows_home.query("SELECT sum(n), sum(c) FROM v") == [(499500, 1000)]


def test_a_frame_of_another_session_is_read_by_its_own_settings(rows_home: Harness, spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    other.sql("SELECT 'a' AS k, 1 AS n").createOrReplaceTempView("own")
    frame = other.sql("SELECT k, TIMESTAMP '2026-01-01 21:00:00' AS ts FROM own")
    rows_home.session.insert("s", frame)
    assert rows_home.table("s") == [("a", None, NOON, None)]
    assert [row["viewName"] for row in other.sql("SHOW VIEWS IN global_temp").collect()] == ["own"]
