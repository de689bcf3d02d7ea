"""Statements of other systems on one home: what they do, beside what Spark makes of the same rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.errors import AnabranchError, NotSupported, QueryFailed, SqlError, WrongType
from anabranch.session import Session, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [
    ("a", 1, "2026-01-01 00:00:05"),
    ("b", 2, "2026-01-01 00:00:30"),
    ("a", 3, "2026-01-01 00:01:10"),
    ("a", 4, "2026-01-01 00:03:00"),
    ("b", 5, "2026-01-01 00:00:31"),
]


@pytest.fixture(scope="module")
def ab(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A home with a stream of rows, which Spark has as the view `raw`."""
    with connect(tmp_path_factory.mktemp("other") / "home", spark) as session:
        session.sql("CREATE STREAM s (k TEXT, n INT8, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)")
        values = ", ".join(f"('{k}', {n}, TIMESTAMP '{ts}')" for k, n, ts in ROWS)
        session.sql(f"INSERT INTO s VALUES {values}")
        session.sql("CREATE VIEW sums AS SELECT k, sum(n) AS n FROM s GROUP BY k")
        spark.sql(f"SELECT * FROM VALUES {values} AS raw(k, n, ts)").createOrReplaceTempView("raw")
        yield session
        spark.catalog.dropTempView("raw")


def rows(session: Session, text: str) -> list[tuple[Any, ...]]:
    return _sorted(session.sql(text).toArrow())


def batch(spark: SparkSession, text: str) -> list[tuple[Any, ...]]:
    return _sorted(spark.sql(text).toArrow())


def _sorted(table: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.mark.parametrize(
    ("written", "spark_sql"),
    [
        (
            "SELECT k, TUMBLE_START(ts, INTERVAL '1' MINUTE), TUMBLE_END(ts, INTERVAL '1' MINUTE) AS till, sum(n)"
            " FROM s GROUP BY k, TUMBLE(ts, INTERVAL '1' MINUTE)",
            "SELECT k, w.start, w.end, sum(n) FROM (SELECT *, window(ts, '1 minute') AS w FROM raw) GROUP BY k, w",
        ),
        (
            "SELECT HOP_START(ts, INTERVAL '00:30' MINUTE TO SECOND, INTERVAL '1' MINUTE), count(*) FROM s"
            " GROUP BY HOP(ts, INTERVAL '00:30' MINUTE TO SECOND, INTERVAL '1' MINUTE)",
            "SELECT w.start, count(*) FROM (SELECT window(ts, '1 minute', '30 seconds') AS w FROM raw) GROUP BY w",
        ),
        (
            "SELECT k, session(interval '40 seconds').start AS since, count(*) FROM s"
            " GROUP BY k, session(interval '40 seconds')",
            "SELECT k, session_window.start, count(*) FROM raw GROUP BY k, session_window(ts, '40 seconds')",
        ),
        (
            "SELECT k, window_start, count(*) FROM"
            " TABLE(SESSION(SIZE => INTERVAL '40' SECOND, KEY => DESCRIPTOR(k), TIMECOL => DESCRIPTOR(ts),"
            " DATA => TABLE s))"
            " GROUP BY k, window_start, window_end",
            "SELECT k, session_window.start, count(*) FROM raw GROUP BY k, session_window(ts, '40 seconds')",
        ),
        (
            "SELECT a.k, count(*) FROM s a JOIN s b ON a.k = b.k GROUP BY a.k, TUMBLE(a.ts, INTERVAL '1' MINUTE)",
            "SELECT a.k, count(*) FROM raw a JOIN raw b ON a.k = b.k GROUP BY a.k, window(a.ts, '1 minute')",
        ),
        (
            "SELECT n::text || '!', CAST(n AS double precision) FROM s",
            "SELECT CAST(n AS STRING) || '!', CAST(n AS DOUBLE) FROM raw",
        ),
        ("SELECT x.k FROM s x TABLESAMPLE (100 PERCENT) REPEATABLE (7)", "SELECT k FROM raw"),
        (
            "SELECT s.k, count(*) FROM s TABLESAMPLE BERNOULLI (100) GROUP BY s.k",
            "SELECT k, count(*) FROM raw GROUP BY k",
        ),
        ("SELECT count(*) FROM s TABLESAMPLE (2 ROWS)", "SELECT 2L"),
        ("SELECT k, n FROM sums TABLESAMPLE (100 PERCENT)", "SELECT k, sum(n) FROM raw GROUP BY k"),
    ],
)
def test_the_answer_is_that_of_spark(ab: Session, spark: SparkSession, written: str, spark_sql: str) -> None:
    assert rows(ab, written) == batch(spark, spark_sql)


def test_a_sample_is_for_one_answer(ab: Session) -> None:
    some = rows(ab, "SELECT n FROM s TABLESAMPLE (50 PERCENT) REPEATABLE (3)")
    assert some == rows(ab, "SELECT n FROM s TABLESAMPLE (50 PERCENT) REPEATABLE (3)")
    for text in (
        "CREATE VIEW v AS SELECT count(*) AS n FROM s TABLESAMPLE (50 PERCENT)",
        "SELECT count(*) FROM s TABLESAMPLE (50 PERCENT) EMIT CHANGES",
    ):
        with pytest.raises(NotSupported, match="TABLESAMPLE picks other rows each time"):
            ab.sql(text)


def test_texts_of_a_length_are_texts(ab: Session) -> None:
    ab.sql("CREATE TABLE names (short VARCHAR(3), fixed CHAR(5), many ARRAY<VARCHAR(2)>)")
    ab.sql("INSERT INTO names VALUES ('abcdef', 'ab', array('xyz'))")
    assert rows(ab, "SELECT * FROM names") == [("abcdef", "ab", ["xyz"])]
    assert rows(ab, "SHOW COLUMNS FROM names") == rows(ab, "DESCRIBE names")


def test_columns_that_cannot_be_kept_are_refused(ab: Session) -> None:
    for expression in ("make_ym_interval(0, max(n))", "make_interval(1)", "TIME '10:20:30'"):
        for made in ("VIEW x AS", "TABLE x AS"):
            with pytest.raises(WrongType, match=r"the column d is of type .* which cannot be stored") as caught:
                ab.sql(f"CREATE {made} SELECT k, {expression} AS d FROM s GROUP BY k")
            assert caught.value.hint == "cast it to a string, CAST(... AS STRING), or to a number"
    with pytest.raises(
        WrongType, match=r"(?s)column d is of type INTERVAL DAY, which cannot be stored\n.*\^"
    ) as caught:
        ab.sql("CREATE VIEW x AS SELECT k, INTERVAL '1' DAY AS d FROM s")  # its rows are kept, one by one
    assert caught.value.hint == "cast it to a string, CAST(... AS STRING), or to a number"
    with pytest.raises(QueryFailed) as failed:
        ab.sql("SELECT make_ym_interval(1, 2) AS d").toArrow()
    assert failed.value.hint == "cast it to a string, CAST(... AS STRING), or to a number"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT upper(k, k, k) FROM s", r"upper takes 1 argument, not 3\n"),
        (
            "SELECT k, count(*) FROM s",
            r"(?s)there is no GROUP BY, and not every column is aggregated\n.*GROUP BY the col",
        ),
        ("SELECT 2147483647 + 1", r"overflow: the result is too large for its type\. Use 'try_add'"),
        (
            "SELECT count(*) FROM TUMBEL(s, ts, INTERVAL 1 DAY)",
            r"(?s)no function TUMBEL in FROM.*did you mean TUMBLE\?",
        ),
        ("SELECT * FROM TABLE(CUMULAT(TABLE s, DESCRIPTOR(ts), INTERVAL 1 DAY))", r"did you mean CUMULATE\?"),
        ("SHOW CREATE s", r"(?s)expected STREAM, TABLE, VIEW or SINK, found s.*SHOW CREATE VIEW s"),
        ("SET anabranch.nothing = 1", r"(?s)no setting anabranch\.nothing.*there are anabranch\.backend, anabranch\.k"),
        ("SET anabranch.backed = 1", r"did you mean anabranch\.backend\?"),
        ("SELECT :k", r"give it by name: k=\.\.\. in Python, -p k=\.\.\. at the command line"),
    ],
)
def test_what_is_wrong_and_what_to_do_is_said_in_plain_words(ab: Session, text: str, problem: str) -> None:
    with pytest.raises(AnabranchError, match=problem):
        ab.sql(text).toArrow()


def test_columns_without_a_name_have_that_of_what_was_written(ab: Session) -> None:
    """And not of what makes the answer the same in whatever order rows came."""
    assert ab.sql("SELECT k, first(n), collect_list(n) FROM s GROUP BY k").columns == [
        "k",
        "first(n)",
        "collect_list(n)",
    ]
    ab.sql("CREATE VIEW picked AS SELECT k, first(n), collect_list(n) FROM s GROUP BY k")
    assert ab.sql("SELECT * FROM picked").columns == ["k", "first(n)", "collect_list(n)"]


# ------------------------------------------------------------------------------------------------------- COPY


def test_rows_go_out_and_come_back(ab: Session, tmp_path: Path) -> None:
    out = tmp_path / "rows"
    ab.sql("CREATE TABLE back (k STRING, n BIGINT, ts TIMESTAMP)")
    for ending, options in ((".csv", "(HEADER)"), (".json", ""), (".parquet", ""), (".tsv", "(HEADER true)")):
        message = ab.sql(f"COPY (SELECT k, n, ts FROM s) TO '{out}{ending}'").message
        assert message == f"5 rows written to {out}{ending}"
        ab.sql(f"DELETE FROM back; COPY back FROM '{out}{ending}' {options}")
        assert rows(ab, "SELECT * FROM back") == rows(ab, "SELECT * FROM s")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "rows.json", "rows.parquet", "rows.tsv"]


def test_options_are_read_as_others_write_them(ab: Session, tmp_path: Path) -> None:
    path = tmp_path / "sums"
    ab.sql(f"COPY sums TO '{path}' WITH (FORMAT csv, HEADER false, DELIMITER ';')")
    assert sorted(path.read_text().splitlines()) == ['"a";8', '"b";7']
    ab.sql(f"COPY sums TO '{path}' CSV HEADER OVERWRITE")
    assert path.read_text().splitlines()[0] == '"k","n"'
    ab.sql("CREATE STREAM copied (k STRING, n INT)")
    ab.sql(f"COPY copied FROM '{path}' CSV HEADER")
    ab.sql(f"COPY copied FROM '{path}' WITH (FORMAT csv, HEADER true, NULL 'b')")
    assert rows(ab, "SELECT * FROM copied") == [("a", 8), ("a", 8), ("b", 7), (None, 7)]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("COPY sums TO '{there}'", "already exists"),
        ("COPY sums TO '{folder}' CSV", "is a folder"),
        ("COPY sums TO '{folder}/no/x.csv'", "there is no folder"),
        ("COPY sums TO '{folder}/x.csv.gz' CSV", "COPY writes no compressed files"),
        ("COPY sums TO '{folder}/x'", "the format of .* cannot be inferred from its name"),
        ("COPY sums TO 's3://x/y.csv'", "COPY writes to a local file"),
        ("COPY sums TO '{folder}/x.csv' (FORMAT xml)", "there is no format xml"),
        ("COPY sums TO '{folder}/x.csv' (COMPRESSION gzip)", "COPY ... TO has no option compression"),
        ("COPY sums TO '{folder}/x.json' (HEADER)", "header is for csv files"),
        ("COPY (SELECT array(1) AS a) TO '{folder}/x.csv'", "a csv file cannot hold the column a"),
        ("COPY (SELECT 1 AS a, 2 AS a) TO '{folder}/x.json'", "two columns a"),
        ("COPY nobody TO '{folder}/x.csv'", "there is no stream, view or table nobody"),
    ],
)
def test_what_cannot_be_written_leaves_all_as_it_was(ab: Session, tmp_path: Path, statement: str, message: str) -> None:
    there = tmp_path / "there.csv"
    there.write_text("mine\n")
    with pytest.raises(AnabranchError, match=message):
        ab.sql(statement.format(there=there, folder=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
    assert there.read_text() == "mine\n"


# ------------------------------------------------------------------------------------------------ SHOW CREATE


def test_show_create_makes_the_same_object_again(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("k,ts\na,2026-01-01 00:00:00\n")
    made = {
        "STREAM given": "CREATE STREAM given (k VARCHAR, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)",
        "STREAM found": f"CREATE OR REPLACE STREAM found FROM '{tmp_path}/*.csv' KEEP ALL ON ERROR FAIL",
        "TABLE loaded": f"CREATE TABLE IF NOT EXISTS loaded FROM csv('{tmp_path}/in.csv')",
        "TABLE asked": "CREATE TABLE asked AS SELECT k, count(*) AS n FROM given GROUP BY k REFRESH EVERY RUN",
        "TABLE plain": "CREATE TABLE plain (`odd name` INT, b STRUCT<Inner: ARRAY<TEXT>>)",
        "VIEW sums": "CREATE STREAM sums AS SELECT k, count(*) AS n FROM given GROUP BY k EMIT CHANGES",
        "SINK log": f"CREATE SINK log FROM sums INTO files(path => '{tmp_path}/out', format => 'json')",
    }
    with connect(tmp_path / "one", spark) as one:
        shown = {}
        for name, statement in made.items():
            one.sql(statement)
            shown[name] = one.sql(f"SHOW CREATE {name}").toArrow().to_pylist()[0]["statement"]
        described = {name: rows(one, f"DESCRIBE {name.split()[1]}") for name in made if not name.startswith("SINK")}
        one.sql("ALTER VIEW sums AS SELECT k, count(ts) AS n FROM given GROUP BY k EMIT CHANGES")
        altered = one.sql("SHOW CREATE VIEW sums").toArrow().to_pylist()[0]["statement"]
        with pytest.raises(SqlError, match="sums is a view, not a stream"):
            one.sql("SHOW CREATE STREAM sums")
        one.sql("DROP SINK log")
    found = "CREATE STREAM found (k STRING, ts TIMESTAMP) FROM files(header => true, path => '/"
    assert shown["STREAM found"].startswith(found)
    assert altered == "CREATE VIEW sums AS SELECT k, count(ts) AS n FROM given GROUP BY k EMIT CHANGES"
    shown["SINK log"] = shown["SINK log"].replace("/out'", "/again'")
    with connect(tmp_path / "two", spark) as two:
        for name, statement in shown.items():
            two.sql(statement)
            assert two.sql(f"SHOW CREATE {name}").toArrow().to_pylist()[0]["statement"] == statement
        assert {name: rows(two, f"DESCRIBE {name.split()[1]}") for name in described} == described
        assert rows(two, "SELECT * FROM found") == rows(two, "SELECT * FROM loaded")
        two.sql("INSERT INTO given VALUES ('a', TIMESTAMP '2026-01-01 00:00:00')")
        texts = [path.read_text() for path in (tmp_path / "again").glob("v*.json")]
        changes = [json.loads(line) for text in texts for line in text.splitlines()]
        assert [(each["k"], each["n"], each["_diff"]) for each in changes] == [("a", 1, 1)]


def test_another_definition_of_a_table_is_noticed_when_a_script_is_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(f"a\n{name}\n")
    with connect(tmp_path / "home", spark) as home:
        for _ in range(2):
            home.run(f"CREATE TABLE t FROM csv('{tmp_path}/one.csv') REFRESH EVERY RUN", until_idle=True)
        with pytest.raises(SqlError, match="table t already exists"):
            home.run(f"CREATE TABLE t FROM csv('{tmp_path}/two.csv') REFRESH EVERY RUN", until_idle=True)
