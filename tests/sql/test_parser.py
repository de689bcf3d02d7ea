"""What texts of the dialect parse into: pairs of SQL and the shape it has."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from anabranch.algebra.progress import Delay
from anabranch.algebra.smoothing import Budget
from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.parser import parse
from anabranch.sql.syntax import (
    Advance,
    AlterView,
    Copy,
    CreateSink,
    CreateStream,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Query,
    Refresh,
    Relation,
    Select,
    SelectStatement,
    SetOperation,
    SetOption,
    Show,
    Statement,
    Update,
)

SECOND, MINUTE = 1_000_000, 60_000_000


def one(sql: str) -> Any:
    (statement,) = parse(sql)
    return statement


def select(sql: str) -> Select:
    statement = one(sql)
    assert isinstance(statement, SelectStatement)
    assert isinstance(statement.query.body, Select)
    return statement.query.body


def relation(sql: str) -> Relation:
    return select(f"SELECT * FROM {sql}").relations[0]


# ------------------------------------------------------------------------------------------------ statements


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT 1", SelectStatement),
        ("WITH a AS (SELECT 1) SELECT * FROM a", SelectStatement),
        ("VALUES (1), (2)", SelectStatement),
        ("(SELECT 1) UNION (SELECT 2)", SelectStatement),
        ("CREATE STREAM s (a INT)", CreateStream),
        ("CREATE SOURCE s (a INT)", CreateStream),
        ("CREATE FOREIGN TABLE s (a INT) SERVER stream", CreateStream),
        ("CREATE STREAM s AS SELECT 1", CreateView),
        ("CREATE TABLE t (a INT)", CreateTable),
        ("CREATE TABLE t FROM files(path => 'x.csv')", CreateTable),
        ("CREATE TABLE t AS SELECT 1", CreateTable),
        ("CREATE VIEW v AS SELECT 1", CreateView),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", CreateView),
        ("ALTER VIEW v AS SELECT 1", AlterView),
        ("ALTER VIEW v AS SELECT a FROM s DRY RUN", AlterView),
        ("DROP STREAM s", Drop),
        ("INSERT INTO s VALUES (1)", Insert),
        ("UPDATE t SET a = 1", Update),
        ("DELETE FROM t", Delete),
        ("COPY s FROM 'x.csv'", Copy),
        ("ADVANCE STREAM s TO END", Advance),
        ("REFRESH TABLE t", Refresh),
        ("SHOW STREAMS", Show),
        ("SHOW SINKS", Show),
        ("CREATE SINK k FROM v INTO files(path => 'x')", CreateSink),
        ("DROP SINK IF EXISTS k", Drop),
        ("DESCRIBE s", Describe),
        ("DESC VIEW v", Describe),
        ("EXPLAIN SELECT 1", Explain),
        ("EXPLAIN v", Explain),
        ("SET a.b = 3", SetOption),
    ],
)
def test_every_kind_of_statement(sql: str, kind: type[Statement]) -> None:
    assert type(one(sql)) is kind
    assert type(one(sql.lower())) is kind, "keywords have no case"
    assert type(one(f"/* a */ {sql} -- b\n ;; ")) is kind, "comments and empty statements are nothing"


def test_a_script_is_statements_in_order() -> None:
    text = "SELECT ';' AS `;`;  -- ; \n INSERT INTO s VALUES (1) ; /* ; */ SHOW TABLES"
    assert [statement.sql for statement in parse(text)] == [
        "SELECT ';' AS `;`",
        "INSERT INTO s VALUES (1)",
        "SHOW TABLES",
    ]
    assert parse("") == parse(" ; -- nothing\n") == []


def test_create_stream_with_everything() -> None:
    stream = one(
        "CREATE OR REPLACE STREAM IF NOT EXISTS bids (auction BIGINT NOT NULL, tags MAP<STRING, ARRAY<INT>>,"
        " price DECIMAL(18, 2) COMMENT 'in cents', ts TIMESTAMP,"
        " WATERMARK FOR ts AS ts - INTERVAL '5' SECOND IDLE AFTER INTERVAL 1 MINUTE AHEAD AT MOST '2 minutes')"
        " FROM files(path => 'in/*.csv', header => true, n => -3) KEEP ALL ON ERROR FAIL"
        " ON SCHEMA CHANGE ADD ON GAP SKIP"
    )
    assert isinstance(stream, CreateStream)
    assert (stream.on_gap, stream.on_schema_change) == ("skip", "add")
    assert str(stream.name) == "bids"
    assert (stream.if_not_exists, stream.or_replace, stream.keep, stream.fail_on_bad) == (True, True, "all", True)
    assert [(column.name, column.type) for column in stream.columns] == [
        ("auction", "BIGINT"),
        ("tags", "MAP<STRING, ARRAY<INT>>"),
        ("price", "DECIMAL(18, 2)"),
        ("ts", "TIMESTAMP"),
    ]
    assert stream.watermark is not None
    mark = stream.watermark
    assert (mark.column, mark.rule, mark.idle, mark.ahead) == ("ts", Delay(5 * SECOND), MINUTE, 2 * MINUTE)
    assert stream.source is not None
    assert (stream.source.kind, stream.source.options) == ("files", {"path": "in/*.csv", "header": True, "n": -3})


def test_columns_behind_the_source_of_a_stream_get_a_hint() -> None:
    with pytest.raises(SyntaxProblem, match=r"expected WATERMARK, KEEP or ON, found \(") as caught:
        parse("CREATE STREAM s FROM 'in/*.csv' (k STRING, n INT)")
    assert caught.value.hint == "columns stand before FROM: CREATE STREAM s (...) FROM ..."


def test_a_watermark_can_stand_behind_the_columns() -> None:
    stream = one("CREATE STREAM s (ts TIMESTAMP) WATERMARK FOR ts AS ts FROM 'x.csv'")
    assert stream.watermark.rule == Delay(0)
    assert stream.source.options == {"path": "x.csv"}


def test_create_table_and_view() -> None:
    table = one("CREATE TABLE IF NOT EXISTS t (a INT, b STRING)")
    assert table.if_not_exists and [column.name for column in table.columns] == ["a", "b"]
    assert one("CREATE TABLE t AS SELECT 1 AS a").query is not None
    for words, start in [
        ("", "beginning"),
        ("START AT BEGINNING", "beginning"),
        ("START AT NOW", "now"),
        ("START AT VERSION 7", 7),
    ]:
        view = one(f"CREATE VIEW v AS SELECT a FROM s {words}")
        assert view.start == start
        assert view.query.span.of(view.text).strip() == "SELECT a FROM s"


def test_alter_view() -> None:
    statement = one("ALTER VIEW v AS SELECT a FROM s dry")
    assert isinstance(statement, AlterView)
    assert (str(statement.name), statement.dry_run) == ("v", False)
    statement = one("ALTER VIEW v AS SELECT a FROM s GROUP BY a DRY RUN")
    assert isinstance(statement, AlterView)
    assert statement.dry_run
    assert statement.query.span.of(statement.text) == "SELECT a FROM s GROUP BY a"
    with pytest.raises(NotSupported, match="only a view can be altered"):
        parse("ALTER STREAM s AS SELECT 1")


def test_statements_that_change_rows() -> None:
    insert = one("INSERT INTO TABLE t (a, `b c`) SELECT 1, 2")
    assert insert.columns == ("a", "b c")
    assert [span.of(insert.text) for span in insert.column_spans] == ["a", "`b c`"]
    assert [
        row.span.of("INSERT INTO t VALUES (1, 'x'), (2, f(3))")
        for row in one("INSERT INTO t VALUES (1, 'x'), (2, f(3))").query.body.rows
    ] == ["(1, 'x')", "(2, f(3))"]
    update = one("UPDATE t x SET a = a + 1, b.c = 'y' WHERE a > 1 AND b IS NULL")
    assert update.alias == "x"
    assert [(str(n), e.span.of(update.text)) for n, e in update.assignments] == [("a", "a + 1"), ("b.c", "'y'")]
    assert update.where.span.of(update.text) == "a > 1 AND b IS NULL"
    delete = one("DELETE FROM t x WHERE x.a = 1")
    assert (delete.alias, delete.where.span.of(delete.text)) == ("x", "x.a = 1")
    copy = one("COPY s FROM 'in/a.csv' WITH (header => true, sep = ';')")
    assert (copy.path, copy.options) == ("in/a.csv", {"header": True, "sep": ";"})
    advance = one("ADVANCE STREAM s TO TIMESTAMP '2026-01-01 00:00:00'")
    assert advance.to.span.of(advance.text) == "TIMESTAMP '2026-01-01 00:00:00'"
    assert one("ADVANCE STREAM s TO END").to is None


def test_small_statements() -> None:
    drop = one("DROP MATERIALIZED VIEW IF EXISTS v CASCADE")
    assert (drop.kind, str(drop.name), drop.if_exists, drop.cascade) == ("view", "v", True, True)
    assert one("DROP SOURCE s").kind == "stream"
    assert one("SHOW VIEWS").what == "views"
    option = one("SET spark.sql.x = 'some text'")
    assert (option.key, option.value) == ("spark.sql.x", "some text")
    assert one("SET a = 1h 5m").value == "1h 5m"
    explain = one("EXPLAIN  v")
    assert explain.query.sql(explain.text) == "SELECT * FROM v"
    assert isinstance(one("EXPLAIN CREATE VIEW v AS SELECT 1").query, Query)


# --------------------------------------------------------------------------------------------------- queries


def test_clauses_are_spans_of_the_users_text() -> None:
    sql = (
        "SELECT DISTINCT a, sum(b) AS total, c /* why */ + 1 d FROM t x WHERE a > 1 AND b < 2"
        " GROUP BY a, c HAVING sum(b) > 3 ORDER BY total DESC NULLS LAST, a LIMIT 10 OFFSET 5"
    )
    found = select(sql)
    query = one(sql).query
    assert found.distinct
    assert [(item.expression.of(sql), item.alias) for item in found.items] == [
        ("a", None),
        ("sum(b)", "total"),
        ("c /* why */ + 1", "d"),
    ]
    assert found.from_span is not None and found.from_span.of(sql) == "t x"
    assert found.where is not None and found.where.span.of(sql) == "a > 1 AND b < 2"
    assert [part.span.of(sql) for part in found.group] == ["a", "c"]
    assert found.group_span is not None and found.group_span.of(sql) == "GROUP BY a, c"
    assert found.having is not None and found.having.span.of(sql) == "sum(b) > 3"
    assert query.order.of(sql) == "ORDER BY total DESC NULLS LAST, a LIMIT 10 OFFSET 5"
    assert [e.span.of(sql) for e in query.order_expressions] == ["total DESC NULLS LAST", "a", "10", "5"]


@pytest.mark.parametrize(
    ("item", "expression", "alias"),
    [
        ("a b", "a", "b"),
        ("a AS b", "a", "b"),
        ("a `b c`", "a", "b c"),
        ("INTERVAL 1 DAY", "INTERVAL 1 DAY", None),
        ("INTERVAL 1 DAY d", "INTERVAL 1 DAY", "d"),
        ("INTERVAL '1 day' d", "INTERVAL '1 day'", "d"),
        ("INTERVAL 1 DAY 2 HOURS", "INTERVAL 1 DAY 2 HOURS", None),
        ("INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '1-2' YEAR TO MONTH", None),
        ("CASE WHEN a THEN b END", "CASE WHEN a THEN b END", None),
        ("CASE WHEN a THEN b END c", "CASE WHEN a THEN b END", "c"),
        ("a IS NULL", "a IS NULL", None),
        ("a IS NULL n", "a IS NULL", "n"),
        ("NOT a", "NOT a", None),
        ("a IS DISTINCT FROM b", "a IS DISTINCT FROM b", None),
        ("sum(a) OVER w", "sum(a) OVER w", None),
        ("sum(a) OVER (ORDER BY b) s", "sum(a) OVER (ORDER BY b)", "s"),
        ("first(a) IGNORE NULLS", "first(a) IGNORE NULLS", None),
        ("count(*) FILTER (WHERE a > 1) n", "count(*) FILTER (WHERE a > 1)", "n"),
        ("DATE '2020-01-01'", "DATE '2020-01-01'", None),
        ("* EXCEPT (a)", "* EXCEPT (a)", None),
        ("t.*", "t.*", None),
        ("a::int i", "a::int", "i"),
        ("arr[0] x", "arr[0]", "x"),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY a) p", "percentile_cont(0.5) WITHIN GROUP (ORDER BY a)", "p"),
        ("stack(1, 2) AS (x, y)", "stack(1, 2)", None),
        # Words of the dialect are ordinary names where the words behind them do not make them a clause.
        ("a emit", "a", "emit"),
        ("a trigger", "a", "trigger"),
        ("a late", "a", "late"),
        ("a AS start", "a", "start"),
        ("emit + trigger", "emit + trigger", None),
        ("late", "late", None),
        ("offset", "offset", None),
        ("t.from", "t.from", None),
        ("window", "window", None),
    ],
)
def test_items_and_their_aliases(item: str, expression: str, alias: str | None) -> None:
    sql = f"SELECT {item}, 2 FROM t"
    found = select(sql).items[0]
    assert (found.expression.of(sql), found.alias) == (expression, alias)


def test_relations() -> None:
    assert relation("bids").exposed == "bids"
    assert relation("bids b").exposed == "b"
    assert str(relation("sys.runs r").name) == "sys.runs"
    assert relation("'logs/*.json' l").path == "logs/*.json"
    assert relation("t x(a, b)").alias_columns == ("a", "b")
    csv = relation("csv('a.csv', header => true) c")
    assert (csv.function, csv.alias, csv.arguments[0].value, csv.arguments[1].name) == ("csv", "c", "a.csv", "header")
    nested = relation("(SELECT a FROM s) x")
    assert nested.kind == "subquery" and nested.subquery is not None
    assert relation("(VALUES (1), (2)) v").kind == "subquery"
    assert relation("VALUES (1, 2), (3, 4) AS v(a, b)").kind == "opaque"
    assert relation("(t)").name is not None
    # Words of the dialect as names and aliases.
    for word in ("emit", "trigger", "late", "start", "stream", "version", "keep_all"):
        assert relation(word).exposed == relation(f"t {word}").exposed == relation(f"t AS {word}").exposed == word


def test_joins() -> None:
    sql = (
        "SELECT * FROM a, b LEFT OUTER JOIN c ON a.x = c.x AND c.y > 1 CROSS JOIN d JOIN e USING (k)"
        " LEFT ANTI JOIN f emit ON emit.z = a.z WHERE 1 = 1"
    )
    found = select(sql).relations
    assert [(each.exposed, each.join) for each in found] == [
        ("a", ""), ("b", ","), ("c", "LEFT OUTER JOIN"), ("d", "CROSS JOIN"), ("e", "JOIN"), ("emit", "LEFT ANTI JOIN"),
    ]  # fmt: skip
    assert found[2].condition is not None and found[2].condition.of(sql) == "ON a.x = c.x AND c.y > 1"
    assert found[4].condition is not None and found[4].condition.of(sql) == "USING (k)"
    assert found[5].condition is not None and found[5].condition.of(sql) == "ON emit.z = a.z"


def test_lateral_views_have_names_with_commas() -> None:
    found = select("SELECT k FROM t LATERAL VIEW OUTER explode(m) e AS k, v LATERAL VIEW explode(x) f AS y WHERE k = 1")
    assert found.lateral and len(found.relations) == 1 and found.where is not None


def test_what_is_lateral_is_known_by_relation() -> None:
    found = select("SELECT * FROM a, LATERAL (SELECT a.x) b LEFT JOIN LATERAL (SELECT a.y) c ON true JOIN d USING (k)")
    assert found.lateral and [each.lateral for each in found.relations] == [False, True, True, False]


def test_a_relation_is_reshaped_again_and_again() -> None:
    found = relation("t PIVOT (max(v) AS v FOR k IN ('a' AS a, 'b' AS b)) UNPIVOT (v FOR k IN (a, b)) AS u")
    assert found.reshaped and found.exposed == "u"


def test_as_of() -> None:
    found = relation("v AS OF VERSION 17 AS x")
    assert (found.version, found.alias) == (17, "x")
    assert relation("v x AS OF VERSION 17").version == 17
    with pytest.raises(NotSupported, match="AS OF VERSION n"):
        relation("v AS OF TIMESTAMP '2026-01-01'")
    with pytest.raises(SyntaxProblem, match="the number of a version"):
        relation("v AS OF VERSION x")


def test_ctes_subqueries_and_unions() -> None:
    query = one(
        "WITH a AS (SELECT x FROM s), b(y) AS (SELECT 1) SELECT (SELECT max(y) FROM b) FROM a"
        " WHERE x IN (SELECT z FROM (SELECT z FROM u)) UNION ALL SELECT 1 FROM w ORDER BY 1"
    ).query
    assert [name for name, _ in query.ctes] == ["a", "b"]
    assert query.cte_columns == ((), ("y",))
    assert isinstance(query.body, SetOperation)
    assert sorted(str(each.name) for each in query.relations() if each.name) == ["a", "b", "s", "u", "w"]
    assert query.cte_names() == {"a", "b"}


@pytest.mark.parametrize("sql", ["GROUP BY ROLLUP (a)", "GROUP BY a WITH CUBE", "GROUP BY a GROUPING SETS ((a))",
                                 "GROUP BY ALL", "GROUP BY CUBE (a), b"])  # fmt: skip
def test_groupings_that_are_not_plain(sql: str) -> None:
    assert not select(f"SELECT 1 FROM t {sql}").group_plain
    assert select("SELECT 1 FROM t GROUP BY a, f(b)").group_plain


# --------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    "sql",
    [
        "TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
        "TUMBLE(DATA => TABLE bids, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL 1 MINUTE)",
        "tumble(source => TABLE(bids), time_field => DESCRIPTOR(bids.ts), window_length => INTERVAL 1 MINUTE,"
        " offset => INTERVAL 0 SECONDS)",
        "TUMBLE(bids, ts, INTERVAL '60' SECOND)",
        "TUMBLE(bids, ts, '1 minute')",
        "TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
    ],
)
def test_spellings_of_tumble(sql: str) -> None:
    found = relation(f"{sql} w")
    window = found.window
    assert window is not None and found.name is not None and found.alias == "w"
    assert (window.kind, window.time_column, window.size, window.slide, window.offset) == (
        "tumble", "ts", MINUTE, MINUTE, 0,
    )  # fmt: skip
    assert str(found.name) == "bids"


@pytest.mark.parametrize(
    "sql",
    [
        "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)",
        "HOP(DATA => TABLE bids, TIMECOL => DESCRIPTOR(ts), SLIDE => INTERVAL 10 SECONDS, SIZE => INTERVAL 1 MINUTE)",
        "hop(source => TABLE(bids), time_field => DESCRIPTOR(ts), window_length => INTERVAL 1 MINUTE,"
        " hop_length => INTERVAL 10 SECONDS)",
        "HOP(bids, ts, INTERVAL '10' SECOND, INTERVAL '1' MINUTE)",
    ],
)
def test_spellings_of_hop(sql: str) -> None:
    window = relation(sql).window
    assert window is not None
    assert (window.kind, window.size, window.slide) == ("hop", MINUTE, 10 * SECOND)


@pytest.mark.parametrize(
    "sql",
    [
        "SESSION(TABLE s PARTITION BY a, b, DESCRIPTOR(ts), INTERVAL '5' MINUTES)",
        "SESSION(s PARTITION BY a, b, ts, INTERVAL 5 MINUTES)",
        "SESSION(DATA => TABLE s PARTITION BY a, b, TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL 5 MINUTES)",
    ],
)
def test_spellings_of_session(sql: str) -> None:
    found = relation(sql)
    assert found.window is not None and str(found.name) == "s" and found.alias is None
    assert (found.window.kind, found.window.time_column, found.window.size) == ("session", "ts", 300_000_000)
    assert [str(name) for name in found.window.partition] == ["a", "b"]


def test_cumulate() -> None:
    window = relation("CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL 2 MINUTES, INTERVAL 10 MINUTES)").window
    assert window is not None and (window.kind, window.slide, window.size) == ("cumulate", 120_000_000, 600_000_000)
    with pytest.raises(SyntaxProblem, match="whole number of its steps"):
        relation("CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL 3 MINUTES, INTERVAL 10 MINUTES)")
    with pytest.raises(SyntaxProblem, match="no PARTITION BY"):
        relation("CUMULATE(TABLE s PARTITION BY a, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 10 MINUTES)")


def test_windows_over_subqueries_and_paths() -> None:
    assert relation("TUMBLE((SELECT * FROM s WHERE a > 1), ts, INTERVAL 1 MINUTE)").subquery is not None
    assert relation("TUMBLE('x.csv', ts, INTERVAL 1 MINUTE)").path == "x.csv"
    offset = relation("TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 5 SECONDS)").window
    assert offset is not None and offset.offset == 5 * SECOND
    assert relation("tumble t").window is None, "a stream may be called tumble"


# -------------------------------------------------------------------------------------------------- emission


@pytest.mark.parametrize(
    ("clause", "mode"),
    [
        ("EMIT ON WINDOW CLOSE", "close"),
        ("TRIGGER ON WATERMARK", "close"),
        ("EMIT ON WINDOW CLOSE LATE CORRECT", "close"),
        ("EMIT CHANGES", "feed"),
        ("LATE CORRECT", "read"),
    ],
)
def test_emission_clauses(clause: str, mode: str) -> None:
    for body in ("SELECT a FROM t", "SELECT a FROM t x WHERE a > 1", "SELECT a FROM t GROUP BY a ORDER BY a",
                 "SELECT a FROM t UNION ALL SELECT a FROM u", "SELECT 1", "SELECT 1 LIMIT 3"):  # fmt: skip
        query = one(f"{body} {clause}").query
        assert query.emission.mode == mode
        assert query.emission.span.of(f"{body} {clause}") == clause
        view = one(f"CREATE VIEW v AS {body} {clause} START AT NOW")
        assert (view.query.emission.mode, view.start) == (mode, "now")


@pytest.mark.parametrize(
    ("clause", "mode", "fields"),
    [
        ("TRIGGER COUNTING 10", "triggers", {"counting": 10}),
        ("TRIGGER AFTER DELAY INTERVAL 5 SECONDS", "triggers", {"delay": 5_000_000, "first": False}),
        ("TRIGGER ON END OF STREAM", "triggers", {"end": True}),
        (
            "TRIGGER ON WATERMARK, COUNTING 5, AFTER DELAY INTERVAL 1 MINUTE, ON END OF STREAM LATE DROP",
            "triggers",
            {"watermark": True, "counting": 5, "delay": 60_000_000, "end": True, "late": "drop"},
        ),
        ("EMIT STREAM", "feed", {"stream": True}),
        ("EMIT AFTER WATERMARK", "close", {"watermark": True, "stream": False}),
        ("EMIT STREAM AFTER DELAY INTERVAL '6' MINUTES", "triggers", {"delay": 360_000_000, "first": True}),
        (
            "EMIT AFTER WATERMARK AND AFTER DELAY INTERVAL '6' MINUTES",
            "triggers",
            {"watermark": True, "delay": 360_000_000},
        ),
        ("EMIT ON WINDOW CLOSE LATE ARCHIVE", "close", {"late": "archive"}),
        ("EMIT ON WINDOW CLOSE AT MOST 10 WINDOWS A RUN", "close", {"budget": Budget(windows=10)}),
        ("EMIT ON WINDOW CLOSE AT MOST 1 ROW A RUN WITHIN 1 RUN", "close", {"budget": Budget(rows=1, delay=1)}),
        (
            "EMIT ON WINDOW CLOSE AT MOST 10000 ROWS A RUN WITHIN 2 RUNS LATE DROP",
            "close",
            {"budget": Budget(rows=10_000, delay=2), "late": "drop"},
        ),
    ],
)
def test_triggers(clause: str, mode: str, fields: dict[str, object]) -> None:
    emission = one(f"SELECT a FROM t GROUP BY a {clause}").query.emission
    assert emission.mode == mode
    assert {name: getattr(emission, name) for name in fields} == fields


def test_a_query_inside_a_query_has_a_clause_of_its_own() -> None:
    query = one("WITH x AS (SELECT a FROM t GROUP BY a TRIGGER COUNTING 2) SELECT * FROM x").query
    assert query.emission is None
    assert query.emits
    assert [emission.counting for emission in query.emissions()] == [2]


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("LATE DROP", "this query does not wait for any"),
        ("TRIGGER COUNTING 0", "at least 1"),
        ("TRIGGER COUNTING 2, COUNTING 3", "twice"),
        ("TRIGGER AFTER DELAY INTERVAL 5 MONTHS", "expected a delay"),
        ("TRIGGER COUNTING 2, SOMETIMES", "expected COUNTING n"),
        ("TRIGGER COUNTING 2 EMIT CHANGES", "one emission clause is enough"),
        ("EMIT STREAM AFTER BREAKFAST", "expected DELAY"),
        ("EMIT ON WINDOW CLOSE AT MOST 10 HOURS A RUN", "expected WINDOWS or ROWS"),
        ("EMIT ON WINDOW CLOSE AT MOST 10 WINDOWS", "expected A RUN"),
        ("EMIT ON WINDOW CLOSE AT MOST 10 ROWS A RUN WITHIN 2 DAYS", "expected RUNS"),
        ("EMIT CHANGES AT MOST 10 ROWS A RUN", "AT"),
    ],
)
def test_clauses_that_say_nothing(clause: str, message: str) -> None:
    with pytest.raises(SyntaxProblem, match=message):
        one(f"SELECT a FROM t GROUP BY a {clause}")


@pytest.mark.parametrize(
    ("clause", "number"),
    [
        ("AT MOST 0 WINDOWS A RUN", "0"),
        ("AT MOST -5 ROWS A RUN", "-"),
        ("AT MOST 2.5 ROWS A RUN", "2.5"),
        ("AT MOST 3 ROWS A RUN WITHIN 0 RUNS", "0"),
    ],
)
def test_a_budget_of_nothing_is_pointed_at(clause: str, number: str) -> None:
    text = f"SELECT a FROM t GROUP BY a EMIT ON WINDOW CLOSE {clause}"
    with pytest.raises(SyntaxProblem, match="at least 1") as caught:
        one(text)
    assert text[caught.value.start : caught.value.end] == number


@pytest.mark.parametrize(
    "sql",
    [
        "BEGIN",
        "CREATE SAMPLE k ON s SIZE 10",
        "CREATE STREAM s (a INT) KEEP 7 DAYS",
        "EXPLAIN ANALYZE SELECT 1",
    ],
)
def test_what_comes_later_says_so(sql: str) -> None:
    with pytest.raises(NotSupported):
        parse(sql)


def test_brackets_of_arrays_are_left_alone() -> None:
    sql = "SELECT arr[0], arr[range], arr[slide + 1], m['RANGE 5'], arr[wa] FROM t"
    assert len(select(sql).items) == 5


def test_spans_lie_inside_the_text() -> None:
    """Whatever has a span points at itself: the text of a statement is found again at its place."""
    text = "  SELECT 1;\nCREATE VIEW v AS SELECT a, b c FROM t WHERE a > 1 ;"
    for statement in parse(text):
        assert statement.text == text
        assert statement.sql == statement.sql.strip()
    view = parse(text)[1]
    assert {f.name for f in fields(view)} >= {"text", "span", "name", "query"}


@pytest.mark.parametrize(
    ("clause", "hint"),
    [
        ("TRIGGER COUNTNG 2", "did you mean TRIGGER COUNTING?"),
        ("TRIGGER EVERY 5 SECONDS", "there is: TRIGGER COUNTING n"),
        ("EMIT CHANGS", "did you mean EMIT CHANGES?"),
        ("EMIT ON WINDOW CLOSE LATE DORP", "did you mean LATE DROP?"),
    ],
)
@pytest.mark.parametrize(
    "query",
    ["SELECT k FROM s", "SELECT k FROM s x", "SELECT k FROM s WHERE n > 1", "SELECT k, count(*) FROM s GROUP BY k"],
)
def test_half_a_clause_is_told(query: str, clause: str, hint: str) -> None:
    """What is not a clause of EMIT, TRIGGER or LATE is read as a name; people are told of the clause they meant."""
    with pytest.raises(SyntaxProblem, match="is not a clause") as problem:
        parse(f"CREATE VIEW v AS {query} {clause}")
    assert (problem.value.hint or "").startswith(hint)


def test_triggers_have_commas_between() -> None:
    with pytest.raises(SyntaxProblem, match="expected a comma between two triggers"):
        parse("CREATE VIEW v AS SELECT k, count(*) FROM s GROUP BY k TRIGGER COUNTING 2 AFTER DELAY INTERVAL 5 SECONDS")
    assert parse("SELECT emit FROM s trigger JOIN t late ON late.emit = trigger.k")
