"""Static tables joined above the partials of a stream: chosen, asked for or forbidden, a row meets that of its run.

The oracle knows nothing of partials: each row is joined with the table as it was at the last REFRESH before its run.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import NotSupported
from anabranch.plan.states import Panes
from anabranch.testing import Harness, assert_same_rows

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


@pytest.mark.parametrize(
    ("seed", "keep", "joins"), [(1, "ALL", ("JOIN", "LEFT JOIN")), (2, "NOTHING", ("LEFT JOIN", "JOIN"))]
)
def test_a_row_meets_the_table_of_its_run_wherever_the_join_stands(
    home: Harness, seed: int, keep: str, joins: tuple[str, str]
) -> None:
    chance = random.Random(seed)
    home.sql(SETUP.format(keep=keep))
    table = [_table_row(chance) for _ in range(5)]
    home.insert("t", table)
    kinds = dict(zip(SHAPES, joins, strict=True))
    views = [(f"{shape}_{choice}", shape) for shape in SHAPES for choice in CHOICES]
    for name, shape in views:
        hint = CHOICES[name.split("_")[1]]
        home.sql(f"CREATE VIEW {name} AS {SHAPES[shape].format(hint=hint, join=kinds[shape])}")
    pairs: dict[str, list[tuple[Row, Row]]] = defaultdict(list)
    for step in range(4):
        run = [_row(chance) for _ in range(chance.choice([1, 4, 7]))]
        home.insert("s", [(key, n, _time(minute)) for key, n, minute in run])
        for shape, join in kinds.items():
            rows = [row for row in run if shape == "plain" or (row[1] is not None and row[1] >= 0)]
            pairs[shape] += _met(rows, table, join, ORACLES[shape][1])
        if step in (1, 2):
            table = [_table_row(chance) for _ in range(chance.randint(0, 6))]
            home.sql("DELETE FROM t")
            home.insert("t", table)
            home.sql("REFRESH TABLE t")
        if step == seed - 1:  # before the first REFRESH, or behind it
            home.compact()
            home.reopen()
        for name, shape in views if step in (0, 3) else ():
            assert_same_rows(_shown(home, shape, name), ORACLES[shape][0](pairs[shape]), f"{name}, step {step}")


def _lines(home: Harness, view: str) -> str:
    return "\n".join(line for (line,) in home.query(f"EXPLAIN {view}")).split("if somebody subscribes")[0]


def _bases(home: Harness) -> dict[str, str | None]:
    """The pane tables, and what their partials are had from."""
    panes = home.session._core.catalog().of(Panes)
    return {each.id: each.above.panes if each.above is not None else None for each in panes}


def test_partials_of_the_stream_are_shared_and_settled_once(home: Harness) -> None:
    query = "SELECT {} s.k, label, count(*) AS c FROM s {} t ON s.k = t.k GROUP BY s.k, label"
    inner, outer = query.format("", "JOIN"), query.format("", "LEFT JOIN")
    home.sql(SETUP.format(keep="NOTHING"))
    home.sql("INSERT INTO t VALUES ('a', 'x', 1), ('a', 'y', 1)")
    home.sql(f"CREATE VIEW early AS {inner}; CREATE VIEW outside AS {outer}; CREATE VIEW late AS {inner} HAVING true")
    assert "joined below the partials, read once: it leaves rows out" in _lines(home, "early")
    assert "joined above the partials: rows are grouped by k anyway" in _lines(home, "outside")
    assert "late" in _lines(home, "early") and "early" in _lines(home, "late")  # the join's own partials were there
    home.sql(f"DROP VIEW late; DROP VIEW early; CREATE VIEW late AS {inner}")
    assert "joined above the partials: partials of the stream alone are there already" in _lines(home, "late")
    assert _bases(home) == {"s_by_k": None, "s_by_k_label_2": "s_by_k", "s_by_k_label_3": "s_by_k"}
    home.insert("s", [("a", 1, _time(0)), ("b", 1, _time(0)), (None, 1, _time(0))])
    before = home.session.version
    home.sql("REFRESH TABLE t")  # which changes nothing
    assert _bases(home)["s_by_k_label_2"] == "s_by_k"
    home.sql(f"ALTER VIEW outside AS {outer} HAVING count(*) < 9")
    assert _bases(home)["s_by_k_label_2"] == "s_by_k"
    met = [("a", "x", 1), ("a", "y", 1)]
    alone = [(None, None, 1), ("b", None, 1)]
    assert_same_rows(home.table("late"), met)
    assert_same_rows(home.table("outside"), met + alone)
    home.sql("CREATE VIEW above AS SELECT label, sum(c) AS c FROM late GROUP BY label EMIT CHANGES")  # follows changes
    assert _bases(home) == {"s_by_k": None, "s_by_k_label_2": "s_by_k", "s_by_k_label_3": None}
    assert_same_rows(home.table("late"), met)
    assert_same_rows(home.emitted("above"), [("x", 1), ("y", 1)])
    home.sql("UPDATE t SET label = 'z' WHERE label = 'x'; REFRESH TABLE t")
    assert _bases(home) == {"s_by_k_label_2": None, "s_by_k_label_3": None}
    home.sql(f"CREATE VIEW new AS {outer} START AT NOW")
    home.insert("s", [("a", 1, _time(1)), ("b", 1, _time(1))])
    assert_same_rows(
        home.table("outside"), [("a", "x", 1), ("a", "y", 2), ("a", "z", 1), (None, None, 1), ("b", None, 2)]
    )
    assert_same_rows(home.table("new"), [("a", "y", 1), ("a", "z", 1), ("b", None, 1)])
    assert_same_rows(home.table("outside", before), met + alone)
    assert_same_rows(home.emitted("above"), [("x", 1), ("y", 2), ("z", 1)])


@pytest.mark.parametrize("hint", ["JOIN_ABOVE(u)", "JOIN_BELOW(s)"])
def test_hints_name_static_tables(home: Harness, hint: str) -> None:
    home.sql(SETUP.format(keep="ALL"))
    with pytest.raises(NotSupported, match="no static table of this SELECT is called"):
        home.sql(f"CREATE VIEW v AS SELECT /*+ {hint} */ s.k, count(*) AS c FROM s JOIN t ON s.k = t.k GROUP BY s.k")
    problem = r"cannot be computed above partials of the stream: max\(y\) is not of the stream"
    with pytest.raises(NotSupported, match=problem):
        home.sql("SELECT 1; CREATE VIEW v AS SELECT /*+ JOIN_ABOVE(t) */ max(y) AS y FROM s JOIN t ON s.k = t.k")
