"""CREATE, OR REPLACE, IF NOT EXISTS, DROP, START AT; scripts run twice; sessions of one's own and for reading only."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch
from anabranch.errors import AnabranchError, HomeInUse, NotSupported, SqlError, UnknownName
from anabranch.sql.lexer import Token, tokenize
from anabranch.testing import Harness, assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STREAM = "CREATE STREAM s (k STRING, n INT)"
SUMS = "SELECT k, sum(n) AS n FROM s GROUP BY k"


def test_or_replace_takes_the_place_of_the_old_one(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}")
    home.insert("s", [("a", 1), ("a", 2)])
    home.sql("CREATE OR REPLACE VIEW v AS SELECT k, max(n) AS m, count(*) AS c FROM s GROUP BY k")
    home.insert("s", [("a", 1)])
    assert home.table("v") == [("a", 2, 3)]
    home.sql("CREATE VIEW w AS SELECT max(c) AS c FROM v")
    with pytest.raises(SqlError, match="it is read by w"):
        home.sql(f"CREATE OR REPLACE VIEW v AS {SUMS}")
    home.sql("CREATE OR REPLACE TABLE t (a INT); INSERT INTO t VALUES (1); CREATE OR REPLACE TABLE t (b STRING)")
    assert home.table("t") == []


def test_another_kind_of_object_is_neither_replaced_nor_taken_for_the_one_that_is_made(home: Harness) -> None:
    """The rows of a stream would be gone with it."""
    home.sql(f"{STREAM}; CREATE TABLE t (a INT); CREATE VIEW w AS SELECT 1 AS a")
    home.insert("s", [("a", 1)])
    for words in ("OR REPLACE VIEW s", "OR REPLACE TABLE s", "VIEW IF NOT EXISTS s", "TABLE IF NOT EXISTS s"):
        with pytest.raises(SqlError, match=r"(?s)stream s already exists.*DROP STREAM s first, or take another name"):
            home.sql(f"CREATE {words} AS SELECT 1 AS a")
    for words in ("OR REPLACE STREAM", "STREAM IF NOT EXISTS"):
        for name, kind in (("t", "table"), ("w", "view")):
            with pytest.raises(SqlError, match=f"{kind} {name} already exists"):
                home.sql(f"CREATE {words} {name} (a INT)")
    assert home.table("s") == [("a", 1)]


def test_a_name_of_another_kind_says_what_to_do(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}")
    for statement, hint in (
        ("DROP VIEW s", "DROP STREAM s"),
        ("SUBSCRIBE TO s", r"SELECT \* FROM s EMIT CHANGES follows it"),
        ("INSERT INTO v VALUES ('a', 1)", "insert into what it reads: s"),
        ("SELECT * FROM s AS OF VERSION 99", "sys.runs lists the versions"),
    ):
        with pytest.raises(AnabranchError, match=rf"(?s)\n.*{hint}$"):
            home.query(statement)


def test_if_not_exists_leaves_what_is_there(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}")
    home.insert("s", [("a", 1)])
    home.sql("CREATE STREAM IF NOT EXISTS s (x INT); CREATE VIEW IF NOT EXISTS v AS SELECT count(*) AS c FROM s")
    assert home.table("v") == [("a", 1)]
    for statement in (STREAM, f"CREATE VIEW V AS {SUMS}", "CREATE TABLE v (a INT)"):
        with pytest.raises(SqlError, match="already"):
            home.sql(statement)


def test_drop_minds_what_depends_on_it(home: Harness) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}; CREATE VIEW w AS SELECT max(n) AS n FROM v")
    with pytest.raises(SqlError, match="v is read by w"):
        home.sql("DROP VIEW v")
    with pytest.raises(SqlError, match="s is read by v"):
        home.sql("DROP STREAM s")
    with pytest.raises(SqlError, match="s is a stream, not a view"):
        home.sql("DROP VIEW s")
    with pytest.raises(UnknownName, match="there is no view x"):
        home.sql("DROP VIEW x")
    home.sql("DROP VIEW IF EXISTS x")
    home.sql("DROP STREAM s CASCADE")
    assert home.query("SHOW ALL") == []
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}")
    home.insert("s", [("a", 5)])
    assert home.table("v") == [("a", 5)]  # nothing of the old stream is in the new one


def test_start_at_now_sees_later_rows_only(home: Harness) -> None:
    home.sql(STREAM)
    home.insert("s", [("a", 1), ("b", 1)])
    home.sql(f"CREATE VIEW early AS {SUMS}; CREATE VIEW late AS {SUMS} START AT NOW")
    home.sql("CREATE VIEW late_rows AS SELECT k, n FROM s START AT NOW")
    assert home.table("late") == []
    home.insert("s", [("a", 10)])
    assert home.table("early") == [("a", 11), ("b", 1)]
    assert home.table("late") == [("a", 10)]
    assert home.table("late_rows") == [("a", 10)]


STARTS = {
    "plain": "SELECT id FROM a",
    "joined": "SELECT a.id, b.id AS j FROM a JOIN b ON a.k = b.k",
    "banded": "SELECT a.id, b.id AS j FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE",
    "outer_band": "SELECT a.id, b.id AS j FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts"
    " AND a.ts + INTERVAL 1 MINUTE",
    "outer": "SELECT a.id, b.id AS j FROM a FULL JOIN b ON a.k = b.k",
    "pairs_summed": "SELECT a.k AS id, count(*) AS j FROM a JOIN b ON a.k = b.k GROUP BY a.k",
    "ranked": "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS j FROM a",
    "kinds": "SELECT DISTINCT k AS id, max(id) OVER (PARTITION BY k) AS j FROM a",
    "summed": "SELECT k AS id, sum(id) AS j FROM a GROUP BY k",
}


@pytest.mark.parametrize("start", ["NOW", "VERSION"])
def test_every_view_starts_where_it_is_told(home: Harness, start: str) -> None:
    """Whether rows are in partials, in tables of their own or in those of streams: what came before is not seen."""
    for name in ("a", "b"):
        home.sql(f"CREATE STREAM {name} (id INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 MINUTE)")

    def rows(first: int) -> list[tuple[int, int, datetime]]:
        return [(first + i, i % 2, datetime(2026, 1, 1, 0, 0, first + i)) for i in range(3)]

    seen: dict[str, list[tuple[int, int, datetime]]] = {"a": [], "b": []}
    for name, first in (("a", 0), ("b", 10)):
        home.insert(name, rows(first))
    clause = f"START AT {start}"
    if start == "VERSION":
        clause += f" {home.session.version}"
        seen["a"] += rows(20)
        home.insert("a", rows(20))
    starts = {name: query for name, query in STARTS.items() if start == "NOW" or name in ("plain", "outer", "summed")}
    for name, query in starts.items():
        home.sql(f"CREATE VIEW {name} AS {query} {clause}; CREATE VIEW {name}_kept AS {query} EMIT CHANGES {clause}")
    for first in (30, 40):
        for name in ("a", "b"):
            seen[name] += rows(first + (name == "b"))
            home.insert(name, rows(first + (name == "b")))
        if first == 30:
            home.compact()
    for name, query in starts.items():
        wanted = home.batch(query, **seen)
        assert_same_rows(home.table(name), wanted, name)
        assert_same_rows(home.emitted(f"{name}_kept"), wanted, f"{name}, kept")
    list(home.session.subscribe("summed"))
    list(home.session.subscribe("plain"))
    home.insert("a", rows(50))
    seen["a"] += rows(50)
    for name in ("summed", "plain"):
        assert_same_rows(home.emitted(name), home.batch(STARTS[name], **seen), f"{name}, kept from now on")


def test_what_has_no_start_of_its_own(home: Harness) -> None:
    home.sql(f"{STREAM} KEEP NOTHING; CREATE VIEW v AS {SUMS} EMIT CHANGES")
    with pytest.raises(NotSupported, match="this is a view, which is read as a whole"):
        home.sql("CREATE VIEW w AS SELECT max(n) AS n FROM v EMIT CHANGES START AT NOW")
    version = home.session.version
    home.insert("s", [("a", 1)])
    with pytest.raises(NotSupported, match="START AT VERSION"):
        home.sql(f"CREATE VIEW w AS SELECT k, max(n) AS n FROM s GROUP BY k START AT VERSION {version}")


def test_wrong_queries_start_nothing(home: Harness) -> None:
    home.sql(STREAM)
    version = home.session.version
    for query, words in [
        ("SELECT m FROM s", "there is no column m"),
        ("SELECT k FROM t", "there is no stream, view or table t"),
        ("SELECT summ(n) AS n FROM s", "there is no function summ"),
        ("SELECT k, rand() AS r FROM s", "another value each time"),
        ("SELECT k, current_user() AS r FROM s", "names the current user"),
        (f"{SUMS} EMIT ON WINDOW CLOSE", "window"),
        ("SELECT k, n AS k FROM s", "two columns"),
    ]:
        with pytest.raises(SqlError) as caught:
            home.sql(f"CREATE VIEW v AS {query}")
        assert words in str(caught.value)
        assert "^" in str(caught.value), query
    assert home.session.version == version


def test_a_script_that_is_run_twice_inserts_once(home: Harness) -> None:
    script = f"{STREAM}; CREATE VIEW v AS {SUMS}; INSERT INTO s VALUES ('a', 1); INSERT INTO s VALUES ('a', 1)"
    home.session.run(script, until_idle=True)
    assert home.table("v") == [("a", 2)]
    home.session.run(script, until_idle=True)
    home.reopen()
    home.session.run(script.replace("; ", " ;\n\n"), until_idle=True)
    assert home.table("v") == [("a", 2)]
    home.session.run(f"{script}; INSERT INTO s VALUES ('a', 5)", until_idle=True)
    assert home.table("v") == [("a", 7)]
    with pytest.raises(SqlError, match="already"):
        home.session.run("CREATE STREAM s (k STRING)", until_idle=True)


def test_a_script_is_carried_out_by_one_rule_whatever_carries_it_out(home: Harness, tmp_path: Path) -> None:
    """Made, inserted and copied once; every SELECT is answered; other words for a view are told how to become it."""
    (tmp_path / "more.csv").write_text("k,n\na,4\n")
    made = f"{STREAM}; CREATE VIEW v AS {SUMS}; INSERT INTO s VALUES ('a', 1); COPY s FROM '{tmp_path}/more.csv'"
    script = f"{made}; SELECT n FROM v; INSERT INTO s VALUES ('a', 1); SELECT n FROM v"
    for _ in range(2):
        results = list(home.session.execute(script, script=True))
        answers = [result.toArrow().column("n").to_pylist() for result in results if result.kind == "rows"]
        assert answers[-1] == [6]
        home.reopen()
    assert answers == [[6], [6]]
    home.session.run(made, until_idle=True)
    assert home.table("v") == [("a", 6)]
    other = "SELECT k, sum(n) AS n FROM s WHERE n > 1 GROUP BY k"
    for carry_out in (lambda text: list(home.session.execute(text, script=True)), home.session.run):
        with pytest.raises(SqlError, match="ALTER VIEW v AS SELECT k, sum"):
            carry_out(f"{STREAM}; CREATE VIEW v AS {other}")
    home.session.sql("INSERT INTO s VALUES ('a', 1)")  # no script: done as often as it is said
    assert home.table("v") == [("a", 7)]


def test_a_session_of_ones_own_is_left_as_it_is(tmp_path: Path, spark: SparkSession) -> None:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    own.sql("SELECT 42 AS answer").createOrReplaceTempView("mine")
    with anabranch.connect(tmp_path / "home", spark=own) as session:
        session.sql("CREATE STREAM s (ts TIMESTAMP); INSERT INTO s VALUES (TIMESTAMP '2026-01-01 00:00:00')")
        assert session.sql("SELECT hour(ts) AS h FROM s").toArrow().to_pylist() == [{"h": 0}]
        frame = session.sql("SELECT * FROM s").df
        assert frame.count() == 1
    assert own.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert [row.tableName for row in own.sql("SHOW TABLES").collect()] == ["mine"]
    assert own.sql("SELECT * FROM mine").collect()[0][0] == 42  # Spark goes on after the home is closed


def test_one_writes_and_others_read(home: Harness, spark: SparkSession) -> None:
    home.sql(f"{STREAM}; CREATE VIEW v AS {SUMS}")
    home.insert("s", [("a", 1)])
    with pytest.raises(HomeInUse):
        anabranch.connect(home.path, spark=spark)
    with anabranch.connect(home.path, spark=spark, read_only=True) as reader:
        assert reader.sql("SELECT * FROM v").toArrow().to_pylist() == [{"k": "a", "n": 1}]
        home.insert("s", [("a", 10)])
        assert reader.sql("SELECT * FROM v").toArrow().to_pylist() == [{"k": "a", "n": 11}]
        for statement in ("INSERT INTO s VALUES ('b', 1)", "DROP VIEW v", "CREATE TABLE t (a INT)"):
            with pytest.raises(AnabranchError, match="read-only"):
                reader.sql(statement)
        with pytest.raises(AnabranchError, match="read-only"):
            reader.compact()
    assert home.table("v") == [("a", 11)]


def test_a_live_query_gives_the_changes_of_each_run(tmp_path: Path, spark: SparkSession) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(f"a,{number}\n")
    with anabranch.connect(tmp_path / "home", spark=spark, run_rows=1) as session:
        session.sql(f"CREATE STREAM s (k STRING, n INT) FROM files(path => '{tmp_path}/*.csv')")
        (result,) = session.execute(SUMS, live=True)
        changes = [tuple(row.values()) for batch in result for row in batch.changes.to_pylist()]
        assert changes == [("a", 0, 1), ("a", 0, -1), ("a", 1, 1), ("a", 1, -1), ("a", 3, 1)]
        assert session.sql("SHOW VIEWS").toArrow().num_rows == 0


def test_start_at_version_sees_the_runs_after_it(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "0.csv").write_text("a,1\n")
    with anabranch.connect(tmp_path / "home", spark=spark) as session:
        session.sql(f"CREATE STREAM s (k STRING, n INT) FROM files(path => '{tmp_path}/*.csv')")
        assert session.sql("SELECT count(*) AS c FROM s").toArrow().to_pylist() == [{"c": 1}]
        version = session.version
        (tmp_path / "1.csv").write_text("a,10\n")
        assert session.sql("SELECT count(*) AS c FROM s").toArrow().to_pylist() == [{"c": 2}]
        session.sql(f"CREATE VIEW v AS {SUMS} START AT VERSION {version}")
        (total,) = session.sql("SELECT * FROM v").toArrow().to_pylist()
        assert list(total.values()) == ["a", 10]


def test_a_column_that_is_not_grouped_by_is_pointed_at(home: Harness) -> None:
    home.sql(STREAM)
    with pytest.raises(SqlError, match="n is neither grouped by nor aggregated") as problem:
        home.sql("CREATE VIEW v AS SELECT k, n, count(*) AS c FROM s GROUP BY k")
    assert "any_value(n)" in (problem.value.hint or "") and "Relation" not in str(problem.value)
    assert problem.value.start == "CREATE VIEW v AS SELECT k, n".index("n", 20)


def test_a_view_that_fails_a_run_is_named(home: Harness) -> None:
    """Whoever sends rows did not write the view that cannot take them."""
    numbers = "CREATE VIEW numbers AS SELECT CAST(max(k) AS INT) AS k FROM (SELECT DISTINCT k FROM s) EMIT CHANGES"
    home.sql(f"{STREAM} ON ERROR FAIL; {numbers}")
    with pytest.raises(AnabranchError, match=r"view numbers: .* cannot be cast") as problem:
        home.insert("s", [("a", 1)])
    assert "DROP VIEW numbers" in (problem.value.hint or "")
    assert home.table("s") == []


def test_times_are_in_one_zone(home: Harness, tmp_path: Path) -> None:
    """What a view has made of times stays, so no session can have them mean something else."""
    with pytest.raises(AnabranchError, match="times are in UTC"):
        home.sql("SET spark.sql.session.timeZone = 'America/New_York'")
    with (
        pytest.raises(AnabranchError, match="times are in UTC"),
        anabranch.connect(tmp_path / "other", conf={"spark.sql.session.timeZone": "Asia/Tokyo"}) as session,
    ):
        session.sql("SELECT hour(TIMESTAMP '2026-01-01 00:00:00') AS h").toArrow()
    home.sql("SET spark.sql.session.timeZone = 'UTC'")


def test_a_view_whose_query_was_written_out_is_the_same_view(home: Harness) -> None:
    home.sql("CREATE STREAM c (k STRING, n INT)")
    rows = "SELECT * EXCEPT (`n`), sum(n) AS __net FROM c GROUP BY ALL"
    copies = "LATERAL VIEW explode(sequence(1, __net)) __copies AS __copy WHERE __net > 0"
    home.sql(f"CREATE VIEW v AS SELECT k FROM (SELECT * EXCEPT (__net, __copy) FROM ({rows}) {copies}) AS `c`")
    list(home.session.execute("CREATE VIEW v AS SELECT k FROM NET(c, n)", script=True))
    with pytest.raises(SqlError, match="its query differs"):
        list(home.session.execute("CREATE VIEW v AS SELECT k FROM NET(c, n) WHERE k > 1", script=True))


def test_a_statement_is_tokenized_once(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    home.sql("CREATE STREAM a (k STRING, v INT); CREATE STREAM b (k STRING, v INT)")
    read: list[str] = []

    def counted(text: str) -> list[Token]:
        read.append(text)
        return tokenize(text)

    for name, module in list(sys.modules.items()):
        if name.startswith("anabranch.") and getattr(module, "tokenize", None) is tokenize:
            monkeypatch.setattr(module, "tokenize", counted)
    view = "CREATE VIEW w AS SELECT k, v FROM a WHERE k IN (SELECT k FROM b WHERE v > 1) EMIT CHANGES"
    home.sql(view)
    assert [text for text in read if " IN (SELECT" in text] == [view]
