"""Static tables joined above the partials of a stream: chosen, asked for or forbidden, a row meets the table of its run.

The oracle knows nothing of partials: each row is joined with the table as it was at the last REFRESH before its run.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import NotSupported
from anabranch.testing import Harness, assert_same_rows, crashing, cuts

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]
SETUP = """
CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 MINUTES) KEEP {keep};
CREATE TABLE t (k STRING, label STRING, y INT);
"""
KEYS = ("a", "b", "c", None)
CHOICES = {"chosen": "", "asked": "/*+ JOIN_ABOVE(t) */", "forbidden": "/*+ JOIN_BELOW(t) */"}
WINDOW = "window_start, window_end"
SHAPES = {
    "plain": """SELECT {hint} s.k, label, count(*) AS c, sum(n) AS total, max(n) FILTER (WHERE n > 1) AS high,
                  avg(n) AS mean, count(DISTINCT n) AS kinds
                FROM s {join} t ON s.k = t.k GROUP BY s.k, label""",
    "windows": f"""SELECT {{hint}} {WINDOW}, s.k, t.label, count(n) AS c
                FROM HOP(s, ts, INTERVAL 5 MINUTES, INTERVAL 10 MINUTES) s {{join}} t ON s.k = t.k AND t.y > 0
                WHERE n >= 0 GROUP BY {WINDOW}, s.k, t.label""",
}


def _table_row(chance: random.Random) -> Row:
    return chance.choice(KEYS), chance.choice(["x", "y", None]), chance.choice([None, 0, 1, 2])


def _row(chance: random.Random) -> Row:
    return chance.choice(KEYS), chance.choice([0, 1, 2, 3, None]), chance.randint(0, 29)


def _met(rows: list[Row], table: list[Row], join: str, holds: Callable[[Row, Row], bool]) -> list[tuple[Row, Row]]:
    """Rows of a run with the rows of the table that they meet."""
    pairs = []
    for row in rows:
        partners = [each for each in table if row[0] is not None and row[0] == each[0] and holds(row, each)]
        pairs += [(row, each) for each in partners or ([(None, None, None)] if join == "LEFT JOIN" else [])]
    return pairs


def _plain(pairs: list[tuple[Row, Row]]) -> list[Row]:
    groups = defaultdict(list)
    for row, partner in pairs:
        groups[row[0], partner[1]].append(row[1])
    found = []
    for key, values in groups.items():
        known = [value for value in values if value is not None]
        high = max((value for value in known if value > 1), default=None)
        mean = sum(known) / len(known) if known else None
        found.append((*key, len(values), sum(known) if known else None, high, mean, len(set(known))))
    return found


def _windows(pairs: list[tuple[Row, Row]]) -> list[Row]:
    counts: dict[Row, int] = defaultdict(int)
    for row, partner in pairs:
        if row[1] is None:
            continue
        for start in (row[2] // 5 * 5 - 5, row[2] // 5 * 5):
            counts[start, row[0], partner[1]] += 1
    return [(*key, count) for key, count in counts.items()]


ORACLES = {"plain": (_plain, lambda _, __: True), "windows": (_windows, lambda _, each: (each[2] or 0) > 0)}


def _shown(home: Harness, shape: str, view: str) -> list[Row]:
    if shape == "plain":
        return home.table(view)
    start = "CAST((unix_micros(window_start) - unix_micros(TIMESTAMP '2026-01-01 08:00:00')) / 60000000 AS INT)"
    return home.query(f"SELECT {start} AS start, k, label, c FROM {view}")


def _time(minute: int) -> str:
    return f"2026-01-01 08:{minute:02d}:00"


@pytest.mark.parametrize(("seed", "keep"), [(1, "ALL"), (2, "NOTHING"), (3, "ALL")])
def test_a_row_meets_the_table_of_its_run_wherever_the_join_stands(home: Harness, seed: int, keep: str) -> None:
    chance = random.Random(seed)
    home.sql(SETUP.format(keep=keep))
    table = [_table_row(chance) for _ in range(5)]
    home.insert("t", table)
    views = [
        (f"{shape}_{choice}_{join[:4].strip()}", shape, join)
        for join in ("JOIN", "LEFT JOIN")
        for shape in SHAPES
        for choice in CHOICES
    ]
    for name, shape, join in views:
        home.sql(f"CREATE VIEW {name} AS {SHAPES[shape].format(hint=CHOICES[name.split('_')[1]], join=join)}")
    pairs: dict[str, list[tuple[Row, Row]]] = defaultdict(list)
    for step, run in enumerate(cuts([_row(chance) for _ in range(24)], chance)):
        home.insert("s", [(key, n, _time(minute)) for key, n, minute in run])
        for name, shape, join in views:
            rows = [row for row in run if shape == "plain" or (row[1] is not None and row[1] >= 0)]
            pairs[name] += _met(rows, table, join, ORACLES[shape][1])
        if step % 3 == 1 and chance.random() < 0.7:  # otherwise the table is never refreshed, or late
            table = [_table_row(chance) for _ in range(chance.randint(0, 6))]
            home.sql("DELETE FROM t")
            home.insert("t", table)
            home.sql("REFRESH TABLE t")
        if chance.random() < 0.15:
            home.compact()
        if chance.random() < 0.1:
            home.reopen()
        if chance.random() < 0.25:
            name, shape, _ = chance.choice(views)
            assert_same_rows(_shown(home, shape, name), ORACLES[shape][0](pairs[name]), f"{name} after step {step}")
    for name, shape, _ in views:
        assert_same_rows(_shown(home, shape, name), ORACLES[shape][0](pairs[name]), name)
