"""Windows that depend on a column of other rows: a load is full when the weights of its rows reach a limit."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, ClassVar

import pytest

from anabranch.algebra.windows import FUNCTIONS, OPEN, Context, Row, Rows, WindowType
from anabranch.errors import SqlError
from anabranch.testing import Harness, assert_same_rows, cuts, shuffled
from seeds import soaked

pytestmark = pytest.mark.spark

START = datetime(1970, 1, 1)
SECOND = 1_000_000


@pytest.fixture
def loads() -> Iterator[type[WindowType[Any]]]:
    """LOADS(t PARTITION BY van, ts, 100, weight)"""

    @dataclass(frozen=True)
    class Loads(WindowType[tuple[int, Hashable]]):
        context: ClassVar[Context] = "FCA"
        function: ClassVar[str] = "LOADS"
        counts: ClassVar[tuple[str, ...]] = ("limit",)
        columns: ClassVar[tuple[str, ...]] = ("weight",)

        limit: int

        def wids(self, row: Row, rows: Sequence[Row]) -> list[tuple[int, Hashable]]:
            return [(start, row.key) for start, end in self._loads(row.key, rows) if start <= row.value < end]

        def bounds(self, wid: tuple[int, Hashable], rows: Sequence[Row] = ()) -> tuple[int, int]:
            return next(found for found in self._loads(wid[1], rows) if found[0] == wid[0])

        def extent(self, wid: tuple[int, Hashable], rows: Sequence[Row]) -> list[Row]:
            return [row for row in super().extent(wid, rows) if row.key == wid[1]]

        def _loads(self, key: Hashable, rows: Sequence[Row]) -> list[tuple[int, int]]:
            found: list[tuple[int, int]] = []
            start, total = None, 0
            own = sorted((row for row in rows if row.key == key), key=lambda row: row.value)
            for value, together in groupby(own, key=lambda row: row.value):
                start = value if start is None else start
                total += sum(row.columns[0] or 0 for row in together)
                if total >= self.limit:
                    found.append((start, value + 1))
                    start, total = None, 0
            return found if start is None else [*found, (start, OPEN)]

        def relation(self, rows: Rows) -> str:
            keys = [f"__k{index}" for index in range(len(rows.keys))]
            named = "".join(f"{sql} AS {key}, " for sql, key in zip(rows.keys, keys, strict=True))
            same = "".join(f"{sql} <=> __loads.{key} AND " for sql, key in zip(rows.keys, keys, strict=True))
            weights = (
                f"SELECT {named}{rows.value} AS v, CAST(coalesce(sum({rows.columns[0]}), 0) AS DOUBLE) AS w"
                f" FROM {rows.source} AS __rows WHERE {rows.value} IS NOT NULL GROUP BY ALL"
            )
            load = "named_struct('first', coalesce(a.first, x.v), 'behind', x.v + 1)"
            loads = (
                "aggregate(array_sort(collect_list(struct(v, w))),"
                " named_struct('full', CAST(array() AS ARRAY<STRUCT<first: BIGINT, behind: BIGINT>>),"
                " 'first', CAST(NULL AS BIGINT), 'total', 0D),"
                f" (a, x) -> CASE WHEN a.total + x.w >= {self.limit}"
                f" THEN named_struct('full', a.full || array({load}), 'first', CAST(NULL AS BIGINT), 'total', 0D)"
                " ELSE named_struct('full', a.full, 'first', coalesce(a.first, x.v), 'total', a.total + x.w) END,"
                " a -> CASE WHEN a.first IS NULL THEN a.full"
                f" ELSE a.full || array(named_struct('first', a.first, 'behind', {OPEN}L)) END)"
            )
            apart = f" GROUP BY {', '.join(keys)}" if keys else ""
            windows = f"SELECT {''.join(f'{key}, ' for key in keys)}explode({loads}) AS load FROM ({weights}){apart}"
            return (
                "(SELECT __rows.*, load.first AS __start, load.behind AS __end, load.first AS __wid"
                f" FROM {rows.source} AS __rows JOIN ({windows}) AS __loads"
                f" ON {same}{rows.value} >= load.first AND {rows.value} < load.behind)"
            )

    yield Loads
    del FUNCTIONS["LOADS"]


Parcel = tuple[str | None, int | None, datetime]
QUERY = (
    "SELECT van, window_start, window_end, count(*) AS n, sum(weight) AS kg"
    " FROM LOADS(s PARTITION BY van, ts, 20, weight) GROUP BY van, window_start, window_end"
)


def parcels(chance: random.Random, count: int) -> list[Parcel]:
    def seconds() -> timedelta:
        return timedelta(seconds=chance.randrange(99))

    return [
        (chance.choice(["a", "b", None]), chance.choice([None, *range(9)]), START + seconds()) for _ in range(count)
    ]


def in_loads(windows: WindowType[Any], given: Sequence[Parcel]) -> list[tuple[Any, ...]]:
    rows = [Row((ts - START) // timedelta(microseconds=1), n, van, (kg,)) for n, (van, kg, ts) in enumerate(given)]
    found = []
    for wid in windows.windows(rows):
        start, end = (START + timedelta(microseconds=at or 0) for at in windows.bounds(wid, rows))
        inside = windows.extent(wid, rows)
        known = [row.columns[0] for row in inside if row.columns[0] is not None]
        found.append((wid[1], start, end, len(inside), sum(known) if known else None))
    return found


@pytest.mark.parametrize("seed", [0, *soaked(1, 2)])
def test_any_order_and_any_cut_give_the_loads_of_all_rows(
    home: Harness, loads: type[WindowType[Any]], seed: int
) -> None:
    chance = random.Random(seed)
    home.sql("CREATE STREAM s (van STRING, weight INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 30 SECONDS)")
    home.sql(f"CREATE VIEW kept AS {QUERY} EMIT CHANGES")
    home.sql(f"CREATE VIEW shown AS {QUERY} EMIT ON WINDOW CLOSE")
    rows = parcels(chance, 60)
    came: list[Parcel] = []
    for run in cuts(shuffled(rows, chance), chance):
        home.insert("s", run)
        came += run
        if chance.random() < 0.2:
            home.reopen()
    wanted = in_loads(loads(20), rows)
    bound = max(ts for _, _, ts in rows) - timedelta(seconds=30)
    assert_same_rows(home.batch(QUERY, s=rows), wanted)
    assert_same_rows(home.query("SELECT * FROM kept"), wanted)
    assert_same_rows(home.query("SELECT * FROM shown"), [row for row in wanted if row[2] <= bound])
    home.advance("s")
    assert_same_rows(home.query("SELECT * FROM shown"), wanted)


def test_what_stands_in_the_place_of_a_count_or_a_column(home: Harness, loads: type[WindowType[Any]]) -> None:
    home.sql("CREATE STREAM s (van STRING, weight INT, ts TIMESTAMP)")
    for call, place, message in (
        ("LOADS(s, ts, INTERVAL 1 HOUR, weight)", "INTERVAL 1 HOUR", "the limit of the window is a number"),
        ("LOADS(s, ts, 20, wait)", "wait", "wait"),
        ("LOADS(s, ts, 20)", "LOADS(s, ts, 20)", "LOADS needs a weight"),
    ):
        with pytest.raises(SqlError, match=message) as caught:
            home.sql(f"CREATE VIEW v AS SELECT window_end, count(*) AS n FROM {call} GROUP BY window_start, window_end")
        error = caught.value
        assert error.text is not None and error.text[error.start : error.end] == place
