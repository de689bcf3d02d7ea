"""What a Result and a Session show of themselves, and the ways to read rows."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch import Result, UsageError
from anabranch.testing import Harness

pytestmark = pytest.mark.spark


def test_a_finished_result_gives_rows(home: Harness) -> None:
    ab = home.session
    home.sql("CREATE STREAM s (k STRING, n INT)")
    done = ab.sql("INSERT INTO s VALUES ('a', 1), ('b', 2), (NULL, 3)")
    assert (done.fetchall(), done.fetchone(), len(done), list(done)) == ([], None, 0, [])
    result = ab.sql("SELECT k, n FROM s ORDER BY n")
    rows = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": None, "n": 3}]
    assert (result.fetchall(), list(result), list(result), len(result)) == (rows, rows, rows, 3)
    assert [result.fetchone() for _ in range(4)] == [*rows, None]
    assert result.fetchall() == rows, "fetchone takes nothing away"
    (batch,) = result.batches()
    assert batch.changes.to_pylist() == [{**row, "_diff": 1} for row in rows]
    empty = ab.sql("SELECT k FROM s WHERE false")
    assert (empty.fetchall(), empty.fetchone(), len(empty), bool(empty)) == ([], None, 0, True)
    assert ab.sql("SHOW STREAMS").fetchall() == [{"name": "s", "kind": "stream", "columns": "k string, n int"}]


def test_nested_values_and_times_are_plain_python(home: Harness) -> None:
    row = home.session.sql(
        "SELECT map('a', 1) AS m, array(1, NULL) AS l, named_struct('x', 1) AS s, TIMESTAMP '2026-01-01 00:00:00' AS t"
    ).fetchone()
    assert row == {
        "m": {"a": 1},
        "l": [1, None],
        "s": {"x": 1},
        "t": datetime(2026, 1, 1, tzinfo=timezone.utc),
    }


def test_columns_of_the_same_name_are_not_lost(home: Harness) -> None:
    result = home.session.sql("SELECT 1 AS a, 2 AS a")
    with pytest.raises(UsageError, match="several columns are called a"):
        result.fetchall()
    assert result.toArrow().num_columns == 2


def test_a_result_that_is_followed_gives_batches(home: Harness) -> None:
    home.sql("CREATE STREAM s (k STRING); INSERT INTO s VALUES ('a')")
    (live,) = home.session.execute("SELECT k FROM s", live=True)
    assert live.kind == "changes"
    with pytest.raises(TypeError, match="no length"):
        len(live)
    assert [row for batch in live for row in batch.changes.to_pylist()] == [{"k": "a", "_diff": 1}]
    with pytest.raises(UsageError, match="read already"):
        live.toArrow()
    (again,) = home.session.execute("SELECT k FROM s", live=True)
    assert (again.fetchall(), again.fetchall()) == ([{"k": "a"}], [{"k": "a"}])


def test_an_endless_result_is_neither_listed_nor_shown(home: Harness) -> None:
    home.sql("CREATE STREAM r FROM rate(rows_per_second => 1)")
    (live,) = home.session.execute("SELECT * FROM r", live=True)
    with pytest.raises(UsageError, match="never ends"):
        live.fetchall()
    assert repr(live).endswith("without end; iterate over it for batches>")
    assert "<table" not in live._repr_html_()


def test_a_result_shows_itself_without_computing(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    home.sql("CREATE STREAM s (k STRING, n INT); CREATE VIEW v AS SELECT k, sum(n) AS n FROM s GROUP BY k")
    home.insert("s", [(f"k{number:02}", number) for number in range(12)])
    pending = home.session.sql("SELECT k, n FROM s")
    asked = home.session.sql("SELECT k, n FROM v ORDER BY n")
    with monkeypatch.context() as patched:
        patched.setattr(Result, "toArrow", lambda _: pytest.fail("computed"))
        patched.setattr(Result, "df", property(lambda _: pytest.fail("computed")))
        for result in (pending, asked):
            assert repr(result) == "<Result: (k, n), rows not computed yet; fetchall() computes them>"
            assert result._repr_html_() == "<p>Result: (k, n), rows not computed yet; fetchall() computes them</p>"
    asked.fetchall()
    lines = repr(asked).splitlines()
    assert lines[:4] == ["<Result: (k, n), 12 rows>", "k   | n", "----+--", "k00 | 0"]
    assert lines[-1] == "... and 2 more rows" and len(lines) == 1 + 2 + 10 + 1
    assert repr(home.session.sql("DROP VIEW v")) == "<Result: view v dropped>"


def test_a_result_in_a_notebook_is_escaped(home: Harness) -> None:
    result = home.session.sql("SELECT '<script>alert(1)</script>' AS `<b>&`, '\\n\\u001b[31m' AS c, NULL AS n")
    result.fetchall()
    shown = result._repr_html_()
    assert "<script" not in shown and "<b>" not in shown
    assert "<th>&lt;b&gt;&amp;</th>" in shown and "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>" in shown
    assert "<td>\\n\\x1b[31m</td><td>NULL</td>" in shown
    assert "\x1b" not in repr(result)
    wide = home.session.sql("SELECT repeat('x', 100000) AS x")
    wide.fetchall()
    assert len(repr(wide)) < 1000 and len(wide._repr_html_()) < 1000


def test_a_session_shows_itself(spark: SparkSession, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with anabranch.connect(home, spark) as ab:
        ab.sql("CREATE STREAM s (k STRING); CREATE VIEW v AS SELECT k, count(*) AS n FROM s GROUP BY k")
        assert repr(ab) == f"<Session: {home}, version {ab.version}, streams: 1, views: 1, open>"
    assert repr(ab) == f"<Session: {home}, closed>"
    for asked in (
        lambda: ab.sql("SELECT * FROM v"),
        lambda: ab.sql("INSERT INTO s VALUES ('a')"),
        lambda: ab.insert("s", [{"k": "a"}]),
        lambda: ab.run("SELECT 1", until_idle=True),
        lambda: next(ab.subscribe("v")),
        ab.compact,
    ):
        with pytest.raises(UsageError, match="this session is closed"):
            asked()
    with anabranch.connect(home, spark, read_only=True) as reader:
        assert repr(reader).endswith("views: 1, open read-only>")
