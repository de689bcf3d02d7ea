"""Text that nobody means well with: the parser answers with an error of its own or with statements, and soon."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import AnabranchError, SyntaxProblem
from anabranch.sql import check
from anabranch.sql.parser import parse

PIECES = """SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET UNION ALL WITH AS VALUES INSERT INTO UPDATE SET DELETE
CREATE OR REPLACE STREAM TABLE VIEW MATERIALIZED FOREIGN SOURCE DROP IF NOT EXISTS CASCADE COPY ADVANCE TO REFRESH
SHOW DESCRIBE EXPLAIN TUMBLE HOP DESCRIPTOR INTERVAL MINUTE EMIT ON WINDOW CLOSE TRIGGER WATERMARK LATE CORRECT CHANGES
START AT VERSION NOW KEEP NOTHING FOR JOIN LEFT USING LATERAL CASE WHEN THEN END OVER PARTITION FILTER IN LIKE BETWEEN
AND IS NULL DISTINCT CAST INT TIMESTAMP ROLLUP EXCEPT OF a b t ts price `q` 'x' "y" 1 2.5 10L ( ) [ ] { } , ; . : :: * +
- / = == <=> < > -> => || ? @ % ! ~ ^ RANGE SLIDE TABLESAMPLE PIVOT SORT CLUSTER QUALIFY IGNORE NULLS
COUNTING REFRESHABLE csv( count(*) sum( VISIBLE ADVANCE SLICES '1 minute' WA PA RATTR SATTR ORIGIN row-num ROWS CUT
CHANGE STREAM(s, 'BLOCK'
'CUT ON ts BY 5 SECS' cq_close(*) window_id() GROUPBY U SLIDING( [RANGE count(*)[RANGE s <SLICES '2 rows'>""".split()  # noqa: SIM905


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_a_soup_of_tokens_parses_or_is_refused(pieces: list[str]) -> None:
    """Nothing but errors of Anabranch's own comes out, and each points into the text."""
    text = " ".join(pieces)
    try:
        check(text)
    except AnabranchError as error:
        start = getattr(error, "start", None)
        assert start is None or 0 <= start <= len(error.text)  # type: ignore[attr-defined]
        str(error)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["SELECT {}", "SELECT a FROM {}", "SELECT a FROM t WHERE {}", "CREATE STREAM s ({})",
                        "INSERT INTO t VALUES {}", "CREATE VIEW v AS {}", "SELECT * FROM TUMBLE({})",
                        "SELECT count(*) [RANGE 1 min, {}", "SELECT count(*) [RANGE 1 min, SLIDE 1 min] FROM {}",
                        "SELECT count(*) FROM s <SLICES '1 minute'> {}", "SELECT a FROM STREAM(s, 'CUT {}')"]),
       st.lists(st.sampled_from(PIECES), max_size=12))  # fmt: skip
def test_a_soup_in_a_frame_parses_or_is_refused(frame: str, pieces: list[str]) -> None:
    try:
        check(frame.format(" ".join(pieces).replace("{", "").replace("}", "")))
    except AnabranchError as error:
        str(error)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parse(text)
    except AnabranchError as error:
        str(error)


@pytest.mark.parametrize(
    "opening", ["(", "[", "f(", "(SELECT ", "SELECT * FROM (", "CASE WHEN ", "NOT ", "- ", "a.", "(" * 3]
)
def test_deep_nesting_is_refused_and_nothing_overflows(opening: str) -> None:
    closing = {"(": ")", "[": "]"}
    ends = "".join(closing.get(c, "") for c in reversed(opening)) if "CASE" not in opening else " THEN 1 END"
    for depth in (30, 300, 10_000):
        for text in ("SELECT " + opening * depth + "1" + ends * depth, opening * depth, "SELECT " + opening * depth):
            with suppress(AnabranchError):
                parse(text)


def test_a_message_for_deep_nesting() -> None:
    with pytest.raises(SyntaxProblem, match="nest deeper than 400"):
        parse("SELECT " + "(" * 10_000 + "1" + ")" * 10_000)
    with pytest.raises(SyntaxProblem, match="queries nest deeper than 40"):
        parse("SELECT * FROM (" * 100 + "SELECT 1" + ")" * 100)


def test_queries_and_expressions_may_nest_as_people_nest_them() -> None:
    parse("SELECT * FROM (" * 20 + "SELECT 1" + ")" * 20)
    parse("SELECT " + "(" * 150 + "a" + " + 1)" * 150)
    parse("SELECT " + " + ".join(["a"] * 5000))
    parse("SELECT a FROM t WHERE " + " OR ".join(f"a = {i}" for i in range(3000)))


@pytest.mark.parametrize("text", ["\0", "SELECT \0", "SELECT 'a\0b' FROM t", "SELECT a\0 FROM t", "\ud800"])
def test_odd_characters(text: str) -> None:
    try:
        parse(text)
    except SyntaxProblem as error:
        assert "no meaning" in error.message
    else:
        assert "'" in text


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO s VALUES " + ", ".join(f"({i}, 'text {i}', {i}.5)" for i in range(32_000)),
        "SELECT 1 /* " + "x" * 1_000_000 + " */",
        "SELECT '" + "x" * 1_000_000 + "'",
        "SELECT " + ", ".join(f"a{i}" for i in range(60_000)),
        "SELECT a AS b FROM t; " * 10_000,
        "SELECT '" + "''" * 500_000,
        "/*" * 500_000,
        "(" * 300_000,
        "-" * 1_000_000,
        "SELECT " + "9" * 1_000_000,
    ],
    ids=[
        "rows",
        "comment",
        "string",
        "columns",
        "statements",
        "quotes",
        "open comments",
        "brackets",
        "dashes",
        "digits",
    ],
)
def test_a_megabyte_is_read_in_about_a_second(text: str) -> None:
    started = time.process_time()
    with suppress(SyntaxProblem):
        parse(text)
    assert time.process_time() - started < 10, "generous, because the machine may be busy"
