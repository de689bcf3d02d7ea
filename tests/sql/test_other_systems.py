"""What users of other systems write first: it is read as what there is here, or an error says what to write."""

from __future__ import annotations

from itertools import permutations

import pytest

from anabranch.algebra.progress import Delay
from anabranch.errors import NotSupported, SqlError, SyntaxProblem
from anabranch.sql import check
from anabranch.sql.parser import parse
from anabranch.sql.syntax import (
    Copy,
    CopyTo,
    CreateStream,
    Describe,
    Select,
    SelectStatement,
    ShowCreate,
    Update,
    WindowSpec,
)

TUMBLE = "TUMBLE(s, ts, INTERVAL 1 MINUTE)"
SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000


def window(relation: str) -> WindowSpec:
    """The window of a relation of FROM."""
    (statement,) = parse(f"SELECT * FROM {relation}")
    assert isinstance(statement, SelectStatement)
    (found,) = [each.window for each in statement.query.relations() if each.window is not None]
    return found


def column_type(written: str) -> str:
    (statement,) = parse(f"CREATE STREAM s (a {written}, b INT)")
    assert isinstance(statement, CreateStream)
    assert statement.columns[1].type == "INT"
    return statement.columns[0].type


def refusal(text: str, kind: type[SqlError] = SyntaxProblem) -> tuple[str, str, str | None]:
    """The message, the part of the text it points at, and what to do."""
    with pytest.raises(kind) as caught:
        parse(text)
    error = caught.value
    assert error.start is not None and error.end is not None
    return error.message, text[error.start : error.end], error.hint


# ----------------------------------------------------------------------------------------- windows in GROUP BY


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM session (a INT)",
        "INSERT INTO hop (a) SELECT 1",
        "WITH a AS (SELECT 1), session (x) AS (SELECT 2) SELECT * FROM session",
        "SELECT tumble, session FROM hop",
        "SELECT x.a FROM t AS session(a, b) JOIN s x",
    ],
)
def test_their_names_are_free_elsewhere(text: str) -> None:
    (statement,) = parse(text)
    assert statement.text is text
    assert not isinstance(statement, SelectStatement) or not statement.query.needs_plan


@pytest.mark.parametrize(
    ("text", "message", "place", "hint"),
    [
        (
            "SELECT TUMBLE_START(ts, INTERVAL '1' SECOND) FROM s GROUP BY TUMBLE(ts, INTERVAL '2' SECOND)",
            "TUMBLE_START needs GROUP BY TUMBLE of the same time and lengths",
            "TUMBLE_START(ts, INTERVAL '1' SECOND)",
            "GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)",
        ),
        (
            "SELECT count(*) FROM s GROUP BY HOP(ts, INTERVAL '5' SECOND)",
            "in GROUP BY, HOP takes a column with the time and slide and size",
            "HOP(ts, INTERVAL '5' SECOND)",
            "as in HOP(ts, INTERVAL 1 MINUTE, INTERVAL 1 MINUTE)",
        ),
        (
            "SELECT count(*) FROM s GROUP BY TUMBLE(, INTERVAL '5' SECOND)",
            "in GROUP BY, TUMBLE takes a column with the time and size",
            "TUMBLE(, INTERVAL '5' SECOND)",
            "as in TUMBLE(ts, INTERVAL 1 MINUTE)",
        ),
        (
            "SELECT count(*) FROM s GROUP BY CUMULATE(ts, INTERVAL '5' SECOND, INTERVAL '1' DAY)",
            "CUMULATE is only possible in FROM",
            "CUMULATE(ts, INTERVAL '5' SECOND, INTERVAL '1' DAY)",
            "FROM CUMULATE(TABLE t, DESCRIPTOR(ts), step, size) ... GROUP BY window_start, window_end",
        ),
        (
            "SELECT count(*) FROM s JOIN r USING (k) GROUP BY TUMBLE(INTERVAL '10' SECOND)",
            "a window without a time column is only possible in GROUP BY over a single stream or view",
            "TUMBLE(INTERVAL '10' SECOND)",
            "name the column with the time first: TUMBLE(ts, INTERVAL ...)",
        ),
        (
            "SELECT count(*) FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MONTH)",
            "expected the size of the window, as in INTERVAL 10 MINUTES",
            "INTERVAL '1' MONTH",
            "months and years have no fixed length; use days",
        ),
    ],
)
def test_what_cannot_be_such_a_window_is_explained(text: str, message: str, place: str, hint: str) -> None:
    assert refusal(text) == (message, place, hint)


def test_windows_have_no_time_of_processing() -> None:
    text = "SELECT TUMBLE_PROCTIME(ts, INTERVAL '1' DAY) FROM s GROUP BY TUMBLE(ts, INTERVAL '1' DAY)"
    assert refusal(text, NotSupported)[0] == "windows have no time of processing"


# --------------------------------------------------------------------------------------------- Calcite's calls


def test_named_arguments_come_in_any_order() -> None:
    session = ["DATA => TABLE s", "TIMECOL => DESCRIPTOR(ts)", "KEY => DESCRIPTOR(k)", "SIZE => INTERVAL '5' MINUTE"]
    for given in permutations(session):
        found = window(f"TABLE(SESSION({', '.join(given)}))")
        assert (found.kind, found.time_column, found.size) == ("session", "ts", 5 * MINUTE)
        assert [str(key) for key in found.partition] == ["k"]
    hop = [
        "DATA => TABLE s",
        "TIMECOL => DESCRIPTOR(ts)",
        "SLIDE => INTERVAL '1' MINUTE",
        "SIZE => INTERVAL '5' MINUTE",
    ]
    for given in permutations(hop):
        found = window(f"HOP({', '.join(given)}, OFFSET => INTERVAL '1' SECOND)")
        assert (found.kind, found.slide, found.size, found.offset) == ("hop", MINUTE, 5 * MINUTE, SECOND)


@pytest.mark.parametrize(
    ("call", "keys"),
    [
        ("SESSION(TABLE s, DESCRIPTOR(ts), DESCRIPTOR(k), INTERVAL '5' MINUTE)", ["k"]),
        ("SESSION(TABLE s, DESCRIPTOR(ts), DESCRIPTOR(k, j), INTERVAL '5' MINUTE)", ["k", "j"]),
        ("SESSION(KEY => k, DATA => s, TIMECOL => ts, GAP => INTERVAL '5' MINUTE)", ["k"]),
        ("SESSION(DATA => TABLE s PARTITION BY k, TIMECOL => DESCRIPTOR(ts), GAP => INTERVAL '5' MINUTE)", ["k"]),
    ],
)
def test_the_key_of_a_session(call: str, keys: list[str]) -> None:
    found = window(call)
    assert (found.kind, found.time_column, found.size) == ("session", "ts", 5 * MINUTE)
    assert [str(key) for key in found.partition] == keys


@pytest.mark.parametrize(
    ("call", "message", "place"),
    [
        (
            "SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), DESCRIPTOR(k), INTERVAL '5' MINUTE)",
            "the partition columns of the windows are given twice",
            "DESCRIPTOR(k)",
        ),
        (
            "TUMBLE(TABLE s, DESCRIPTOR(ts), DESCRIPTOR(k), INTERVAL '5' MINUTE)",
            "TUMBLE takes no second DESCRIPTOR: it is the same for all rows",
            "DESCRIPTOR",
        ),
        (
            "HOP(KEY => DESCRIPTOR(k), DATA => TABLE s)",
            "HOP takes no KEY: it is the same for all rows",
            "KEY",
        ),
        (
            "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 5 MINUTES, SIZE => INTERVAL 6 MINUTES)",
            "the size is given twice",
            "INTERVAL",
        ),
    ],
)
def test_arguments_that_do_not_fit(call: str, message: str, place: str) -> None:
    assert refusal(f"SELECT * FROM {call}")[:2] == (message, place)


# ------------------------------------------------------------------------------------------- lengths of time


@pytest.mark.parametrize(
    ("written", "length"),
    [
        ("INTERVAL '01:30' HOUR TO MINUTE", HOUR + 30 * MINUTE),
        ("INTERVAL '1 2' DAY TO HOUR", DAY + 2 * HOUR),
        ("INTERVAL '1 02:03' DAY TO MINUTE", DAY + 2 * HOUR + 3 * MINUTE),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", DAY + 2 * HOUR + 3 * MINUTE + 4_500_000),
        ("INTERVAL '100:00:01' HOUR TO SECOND", 100 * HOUR + SECOND),
        ("INTERVAL '90:30.000001' MINUTE TO SECOND", 90 * MINUTE + 30 * SECOND + 1),
        ("INTERVAL '1' DAY '2' HOURS", DAY + 2 * HOUR),
    ],
)
def test_day_time_intervals_are_lengths(written: str, length: int) -> None:
    assert window(f"TUMBLE(TABLE s, DESCRIPTOR(ts), {written})").size == length
    assert window(f"HOP(s, ts, {written}, INTERVAL 1000 DAYS, {written})").slide == length
    assert window(f"HOP(s, ts, {written}, INTERVAL 1000 DAYS, {written})").offset == length
    assert window(f"SESSION(TABLE s, DESCRIPTOR(ts), {written})").size == length
    (stream,) = parse(f"CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts AS ts - {written} IDLE AFTER {written})")
    assert isinstance(stream, CreateStream) and stream.watermark is not None
    assert (stream.watermark.rule, stream.watermark.idle) == (Delay(length), length)
    (delayed,) = parse(f"SELECT count(*) FROM s GROUP BY k EMIT AFTER DELAY {written}")
    assert isinstance(delayed, SelectStatement) and delayed.query.emission is not None
    assert delayed.query.emission.delay == length


def test_a_negative_interval_is_an_offset() -> None:
    assert window("TUMBLE(s, ts, INTERVAL 1 HOUR, INTERVAL '-00:10' MINUTE TO SECOND)").offset == -10 * SECOND
    assert window("TUMBLE(s, ts, INTERVAL 1 HOUR, INTERVAL -'00:10' MINUTE TO SECOND)").offset == -10 * SECOND


@pytest.mark.parametrize(
    ("written", "message", "hint"),
    [
        ("'1:70' HOUR TO MINUTE", "'1:70' is no interval HOUR TO MINUTE", "it is written 'hh:mm'"),
        ("'1' DAY TO SECOND", "'1' is no interval DAY TO SECOND", "it is written 'd hh:mm:ss.f'"),
        (
            "'1:2' MINUTE TO HOUR",
            "there is no interval from MINUTE TO HOUR",
            "as in DAY TO SECOND, HOUR TO MINUTE, MINUTE TO SECOND",
        ),
        (
            "'1-2' YEAR TO MONTH",
            "YEAR TO MONTH has no fixed length: months and years differ",
            "use days: INTERVAL 30 DAYS",
        ),
        (
            "'2 months'",
            "expected the size of the window, as in INTERVAL 10 MINUTES",
            "months and years have no fixed length; use days",
        ),
    ],
)
def test_what_is_no_length_of_time(written: str, message: str, hint: str) -> None:
    text = f"SELECT * FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL {written})"
    assert refusal(text) == (message, f"INTERVAL {written}", hint)


# ------------------------------------------------------------------------------------------------------ types


@pytest.mark.parametrize(
    ("written", "spark"),
    [
        ("varchar", "STRING"),
        ("varchar(5)", "varchar(5)"),
        ("character varying", "STRING"),
        ("character varying(9)", "VARCHAR(9)"),
        ("char", "CHAR(1)"),
        ("text NOT NULL", "STRING"),
        ("integer", "integer"),
        ("int2", "SMALLINT"),
        ("int4", "INT"),
        ("int8", "BIGINT"),
        ("float8", "DOUBLE"),
        ("double precision", "DOUBLE"),
        ("numeric(9, 2)", "numeric(9, 2)"),
        ("bool", "BOOLEAN"),
        ("bytea", "BINARY"),
        ("timestamptz", "TIMESTAMP"),
        ("datetime", "TIMESTAMP"),
        ("timestamp(3)", "TIMESTAMP"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ"),
        ("timestamp(3) with time zone", "TIMESTAMP"),
        ("timestamp with local time zone", "TIMESTAMP"),
        ("timestamp without time zone", "TIMESTAMP_NTZ"),
        ("map<text, array<int8>>", "map<STRING, array<BIGINT>>"),
        ("struct<text: text, bool bool>", "struct<text: STRING, bool BOOLEAN>"),
    ],
)
def test_types_of_others_are_those_of_spark(written: str, spark: str) -> None:
    assert column_type(written) == spark


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("json", "use STRING"),
        ("uuid", "use STRING"),
        ("time(3)", "use STRING, or a number of seconds"),
        ("interval day to second", "use a number: of seconds, which make_dt_interval(0, 0, 0, n) makes an interval,"),
        ("array<interval year to month>", "use a number: of seconds"),
        ("timestamp(9)", "write TIMESTAMP"),
    ],
)
def test_types_that_cannot_be_kept_are_refused_with_one_that_can(written: str, hint: str) -> None:
    found = refusal(f"CREATE TABLE t (a {written})")[2]
    assert found is not None and found.startswith(hint)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (
            "SELECT CAST(x AS TEXT), y::int8 + 1, z::double precision AS t, a::timestamp(3) with time zone b,"
            " CAST(CAST(x AS INT4) AS VARCHAR), try_cast(x AS array<text>), c::text text FROM s WHERE d::bool",
            "SELECT CAST(x AS STRING), y::BIGINT + 1, z::DOUBLE AS t, a::TIMESTAMP b,"
            " CAST(CAST(x AS INT) AS STRING), try_cast(x AS array<STRING>), c::STRING text FROM s WHERE d::BOOLEAN",
        ),
        ("SELECT x::char || CAST(y AS CHARACTER) FROM s", "SELECT x::CHAR(1) || CAST(y AS CHAR(1)) FROM s"),
        ("UPDATE t SET a = b::text WHERE c::int4 = 1", "UPDATE t SET a = b::STRING WHERE c::INT = 1"),
    ],
)
def test_types_of_casts(written: str, meant: str) -> None:
    (one,), (other,) = parse(written), parse(meant)
    assert one.sql == written and one.normal == other.normal


def test_an_expression_is_written_with_the_types_of_spark() -> None:
    (update,) = parse("UPDATE t SET a = upper(b::text) WHERE c::char = 'x'")
    assert isinstance(update, Update) and update.where is not None
    assert update.assignments[0][1].sql(update.text) == "upper(b::STRING)"
    assert update.where.sql(update.text) == "c::CHAR(1) = 'x'"


# ---------------------------------------------------------------------------------------------------- samples


@pytest.mark.parametrize(
    ("written", "query", "sample", "name"),
    [
        ("s TABLESAMPLE (10 PERCENT)", "s", "(10 PERCENT)", "s"),
        ("s TABLESAMPLE (3 ROWS) REPEATABLE (7) AS x", "s", "(3 ROWS) REPEATABLE (7)", "x"),
        ("s AS x TABLESAMPLE BERNOULLI (10)", "s AS x", "(10 PERCENT)", "x"),
        ("s AS OF VERSION 3 TABLESAMPLE (1 ROWS) y", "s AS OF VERSION 3", "(1 ROWS)", "y"),
        ("sys.runs TABLESAMPLE (BUCKET 1 OUT OF 2)", "sys.runs", "(BUCKET 1 OUT OF 2)", "runs"),
        (f"{TUMBLE} w TABLESAMPLE (1 ROWS)", f"{TUMBLE} w", "(1 ROWS)", "w"),
        ("(SELECT 1) TABLESAMPLE (1 ROWS)", "(SELECT 1)", "(1 ROWS)", None),
    ],
)
def test_what_is_sampled_is_a_query(written: str, query: str, sample: str, name: str | None) -> None:
    (statement,) = parse(f"SELECT * FROM a JOIN {written} ON true")
    assert isinstance(statement, SelectStatement) and isinstance(statement.query.body, Select)
    _, found = statement.query.body.relations
    assert found.subquery is not None and found.sample is not None
    assert found.subquery.sql(statement.text) == f"SELECT * FROM {query}"
    assert (found.sample.text, found.exposed) == (f"TABLESAMPLE {sample}", name)


def test_a_view_has_no_sample() -> None:
    script = "CREATE STREAM s (a INT); CREATE VIEW v AS SELECT * FROM s TABLESAMPLE (10 PERCENT)"
    with pytest.raises(NotSupported, match="TABLESAMPLE picks other rows each time") as caught:
        check(script)
    assert caught.value.hint is not None and "pmod(hash(id), 100) < 10" in caught.value.hint


# ---------------------------------------------------------------------------------------------- COPY and SHOW


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ("", {}),
        ("CSV", {"format": "csv"}),
        ("WITH CSV HEADER DELIMITER AS ';' NULL ''", {"format": "csv", "header": True, "sep": ";", "nullvalue": ""}),
        ("(FORMAT csv, HEADER true, DELIMITER ';')", {"format": "csv", "header": True, "sep": ";"}),
        ("WITH (FORMAT 'json')", {"format": "json"}),
        ("(header => false, sep = '|', maxColumns => 7)", {"header": False, "sep": "|", "maxcolumns": 7}),
        ("(HEADER) OVERWRITE", {"header": True, "overwrite": True}),
    ],
)
def test_options_of_copy(options: str, read: dict[str, object]) -> None:
    (copy,) = parse(f"COPY s FROM 'f' {options}")
    assert isinstance(copy, Copy) and copy.options == read
    (export,) = parse(f"COPY a.b TO 'f' {options}")
    assert isinstance(export, CopyTo) and export.options == read
    assert export.query.sql(export.text) == "SELECT * FROM a.b"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("COPY s FROM 'f' FOO", "expected options, as in CSV HEADER, found FOO", "FOO"),
        ("COPY s FROM 'f' DELIMITER", "the option DELIMITER needs a value", "DELIMITER"),
        ("COPY s FROM 'f' (header, header)", "header is given twice", "header"),
        ("COPY s FROM f", "expected the path of a file in quotes, found f", "f"),
        ("COPY s (a) FROM 'f'", "COPY fills all columns", "("),
        ("COPY s INTO 'f'", "expected FROM 'file' or TO 'file', found INTO", "INTO"),
        ("SHOW CREATE s", "expected STREAM, TABLE, VIEW or SINK, found s", "s"),
        (
            "SHOW COLUMNS s",
            "expected FROM, found s",
            "s",
        ),
    ],
)
def test_what_is_wrong_with_them(text: str, message: str, place: str) -> None:
    assert refusal(text, SqlError)[:2] == (message, place)


def test_what_is_shown() -> None:
    (created,) = parse("SHOW CREATE MATERIALIZED VIEW v")
    assert isinstance(created, ShowCreate) and (created.kind, str(created.target)) == ("view", "v")
    for text in ("SHOW COLUMNS FROM s", "SHOW COLUMNS IN s"):
        (described,) = parse(text)
        assert isinstance(described, Describe) and str(described.target) == "s"


def test_they_are_checked_without_spark() -> None:
    made = "CREATE STREAM s (a INT); "
    check(f"{made}COPY s TO 'x.csv'; SHOW CREATE STREAM s; SHOW COLUMNS FROM s")
    with pytest.raises(SqlError, match="there is no column b"):
        check(f"{made}COPY (SELECT b FROM s) TO 'x.csv'")
    with pytest.raises(SqlError, match="cannot be inferred from its name"):
        check(f"{made}COPY s TO 'x'")
    with pytest.raises(SqlError, match=r"there is no view s|s is a stream"):
        check(f"{made}SHOW CREATE VIEW s")
