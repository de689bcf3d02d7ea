"""Window types that bring a function of their own to SQL: one class, and views live on it as on any other windows."""

from __future__ import annotations

import importlib.metadata
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

import pytest

from anabranch.algebra.windows import FUNCTIONS, Context, Row, Rows, WindowType
from anabranch.algebra.windows.sql import quotient
from anabranch.errors import SqlError
from anabranch.sql import windows
from anabranch.testing import Harness, assert_same_rows

pytestmark = pytest.mark.spark

START = datetime(1970, 1, 1)
SECOND = 1_000_000


@pytest.fixture
def shifts() -> Iterator[None]:
    """SHIFTS(t, ts, length, rest): a row is in the shift of its time, and in a rest it is in none."""

    @dataclass(frozen=True)
    class Shifts(WindowType[int]):
        context: ClassVar[Context] = "CF"
        function: ClassVar[str] = "Shifts"

        length: int
        rest: int = 10 * SECOND

        def __post_init__(self) -> None:
            if self.length <= self.rest:
                raise ValueError("a shift is longer than a rest")

        @property
        def shortest(self) -> int:
            return self.length

        @property
        def longest(self) -> int:
            return self.length

        @property
        def every(self) -> int:
            return self.length + self.rest

        def wids(self, row: Row, rows: Sequence[Row]) -> list[int]:
            return [row.value // self.every] if row.value % self.every < self.length else []

        def bounds(self, wid: int, rows: Sequence[Row] = ()) -> tuple[int, int]:
            return wid * self.every, wid * self.every + self.length

        def relation(self, rows: Rows) -> str:
            wid = quotient(rows.value, self.every)
            return (
                f"(SELECT __rows.*, {wid} * {self.every} AS __start, {wid} * {self.every} + {self.length} AS __end,"
                f" {wid} AS __wid FROM {rows.source} AS __rows WHERE pmod({rows.value}, {self.every}) < {self.length})"
            )

    @dataclass(frozen=True)
    class Waves(WindowType[int]):
        """So many rows after so many rows, as they came; along what they came with, only because they must be."""

        context: ClassVar[Context] = "FCF"
        function: ClassVar[str] = "WAVES"
        numbered: ClassVar[bool] = True

        rows: int

        def wids(self, row: Row, rows: Sequence[Row]) -> list[int]:
            return [row.number // self.rows]

        def bounds(self, wid: int, rows: Sequence[Row] = ()) -> tuple[int, int]:
            return wid * self.rows, (wid + 1) * self.rows

        def relation(self, rows: Rows) -> str:
            wid = quotient(rows.arrival("waves"), self.rows)
            bounds = f"{wid} * {self.rows} AS __start, ({wid} + 1) * {self.rows} AS __end"
            return f"(SELECT __rows.*, {bounds}, {wid} AS __wid FROM {rows.source} AS __rows)"

    yield
    for name in ("SHIFTS", "WAVES"):
        del FUNCTIONS[name]


QUERY = (
    "SELECT k, window_start, window_end, window_time, count(*) AS n, sum(x) AS x FROM {}"
    " GROUP BY k, window_start, window_end, window_time"
)


def in_shifts(rows: Sequence[tuple[str, int, datetime]], length: int, rest: int) -> list[tuple[object, ...]]:
    found: dict[tuple[str, datetime], list[int]] = {}
    for k, x, ts in rows:
        behind = (ts - START) % timedelta(seconds=length + rest)
        if behind < timedelta(seconds=length):
            found.setdefault((k, ts - behind), []).append(x)
    size, before = timedelta(seconds=length), timedelta(milliseconds=1)
    return [(k, at, at + size, at + size - before, len(xs), sum(xs)) for (k, at), xs in found.items()]


def test_views_over_the_windows_of_a_class(home: Harness, shifts: None) -> None:
    home.sql("CREATE STREAM s (k STRING, x INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 20 SECONDS)")
    calls = {
        "kept": "SHIFTS(TABLE s, DESCRIPTOR(ts), INTERVAL 30 SECONDS)",
        "shown": "shifts(s, ts, INTERVAL 25 SECONDS, rest => INTERVAL 5 SECONDS)",
    }
    home.sql(f"CREATE VIEW kept AS {QUERY.format(calls['kept'])} EMIT CHANGES")
    home.sql(f"CREATE VIEW shown AS {QUERY.format(calls['shown'])} EMIT ON WINDOW CLOSE")
    home.sql(
        f"CREATE VIEW begun AS SELECT k, window_start, count(*) AS n FROM {calls['shown']} GROUP BY k, window_start"
        " EMIT ON WINDOW CLOSE"
    )
    home.sql(
        "CREATE VIEW waves AS SELECT window_id() AS w, count(*) AS n FROM WAVES(s, row_num, 4) GROUP BY window_id()"
    )
    chance = random.Random(3)
    rows = [
        (chance.choice("ab"), chance.randrange(9), START + timedelta(seconds=chance.randrange(-90, 200)))
        for _ in range(40)
    ]
    for at in range(0, len(rows), 7):
        home.insert("s", rows[at : at + 7])
        if at == 14:
            home.reopen()
        assert_same_rows(home.query("SELECT * FROM kept"), in_shifts(rows[: at + 7], 30, 10))
    assert_same_rows(home.query("SELECT * FROM waves"), [(wave, 4) for wave in range(10)])
    shown = {row[:3]: row for row in home.query("SELECT * FROM shown")}
    right = {row[:3]: row for row in in_shifts(rows, 25, 5)}
    bound = max(ts for _, _, ts in rows) - timedelta(seconds=20)
    assert shown == {key: row for key, row in right.items() if key[2] <= bound} and shown
    assert_same_rows(home.query("SELECT * FROM begun"), [(*key[:2], row[4]) for key, row in shown.items()])
    home.sql("ADVANCE STREAM s TO END")
    assert_same_rows(home.query("SELECT * FROM shown"), right.values())
    assert "Shifts: windows told by the row alone" in str(home.query("EXPLAIN SELECT * FROM kept"))


def test_other_packages_bring_types_under_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def load(self) -> None:
            class Theirs(WindowType[int]):
                context: ClassVar[Context] = "CF"
                function: ClassVar[str] = "THEIRS"

    found = {windows.ENTRY_POINTS: [Point()]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: found[group])
    windows._import_types.cache_clear()
    assert "THEIRS" in windows.WINDOW_FUNCTIONS and "THEIRS" in list(windows.WINDOW_FUNCTIONS)
    del FUNCTIONS["THEIRS"]
    assert "THEIRS" not in windows.WINDOW_FUNCTIONS


def test_what_a_class_does_not_take_is_told_at_its_place(home: Harness, shifts: None) -> None:
    home.sql("CREATE STREAM s (k STRING, x INT, ts TIMESTAMP)")
    for call, place, message in (
        ("SHIFTS(s, ts, INTERVAL 5 SECONDS)", "SHIFTS(s, ts, INTERVAL 5 SECONDS)", "a shift is longer than a rest"),
        ("SHIFTS(s, ts)", "SHIFTS(s, ts)", "SHIFTS needs a length"),
        ("SHIFTS(s, ts, INTERVAL 1 HOUR, breaks => 3)", "breaks", "SHIFTS has no parameter breaks"),
        ("SHIFTS(s PARTITION BY k, ts, INTERVAL 1 HOUR)", "PARTITION BY k", "SHIFTS takes no PARTITION BY"),
        ("SHIFT(s, ts, INTERVAL 1 HOUR)", "SHIFT", "there is no function SHIFT in FROM"),
        ("TURNS(s, ts, INTERVAL 1 HOUR)", "TURNS", "there is no function TURNS in FROM"),
    ):
        with pytest.raises(SqlError) as caught:
            home.sql(f"CREATE VIEW v AS SELECT window_end, count(*) AS n FROM {call} GROUP BY window_start, window_end")
        error = caught.value
        assert message in error.message and error.text is not None
        assert error.text[error.start : error.end] == place
