"""Window functions over window functions: how they are read, and what is said of those that are wrong."""

from __future__ import annotations

import pytest

from anabranch.errors import SyntaxProblem
from anabranch.sql.parser import parse

HOP = "HOP(s, ts, INTERVAL 1 MINUTE, INTERVAL 2 MINUTES)"
INNER = f"(SELECT * FROM {HOP})"
TEN = "INTERVAL 10 MINUTES"


def canonical(text: str) -> str:
    (statement,) = parse(text)
    return statement.sql


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (f"TUMBLE({HOP}, window_time, {TEN})", f"TUMBLE({INNER}, window_time, {TEN}) AS `s`"),
        (f"TUMBLE({HOP}, window_time, {TEN}) t", f"TUMBLE({INNER}, window_time, {TEN}) t"),
        (f"TUMBLE(({HOP}), window_time, {TEN})", f"TUMBLE(({INNER}), window_time, {TEN}) AS `s`"),
        (
            f"TABLE(TUMBLE(TABLE({HOP}), DESCRIPTOR(window_time), {TEN})) WHERE s.n > 1",
            f"TABLE(TUMBLE(TABLE({INNER}), DESCRIPTOR(window_time), {TEN})) AS `s` WHERE s.n > 1",
        ),
        (
            f"TUMBLE(SIZE => {TEN}, DATA => TABLE {HOP}, TIMECOL => DESCRIPTOR(window_time))",
            f"TUMBLE(SIZE => {TEN}, DATA => TABLE {INNER}, TIMECOL => DESCRIPTOR(window_time)) AS `s`",
        ),
        (
            f"r JOIN SESSION(TUMBLE({HOP}, window_time, {TEN}) PARTITION BY k, window_time, {TEN})",
            f"r JOIN SESSION((SELECT * FROM TUMBLE({INNER}, window_time, {TEN})) PARTITION BY k, window_time, {TEN})",
        ),
        (f"TUMBLE((SELECT n, ts FROM {HOP}), ts, {TEN})", f"TUMBLE((SELECT n, ts FROM {HOP}), ts, {TEN})"),
    ],
)  # fmt: skip
def test_the_inner_one_is_a_query_of_its_own(written: str, read: str) -> None:
    assert canonical(f"SELECT n FROM {written}") == f"SELECT n FROM {read}"


def test_what_is_wrong_is_shown_where_it_was_written() -> None:
    text = f"SELECT n FROM TUMBLE(HOP(s, ts, INTERVAL 1 MINUTE), window_time, {TEN})"
    with pytest.raises(SyntaxProblem, match="HOP needs a size") as caught:
        parse(text)
    assert text[caught.value.start : caught.value.end] == "HOP(s, ts, INTERVAL 1 MINUTE)"


@pytest.mark.parametrize("depth", [60, 300])
def test_deep_nesting_is_refused(depth: int) -> None:
    with pytest.raises(SyntaxProblem, match="nest deeper than"):
        parse("SELECT 1 FROM " + "TUMBLE(" * depth + "s" + f", ts, {TEN})" * depth)
