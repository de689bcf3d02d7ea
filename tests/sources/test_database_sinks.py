"""Sinks into real databases: the table is what the view shows, its changes add up to it, whoever dies in between."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.errors import SqlError
from anabranch.sinks import databases
from anabranch.testing import Harness
from crash.crash_help import Processes, finish, spark_host
from sources import mysql_server, postgres_server
from sources.mysql_server import MysqlServer
from sources.postgres_server import PostgresServer

pytestmark = pytest.mark.spark
Server = PostgresServer | MysqlServer
TABLES = ("totals", "plain", "log", "kinds", "positions_of_nobody")


@pytest.fixture(params=["postgres", "mysql"])
def server(request: pytest.FixtureRequest) -> Server:
    found = cast(Server, request.getfixturevalue(request.param))
    found.run(*(f"DROP TABLE IF EXISTS {name}" for name in TABLES))
    return found


def into(server: Server, **options: Any) -> str:
    return server.source(**options)


def added_up(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for *row, diff in rows:
        found[tuple(row)] += diff
    return +found


SCRIPT = """
CREATE STREAM s (k STRING, n INT);
CREATE VIEW totals AS SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k;
CREATE VIEW plain AS SELECT k, n FROM s WHERE n > 0;
"""


def check(home: Harness, server: Server) -> None:
    totals = Counter(home.query("SELECT k, c, n FROM totals"))
    assert Counter(server.rows("SELECT k, c, n FROM totals")) == totals
    assert Counter(server.rows("SELECT k, n FROM plain")) == Counter(home.query("SELECT k, n FROM plain"))
    assert added_up(server.rows("SELECT k, c, n, _diff FROM log")) == totals


def test_the_table_is_the_view_whoever_dies(home: Harness, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    home.sql(SCRIPT)
    home.insert("s", [("a", 1), (None, 2), ("o'hara %s", 1)])
    home.sql(f"CREATE SINK one FROM totals INTO {into(server, table='totals')}")
    home.sql(f"CREATE SINK two FROM plain INTO {into(server, table='plain', mode='table')}")
    home.sql(f"CREATE SINK three FROM totals INTO {into(server, table='log', mode='changes')}")
    check(home, server)
    home.insert("s", [("a", 2), ("a", 2), ("b", 3), (None, -1)])
    check(home, server)
    reached: list[str] = []

    def dies(point: str) -> None:
        reached.append(point)
        if len(reached) in (1, 4, 6):
            raise RuntimeError(f"dead at {point}")

    with monkeypatch.context() as patch, pytest.warns(RuntimeWarning, match="dead at"):
        patch.setattr(databases, "reach", dies)
        home.insert_runs("s", [[("a", 5)], [("b", 0)], [(None, 7)]])
    home.insert("s", [("z", 1)])
    check(home, server)
    versions = server.rows("SELECT DISTINCT _version FROM log")
    told = home.query("SELECT path, error FROM sys.sinks ORDER BY name")
    assert len(versions) == 6 and [error for _, error in told] == [None] * 3
    assert told[0][0] == f"127.0.0.1:{server.port}/shop, table totals"
    server.run("DELETE FROM totals WHERE k = 'z'")
    with pytest.warns(RuntimeWarning, match="another process changed it"):
        home.insert("s", [("z", 1)])


def test_types_and_refusals(home: Harness, server: Server) -> None:
    columns = "a BOOLEAN, b TINYINT, c BIGINT, d DECIMAL(20,4), e DOUBLE, f STRING, g BINARY, h DATE, i TIMESTAMP"
    home.sql(f"CREATE STREAM t ({columns}); CREATE VIEW v AS SELECT * FROM t")
    home.sql("CREATE VIEW w AS SELECT a, array(b) AS b FROM t")
    home.sql(
        "INSERT INTO t VALUES (true, 1Y, 2, 1.5, 0.1D, 'ä\\'\\\\%s', X'00ff', DATE '2026-01-02',"
        " TIMESTAMP '2026-01-02 03:04:05.678901'), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    home.sql(f"CREATE SINK k FROM v INTO {into(server, table='kinds')}")
    home.sql(f"CREATE TABLE back ({columns}) FROM {server.source(table='kinds', lookup='never')}")
    assert Counter(home.query("SELECT * FROM back")) == Counter(home.query("SELECT * FROM v"))
    with pytest.raises(SqlError, match=r"b is ARRAY<TINYINT>, for which \w+ has no type"):
        home.sql(f"CREATE SINK x FROM w INTO {into(server, table='positions_of_nobody')}")
    with pytest.raises(SqlError, match="has a table kinds already"):
        home.sql(f"CREATE SINK x FROM v INTO {into(server, table='kinds')}")
    with pytest.raises(SqlError, match="must not be written down"):
        home.sql(f"CREATE SINK x FROM v INTO {into(server, table='n').replace('env(', '(')}".replace("(('", "('"))


# ---- killed at random


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with spark_host() as environment:
        yield Processes(environment)


KILLS = int(os.environ.get("ANABRANCH_KILLS", "20"))


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_kills_at_random_moments(
    tmp_path: Path, processes: Processes, postgres: PostgresServer, mysql: MysqlServer, seed: int
) -> None:
    """From a table of Postgres by its key, through a view, into Postgres and MariaDB: nothing lost, nothing doubled.

    We are killed, and so is one of the servers each time, while we write to it or a moment before or after.
    """
    os.environ[postgres_server.VARIABLE], os.environ[mysql_server.VARIABLE] = (
        postgres_server.PASSWORD, mysql_server.PASSWORD,
    )  # fmt: skip
    chance = random.Random(seed)
    servers: list[Server] = [postgres, mysql]
    for server in servers:
        server.run(*(f"DROP TABLE IF EXISTS {name}" for name in (*TABLES, "orders", "anabranch_sinks")))
    postgres.run("CREATE TABLE orders (id serial primary key, k text, n int)")

    def more(count: int) -> None:
        with postgres.connect() as database:
            rows = [(chance.choice(["a", "b", "c", None]), chance.randrange(100)) for _ in range(count)]
            database.cursor().executemany("INSERT INTO orders (k, n) VALUES (%s, %s)", rows)

    more(20)
    script = (
        f"CREATE STREAM o FROM {postgres.source(table='orders')};"
        " CREATE VIEW totals AS SELECT k, count(*) AS c, sum(n) AS n FROM o GROUP BY k;"
        " CREATE VIEW plain AS SELECT k, n FROM o WHERE n % 2 = 1;"
        f" CREATE SINK one FROM totals INTO {postgres.source(table='totals')};"
        f" CREATE SINK two FROM totals INTO {mysql.source(table='totals')};"
        f" CREATE SINK three FROM totals INTO {postgres.source(table='log', mode='changes')};"
        f" CREATE SINK four FROM plain INTO {mysql.source(table='plain')}"
    )
    order = {"home": tmp_path / "home", "run": script, "run_rows": 40}
    first = processes.run(order)
    assert first.clean, first.explain()
    more(60)
    process = processes.start(order)
    assert process.stdout is not None and process.stdout.readline()
    begun = time.monotonic()
    second = finish(process)
    assert second.clean, second.explain()
    # As long as a run takes here: a moment after its end kills nobody, and a server that is gone ends it sooner.
    longest, killed, rounds = time.monotonic() - begun, 0, 0
    while killed < KILLS:
        rounds += 1
        assert rounds <= 5 * KILLS, f"killed only {killed} times"
        more(chance.randrange(20, 120))
        process = processes.start(order)
        assert process.stdout is not None and process.stdout.readline()  # it has opened its home
        deaths = [process.kill, chance.choice(servers).die]
        moments = [(chance.uniform(0.0, longest), death) for death in deaths]
        begun = time.monotonic()
        for moment, kill in sorted(moments, key=lambda each: each[0]):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0, begun + moment - time.monotonic()))
            kill()
        outcome = finish(process)  # it may have ended before, with an error of the server that was not there
        killed += outcome.killed
    print(f"killed {killed} times in {rounds} rounds of up to {longest:.1f} s")
    more(5)
    last = processes.run(order)
    assert last.clean, last.explain()
    truth = Counter(postgres.rows("SELECT k, count(*), sum(n) FROM orders GROUP BY k"))
    for server in (postgres, mysql):
        assert Counter(server.rows("SELECT k, c, n FROM totals")) == truth
    assert added_up(postgres.rows("SELECT k, c, n, _diff FROM log")) == truth
    odd = Counter(postgres.rows("SELECT k, n FROM orders WHERE n % 2 = 1"))
    assert Counter(mysql.rows("SELECT k, n FROM plain")) == odd
