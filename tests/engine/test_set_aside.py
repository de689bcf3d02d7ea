"""A row that a view cannot compute is set aside for that view, and for no other; nothing else stops for it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from anabranch.engine import run
from anabranch.engine.frames import in_text
from anabranch.engine.set_aside import Check
from anabranch.errors import AnabranchError, DataError, NotSupported, QueryFailed
from anabranch.testing import Harness, shuffled

COLUMNS = "(k STRING, n INT, d INT, t STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
Row = tuple[Any, ...]


def at(second: int) -> str:
    return f"2026-01-01 00:{second // 60:02}:{second % 60:02}"


def bad_rows(home: Harness) -> list[tuple[str, str]]:
    """The views that lack rows, and the rows as they were."""
    listed = home.query("SELECT view, raw FROM sys.bad_rows")
    return sorted((str(view), json.dumps(sorted(json.loads(str(raw)).items()))) for view, raw in listed)


def as_listed(view: str, rows: list[Row]) -> list[tuple[str, str]]:
    names = ("k", "n", "d", "t")
    found = []
    for row in rows:
        values = {name: value for name, value in zip(names, row, strict=False) if value is not None}
        values["ts"] = str(row[4]).replace(" ", "T") + ".000Z"
        found.append((view, json.dumps(sorted(values.items()))))
    return found


@pytest.fixture
def warned(home: Harness) -> Iterator[list[str]]:
    found: list[str] = []
    home.session.on_warning(found.append)
    yield found


# ---- without Spark


def test_an_expression_is_found_in_the_text_that_it_was_made_from() -> None:
    text = "CREATE VIEW v AS SELECT sum(s.n  /\n s.`d`) AS q FROM s"
    found = in_text(DataError("it fails", expression="n / d"), text)
    assert found.text is not None and found.text[found.start : found.end] == "s.n  /\n s.`d`"
    twice = in_text(DataError("it fails", expression="n / d"), "SELECT n / d, n/d FROM s")
    assert twice.text is None  # which of the two it is nobody knows
    assert in_text(DataError("it fails", expression="a.n / d"), "SELECT n + d FROM s").text is None


# ---- runs


@pytest.mark.spark
def test_other_views_go_on_and_have_the_row(home: Harness, warned: list[str]) -> None:
    home.sql(f"CREATE STREAM s {COLUMNS}; CREATE TABLE f (k STRING, m INT)")
    home.insert("f", [("a", 1), ("b", 0)])
    queries = {
        "quotients": "SELECT k, sum(n / d) AS q, count(*) AS c FROM s GROUP BY k",
        "counts": "SELECT k, sum(n) AS q, count(*) AS c FROM s GROUP BY k",
        "some": "SELECT k, count(*) AS c FROM s WHERE n / d > 1 GROUP BY k",
        "twice": "SELECT a.k, a.q, b.c FROM (SELECT k, max(n % d) AS q FROM s GROUP BY k) a"
        " JOIN (SELECT k, count(*) AS c FROM s GROUP BY k) b ON a.k = b.k",
        "rows": "SELECT x.k, x.n / x.d AS q FROM s AS x WHERE x.n > 0",
        "joined": "SELECT f.k, sum(s.n / f.m) AS q FROM s JOIN f ON f.k = s.k GROUP BY f.k",
        "minutes": "SELECT window_start, avg(n / d) AS q FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY window_start",
    }
    for name, query in queries.items():
        home.sql(f"CREATE VIEW {name} AS {query}")
    home.sql("CREATE VIEW fed AS SELECT k, sum(n / d) AS q FROM s GROUP BY k EMIT CHANGES")
    home.sql("CREATE VIEW passed AS SELECT k, n / d AS q FROM s EMIT CHANGES")
    rows: list[Row] = [
        ("a", 4, 2, "1", at(1)),
        ("a", 0, 0, "1", at(2)),
        ("b", 9, 3, "1", at(3)),
        ("b", 5, 0, "1", at(70)),
    ]
    home.insert("s", rows[:1])
    values = ", ".join(f"('{k}', {n}, {d}, '{t}', TIMESTAMP '{ts}')" for k, n, d, t, ts in rows[1:])
    told = home.session.sql(f"INSERT INTO s VALUES {values}").message or ""
    assert told.startswith("3 rows inserted into s\n")
    assert "excluded from view quotients (insert, row 1): n / d: Division by zero" in told
    home.reopen()
    home.session.on_warning(warned.append)
    by_zero, lacks = [rows[1], rows[3]], {"rows": [rows[3]], "joined": rows[2:], "counts": []}
    for name, query in queries.items():
        left = [row for row in rows if row not in lacks.get(name, by_zero)]
        assert home.table(name) == home.batch(query, s=left), name
    assert home.table("fed") == home.emitted("fed") == [("a", 2.0), ("b", 3.0)]
    assert home.table("passed") == home.emitted("passed") == [("a", 2.0), ("b", 3.0)]
    expected = [pair for name in (*queries, "fed", "passed") for pair in as_listed(name, lacks.get(name, by_zero))]
    assert bad_rows(home) == sorted(expected)
    assert dict(home.query("SELECT name, lacks FROM sys.views")) == {
        name: len(lacks.get(name, by_zero)) for name in (*queries, "fed", "passed")
    }
    assert "view quotients lacks 2 rows that could not be computed; sys.bad_rows lists them" in warned
    assert not any("view counts" in text for text in warned)
    # A view made now has its rows from others than those that lack some; nor does it lend its own to them.
    home.sql("CREATE VIEW late AS SELECT k, count(*) AS c FROM s GROUP BY k")
    assert home.table("late") == [("a", 2), ("b", 2)]
    # Its changes are those of the partials that it has.
    next(home.session.subscribe("quotients"))
    assert home.emitted("quotients") == home.table("quotients") == [("a", 2.0, 1), ("b", 3.0, 1)]
    with pytest.raises(NotSupported, match="view quotients lacks rows"):
        home.sql("ALTER VIEW quotients AS SELECT k, count(*) AS c FROM s GROUP BY k")
    home.sql(
        "CREATE OR REPLACE VIEW quotients AS SELECT k, sum(n / nullif(d, 0)) AS q, count(*) AS c FROM s GROUP BY k"
    )
    assert home.table("quotients") == [("a", 2.0, 2), ("b", 3.0, 2)]


@pytest.mark.spark
def test_rows_of_the_past_are_set_aside_like_new_ones(home: Harness) -> None:
    home.sql(f"CREATE STREAM s {COLUMNS} KEEP ALL; CREATE VIEW counts AS SELECT k, count(*) AS c FROM s GROUP BY k")
    rows: list[Row] = [("a", 4, 2, "1", at(1)), ("a", 1, 0, "x", at(2)), ("b", 9, 3, "2", at(3))]
    home.insert("s", rows)
    home.sql("CREATE VIEW quotients AS SELECT k, count(*) AS c, sum(n / d) AS q FROM s GROUP BY k")
    home.sql("CREATE VIEW numbers AS SELECT k, CAST(t AS INT) AS t FROM s")
    home.sql("CREATE VIEW passed AS SELECT k, n / d AS q FROM s EMIT CHANGES")
    home.insert("s", [("b", 1, 0, "3", at(4))])
    rows.append(("b", 1, 0, "3", at(4)))
    assert home.table("quotients") == [("a", 1, 2.0), ("b", 1, 3.0)]
    assert home.table("numbers") == [("a", 1), ("b", 2), ("b", 3)]
    assert home.table("passed") == home.emitted("passed") == [("a", 2.0), ("b", 3.0)]
    assert home.table("counts") == [("a", 2), ("b", 2)]
    by_zero = [rows[1], rows[3]]
    expected = [*as_listed("quotients", by_zero), *as_listed("passed", by_zero), *as_listed("numbers", rows[1:2])]
    assert bad_rows(home) == sorted(expected)
    listed = home.query("SELECT run, offset, expression, reason FROM sys.bad_rows WHERE view = 'numbers'")
    assert listed[0][:3] == (None, 2, "CAST(t AS INT)") and "'x'" in str(listed[0][3])


@pytest.mark.spark
def test_on_error_fail_names_the_view_the_expression_and_the_row(home: Harness, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,1,1\na,many,1\na,2,0\n")
    columns = "(k STRING, n INT, d INT)"
    source = f"FROM files(path => '{tmp_path}/*.csv')"
    home.sql(f"CREATE STREAM strict {columns} ON ERROR FAIL; CREATE STREAM s {columns} {source}")
    home.sql(
        "CREATE VIEW v AS SELECT k, sum(n / d) AS q FROM strict GROUP BY k; CREATE VIEW w AS SELECT n / d AS q FROM s"
    )
    with pytest.raises(DataError) as caught:
        home.insert("strict", [("a", 1, 1), ("b", 1, 0)])
    assert "view v: Division by zero" in str(caught.value) and "(insert, row 2)" in str(caught.value)
    assert "^^^^^" in str(caught.value) and "ON ERROR FAIL" in str(caught.value)
    assert home.table("strict") == []
    assert home.table("w") == [(1.0,)]
    ((offset, expression),) = home.query("SELECT offset, expression FROM sys.bad_rows WHERE view = 'w'")
    assert (offset, expression) == (3, "n / d")


@pytest.mark.spark
def test_a_view_of_more_than_one_row_is_stopped_and_nothing_else(home: Harness, warned: list[str]) -> None:
    home.sql(f"CREATE STREAM s {COLUMNS} KEEP ALL; CREATE VIEW counts AS SELECT k, count(*) AS c FROM s GROUP BY k")
    home.sql("CREATE VIEW pairs AS SELECT x.k, x.n / y.d AS q FROM s x JOIN s y ON x.k = y.k EMIT CHANGES")
    home.sql("CREATE VIEW above AS SELECT k, max(q) AS q FROM pairs GROUP BY k")
    home.insert("s", [("a", 4, 2, "1", at(1))])
    assert home.table("pairs") == [("a", 2.0)]
    home.insert("s", [("a", 4, 0, "1", at(2))])
    home.insert("s", [("b", 4, 1, "1", at(2))])
    assert home.table("counts") == [("a", 2), ("b", 1)]
    assert any("view pairs is stopped" in text for text in warned)
    for view in ("pairs", "above"):
        with pytest.raises(QueryFailed, match=r"view pairs is stopped.*Division by zero"):
            home.table(view)
    with pytest.raises(QueryFailed, match="view pairs is stopped"):
        next(home.session.subscribe("pairs"))
    ((reason,),) = home.query("SELECT stopped FROM sys.views WHERE name = 'pairs'")
    assert "x.n / y.d" in str(reason)
    home.sql("DROP VIEW above; DROP VIEW pairs")
    home.sql("CREATE VIEW pairs AS SELECT x.k, x.n / nullif(y.d, 0) AS q FROM s x JOIN s y ON x.k = y.k EMIT CHANGES")
    assert home.table("pairs") == [("a", 2.0), ("a", 2.0), ("a", None), ("a", None), ("b", 4.0)]


@pytest.mark.spark
def test_what_no_row_is_to_blame_for_fails_the_read_alone(home: Harness) -> None:
    home.sql(f"CREATE STREAM s {COLUMNS}; CREATE VIEW counts AS SELECT k, count(*) AS c FROM s GROUP BY k")
    home.sql("CREATE VIEW sums AS SELECT k, sum(n * 9000000000000000000L) AS q FROM s GROUP BY k")
    home.sql("CREATE VIEW above AS SELECT k, count(*) AS c FROM s GROUP BY k HAVING 1 / (count(*) - 2) < 5")
    home.insert("s", [("a", 1, 1, "1", at(1)), ("a", 1, 1, "1", at(2)), ("b", 1, 1, "1", at(2))])
    assert home.table("counts") == [("a", 2), ("b", 1)]
    with pytest.raises(DataError, match="view sums: overflow: the result is too large for its type") as caught:
        home.table("sums")
    assert caught.value.text is not None
    assert caught.value.text[caught.value.start : caught.value.end] == "sum(n * 9000000000000000000L)"
    with pytest.raises(DataError, match="view above: Division by zero"):
        home.table("above")
    with pytest.raises(DataError) as caught:
        home.query("SELECT k, 1 / (c - 2) AS q FROM counts")
    assert caught.value.text is not None
    assert caught.value.text[caught.value.start : caught.value.end] == "1 / (c - 2)"
    for call in ("CAST(c * 3000000000 AS INT)", "to_date(k, 'yyyy')", "to_timestamp(k)"):
        with pytest.raises(DataError) as caught:
            home.query(f"SELECT k, {call} AS q FROM counts")
        assert caught.value.text is not None, caught.value
        assert caught.value.text[caught.value.start : caught.value.end] == call


@pytest.mark.spark
def test_a_value_that_cannot_be_inserted_is_underlined(home: Harness) -> None:
    home.sql(f"CREATE STREAM s {COLUMNS}")
    row = "('a', 1, {}, '1', TIMESTAMP '2026-01-01 00:00:00')"
    for value in ("'many'", "3000000000", "1 div 0", "CAST(3000000000L AS INT)"):
        with pytest.raises(AnabranchError) as caught:
            home.sql(f"INSERT INTO s VALUES {row.format(2)},\n {row.format(value)}")
        line, marks = str(caught.value).splitlines()[1:3]
        assert line[marks.index("^") : marks.rindex("^") + 1] == value, str(caught.value)
    assert home.table("s") == []


# ---- the law

#: An expression, and which rows it fails for, told by hand.
FAILS: dict[str, Any] = {
    "sum(n / d)": lambda k, n, d, t, ts: n is not None and d == 0,
    "sum(n % d)": lambda k, n, d, t, ts: n is not None and d == 0,
    "max(CAST(t AS INT))": lambda k, n, d, t, ts: t == "x",
    "sum(n + d)": lambda k, n, d, t, ts: n is not None and d is not None and n + d >= 2**31,
    "sum(CASE WHEN n > 1 THEN n div d END)": lambda k, n, d, t, ts: n is not None and n > 1 and d == 0,
    "max(element_at(array(n), d + 1))": lambda k, n, d, t, ts: d is not None and d > 0,
}
ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from([None, 0, 1, 5, 2**31 - 1]),
        st.sampled_from([None, 0, 1, 2]),
        st.sampled_from([None, "1", "x"]),
        st.integers(0, 150).map(at),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.spark
@settings(settings.get_profile("engine"), max_examples=3)
@given(ROWS, st.permutations(sorted(FAILS)), st.randoms(use_true_random=False))
def test_the_same_rows_are_set_aside_in_any_order_and_any_cut(
    spark: Any, rows: list[Row], expressions: list[str], chance: random.Random
) -> None:
    """A view has the rows that do not fail, others have all, and the rest is listed, whatever the runs, and whether the
    view was made before the rows came or after."""
    queries = {
        name: f"SELECT k, count(*) AS c, {expression} AS q FROM s GROUP BY k"
        for name, expression in zip(("early", "late"), expressions, strict=False)
    }
    clean = "SELECT k, count(*) AS c, max(n) AS q FROM s GROUP BY k"
    with Harness(spark=spark) as home:
        home.session.on_warning(lambda _: None)
        home.sql(f"CREATE STREAM s {COLUMNS} KEEP ALL; CREATE VIEW clean AS {clean}")
        home.sql(f"CREATE VIEW early AS {queries['early']}")
        mixed = shuffled(rows, chance)
        middle = chance.randint(0, len(mixed))
        home.insert_runs("s", filter(None, (mixed[:middle], mixed[middle:])))
        home.sql(f"CREATE VIEW late AS {queries['late']}")
        home.reopen()
        home.session.on_warning(lambda _: None)
        assert home.table("clean") == home.batch(clean, s=rows)
        listed = []
        for (name, query), expression in zip(queries.items(), expressions, strict=False):
            failing = [row for row in rows if FAILS[expression](*row)]
            assert home.table(name) == home.batch(query, s=[row for row in rows if row not in failing])
            listed += as_listed(name, failing)
        assert bad_rows(home) == sorted(listed)


@pytest.mark.spark
def test_a_run_that_is_replayed_sets_the_same_row_aside(home: Harness, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "x.parquet"
    parquet.write_table(
        pa.table({"k": ["a", "a"], "n": pa.array([1, 2], pa.int32()), "d": pa.array([1, 0], pa.int32())}), file
    )
    home.sql(f"CREATE STREAM s (k STRING, n INT, d INT) FROM files(path => '{file}')")
    home.sql("CREATE VIEW v AS SELECT k, sum(n / d) AS q FROM s GROUP BY k")
    home.sql("CREATE VIEW w AS SELECT k, count(*) AS c FROM s GROUP BY k")

    def crash(point: str) -> None:
        if point == "after-files":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run, "reach", crash)
        with pytest.raises(KeyboardInterrupt):
            home.table("v")
    home.reopen()
    home.session.on_warning(lambda _: None)
    assert home.table("v") == [("a", 1.0)] and home.table("w") == [("a", 2)]
    assert home.query("SELECT view, source, offset FROM sys.bad_rows") == [("v", str(file), 2)]


@pytest.mark.spark
def test_a_check_does_not_fail_where_spark_compiles_it(spark: Any) -> None:
    """What two expressions share Spark computes before either: outside of what catches errors."""
    rows = spark.createDataFrame([(1, 0, "x"), (1, 1, "1")], "n INT, d INT, t STRING")
    checks = [Check("n / d"), Check("n / d + 1"), Check("CAST(coalesce(t, 'x') AS INT)"), Check("n / d", "d <> 0")]
    wanted = [[True, True, True, False], [False] * 4]
    for mode in ("CODEGEN_ONLY", "NO_CODEGEN"):
        session = spark.newSession()
        session.conf.set("spark.sql.codegen.factoryMode", mode)
        session.conf.set("spark.sql.codegen.wholeStage", str(mode == "CODEGEN_ONLY").lower())
        frame = session.createDataFrame(rows.toArrow())
        assert [list(row) for row in frame.selectExpr(*(check.fails for check in checks)).collect()] == wanted
