"""Values that files, memory and Python compare each in a way of their own: NaN, and values made of others."""

from __future__ import annotations

from decimal import Decimal
from math import inf, nan
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from anabranch.errors import NotSupported
from anabranch.testing import Harness, Row, assert_same_rows

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (k STRING, x DOUBLE, l ARRAY<DOUBLE>, ts TIMESTAMP, WATERMARK FOR ts AS ts)"


def row(k: str, x: float | None, second: int) -> Row:
    return (k, x, None if x is None else [x], f"2026-01-01 00:00:{second:02}")


def test_what_is_not_a_number_is_found_by_comparisons(home: Harness) -> None:
    """NaN is higher than any number, in rows as they come, in rows that are kept and in what is shown."""
    queries = {
        "counts": "SELECT k, count(*) AS c FROM s WHERE x > 0 GROUP BY k EMIT CHANGES",
        "grouped": "SELECT x, count(*) AS c FROM s GROUP BY x EMIT CHANGES",
        "listed": "SELECT k, size(collect_list(x)) AS c FROM s WHERE x > 0 GROUP BY k EMIT CHANGES",
        "others": "SELECT DISTINCT k, x FROM s WHERE x <> -2.5",
    }
    home.sql(STREAM)
    for name, query in queries.items():
        home.sql(f"CREATE VIEW {name} AS {query}")
    runs = [[row("a", nan, 1), row("a", -2.5, 2)], [row("b", nan, 3), row("c", 0.5, 4)], [row("a", None, 5)]]
    home.insert_runs("s", runs)
    rows = [each for run in runs for each in run]
    for name, query in queries.items():
        assert_same_rows(home.table(name), home.batch(query.removesuffix(" EMIT CHANGES"), s=rows), query)
    assert home.query("SELECT c FROM counts WHERE k = 'a'") == [(1,)]
    assert len(home.query("SELECT * FROM grouped WHERE x > 1")) == 1


def test_both_zeros_are_found_by_either(home: Harness, tmp_path: Path) -> None:
    """In files of the home and in those of others, which skip rows by dictionaries that tell the two apart."""
    values = [0.0, -0.0, 1.0] * 40
    parquet.write_table(pa.table({"x": values}), tmp_path / "f.parquet")
    home.sql(f"{STREAM}; CREATE VIEW shown AS SELECT x FROM s")
    home.insert("s", [row("a", x, 1) for x in values])
    for condition in ("x = 0.0D", "x = -0.0D", "x IN (-0.0D, 7D)", "x <= -0.0D", "x <=> 0.0D", "x >= 0.0D AND x < 1D"):
        for place in ("s", "shown", f"'{tmp_path}/f.parquet'"):
            assert home.query(f"SELECT count(*) FROM {place} WHERE {condition}") == [(80,)], (condition, place)


def test_a_table_with_nan_is_joined_by_comparisons(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE TABLE levels (x DOUBLE, name STRING)")
    home.insert("levels", [(nan, "none"), (0.5, "low")])
    home.sql("CREATE VIEW v AS SELECT k, name FROM s JOIN levels m ON m.x > s.x EMIT CHANGES")
    home.insert("s", [row("a", 0.0, 1), row("b", 0.7, 2)])
    assert home.table("v") == home.emitted("v") == [("a", "low"), ("a", "none"), ("b", "none")]


@pytest.mark.parametrize("key", ["x", "l", "named_struct('x', x, 'k', k)"])
def test_groups_of_any_value_fire(key: str, home: Harness) -> None:
    """A group is the same one in every run, whatever its key is made of."""
    grouped = f"SELECT {key} AS key, count(*) AS c FROM s GROUP BY {key}"
    windowed = (
        f"SELECT window_end, {key} AS key, count(*) AS c FROM TUMBLE(TABLE (SELECT DISTINCT * FROM s), DESCRIPTOR(ts),"
        f" INTERVAL 10 SECONDS) GROUP BY window_start, window_end, {key}"
    )
    home.sql(f"{STREAM}; CREATE VIEW twos AS {grouped} TRIGGER COUNTING 2")
    home.sql(f"CREATE VIEW closed AS {windowed} EMIT ON WINDOW CLOSE")
    rows = [row("a", nan, 1), row("a", inf, 2), row("a", nan, 3), row("a", nan, 11), row("a", nan, 12)]
    home.insert("s", rows[:1])
    home.reopen()
    home.insert_runs("s", [[each] for each in rows[1:]])
    assert [each[-1] for each in home.table("twos")] == [4]
    home.advance("s")
    assert_same_rows(home.table("closed"), home.batch(windowed, s=rows))
    assert_same_rows(home.emitted("closed"), home.table("closed"))


def test_a_sink_takes_back_rows_with_nan(home: Harness, tmp_path: Path) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS SELECT k, max(x) AS x, count(*) AS c FROM s GROUP BY k EMIT CHANGES")
    home.sql(f"CREATE SINK kept FROM v INTO delta(path => '{tmp_path / 'delta'}', mode => 'table')")
    for second in range(3):
        home.insert("s", [row("a", nan, second), row("b", 1.5, second)])
    import deltalake

    held = deltalake.DeltaTable(str(tmp_path / "delta")).to_pyarrow_table().to_pylist()
    assert_same_rows([tuple(each.values()) for each in held], home.table("v"))


@pytest.mark.parametrize("key", ["map(k, x)", "k COLLATE UTF8_LCASE"])
def test_keys_that_cannot_be_found_again_are_refused(key: str, home: Harness) -> None:
    """Where changes are kept; an answer that is made at the read needs nothing of the kind."""
    home.sql(STREAM)
    home.sql(f"CREATE VIEW v AS SELECT {key} AS key, count(*) AS c FROM s GROUP BY {key}")
    home.insert_runs("s", [[row("a", 0.5, 1)], [row("a", 0.5, 2)]])
    assert [each[-1] for each in home.table("v")] == [2]
    with pytest.raises(NotSupported, match=r"its key key .* (cannot be compared|files do not keep)"):
        home.sql(f"CREATE VIEW w AS SELECT {key} AS key, count(*) AS c FROM s GROUP BY {key} EMIT CHANGES")


def test_what_fails_for_null_is_not_tried_where_there_are_no_rows(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS SELECT map(k, x) AS m FROM s EMIT CHANGES")
    assert home.table("v") == []
    home.insert("s", [row("a", 0.5, 1)])
    assert home.table("v") == home.emitted("v") == [([("a", 0.5)],)]


@pytest.mark.parametrize("name", ["_diff", "_Version", "_at", "_k0"])
def test_names_of_what_is_kept_with_a_change_are_taken(name: str, home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS SELECT k, count(*) AS {name} FROM s GROUP BY k")
    with pytest.raises(NotSupported, match=f"the name {name} is taken"):
        home.sql(f"CREATE VIEW w AS SELECT k, count(*) AS {name} FROM s GROUP BY k EMIT CHANGES")


def test_numbers_of_several_types_meet_as_in_spark(home: Harness) -> None:
    """A FLOAT beside another number is a DOUBLE, and a BIGINT that no INT can be equal to has no partner."""
    queries = {
        "equal": "SELECT DISTINCT k, n FROM f WHERE x = n OR x > n",
        "having": "SELECT k, max(x) AS x FROM f GROUP BY k HAVING max(x) < max(n)",
        "counted": "SELECT k, count(*) FILTER (WHERE x < n OR x = m) AS c, sum(x + n) AS t FROM f GROUP BY k",
        "beside": "SELECT w.i, f.x FROM w LEFT JOIN f ON w.i = f.n AND w.j = f.k",
    }
    home.sql("CREATE STREAM f (k INT, n BIGINT, x FLOAT, m DECIMAL(10, 4)); CREATE STREAM w (i INT, j BIGINT)")
    for name, query in queries.items():
        home.sql(f"CREATE VIEW {name} AS {query} EMIT CHANGES")
    home.sql(f"CREATE VIEW read AS {queries['having']}")
    few = 16777217  # the first whole number that no FLOAT is
    f = [
        (1, few, few - 1.0, None),
        (1, few, None, Decimal("1.0000")),
        (2, 3, 0.3, Decimal("0.3000")),
        (None, 2**40, 0.5, None),
        (2, None, 1.5, Decimal("2.0000")),
    ]
    w = [(few, 1), (few - 1, 2), (None, 2**50), (3, 2)]
    home.insert("w", w)
    home.insert_runs("f", [f[:3], f[3:]])
    for name, query in queries.items():
        wanted = home.batch(query, f=f, w=w)
        assert_same_rows(home.table(name), wanted, query)
        assert_same_rows(home.emitted(name), wanted, query)
    assert_same_rows(home.table("read"), home.table("having"))
