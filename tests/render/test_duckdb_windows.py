"""What means the same in DuckDB: the windows of a row, whichever of the two engines is asked for them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from anabranch.algebra.windows import Row, SlidingWindows, window_time
from anabranch.duck import connect, timestamp
from anabranch.engine.pane_sql import pane_relation
from anabranch.plan.states import BlockUse, Key, Panes, PartialColumn
from anabranch.plan.windows import windowed_sql
from anabranch.render.duckdb import driver_sql
from anabranch.sql.syntax import WindowSpec
from anabranch.sql.text import Span
from anabranch.types import Field

FIELDS = (
    Field("ts", "timestamp"),
    Field("a", "bigint"),
    Field("n", "bigint"),
    Field("none", "bigint"),
    Field("x", "double"),
    Field("d", "decimal(12,1)"),
    Field("s", "string"),
)
TIMES = [-11, -10, -1, 0, 1, 2, 3, 5, 9, 10, 17, 4_000_000_000_000_007]
WINDOWS = [(10, 4, 0), (10, 5, 0), (10, 1, 3), (12, 5, 2), (12, 3, 7), (11, 10, 4), (7, 7, 3)]


def spec(size: int, slide: int, offset: int) -> WindowSpec:
    return WindowSpec("hop", "ts", Span(0, 0), size, slide, offset)


@pytest.mark.parametrize(("size", "slide", "offset"), WINDOWS)
def test_a_row_is_in_the_same_windows(size: int, slide: int, offset: int) -> None:
    """HOP as it is written for Spark gives in DuckDB a row for each window; a row without a time is in none."""
    text = driver_sql(windowed_sql("`@rows`", spec(size, slide, offset)), {"@rows": "(SELECT * FROM r)"}.get, FIELDS)
    assert text is not None and "unnest" not in text
    windows = SlidingWindows(size, slide, offset % slide)
    with connect() as duck:
        values = ", ".join(f"({timestamp(str(time))})" for time in TIMES)
        duck.execute(f"CREATE TEMP TABLE r AS SELECT * FROM (VALUES {values}, (NULL)) AS v(ts)")
        found = duck.execute(
            f"SELECT epoch_us(ts), epoch_us(window_start), epoch_us(window_end) FROM {text}"
        ).fetchall()
    assert sorted(found) == sorted((time, *windows.bounds(wid)) for time in TIMES for wid in windows.wids(Row(time, 0)))


def test_windows_of_windows() -> None:
    """Each start is that of its own windows, whether they are joined as numbers or listed, or both are there."""
    inner, outer = spec(12, 4, 1), WindowSpec("hop", "window_time", Span(0, 0), 3000, 1500, 0)
    covered = ("window_start", "window_end", "window_time")
    numbered = windowed_sql(windowed_sql("`@rows`", inner), outer, covered=covered)
    # What is not quite as it is written is listed.
    texts = [numbered, *(numbered.replace(f"pmod({n} - ", f"pmod({n} + 0 - ") for n in (0, 1))]
    columns = "epoch_us(ts), epoch_us(window_start)"
    first, second = SlidingWindows(12, 4, 1), SlidingWindows(3000, 1500)
    with connect() as duck:
        values = ", ".join(f"({timestamp(str(time))})" for time in TIMES)
        duck.execute(f"CREATE TEMP TABLE r AS SELECT * FROM (VALUES {values}) AS v(ts)")
        local = [driver_sql(text, {"@rows": "(SELECT * FROM r)"}.get, FIELDS) or "" for text in texts]
        found = [sorted(duck.execute(f"SELECT {columns} FROM {text}").fetchall()) for text in local]
    wanted = [
        (time, second.bounds(wid)[0])
        for time in TIMES
        for near in first.wids(Row(time, 0))
        for wid in second.wids(Row(window_time(first.bounds(near)[1], first.size), 0))
    ]
    assert [text.count("unnest") for text in local] == [0, 1, 1]
    assert found == [sorted(wanted)] * 3


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t LATERAL VIEW",
        "SELECT * FROM t LATERAL VIEW explode(a) b AS c",
        "SELECT * FROM t LATERAL VIEW explode(sequence(1, 5, CAST(1 AS BIGINT))) b AS c",
        "SELECT * FROM t LATERAL VIEW explode(sequence(5, 1)) __starts AS start",
        "SELECT * FROM t LATERAL VIEW explode(sequence(1)) __starts AS start",
        "SELECT * FROM t LATERAL VIEW explode(sequence(a / 2, 1, CAST(1 AS BIGINT))) __starts AS start",
    ],
)
def test_what_else_is_exploded_is_left_to_spark(text: str) -> None:
    assert driver_sql(text, lambda _: None, FIELDS) is None


@pytest.mark.parametrize(("size", "slide", "offset"), WINDOWS)
def test_a_pane_is_in_the_windows_that_hold_it(size: int, slide: int, offset: int, tmp_path: Path) -> None:
    windows = SlidingWindows(size, slide, offset % slide)
    columns = (PartialColumn("n", "count(*)", "CAST(sum({c}) AS BIGINT)", True, None, "bigint", 0),)
    panes = Panes("p", "s", "", "", {}, (Key("k", "k", "bigint"),), "ts", windows.grain, windows.origin, columns, ())
    use = BlockUse("@p", "p", (size, slide, windows.origin), "n", ("n",))
    starts = sorted({windows.pane(time) for time in TIMES})
    with connect() as duck:
        path = f"{tmp_path}/panes.parquet"
        values = ", ".join(f"({timestamp(str(start))})" for start in starts)
        rows = f"SELECT 7::BIGINT AS k, pane AS _pane, 1::BIGINT AS n FROM (VALUES {values}) AS v(pane)"
        duck.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")
        found = duck.execute(f"WITH {pane_relation('x', panes, use, [path])} SELECT k0, w, n FROM x").fetchall()
    wanted = [(7, windows.bounds(wid)[0], 1) for start in starts for wid in windows.pane_windows(start)]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("size", [5, 3_600_000_000])
def test_remainders(size: int) -> None:
    """As Spark has them, of windows of an hour, too; of a division by anything but a number above 0, they are left to
    it."""
    text = driver_sql(f"SELECT pmod(a - 1, {size}) AS r FROM r", lambda _: None, FIELDS)
    with connect() as duck:
        duck.execute("CREATE TEMP TABLE r AS SELECT unnest([-10, -6, -5, -4, -1, 0, 1, 4, 5, 6, NULL])::BIGINT AS a")
        found = duck.execute(text or "").fetchall()
    assert found == [((a - 1) % size,) for a in (-10, -6, -5, -4, -1, 0, 1, 4, 5, 6)] + [(None,)]


def test_other_remainders_are_left_to_spark() -> None:
    for divisor in ("0", "-5", "a", "5 + a"):
        assert driver_sql(f"SELECT pmod(a, {divisor}) AS r FROM r", lambda _: None, FIELDS) is None
        assert driver_sql(f"SELECT CAST(sum(pmod(a, {divisor})) AS INT) AS r FROM r", lambda _: None, FIELDS) is None


@pytest.mark.parametrize(
    ("cast", "kept"),
    [
        ("CAST(sum(n) AS BIGINT)", 6),
        ("CAST(coalesce(CAST(sum(n) AS BIGINT), 0) AS bigint)", 6),
        ("CAST(coalesce(sum(none), 0) AS bigint)", 0),
        ("CAST(coalesce(CAST(sum(d) AS DECIMAL(22,1)), 0) AS decimal(22,1))", Decimal("5.1")),
        ("CAST(max(x) AS DOUBLE)", 2.7),
        ("CAST(max(s) AS STRING)", "a"),
        ("CAST(max(x) AS INT)", None),
        ("CAST(max(d) AS BIGINT)", None),
        ("CAST(max(d) AS DECIMAL(12,0))", None),
        ("CAST(max(s) AS DOUBLE)", None),
        ("CAST(max(ts) AS STRING)", None),
        ("CAST(max(x) AS STRING)", None),
    ],
)
def test_a_cast_of_an_aggregate_changes_its_width_or_is_left_to_spark(cast: str, kept: object) -> None:
    """Spark cuts off what DuckDB rounds, and writes numbers and times in its own way."""
    rows = "(1, NULL, 2.7, 1.7, 'a', make_timestamptz(0)), (5, NULL, 1.0, 3.4, 'A', NULL)"
    with connect() as duck:
        columns = "n::BIGINT AS n, none::BIGINT AS none, x::DOUBLE AS x, d::DECIMAL(12,1) AS d, s, ts"
        duck.execute(f"CREATE TEMP TABLE r AS SELECT {columns} FROM (VALUES {rows}) AS v(n, none, x, d, s, ts)")
        text = driver_sql(f"SELECT {cast} AS y FROM r", lambda _: None, FIELDS)
        assert (text is None) == (kept is None)
        assert text is None or duck.execute(text).fetchall() == [(kept,)]


@pytest.mark.parametrize("cast", ["CAST(x AS INT)", "CAST(coalesce() AS INT)", "CAST(coalesce(sum(n), x) AS INT)"])
def test_other_casts_are_left_to_spark(cast: str) -> None:
    assert driver_sql(f"SELECT {cast} AS y FROM r", lambda _: None, FIELDS) is None


def test_times_are_those_of_the_calendar() -> None:
    """Microseconds become a time without the calendar of DuckDB's, and the same one."""
    micros = [0, -1, 1_767_225_600_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999]
    with connect() as duck:
        for each in micros:
            both = (
                f"SELECT {timestamp(str(each))} = CAST(make_timestamp({each}) AS TIMESTAMPTZ), timestamp_micros({each})"
            )
            same, found = duck.execute(f"SELECT a, epoch_us(b) FROM ({both}) AS v(a, b)").fetchone() or (None, None)
            assert (same, found) == (True, each)
