"""Tables of databases as streams by a growing key: every row once, whatever the cut."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import SourceError, SqlError
from anabranch.sources import keyed
from anabranch.testing import Harness
from sources.mysql_server import MysqlServer
from sources.postgres_server import PostgresServer

pytestmark = pytest.mark.spark
Server = PostgresServer | MysqlServer


@pytest.fixture(params=["postgres", "mysql"])
def server(request: pytest.FixtureRequest) -> Server:
    found = cast(Server, request.getfixturevalue(request.param))
    zoned = "timestamptz" if request.param == "postgres" else "datetime(6)"
    found.run(
        "DROP TABLE IF EXISTS events",
        f"CREATE TABLE events (id int primary key, k varchar(9), n int, at {zoned}, tie int)",
        "INSERT INTO events VALUES (1, 'a', 1, '2026-01-01 00:00:00', 1), (2, 'b', 2, '2026-01-01 00:01:00', 1),"
        " (3, 'a', 3, '2026-01-01 00:02:00', 2), (4, NULL, 4, '2026-01-01 00:02:00', 2)",
    )
    return found


VIEW = "CREATE VIEW sums AS SELECT k, count(*) AS c, sum(n) AS s FROM e GROUP BY k"


def test_rows_come_once_in_any_cut_and_after_a_restart(server: Server, spark: SparkSession, tmp_path: Path) -> None:
    with Harness(tmp_path / "home", spark, run_rows=1) as home:
        # Rows with the same key are never cut apart, and a key need not be a column of the stream.
        home.sql(f"CREATE STREAM e (K STRING, n BIGINT) FROM {server.source(table='events', key='tie')}; {VIEW}")
        assert home.query("SELECT * FROM sums ORDER BY k") == [(None, 1, 4), ("a", 2, 4), ("b", 1, 2)]
        assert home.query("SELECT count(*) FROM sys.runs WHERE kind = 'run'") == [(2,)]
    server.run("INSERT INTO events VALUES (5, 'b', 10, '2026-01-01 00:03:00', 3), (6, 'c', 1, NULL, NULL)")
    with Harness(tmp_path / "home", spark) as home:
        assert home.query("SELECT * FROM sums ORDER BY k") == [(None, 1, 4), ("a", 2, 4), ("b", 2, 12)]
        assert home.query("SELECT * FROM sums ORDER BY k") == [(None, 1, 4), ("a", 2, 4), ("b", 2, 12)]


def test_windows_over_times_and_large_stretches(server: Server, home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "NEAR_ROWS", 2)
    home.sql(f"CREATE STREAM e FROM {server.source(table='events')} WATERMARK FOR at AS at - INTERVAL 0 SECONDS")
    home.sql(
        "CREATE VIEW w AS SELECT window_start, sum(n) AS s FROM TUMBLE(e, at, INTERVAL 2 MINUTES) GROUP BY window_start"
    )
    assert [row[1] for row in home.query("SELECT * FROM w ORDER BY window_start")] == [3, 7]


def test_a_stream_stays_behind_by_its_lag(server: Server, home: Harness) -> None:
    home.sql(f"CREATE STREAM e FROM {server.source(table='events', key='id', lag='2')}; {VIEW}")
    assert home.query("SELECT sum(c) FROM sums") == [(2,)]
    server.run("INSERT INTO events VALUES (7, 'z', 0, NULL, 9)")
    assert home.query("SELECT sum(c) FROM sums") == [(4,)]
    home.sql(f"CREATE STREAM f FROM {server.source(table='events', key='at', lag='1 minute')}")
    home.sql("CREATE VIEW times AS SELECT count(*) AS c FROM f")
    assert home.query("SELECT c FROM times") == [(4,)]


def test_what_cannot_be_a_key_is_refused(server: Server, home: Harness) -> None:
    server.run("DROP TABLE IF EXISTS bare", "CREATE TABLE bare (a varchar(9))")
    for options, message in (
        ({"table": "bare"}, "has no primary key"),
        ({"table": "bare", "key": "b"}, "has no column b"),
        ({"table": "bare", "key": "a"}, "a is a STRING"),
    ):
        with pytest.raises(SqlError, match=message):
            home.sql(f"CREATE STREAM x FROM {server.source(**options)}")
    home.sql(f"CREATE STREAM x FROM {server.source(table='events', lag='soon')}")
    with pytest.raises(SourceError, match="lag must be a number of keys"):
        home.query("SELECT * FROM x")
