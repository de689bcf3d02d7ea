"""The changes of a Postgres table as a stream for NET: the view is the table, whatever happens to it and to us."""

from __future__ import annotations

import os
import random
import subprocess
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
from sources import postgres_server
from sources.postgres_server import PostgresServer

pytestmark = pytest.mark.spark


def source(server: PostgresServer, **options: Any) -> str:
    return server.source(table="orders", slot="orders_slot", **options).replace("postgres(", "postgres_changes(")


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    def tidy() -> None:
        postgres.run(
            "DROP PUBLICATION IF EXISTS orders_slot",
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active",
            "DROP TABLE IF EXISTS orders",
        )

    tidy()
    postgres.run(
        "CREATE TABLE orders (id int primary key, k text, n numeric(9,2), at timestamptz, code char(4), u uuid)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders VALUES (1, 'a', 1.5, '2026-01-01 02:00+02', 'c', '6f0f2a4e-0000-4000-8000-0123456789ab'),"
        " (2, NULL, NULL, NULL, NULL, NULL), (3, 'b', 7, NULL, 'd', NULL)",
    )
    yield postgres
    tidy()


def check(home: Harness, server: PostgresServer) -> None:
    found = home.query("SELECT id, k, n, at, code, u FROM orders")
    expected = server.rows("SELECT id, k, n, at AT TIME ZONE 'UTC', code::text, u::text FROM orders")
    assert Counter(found) == Counter(expected)


VIEWS = "CREATE VIEW orders AS SELECT * FROM NET(changes, diff)"


def test_the_view_is_the_table(server: PostgresServer, spark: SparkSession, tmp_path: Path) -> None:
    large = "md5(random()::text) || repeat(md5(random()::text), 3000)"
    with Harness(tmp_path / "home", spark) as home, server.connect() as other:
        home.sql(f"CREATE STREAM changes FROM {source(server)}; {VIEWS}")
        # A transaction that is open while the first rows are read comes once, as does one that the slot tells too.
        server.run("CREATE PUBLICATION orders_slot FOR TABLE orders")
        server.run("SELECT pg_create_logical_replication_slot('orders_slot', 'pgoutput')")
        server.run("UPDATE orders SET n = 5 WHERE id = 3")
        other.autocommit = False
        other.execute("INSERT INTO orders (id, k) VALUES (4, 'open')")
        check(home, server)
        other.commit()
        server.run("UPDATE orders SET n = n + 1 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
        server.run(f"INSERT INTO orders (id, k) VALUES (5, {large})", "UPDATE orders SET n = 1 WHERE id = 5")
        check(home, server)
        server.run("BEGIN; DELETE FROM orders; ROLLBACK", "UPDATE orders SET id = id + 100 WHERE id < 3")
        server.run("CREATE TABLE unrelated (a int); INSERT INTO unrelated VALUES (1); DROP TABLE unrelated")
        check(home, server)
    server.run(
        "DELETE FROM orders WHERE k = 'b'", "INSERT INTO orders (id, k) SELECT i, i FROM generate_series(200, 230) i"
    )
    with Harness(tmp_path / "home", spark, run_rows=5) as home:
        home.sql("CREATE VIEW later AS SELECT count(*) AS c FROM NET(changes, diff)")  # rows are kept for it
        check(home, server)
        assert home.query("SELECT c FROM later") == [(len(server.rows("SELECT id FROM orders")),)]
        lag = server.rows("SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots")
        assert lag[0][0] < 4096
        shown = "SELECT lag_bytes FROM sys.progress WHERE kind = 'stream'"
        assert home.query(shown)[0][0] < 4096
        server.run(
            "CREATE TABLE unrelated AS SELECT repeat('x', 90) FROM generate_series(1, 100)", "DROP TABLE unrelated"
        )
        assert home.query(shown)[0][0] > 9000
        server.run("TRUNCATE orders")
        with pytest.raises(SourceError, match="orders was truncated"):
            home.query("SELECT * FROM orders")
        server.run("SELECT pg_drop_replication_slot('orders_slot')")
        with pytest.raises(SourceError, match=r"the slot orders_slot of .* is gone"):
            home.query("SELECT * FROM orders")


def test_a_stream_that_is_dropped_takes_its_slot_along(server: PostgresServer, home: Harness) -> None:
    slots = "SELECT slot_name FROM pg_replication_slots UNION ALL SELECT pubname FROM pg_publication"
    assert server.rows(slots) == []
    home.sql(f"CREATE STREAM changes FROM {source(server)}; {VIEWS}")
    check(home, server)
    assert len(server.rows(slots)) == 2
    home.sql("DROP STREAM changes CASCADE")
    assert server.rows(slots) == []
    # A publication of somebody else's stays; a server that refuses the login is reported, and the stream is gone.
    server.run("CREATE PUBLICATION orders_slot FOR TABLE orders")
    home.sql(f"CREATE STREAM changes FROM {source(server)}; {VIEWS}")
    check(home, server)
    home.sql("DROP STREAM changes CASCADE")
    assert server.rows(slots) == [("orders_slot",)]
    home.sql(f"CREATE STREAM changes FROM {source(server)}; {VIEWS}")
    check(home, server)
    home.reopen()
    os.environ[postgres_server.VARIABLE] = "wrong"
    told = r"stream changes is dropped, but the slot orders_slot could not be dropped.*SELECT pg_drop_replication_slot"
    with pytest.warns(RuntimeWarning, match=told):
        home.sql("DROP STREAM changes CASCADE")
    assert len(server.rows(slots)) == 2 and home.query("SELECT count(*) FROM sys.progress") == [(0,)]


def test_a_run_that_died_before_or_after_its_record_is_taken_once(
    server: PostgresServer, home: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.sources.postgres_changes import PostgresChanges

    home.sql(f"CREATE STREAM changes FROM {source(server)}; {VIEWS}")
    committed = PostgresChanges.committed
    for number in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(PostgresChanges, "committed", lambda *_: (_ for _ in ()).throw(RuntimeError("dead")))
            with pytest.raises(RuntimeError, match="dead"):
                home.query("SELECT * FROM orders")
        assert PostgresChanges.committed is committed
        server.run(f"UPDATE orders SET n = coalesce(n, 0) + {number + 1}", f"INSERT INTO orders VALUES ({number + 50})")
        home.reopen()
    check(home, server)


def test_what_cannot_tell_changes_is_refused(server: PostgresServer, home: Harness) -> None:
    server.run("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    with pytest.raises(SqlError, match="lack the old rows") as caught:
        home.sql(f"CREATE STREAM changes FROM {source(server)}")
    assert "REPLICA IDENTITY FULL" in str(caught.value)
    with pytest.raises(SqlError, match="has a column k itself"):
        home.sql(f"CREATE STREAM changes FROM {source(server, count='k')}")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with spark_host() as environment:
        yield Processes(environment)


LOAD = """
\\set id random(1, 2000)
\\set n random(0, 99)
\\set what random(1, 3)
\\if :what = 1
INSERT INTO orders (id, k, n) VALUES (:id, 'k' || :id % 7, :n) ON CONFLICT (id) DO NOTHING;
\\elif :what = 2
UPDATE orders SET n = :n WHERE id % 50 = :id % 50;
\\else
DELETE FROM orders WHERE id BETWEEN :id AND :id + 3;
\\endif
"""


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_killed_under_load(tmp_path: Path, processes: Processes, server: PostgresServer, seed: int) -> None:
    """pgbench inserts, updates and deletes while we are killed ten times; in the end the view is the table."""
    os.environ[postgres_server.VARIABLE] = postgres_server.PASSWORD
    chance = random.Random(seed)
    (tmp_path / "load.sql").write_text(LOAD)
    load = subprocess.Popen(
        [server.programs / "pgbench", "-n", "-c", "2", "-R", "200", "-T", os.environ.get("ANABRANCH_SECONDS", "120"),
         "-f", tmp_path / "load.sql", "-h", "127.0.0.1", "-p", str(server.port), "-U", postgres_server.USER,
         postgres_server.DATABASE],
        env={**os.environ, "PGPASSWORD": postgres_server.PASSWORD}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    totals = "CREATE VIEW totals AS SELECT k, count(*) AS c, sum(n) AS s FROM NET(changes, diff) GROUP BY k"
    query = "SELECT k, c, CAST(s AS STRING) FROM totals"
    order = {"home": tmp_path / "home", "run": f"CREATE STREAM changes FROM {source(server)}; {totals}"}
    killed = 0
    try:
        for _ in range(int(os.environ.get("ANABRANCH_KILLS", "10"))):
            process = processes.start(order)
            time.sleep(chance.uniform(3, 20))
            process.kill()
            outcome = finish(process)
            assert outcome.killed or outcome.clean, outcome.explain()
            killed += outcome.killed
        told = load.communicate()[0]
    finally:
        load.kill()
    last = processes.run({**order, "after": [query]})
    assert last.clean, last.explain()
    found = Counter(tuple(row) for row in next(line["rows"] for line in last.lines if "after" in line))
    print(f"killed {killed} times\n{told}")
    expected = server.rows("SELECT k, count(*), sum(n)::text FROM orders GROUP BY k")
    assert found == Counter(expected) and killed and int(told.split("actually processed: ")[1].split()[0]) > 1000
