"""Parameters become literals that nothing can break out of; everything else in the text is left alone."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import SqlError, UnknownName, UsageError
from anabranch.sql.cursor import Cursor
from anabranch.sql.durations import HOUR, MINUTE, SECOND, take_duration
from anabranch.sql.lexer import END, STRING, tokenize
from anabranch.sql.parameters import bind_parameters, literal

HOSTILE = "'\"`\\/*-#;:?@${}[]()%_ \n\r\t\0\x1a\u2028é漢\U0001f600u0041xNULLwindow_id"


def hostile_texts(count: int) -> list[str]:
    chance = random.Random(7)
    fixed = [
        "", "'", "\\", "\\'", "''", "'; DROP TABLE t; --", "' OR 1=1 --", "*/ x /*", "`@s:1`", "\\u0027", "\\047",
        "\\%", "\\_", "window_id", "_row_num", "__event_time", ":k", "?", "r'x'", "\ufeff", "TIMESTAMP 'now'",
    ]  # fmt: skip
    return fixed + ["".join(chance.choices(HOSTILE, k=chance.randint(1, 12))) for _ in range(count)]


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("a = :k", "a = 5"),
        ("a=:k", "a=5"),
        ("(:k,:k)", "(5,5)"),
        ("a -:k", "a -5"),
        ("LIMIT :k", "LIMIT 5"),
        ("SELECT :k", "SELECT 5"),
        ("TIMESTAMP AS OF VERSION :k", "TIMESTAMP AS OF VERSION 5"),
        ("INTERVAL :k DAYS", "INTERVAL 5 DAYS"),
        ("WHERE a :k", "WHERE a 5"),  # nonsense, and the statement will say so
        (":k::string", "5::string"),
    ],
)
def test_a_parameter_is_replaced_where_a_value_starts(text: str, bound: str) -> None:
    assert bind_parameters(text, (), {"k": 5}) == bound


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ':k', \":k\", `:k`, r':k' -- :k ?",
        "SELECT /* :k ? */ '?' /*+ HINT(:k) */",
        "SELECT a::int, v:field, v:k.b, f(v):k, a[0]:k, `a`:k",
        "CREATE TABLE t (s STRUCT<a:INT, k :INT>)",
    ],
)
def test_what_is_no_parameter_is_left_alone(text: str) -> None:
    assert bind_parameters(text) is text
    with pytest.raises(UsageError, match="no parameter :k2"):
        bind_parameters(text, (), {"k2": 1})


def test_missing_and_surplus_values_are_named() -> None:
    with pytest.raises(UnknownName) as missing:
        bind_parameters("SELECT *\nFROM t WHERE a = :price", (), {"prise": 1})
    assert str(missing.value).splitlines() == [
        "parameter :price has no value",
        "  line 2: FROM t WHERE a = :price",
        "                           ^^^^^^",
        "  did you mean prise?",
    ]
    with pytest.raises(UnknownName, match="parameter 2 has no value"):
        bind_parameters("SELECT ?, ?", [1])
    with pytest.raises(UnknownName, match=":a has no value"):
        bind_parameters("SELECT :a")
    with pytest.raises(UsageError, match="2 values are given in order, but the text has 1"):
        bind_parameters("SELECT ?", [1, 2])
    with pytest.raises(UsageError, match="the text has no parameter :b"):
        bind_parameters("SELECT :a", (), {"a": 1, "b": 2})


def test_an_error_is_shown_in_the_text_as_it_was_written() -> None:
    from anabranch.sql.parser import parse

    with pytest.raises(SqlError) as wrong:
        parse(bind_parameters("SELECT :a FROM t WEHRE b = :b", (), {"a": "x" * 50, "b": 1}))
    assert (wrong.value.text, wrong.value.start) == ("SELECT :a FROM t WEHRE b = :b", 17)


@pytest.mark.parametrize(
    "value",
    [
        object(), {1, 2}, 10**38, -(10**38), Decimal("NaN"), Decimal("1E+40"), Decimal("1E-39"), Decimal("1E+1000000"),
        "\ud800", timedelta.max, datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), [object()],
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_that_sql_cannot_write_is_refused_at_its_place(value: Any) -> None:
    with pytest.raises(SqlError, match="parameter :a: ") as refused:
        bind_parameters("SELECT :a", (), {"a": value})
    assert (refused.value.start, refused.value.end) == (7, 9)


@pytest.mark.parametrize("value", ["9" * 38, "-" + "9" * 28 + "." + "9" * 10, "0." + "1" * 38])
def test_a_decimal_keeps_all_its_digits(value: str) -> None:
    """Python's own context would round it to 28."""
    assert literal(Decimal(value)).strip("()") == f"{value}BD"


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(UsageError, match="nests deeper"):
        literal(endless)


def test_a_text_is_one_token_that_means_the_same() -> None:
    for text in hostile_texts(3_000):
        tokens = tokenize(f"a {literal(text)} b")
        assert [token.kind for token in tokens[1:]] == [STRING, "word", END], text
        assert tokens[1].value == text
        assert "`" not in tokens[1].text and "window_id" not in tokens[1].text


def test_a_length_of_time_can_be_given_to_a_window() -> None:
    for length in (timedelta(minutes=10), timedelta(days=-3, hours=1, microseconds=5)):
        text = literal(length)
        assert take_duration(Cursor(text, tokenize(text)), "a length") == length // timedelta(microseconds=1)
    assert take_duration(Cursor("", tokenize("INTERVAL '0 01:02:03.5' DAY TO SECOND")), "a length") == (
        HOUR + 2 * MINUTE + 3 * SECOND + SECOND // 2
    )


class Words(str):
    """A text whose words of its own must not be taken for its value."""

    def __str__(self) -> str:
        return "' OR true"


@pytest.mark.spark
def test_spark_reads_the_value_that_was_given(spark: SparkSession) -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    utc = datetime(2026, 3, 4, 5, 6, 7, 89)
    values: list[tuple[Any, Any, str]] = [  # given, read back, type
        (None, None, "void"),
        (True, True, "boolean"),
        (0, 0, "int"),
        (-(2**31), -(2**31), "int"),
        (2**31, 2**31, "bigint"),
        (-(2**63), -(2**63), "bigint"),
        (2**63, Decimal(2**63), "decimal(19,0)"),
        (-(10**38 - 1), Decimal(-(10**38 - 1)), "decimal(38,0)"),
        (0.1, 0.1, "double"),
        (-1e300, -1e300, "double"),
        (5e-324, 5e-324, "double"),
        (float("inf"), float("inf"), "double"),
        (float("-inf"), float("-inf"), "double"),
        (Decimal("-1.10"), Decimal("-1.10"), "decimal(3,2)"),
        (Decimal("1E+5"), Decimal(100000), "decimal(6,0)"),
        (Decimal("1E-38"), Decimal("1E-38"), "decimal(38,38)"),
        ("O'Brien \\ `x`", "O'Brien \\ `x`", "string"),
        (Words("plain"), "plain", "string"),
        (b"\x00'\xff", bytearray(b"\x00'\xff"), "binary"),
        (bytearray(), bytearray(), "binary"),
        (date(1, 2, 3), date(1, 2, 3), "date"),
        (timedelta(days=-3, microseconds=1), timedelta(days=-3, microseconds=1), "interval day to second"),
        ([1, None, 3], [1, None, 3], "array<int>"),
        ([], [], "array<void>"),
        ([["a'"], []], [["a'"], []], "array<array<string>>"),
        ({"a'": 1, "b": None}, {"a'": 1, "b": None}, "map<string,int>"),
    ]
    items = [f"{literal(given)} AS v{at}, typeof({literal(given)}) AS t{at}" for at, (given, _, _) in enumerate(values)]
    row = spark.sql(f"SELECT {', '.join(items)}").collect()[0]
    for at, (given, wanted, kind) in enumerate(values):
        assert (row[f"v{at}"], row[f"t{at}"]) == (wanted, kind), given
        assert isinstance(given, bytes | bytearray) or type(row[f"v{at}"]) is type(wanted)
    checks = {
        f"isnan({literal(float('nan'))})": True,
        f"1 -{literal(-5)}": 6,
        f"{literal(-5)}::string": "-5",
        f"CAST({literal(-0.0)} AS STRING)": "-0.0",
        f"unix_micros({literal(utc)})": (utc - datetime(1970, 1, 1)) // timedelta(microseconds=1),
        f"unix_micros({literal(utc.replace(tzinfo=east))})": (
            utc - timedelta(hours=5, minutes=30) - datetime(1970, 1, 1)
        )
        // timedelta(microseconds=1),
        f"CAST({literal(datetime(1, 1, 1))} AS STRING)": "0001-01-01 00:00:00",
    }
    utc_spark = spark.newSession()
    utc_spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert list(utc_spark.sql(f"SELECT {', '.join(checks)}").collect()[0]) == list(checks.values())


@pytest.mark.spark
def test_spark_reads_hostile_texts_as_they_are(spark: SparkSession) -> None:
    texts = hostile_texts(400)
    assert spark.sql(f"SELECT {literal(texts)} AS found").collect()[0]["found"] == texts
