"""The words about progress: the WATERMARK clause of CREATE STREAM, and the functions that say the same in a query."""

from __future__ import annotations

import json

import pytest

from anabranch.algebra.progress import Computed, Delay, Lagging, Percentile, Punctuation, Rule
from anabranch.errors import NotSupported, SqlError, SyntaxProblem, UnknownName
from anabranch.plan.bind import Binder
from anabranch.plan.catalog import Catalog
from anabranch.plan.definitions import Stream
from anabranch.plan.stored import from_json, to_json
from anabranch.plan.view import NodeQuery, View
from anabranch.sql import check
from anabranch.sql.parser import parse
from anabranch.sql.syntax import CreateStream, Relation, Select, SelectStatement, Watermark
from anabranch.sql.watermarks import watermark_text
from anabranch.types import Field

SECOND, MINUTE = 1_000_000, 60_000_000


def watermark(clause: str) -> Watermark:
    for text in (f"CREATE STREAM s (ts TIMESTAMP, {clause})", f"CREATE STREAM s (ts TIMESTAMP) {clause} KEEP ALL"):
        (statement,) = parse(text)
        assert isinstance(statement, CreateStream) and statement.watermark is not None
        mark = statement.watermark
        assert mark.span.of(text) == clause
    return mark


@pytest.mark.parametrize(
    ("clause", "percentile"),
    [
        ("WATERMARK FOR ts PERCENTILE 95 OF 1000 ROWS EVERY 100 ROWS", Percentile(1000, 95, 100)),
        ("watermark for ts percentile 59.9 of 5 rows", Percentile(5, 59.9, 1)),
        ("WATERMARK FOR ts PERCENTILE 100 OF 1 ROW EVERY 1 ROW", Percentile(1, 100, 1)),
        ("WATERMARK FOR ts PERCENTILE 0 OF 10000 ROWS", Percentile(10_000, 0, 1)),
    ],
)
def test_a_percentile_of_the_last_rows(clause: str, percentile: Percentile) -> None:
    mark = watermark(clause)
    assert (mark.column, mark.rule, mark.idle, mark.ahead) == ("ts", percentile, None, None)


def test_what_may_follow_either() -> None:
    tail = "IDLE AFTER INTERVAL 1 MINUTE AHEAD AT MOST '2 minutes'"
    for rule in ("AS ts - INTERVAL 5 SECONDS", "PERCENTILE 95 OF 10 ROWS EVERY 5 ROWS", "PERCENTILE 95 OF 10 ROWS"):
        mark = watermark(f"WATERMARK FOR ts {rule} {tail}")
        assert (mark.idle, mark.ahead) == (MINUTE, 2 * MINUTE)
        assert mark.lull is None
        assert watermark(f"WATERMARK FOR ts {rule} {tail.replace(' AHEAD', ' THEN BY CLOCK AHEAD')}").lull is not None


@pytest.mark.parametrize(
    ("rule", "place", "message"),
    [
        ("PERCENTILE 101 OF 5 ROWS", "101", "expected a percentile between 0 and 100"),
        ("PERCENTILE -1 OF 5 ROWS", "-", "expected a percentile between 0 and 100"),
        ("PERCENTILE 'x' OF 5 ROWS", "'x'", "expected a percentile between 0 and 100"),
        ("PERCENTILE 95 IN 5 ROWS", "IN", "expected OF"),
        ("PERCENTILE 95 OF 5 MINUTES", "MINUTES", "expected ROWS"),
        ("PERCENTILE 95 OF 0 ROWS", "0", "at least 1"),
        ("PERCENTILE 95 OF 1.5 ROWS", "1.5", "how many of the last rows"),
        ("PERCENTILE 95 OF 5 ROWS EVERY 0 ROWS", "0", "after how many rows the bound is recomputed, at least 1"),
        ("PERCENTILE 95 OF 5 ROWS EVERY MINUTE", "MINUTE", "after how many rows the bound is recomputed"),
        ("AS ts - INTERVAL -5 SECONDS", "INTERVAL -5 SECONDS", "must not be negative"),
    ],
)
def test_what_is_wrong_with_a_clause(rule: str, place: str, message: str) -> None:
    text = f"CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts {rule})"
    with pytest.raises(SyntaxProblem, match=message) as raised:
        parse(text)
    assert text[raised.value.start : raised.value.end] == place


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("ORDERED", Delay(0)),
        ("LAGGING 1 ROW", Lagging(1)),
        ("lagging 100 rows", Lagging(100)),
        ("AS ts - '5 seconds'", Delay(5 * SECOND)),
        ("AS ts - INTERVAL 5 SECONDS * 2", Computed("ts - INTERVAL 5 SECONDS * 2")),
        ("AS date_trunc('hour', ts)", Computed("date_trunc('hour', ts)")),
        ("AS greatest(ts - INTERVAL 1 DAY, date_trunc('hour', `TS`))", None),
        ("FROM PUNCTUATION WHERE kind = 'mark'", Punctuation("kind = 'mark'")),
        ("FROM PUNCTUATION WHERE k IS NOT DISTINCT FROM 'x' AND n IN (1, 2)", None),
        ("FROM PUNCTUATION WHERE idle", Punctuation("idle")),
    ],
)
def test_how_progress_follows_the_rows(rule: str, found: Rule | None) -> None:
    tail = "PER KEY k IDLE AFTER INTERVAL 1 MINUTE AHEAD AT MOST INTERVAL 2 MINUTES"
    for clause in (f"WATERMARK FOR ts {rule}", f"WATERMARK FOR ts {rule} {tail}"):
        mark = watermark(clause)
        assert found is None or mark.rule == found
        assert mark.expression is None or clause.startswith(f"WATERMARK FOR ts {rule}")
    assert (str(mark.key), mark.idle, mark.ahead) == ("k", MINUTE, 2 * MINUTE)


@pytest.mark.parametrize(
    ("rule", "place", "message"),
    [
        ("LAGGING 0 ROWS", "0", "by how many rows progress lags, at least 1"),
        ("LAGGING -5 ROWS", "-", "by how many rows progress lags"),
        ("LAGGING 5", ")", "expected ROWS"),
        ("FROM PUNCTUATION", "FROM", "a watermark is written AS"),
        ("FROM PUNCTUATION WHERE", ")", "expected what holds for rows that mark progress"),
        ("AS", ")", "expected an expression of the event-time column"),
        ("AS other - INTERVAL 5 SECONDS", "other", "must be computed from ts"),
        ("ORDERED PER KEY", ")", "expected the column of the key"),
        ("ORDERED PER KEY k PER KEY k", "PER", "expected ,"),
        ("AS date_trunc('hour', ts", "(", "not closed"),
    ],
)
def test_what_is_wrong_with_a_rule(rule: str, place: str, message: str) -> None:
    text = f"CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts {rule})"
    with pytest.raises(SqlError, match=message) as raised:
        parse(text)
    assert text[raised.value.start : raised.value.end] == place


@pytest.mark.parametrize(
    ("clause", "place", "message"),
    [
        ("WATERMARK FOR n ORDERED", "WATERMARK FOR n ORDERED", "the event time n is a INT, not a TIMESTAMP"),
        ("WATERMARK FOR nix LAGGING 5 ROWS", "WATERMARK FOR nix LAGGING 5 ROWS", "the stream has no column nix"),
        ("WATERMARK FOR ts FROM PUNCTUATION WHERE marc = 'x'", "marc", "there is no column marc"),
        ("WATERMARK FOR ts AS ts - INTERVAL 1 SECOND * n", "n", "there is no column n"),
        ("WATERMARK FOR ts AS least(ts, now())", "now()", "another value with each call"),
        ("WATERMARK FOR ts ORDERED PER KEY marc", "marc", "the stream has no column marc"),
        ("WATERMARK FOR ts ORDERED PER KEY price", "price", "progress cannot be kept by price, which is a DECIMAL"),
        ("WATERMARK FOR ts AS ts + + ", "+", "something is missing"),
    ],
)
def test_a_clause_that_does_not_fit_the_columns_is_underlined(clause: str, place: str, message: str) -> None:
    text = f"CREATE STREAM s (ts TIMESTAMP, n INT, mark STRING, price DECIMAL(10, 2), {clause})"
    with pytest.raises(SqlError, match=message) as raised:
        check(text)
    assert text[raised.value.start : raised.value.end] == place


def test_what_is_not_there() -> None:
    with pytest.raises(NotSupported, match=r"AS an expression of its column, ORDERED, LAGGING n ROWS, PERCENTILE"):
        parse("CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts)")
    for rule in ("PERCENTILE 95 OF 10001 ROWS", "LAGGING 10001 ROWS"):
        with pytest.raises(NotSupported, match="more than 10,000 rows"):
            parse(f"CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts {rule})")


def test_homes_made_before_there_were_rules_still_open() -> None:
    old = {**to_json(stream("s", "ts")), "delay": 5 * SECOND, "percentile": None}
    del old["rule"], old["key"], old["format"]
    assert from_json(old) == stream("s", "ts", Delay(5 * SECOND))
    percentile = {"events": 10, "percentile": 95.0, "frequency": 2}
    assert from_json({**old, "delay": None, "percentile": percentile}) == stream("s", "ts", Percentile(10, 95.0, 2))
    assert from_json({**old, "delay": None}) == stream("s", "ts")
    for rule in (Delay(1), Computed("ts"), Punctuation("a = 'b'"), Lagging(3), Percentile(5, 50.0)):
        new = stream("s", "ts", rule)
        assert from_json(json.loads(json.dumps(to_json(new)))) == new


@pytest.mark.parametrize(
    "clause",
    [
        "WATERMARK FOR ts AS ts",
        "WATERMARK FOR ts AS ts - INTERVAL 90 SECONDS",
        "WATERMARK FOR ts AS ts - INTERVAL 1 MINUTE",
        "WATERMARK FOR `event time` AS `event time` - INTERVAL 1500 MILLISECONDS",
        "WATERMARK FOR ts PERCENTILE 95 OF 1000 ROWS EVERY 100 ROWS",
        "WATERMARK FOR ts PERCENTILE 99.999999 OF 5 ROWS",
        "WATERMARK FOR ts LAGGING 7 ROWS",
        "WATERMARK FOR ts AS date_trunc('hour', ts)",
        "WATERMARK FOR ts FROM PUNCTUATION WHERE kind = 'mark'",
    ],
)
def test_a_clause_can_be_written_back(clause: str) -> None:
    mark = watermark(clause)
    assert watermark_text(mark.column, mark.rule) == clause


# ------------------------------------------------------------------------------------------------- functions


def relation(text: str) -> Relation:
    (statement,) = parse(f"SELECT * FROM {text}")
    assert isinstance(statement, SelectStatement) and isinstance(statement.query.body, Select)
    (found,) = statement.query.body.relations
    return found


@pytest.mark.parametrize(
    "sql",
    [
        "max_diff_watermark(source => TABLE(events), time_field => DESCRIPTOR(time), offset => INTERVAL 5 SECONDS)",
        "MAX_DIFF_WATERMARK(offset=>INTERVAL '5' SECOND, time_field=>DESCRIPTOR(e.time), source=>TABLE(events))",
        "max_diff_watermark(TABLE events, DESCRIPTOR(time), INTERVAL 5 SECONDS)",
    ],
)
def test_max_diff_watermark(sql: str) -> None:
    found = relation(f"{sql} e")
    assert (str(found.name), found.alias, found.window) == ("events", "e", None)
    (mark,) = found.watermarks
    assert (mark.column, mark.rule) == ("time", Delay(5 * SECOND))
    assert mark.span == found.span


def test_percentile_watermark() -> None:
    found = relation(
        "percentile_watermark(frequency => 100, events => 1000, source => TABLE(events), percentile => 59.9,"
        " time_field => DESCRIPTOR(time))"
    )
    (mark,) = found.watermarks
    assert mark.rule == Percentile(1000, 59.9, 100)
    without = relation("percentile_watermark(TABLE events, DESCRIPTOR(time), 10, 95)")
    assert without.watermarks[0].rule == Percentile(10, 95, 1)
    assert relation("percentile_watermark p").watermarks == (), "a stream may have that name"


def test_functions_inside_functions() -> None:
    inner = "max_diff_watermark(source => TABLE(s), time_field => DESCRIPTOR(ts), offset => INTERVAL 5 SECONDS)"
    for source in (f"TABLE({inner})", f"TABLE({inner} e)", inner):
        found = relation(
            f"tumble(source => {source}, time_field => DESCRIPTOR(e.ts), window_length => INTERVAL 1 MINUTE,"
            " offset => INTERVAL 0 SECONDS) w"
        )
        assert found.window is not None and len(found.watermarks) == 1 and str(found.name) == "s"
    deep = "max_diff_watermark(" * 50 + "s" + ", ts, INTERVAL 1 SECOND)" * 50
    with pytest.raises(SyntaxProblem, match="deeper than"):
        relation(deep)


@pytest.mark.parametrize(
    ("sql", "place", "message", "hint"),
    [
        (
            "max_diff_watermark(source => TABLE(s), time_field => DESCRIPTOR(ts), ofset => INTERVAL 5 SECONDS)",
            "ofset",
            "MAX_DIFF_WATERMARK has no parameter ofset",
            "did you mean offset?",
        ),
        (
            "max_diff_watermark(source => TABLE(s), time_field => DESCRIPTOR(ts))",
            "max_diff_watermark(source => TABLE(s), time_field => DESCRIPTOR(ts))",
            "needs an offset",
            "as in max_diff_watermark(",
        ),
        (
            "percentile_watermark(source => TABLE(s), time_field => DESCRIPTOR(ts), percentile => 95)",
            "percentile_watermark(source => TABLE(s), time_field => DESCRIPTOR(ts), percentile => 95)",
            "needs events",
            "events => 1000",
        ),
        (
            "percentile_watermark(source => TABLE(s), time_field => DESCRIPTOR(ts), events => 5, percentile => 101)",
            "101",
            "between 0 and 100",
            "",
        ),
        ("max_diff_watermark(s, ts, INTERVAL 1 SECOND, 3)", "3", "takes at most 3 arguments", ""),
        (
            "max_diff_watermark(s PARTITION BY k, ts, INTERVAL 1 SECOND)",
            "PARTITION BY k",
            "takes no PARTITION BY",
            "",
        ),
    ],
)
def test_what_is_wrong_with_a_call(sql: str, place: str, message: str, hint: str) -> None:
    text = f"SELECT * FROM {sql}"
    with pytest.raises(SyntaxProblem, match=message) as raised:
        parse(text)
    assert text[raised.value.start : raised.value.end] == place
    assert hint in (raised.value.hint or "")


# ------------------------------------------------------------------------------------ the stream that has it


def stream(name: str, column: str | None, rule: Rule | None = None) -> Stream:
    fields = (Field("ts", "timestamp"), Field("k", "string"))
    return Stream(name, name, "", fields, column, rule, None, None, None, {}, "all", False)


OBJECTS = (
    stream("s", "ts", Delay(5 * SECOND)),
    stream("p", "ts", Percentile(1000, 95.0, 100)),
    stream("bare", None),
    View("v", "v", "", None, (), "", NodeQuery("")),
)
CATALOG = Catalog({each.id: to_json(each) for each in OBJECTS})


def bound(text: str) -> str:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    return Binder(text, CATALOG, statement.query).bind().text.text


def max_diff(source: str, offset: str = "5 SECONDS", column: str = "ts") -> str:
    time = f"time_field => DESCRIPTOR({column})"
    return f"max_diff_watermark(source => TABLE({source}), {time}, offset => INTERVAL {offset})"


PERCENTILE = (
    "percentile_watermark(source => TABLE({}), time_field => DESCRIPTOR(ts), events => {}, percentile => 95,"
    " frequency => 100)"
)


@pytest.mark.parametrize(
    ("text", "spark"),
    [
        (f"SELECT * FROM {max_diff('s')} e", "SELECT * FROM `@s:s` e"),
        (f"SELECT s.k FROM {max_diff('s', '5000 MILLISECONDS', 'e.TS')}", "SELECT s.k FROM `@s:s` AS `s`"),
        (f"SELECT * FROM {PERCENTILE.format('p', 1000)}", "SELECT * FROM `@s:p` AS `p`"),
        (f"SELECT * FROM {max_diff(max_diff('s'))}", "SELECT * FROM `@s:s` AS `s`"),
        (
            f"WITH c AS (SELECT k, ts FROM s WHERE k > 'a') SELECT * FROM {max_diff('c')} e",
            "WITH c AS (SELECT k, ts FROM `@s:s` AS `s` WHERE k > 'a') SELECT * FROM `c` e",
        ),
        (
            f"SELECT * FROM {max_diff('(SELECT k, ts FROM s)')} e",
            "SELECT * FROM (SELECT k, ts FROM `@s:s` AS `s`) e",
        ),
    ],
)
def test_a_function_stands_for_a_stream_that_has_the_watermark(text: str, spark: str) -> None:
    assert bound(text) == spark


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            max_diff("s", "10 SECONDS"),
            "stream s has WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS",
            "put WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS into CREATE STREAM s",
        ),
        (
            max_diff("s", "5 SECONDS", "other"),
            "stream s has WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS",
            "put WATERMARK FOR other AS other - INTERVAL 5 SECONDS into CREATE STREAM s",
        ),
        (
            PERCENTILE.format("p", 999),
            "stream p has WATERMARK FOR ts PERCENTILE 95 OF 1000 ROWS EVERY 100 ROWS",
            "put WATERMARK FOR ts PERCENTILE 95 OF 999 ROWS EVERY 100 ROWS into CREATE STREAM p",
        ),
        (
            max_diff("bare"),
            "stream bare has no watermark",
            "put WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS into CREATE STREAM bare",
        ),
        (max_diff("v"), "a watermark belongs to one stream, and none is read here", "remove the function"),
        (max_diff("'x.csv'"), "and none is read here", "remove the function"),
        (max_diff("(SELECT * FROM s UNION ALL SELECT * FROM p)"), "and several are read here", "into CREATE STREAM"),
    ],
)
def test_a_function_over_anything_else_says_which_clause_to_write(call: str, message: str, hint: str) -> None:
    text = f"SELECT * FROM {call} e"
    with pytest.raises(NotSupported) as raised:
        bound(text)
    assert message in raised.value.message
    assert hint in (raised.value.hint or "")
    assert text[raised.value.start : raised.value.end] == call


def test_an_unknown_stream_is_underlined_alone() -> None:
    text = f"SELECT * FROM {max_diff('nix')} e"
    with pytest.raises(UnknownName, match="there is no stream, view or table nix") as raised:
        bound(text)
    assert text[raised.value.start : raised.value.end] == "nix"


def test_check_knows_the_watermarks_of_a_script() -> None:
    made = "CREATE STREAM s (k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);"
    assert check(f"{made} SELECT e.k FROM {max_diff('s')} e") == []
    with pytest.raises(NotSupported, match="stream s has WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS"):
        check(f"{made} SELECT e.k FROM {max_diff('s', '6 SECONDS')} e")
    with pytest.raises(UnknownName, match=r"there is no column e\.nix"):
        check(f"{made} SELECT e.nix FROM {max_diff('s')} e")
