"""Queries over files that are answered without Spark: the same columns, types and rows as with it, to the last byte."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.cli.values import column_texts
from anabranch.engine import oneoff
from anabranch.errors import AnabranchError, QueryFailed, SqlError
from anabranch.session import Session
from anabranch.testing import Harness
from engine.oneoff_help import ANSWERED, DECLINED, write_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("files")
    write_files(made)
    before = Path.cwd()
    os.chdir(made)
    yield made
    os.chdir(before)


@pytest.fixture
def alone(folder: Path) -> Iterator[Session]:
    """A session that is not to start Spark."""
    with anabranch.connect() as session:
        yield session
        assert not session._core.started


def declined(session: Session, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Why a query is left to Spark."""

    class StartedSpark(Exception):
        pass

    def start(*_: Any) -> Any:
        raise StartedSpark

    monkeypatch.setattr("anabranch.engine.spark.start", start)
    with pytest.raises(StartedSpark):
        session.sql(text).toArrow()
    return str(session.needs_spark)


def texts(table: Any) -> list[tuple[str | None, ...]]:
    return list(zip(*(list(column_texts(column)) for column in table.columns), strict=True))


@pytest.mark.spark
def test_answers_are_those_of_spark(home: Harness, alone: Session) -> None:
    for text in ANSWERED:
        mine, theirs = alone.sql(text), home.session.sql(text)
        assert (text, mine.columns, mine.types) == (text, theirs.columns, theirs.types)
        one, other = mine.toArrow(), theirs.toArrow()
        assert (text, one.schema.types) == (text, other.schema.types)
        if "ORDER BY" in text.rpartition(")")[2]:
            assert (text, texts(one)) == (text, texts(other))
        else:
            assert (text, sorted(texts(one), key=repr)) == (text, sorted(texts(other), key=repr))


def test_others_are_left_to_spark(alone: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, reason in DECLINED.items():
        assert reason in declined(alone, text, monkeypatch), text


def test_what_a_row_makes_fail_is_left_to_spark(alone: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (
        "SELECT 1 / bidder FROM (SELECT 0 AS bidder FROM 'bids.csv')",
        "SELECT n + n FROM 'rows.parquet'",
        "SELECT sum(b) + sum(b) FROM 'rows.parquet'",
    ):
        declined(alone, text, monkeypatch)


@pytest.mark.spark
def test_errors_are_those_of_spark(home: Harness, alone: Session) -> None:
    """What is wrong with a query is told without Spark where it is certain, in the same words and at the same place."""
    for text in (
        "SELECT pric FROM 'bids.csv'",
        "SELECT b.pric FROM 'bids.csv' b WHERE b.auction = 1",
        "SELECT auction FROM 'bids.csv' WHERE nothing_like_it > 1",
        "SELECT * FROM 'bid.csv'",
        "SELECT * FROM bids",
        "SELECT * FROM 'no/such/*.csv'",
        "SELECT FROM WHERE",
        "SELECT auction FROM 'bids.csv' ORDER BY pric",
    ):
        found = []
        for session in (alone, home.session):
            with pytest.raises(AnabranchError) as raised:
                session.sql(text).toArrow()
            error = raised.value
            place = (error.start, error.end) if isinstance(error, SqlError) else None
            # Spark proposes some of the columns, a plan goes by all of them: the words of the hint may differ.
            found.append((type(error).__name__, error.message, place, error.hint is None))
        assert found[0] == found[1], text


def test_backend_spark_is_obeyed(alone: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    alone.sql("SET anabranch.backend = 'spark'")
    assert declined(alone, "SELECT count(*) FROM 'bids.csv'", monkeypatch) == "None"


def test_what_is_large_or_set_otherwise_is_left_to_spark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with anabranch.connect(limits={"query_bytes": 10}) as session:
        assert "large" in declined(session, "SELECT count(*) FROM 'bids.csv'", monkeypatch)
    with anabranch.connect(conf={"spark.sql.ansi.enabled": "false"}) as session:
        assert "settings" in declined(session, "SELECT count(*) FROM 'bids.csv'", monkeypatch)


def test_a_bug_is_no_reason_to_start_spark(alone: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of ours comes out: nothing but a reason that was given has Spark asked."""

    def broken(*_: Any) -> str:
        return "SELECT no_such_column"

    monkeypatch.setattr(oneoff.duckdb_plan, "sql", broken)
    with pytest.raises(Exception, match=re.compile("no_such_column")) as raised:
        alone.sql("SELECT 1").toArrow()
    assert not isinstance(raised.value, QueryFailed)


def test_a_file_that_changes_while_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch, alone: Session) -> None:
    (folder / "grows.csv").write_text("a\n1\n")
    result = alone.sql("SELECT count(*) FROM 'grows.csv'")
    (folder / "grows.csv").write_text("a\n1\n2\n")
    monkeypatch.setattr("anabranch.result.Result.df", property(lambda self: pytest.skip("asked Spark")))
    with pytest.raises(pytest.skip.Exception):
        result.toArrow()
    assert "changed" in str(alone.needs_spark)


def test_what_describes_a_file_and_copies_an_answer(alone: Session, tmp_path: Path) -> None:
    assert [row["type"] for row in alone.sql("DESCRIBE 'people.csv'").fetchall()] == ["int", "string", "double"]
    alone.sql(f"COPY (SELECT id FROM 'people.csv' ORDER BY id LIMIT 1) TO '{tmp_path}/out.csv'")
    assert (tmp_path / "out.csv").read_text() == '"id"\n7\n'


def test_a_command_imports_no_spark(folder: Path) -> None:
    code = (
        "import sys; from anabranch.cli.main import main\n"
        "sys.argv = ['anabranch', \"SELECT k, sum(n) AS n FROM 'part-*.csv' GROUP BY k ORDER BY k\"]\n"
        "try: main()\n"
        "finally: print([name for name in ('pyspark', 'py4j', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[2:] == ["a | 3000000001", "b |          2", "c |       NULL", "(3 rows)", "[]"]


#: Views of every kind that a home can answer for without Spark, and a table.
OF_A_HOME = """
    CREATE STREAM s (k STRING, v BIGINT, x DOUBLE, d DECIMAL(10, 2), ts TIMESTAMP,
                     WATERMARK FOR ts AS ts - INTERVAL 1 SECOND);
    CREATE TABLE names (k STRING, name STRING);
    INSERT INTO names VALUES ('a', 'ann'), ('b', NULL);
    CREATE VIEW read AS SELECT k, count(*) AS n, sum(v) AS total, max(x) AS high FROM s GROUP BY k;
    CREATE VIEW minutes AS SELECT k, window_start, window_end, sum(d) AS total, avg(x) AS mean
      FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) GROUP BY k, window_start, window_end;
    CREATE VIEW sliding AS SELECT window_start, count(*) AS n
      FROM HOP(s, ts, INTERVAL 10 SECONDS, INTERVAL 30 SECONDS) GROUP BY window_start, window_end;
    CREATE VIEW closed AS SELECT window_start, min(x) AS low FROM TUMBLE(s, ts, INTERVAL 10 SECONDS)
      GROUP BY window_start, window_end EMIT ON WINDOW CLOSE;
    CREATE VIEW live AS SELECT x, count(*) AS n FROM s GROUP BY x EMIT CHANGES;
    CREATE VIEW each AS SELECT k, x FROM s WHERE v > 1 EMIT CHANGES
"""
ASKED_OF_A_HOME = (
    "SELECT * FROM read", "SELECT * FROM minutes", "SELECT * FROM sliding ORDER BY window_start",
    "SELECT * FROM closed", "SELECT * FROM live", "SELECT * FROM each", "SELECT k, x FROM each WHERE x > 0",
    "SELECT x, n FROM live WHERE x < 1",
    "SELECT count(*) AS n, max(x) AS high FROM each", "SELECT * FROM names",
    "SELECT r.k, n.name, r.total FROM read r LEFT JOIN names n ON n.k = r.k ORDER BY r.k",
    "SELECT k, sum(total) AS total FROM minutes GROUP BY k HAVING sum(total) > 1",
    "WITH many AS (SELECT k FROM read WHERE n > 1) SELECT count(*) AS n FROM many",
    "SELECT window_end, total FROM minutes WHERE window_start >= TIMESTAMP '2026-01-01 00:01:00'",
)  # fmt: skip


@pytest.mark.spark
def test_views_of_a_home_are_answered_without_spark(spark: Any, tmp_path: Path) -> None:
    times = [f"2026-01-01 00:0{minute}:{second:02}" for minute in (0, 1) for second in (1, 1, 12, 40)]
    values = [(1, -0.0, "1.50"), (2, 0.0, None), (3, math.nan, "-7.25"), (None, 1.5, "0.00"), (5, None, "9.99")]
    with Harness(tmp_path / "home", spark) as home:
        home.sql(OF_A_HOME)
        for at, time in enumerate(times):
            v, x, d = values[at % 5]
            row = {"k": ["a", "b", None][at % 3], "v": v, "x": x, "d": None if d is None else Decimal(d), "ts": time}
            home.insert("s", [row, row])
        theirs = {text: home.session.sql(text) for text in ASKED_OF_A_HOME}
        expected = {text: (each.columns, each.types, each.df.toArrow()) for text, each in theirs.items()}
    with anabranch.connect(tmp_path / "home") as alone:
        for text, (columns, types, table) in expected.items():
            mine = alone.sql(text)
            assert (text, mine.columns, mine.types) == (text, columns, types)
            one, other = texts(mine.toArrow()), texts(table)
            if "ORDER BY" in text:
                assert (text, one) == (text, other)
            else:
                assert (text, sorted(one, key=repr)) == (text, sorted(other, key=repr))
        assert not alone._core.started


@pytest.mark.spark
def test_what_else_a_home_holds_is_left_to_spark(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Harness(tmp_path / "home", spark) as home:
        home.sql(OF_A_HOME)
        home.sql("CREATE VIEW lists AS SELECT k, collect_list(v) AS vs FROM s GROUP BY k")
        home.insert("s", [("a", 1, 0.5, None, "2026-01-01 00:00:00")])
    with anabranch.connect(tmp_path / "home", limits={"answer_rows": 0}) as session:
        assert "read" in declined(session, "SELECT * FROM read", monkeypatch)
    with anabranch.connect(tmp_path / "home") as session:
        assert declined(session, "SELECT * FROM lists", monkeypatch)
        assert "no file, view or table" in declined(session, "SELECT * FROM read AS OF VERSION 3", monkeypatch)
        assert "no file, view or table" in declined(session, "SELECT * FROM s", monkeypatch)
