"""The changes of a MariaDB table as a stream for NET: the view is the table, whatever happens to it and to us."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import SourceError, SqlError
from anabranch.testing import Harness
from crash.crash_help import Processes, finish, spark_host
from sources import mysql_server
from sources.mysql_server import MysqlServer

pytestmark = pytest.mark.spark

COLUMNS = (
    "id int unsigned primary key, a varchar(20) character set latin1, c char(5), b binary(4), vb varbinary(300),"
    " f float, d double, n decimal(12,3), dt datetime(3), ts timestamp(6) null, dd date, y year, bi bit(12),"
    " e enum('x', 'ü'), tx text, bg bigint unsigned, bl blob"
)
ROW = (
    "({id}, 'é€', 'ab ', x'0100', x'0200', 0.1234567891, 1e0 / 3, -12.5, '2026-01-02 03:04:05.678',"
    " '2026-01-02 03:04:05.123456', '2026-02-03', 2026, b'101', 'ü', 'text ü', 18446744073709551615, x'ff00')"
)
VIEWS = "CREATE VIEW orders AS SELECT * FROM NET(changes, diff)"


def source(server: MysqlServer, **options: Any) -> str:
    return server.source(**{"table": "orders", **options}).replace("mysql(", "mysql_changes(")


@pytest.fixture
def server(mysql: MysqlServer) -> Iterator[MysqlServer]:
    mysql.run("DROP TABLE IF EXISTS orders", f"CREATE TABLE orders ({COLUMNS})")
    mysql.run(f"INSERT INTO orders VALUES {ROW.format(id=1)}, {ROW.format(id=2)}", "INSERT INTO orders (id) VALUES (3)")
    yield mysql
    mysql.run("DROP TABLE IF EXISTS orders")


def check(home: Harness, server: MysqlServer) -> None:
    """Compared as texts of the server where Python and Spark show a value in different ways."""
    found = home.query(
        "SELECT id, a, c, hex(b), hex(vb), f, d, n, CAST(dt AS STRING), CAST(ts AS STRING), CAST(dd AS STRING), y,"
        " hex(bi), e, tx, CAST(bg AS STRING), hex(bl) FROM orders"
    )
    expected = server.rows(
        "SELECT id, a, c, hex(b), hex(vb), f * 1e0, d, n, trim(TRAILING '0' FROM dt), CAST(ts AS CHAR),"
        " CAST(dd AS CHAR), y, lpad(hex(bi), 4, '0'), e, tx, CAST(bg AS CHAR), hex(bl) FROM orders"
    )
    assert Counter(map(str, found)) == Counter(map(str, expected))


@pytest.mark.parametrize("locking", [False, True])
def test_the_view_is_the_table(
    server: MysqlServer, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locking: bool
) -> None:
    from anabranch.sources import mysql_changes

    if locking:  # as where the server does not tell the position of a snapshot
        monkeypatch.setattr(mysql_changes, "_SNAPSHOT", "none")
    with Harness(tmp_path / "home", spark) as home, server.connect() as other, other.cursor() as cursor:
        home.sql(f"CREATE STREAM changes FROM {source(server)}; {VIEWS}")
        if not locking:  # a transaction that is open while the first rows are read comes once
            other.autocommit(False)
            cursor.execute("INSERT INTO orders (id, a) VALUES (4, 'open')")
        check(home, server)
        other.commit()
        server.run("UPDATE orders SET n = n + 1, f = f * 3 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
        server.run("FLUSH LOGS", f"REPLACE INTO orders VALUES {ROW.format(id=3)}", "ALTER TABLE orders ADD more int")
        check(home, server)
        server.run("START TRANSACTION", "DELETE FROM orders", "ROLLBACK", "UPDATE orders SET id = id + 100, more = 1")
        server.run("CREATE TABLE unrelated (a int)", "XA START 'x'", "INSERT INTO unrelated VALUES (1)", "XA END 'x'",
                   "XA PREPARE 'x'", "XA COMMIT 'x'", "DROP TABLE unrelated")  # fmt: skip
        check(home, server)
    server.run("DELETE FROM orders WHERE id = 101", "INSERT INTO orders (id) SELECT seq FROM seq_200_to_230")
    with Harness(tmp_path / "home", spark, run_rows=5) as home:
        home.sql("CREATE VIEW later AS SELECT count(*) AS c FROM NET(changes, diff)")  # rows are kept for it
        check(home, server)
        assert home.query("SELECT c FROM later") == server.rows("SELECT count(*) FROM orders")
        lag = "SELECT lag_bytes FROM sys.progress WHERE kind = 'stream'"
        assert home.query(lag) == [(0,)]
        server.run("CREATE TABLE unrelated AS SELECT repeat('x', 90) FROM seq_1_to_100", "DROP TABLE unrelated")
        assert home.query(lag)[0][0] > 9000
        check(home, server)
        server.run("TRUNCATE orders")
        with pytest.raises(SourceError, match="orders was truncated"):
            home.query("SELECT * FROM orders")
        server.run("RESET MASTER")
        with pytest.raises(SourceError, match=r"the position changes\.\d+:\d+ of the log of .* is gone"):
            home.query("SELECT * FROM orders")


def test_a_log_that_was_made_anew_is_not_taken_for_the_old_one(server: MysqlServer, home: Harness) -> None:
    server.run("RESET MASTER")
    time.sleep(1.1)  # the server tells the seconds in which it began a file
    home.sql(f"CREATE STREAM changes FROM {source(server)}; {VIEWS}")
    check(home, server)
    server.run("RESET MASTER", *[f"INSERT INTO orders (id, tx) VALUES ({id}, repeat('x', 900))" for id in range(9, 14)])
    with pytest.raises(SourceError, match=r"the position changes\.000001:\d+ .* is gone: the file was started again"):
        home.query("SELECT * FROM orders")


def test_a_run_that_died_before_or_after_its_record_is_taken_once(
    server: MysqlServer, home: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.sources.changes import TableChanges

    home.sql(f"CREATE STREAM changes FROM {source(server)}; {VIEWS}")
    for number in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(TableChanges, "committed", lambda *_: (_ for _ in ()).throw(RuntimeError("dead")))
            with pytest.raises(RuntimeError, match="dead"):
                home.query("SELECT * FROM orders")
        server.run(f"UPDATE orders SET n = coalesce(n, 0) + {number + 1}")
        server.run(f"INSERT INTO orders (id) VALUES ({number + 50})")
        home.reopen()
    check(home, server)


def test_what_cannot_tell_changes_is_refused(server: MysqlServer, home: Harness) -> None:
    def refused(told: str, **options: Any) -> None:
        with pytest.raises(SqlError, match=told):
            home.sql(f"CREATE STREAM changes FROM {source(server, **options)}")

    refused("has a column c itself", count="c")
    home.sql(f"CREATE STREAM changes (id STRING, diff INT) FROM {source(server)}; {VIEWS}")
    with pytest.raises(SourceError, match="id is a BIGINT, not a STRING"):
        home.query("SELECT * FROM orders")
    home.sql("DROP STREAM changes CASCADE")
    try:
        server.run("SET GLOBAL binlog_row_image = MINIMAL")
        refused("its binlog_row_image is MINIMAL")
    finally:
        server.run("SET GLOBAL binlog_row_image = FULL")
    try:
        server.run("CREATE TABLE others (id int, at time, v int AS (id + 1) VIRTUAL, k int unsigned) ENGINE = Aria")
        refused("others has no transactions", table="others")
        server.run("ALTER TABLE others ENGINE = InnoDB, ADD FOREIGN KEY (k) REFERENCES orders (id) ON DELETE CASCADE")
        refused("foreign key others_ibfk_1", table="others")
        server.run("ALTER TABLE others DROP FOREIGN KEY others_ibfk_1")
        refused("at is a time", table="others")
        home.sql(f"CREATE STREAM changes (id INT, diff INT) FROM {source(server, table='others')}; {VIEWS}")
        server.run("INSERT INTO others (id, at) VALUES (1, '-01:02:03')")
        assert home.query("SELECT id FROM orders") == [(1,)]
        server.run("UPDATE others SET id = 2, at = NULL")
        assert home.query("SELECT id FROM orders") == [(2,)]
        server.run("ALTER TABLE others ADD PRIMARY KEY (id)")
        with server.connect() as other, other.cursor() as cursor:
            cursor.execute("SET SESSION binlog_row_image = MINIMAL")
            cursor.execute("UPDATE others SET k = NULL, at = '01:00:00'")
        with pytest.raises(SourceError, match=r"a change of others cannot be read: a value of id is cols bitmap"):
            home.query("SELECT id FROM orders")
    finally:
        server.run("DROP TABLE IF EXISTS others")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with spark_host() as environment:
        yield Processes(environment)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_killed_under_load(tmp_path: Path, processes: Processes, server: MysqlServer, seed: int) -> None:
    """Rows come, change and go while we are killed ten times, and the server twice; the view is the table."""
    import pymysql

    os.environ[mysql_server.VARIABLE] = mysql_server.PASSWORD
    chance = random.Random(seed)
    server.run("DROP TABLE orders", "CREATE TABLE orders (id int primary key, k varchar(9), n decimal(9,2))")
    over, done = threading.Event(), [0]

    def load(number: int) -> None:
        own, connection = random.Random(f"{seed} {number}"), server.connect()
        while not over.is_set():
            id, n = own.randrange(2000), own.randrange(100)
            statement = own.choice(
                [
                    f"INSERT IGNORE INTO orders VALUES ({id}, 'k{id % 7}', {n})",
                    f"UPDATE orders SET n = {n} WHERE id % 50 = {id % 50}",
                    f"DELETE FROM orders WHERE id BETWEEN {id} AND {id + 3}",
                ]
            )
            try:
                connection.query(statement)
                done[0] += 1
            except pymysql.Error:  # the server died, or two statements waited for each other
                with contextlib.suppress(pymysql.Error):
                    connection = server.connect()
            time.sleep(0.02)
        connection.close()

    threads = [threading.Thread(target=load, args=(number,)) for number in (1, 2)]
    totals = "CREATE VIEW totals AS SELECT k, count(*) AS c, sum(n) AS s FROM NET(changes, diff) GROUP BY k"
    query = "SELECT k, c, CAST(s AS STRING) FROM totals"
    order = {"home": tmp_path / "home", "run": f"CREATE STREAM changes FROM {source(server)}; {totals}"}
    killed = 0
    for thread in threads:
        thread.start()
    try:
        for number in range(int(os.environ.get("ANABRANCH_KILLS", "10"))):
            process = processes.start(order)
            time.sleep(chance.uniform(3, 12))
            if number % 5 == 4:
                server.die()
                time.sleep(chance.uniform(0, 3))
            process.kill()
            outcome = finish(process)
            assert outcome.killed or outcome.clean or "Unreachable" in outcome.explain(), outcome.explain()
            killed += outcome.killed
    finally:
        over.set()
        for thread in threads:
            thread.join()
    last = processes.run({**order, "after": [query]})
    assert last.clean, last.explain()
    found = Counter(tuple(row) for row in next(line["rows"] for line in last.lines if "after" in line))
    print(f"killed {killed} times, {done[0]} statements")
    expected = server.rows("SELECT k, count(*), CAST(sum(n) AS CHAR) FROM orders GROUP BY k")
    assert found == Counter(expected) and killed and done[0] > 500
