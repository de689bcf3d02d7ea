"""Window functions over window functions: what they are read into, and what is said of those that are wrong."""

from __future__ import annotations

import pytest

from anabranch.errors import SyntaxProblem
from anabranch.ir.rel import Rel, Scan, Windowed
from anabranch.sql.parser import parse
from ir.plan_help import plan

HOP = "HOP(s, ts, INTERVAL 1 MINUTE, INTERVAL 2 MINUTES)"
TEN = "INTERVAL 10 MINUTES"


def kinds(rel: Rel) -> list[str]:
    """What windows there are, from the outermost in, over which scan."""
    return [
        each.window.kind if isinstance(each, Windowed) else each.source.name
        for each in rel.walk()
        if isinstance(each, Windowed | Scan)
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (f"TUMBLE({HOP}, window_time, {TEN})", ["tumble", "hop", "s"]),
        (f"TUMBLE(({HOP}), window_time, {TEN})", ["tumble", "hop", "s"]),
        (f"TUMBLE({HOP} h, window_time, {TEN})", ["tumble", "hop", "s"]),
        (
            f"TABLE(TUMBLE(TABLE({HOP}), DESCRIPTOR(window_time), {TEN})) WHERE s.n > 1",
            ["tumble", "hop", "s"],
        ),
        (
            f"TUMBLE(SIZE => {TEN}, DATA => TABLE {HOP}, TIMECOL => DESCRIPTOR(window_time))",
            ["tumble", "hop", "s"],
        ),
        (
            f"SESSION(TUMBLE({HOP}, window_time, {TEN}) PARTITION BY k, window_time, {TEN})",
            ["session", "tumble", "hop", "s"],
        ),
        (f"TUMBLE((SELECT n, ts FROM {HOP}), ts, {TEN})", ["tumble", "hop", "s"]),
    ],
)
def test_the_inner_one_is_a_relation_of_its_own(written: str, read: list[str]) -> None:
    assert kinds(plan(f"SELECT n FROM {written}")) == read


@pytest.mark.parametrize(("alias", "name"), [("", "s"), (" t", "t"), (" AS t", "t")])
def test_columns_are_qualified_by_the_innermost_name_or_the_alias(alias: str, name: str) -> None:
    source = f"TUMBLE({HOP}, window_time, {TEN}){alias}"
    assert plan(f"SELECT {name}.n FROM {source}").columns[0].name == "n"
    with pytest.raises(Exception, match="there is no column or relation q here"):
        plan(f"SELECT q.n FROM {source}")


def test_what_is_wrong_is_shown_where_it_was_written() -> None:
    text = f"SELECT n FROM TUMBLE(HOP(s, ts, INTERVAL 1 MINUTE), window_time, {TEN})"
    with pytest.raises(SyntaxProblem, match="HOP needs a size") as caught:
        parse(text)
    assert text[caught.value.start : caught.value.end] == "HOP(s, ts, INTERVAL 1 MINUTE)"


@pytest.mark.parametrize("depth", [60, 300])
def test_deep_nesting_is_refused(depth: int) -> None:
    with pytest.raises(SyntaxProblem, match="nest deeper than"):
        parse("SELECT 1 FROM " + "TUMBLE(" * depth + "s" + f", ts, {TEN})" * depth)
