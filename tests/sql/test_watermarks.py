"""The words about progress: the WATERMARK clause of CREATE STREAM."""

from __future__ import annotations

import pytest

from anabranch.algebra.progress import Percentile
from anabranch.errors import NotSupported, SyntaxProblem
from anabranch.sql.parser import parse
from anabranch.sql.syntax import CreateStream, Watermark
from anabranch.sql.watermarks import watermark_text

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
    assert (mark.column, mark.delay, mark.idle, mark.ahead) == ("ts", None, None, None)
    assert mark.percentile == percentile


def test_what_may_follow_either() -> None:
    tail = "IDLE AFTER INTERVAL 1 MINUTE AHEAD AT MOST '2 minutes'"
    for rule in ("AS ts - INTERVAL 5 SECONDS", "PERCENTILE 95 OF 10 ROWS EVERY 5 ROWS", "PERCENTILE 95 OF 10 ROWS"):
        mark = watermark(f"WATERMARK FOR ts {rule} {tail}")
        assert (mark.idle, mark.ahead) == (MINUTE, 2 * MINUTE)


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
        ("PERCENTILE 95 OF 5 ROWS EVERY 0 ROWS", "0", "after how many rows the bound is taken anew, at least 1"),
        ("PERCENTILE 95 OF 5 ROWS EVERY MINUTE", "MINUTE", "after how many rows the bound is taken anew"),
        ("AS ts - INTERVAL -5 SECONDS", "INTERVAL -5 SECONDS", "not less than nothing"),
    ],
)
def test_what_is_wrong_with_a_clause(rule: str, place: str, message: str) -> None:
    text = f"CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts {rule})"
    with pytest.raises(SyntaxProblem, match=message) as raised:
        parse(text)
    assert text[raised.value.start : raised.value.end] == place


def test_what_is_not_there_yet() -> None:
    for rule in ("ORDERED", "LAGGING 5 ROWS", ""):
        with pytest.raises(NotSupported, match=r"AS column - INTERVAL .* or PERCENTILE p OF n ROWS"):
            parse(f"CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts {rule})")
    with pytest.raises(NotSupported, match="more than 10,000 rows"):
        parse("CREATE STREAM s (ts TIMESTAMP, WATERMARK FOR ts PERCENTILE 95 OF 10001 ROWS)")


@pytest.mark.parametrize(
    "clause",
    [
        "WATERMARK FOR ts AS ts",
        "WATERMARK FOR ts AS ts - INTERVAL 90 SECONDS",
        "WATERMARK FOR ts AS ts - INTERVAL 1 MINUTE",
        "WATERMARK FOR `event time` AS `event time` - INTERVAL 1500 MILLISECONDS",
        "WATERMARK FOR ts PERCENTILE 95 OF 1000 ROWS EVERY 100 ROWS",
        "WATERMARK FOR ts PERCENTILE 99.999999 OF 5 ROWS",
    ],
)
def test_a_clause_can_be_written_back(clause: str) -> None:
    mark = watermark(clause)
    assert watermark_text(mark.column, mark.delay, mark.percentile) == clause
