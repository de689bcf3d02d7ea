"""Parameters in every kind of statement that takes values, with values that would like to be more than that."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from anabranch import SqlError, UnknownName, UsageError, WrongType
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

TEXTS = ["it's", "'; DROP TABLE t; --", "\\' OR true --", "`@t:t_1`", "window_id", "a\nb", "漢\U0001f600", ":k ?", ""]


def test_rows_go_in_and_are_found_by_parameters(home: Harness) -> None:
    ab = home.session
    home.sql("CREATE TABLE t (k STRING, n INT, d DECIMAL(10, 2), ts TIMESTAMP, b BINARY)")
    for number, text in enumerate(TEXTS):
        ab.sql("INSERT INTO t VALUES (:k, ?, ?, NULL, :b)", number, None, k=text, b=text.encode())
    assert [(row["k"], row["b"]) for row in ab.sql("SELECT k, b FROM t ORDER BY n")] == [
        (text, text.encode()) for text in TEXTS
    ]
    for number, text in enumerate(TEXTS):
        assert ab.sql("SELECT n FROM t WHERE k = :k", k=text).fetchall() == [{"n": number}]
    table = ab._core.catalog().find("t")
    assert table is not None
    inside = f"`@t:{table.id}`"  # what stands for t while the query is being made
    assert ab.sql("SELECT :x AS x FROM t LIMIT 1", x=inside).fetchall() == [{"x": inside}]
    ab.sql("UPDATE t SET d = :d, ts = :ts WHERE k = :k", d=-1.5, ts=datetime(2026, 1, 1), k=TEXTS[2])
    ab.sql("DELETE FROM t WHERE k = :k OR n = -?", 0, k=TEXTS[1])
    assert [row["k"] for row in ab.sql("SELECT k FROM t ORDER BY n")] == [TEXTS[0], *TEXTS[2:]][1:]
    assert home.query("SELECT k, d, ts FROM t WHERE d IS NOT NULL")[0][2] == datetime(2026, 1, 1)
    assert ab.sql("SELECT count(*) AS n FROM t WHERE array_contains(:ks, k)", ks=TEXTS[3:5]).fetchall() == [{"n": 2}]


def test_a_view_keeps_the_value(home: Harness) -> None:
    ab = home.session
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 MINUTE)")
    rows = [(text, number - 3, datetime(2026, 1, 1, 0, number)) for number, text in enumerate(TEXTS)]
    query = "SELECT k, sum(n) AS n, count(*) AS c FROM s WHERE k <> {k} AND n >= {n} GROUP BY k"
    ab.sql(f"CREATE VIEW v AS {query.format(k=':k', n=':n')}", k=TEXTS[1], n=-2)
    ab.sql(
        "CREATE VIEW w AS SELECT window_start, count(*) AS c FROM TUMBLE(s, ts, :size) GROUP BY window_start",
        size=timedelta(minutes=4),
    )
    home.insert("s", rows[:5])
    home.reopen()
    home.insert("s", rows[5:])
    wanted = sorted((k, n, 1) for k, n, _ in rows if k != TEXTS[1] and n >= -2)
    assert sorted(home.table("v")) == wanted
    for text in TEXTS:
        found = home.session.sql("SELECT k, n FROM v WHERE k = :k", k=text).fetchall()
        assert found == [{"k": k, "n": n} for k, n, _ in wanted if k == text]
    assert [count for _, count in home.table("w")] == [4, 4, 1]


def test_paths_and_options_are_values_too(home: Harness, tmp_path: Path) -> None:
    folder = tmp_path / "it's `odd`"
    folder.mkdir()
    path = folder / "a.csv"
    path.write_text("k;n\nx;1\n")
    ab = home.session
    home.sql("CREATE STREAM s (k STRING, n INT)")
    ab.sql("COPY s FROM :path (header => :yes, delimiter => :by)", path=str(path), yes=True, by=";")
    assert home.table("s") == [("x", 1)]
    ab.sql(
        "CREATE STREAM f (k STRING, n INT) FROM files(path => :path, header => true, delimiter => ';')",
        path=str(folder),
    )
    assert ab.sql("SELECT k FROM f").fetchall() == [{"k": "x"}]
    assert ab.sql("SELECT * FROM csv(:path, header => true, delimiter => ?)", ";", path=str(path)).fetchone() == {
        "k": "x",
        "n": 1,
    }
    for value in (2.5, -3):
        with pytest.raises(SqlError, match=f"a whole number of at least 1, not {value}"):
            ab.sql("CREATE STREAM r FROM rate(rows_per_second => ?)", value)
    ab.sql("CREATE STREAM r FROM rate(rows_per_second => ?)", 3)


def test_what_is_wrong_is_shown_at_the_parameter(home: Harness) -> None:
    ab = home.session
    home.sql("CREATE TABLE t (k STRING, n INT)")
    with pytest.raises(UnknownName, match=r"(?s)parameter :k has no value.*did you mean kk\?"):
        ab.sql("SELECT * FROM t WHERE k = :k", kk=1)
    with pytest.raises(UsageError, match="the text has no parameter :z"):
        ab.sql("SELECT 1", z=1)
    with pytest.raises(SqlError) as wrong:
        ab.sql("SELECT * FROM t WHERE n + :x > 1", x={"a": 1})
    assert wrong.value.text == "SELECT * FROM t WHERE n + :x > 1"
    assert isinstance(wrong.value, WrongType) and wrong.value.text[wrong.value.start : wrong.value.end] == "n + :x"
    with pytest.raises(SqlError, match="expected a stream or table"):
        ab.sql("INSERT INTO :t VALUES (1)", t="t; DROP TABLE t")
