"""Tables of small kinds in SQL: named in a query, loaded by CREATE TABLE, and looked up by key for a view."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import xlsxwriter
from pyspark.sql import SparkSession

from anabranch.errors import SqlError
from anabranch.testing import Harness
from sources.redis_server import PASSWORD, free_port, running

pytestmark = pytest.mark.spark


@pytest.fixture
def home(spark: SparkSession) -> Iterator[Harness]:
    with Harness(spark=spark) as harness:
        yield harness


def _users(path: Path, *names: str) -> None:
    with xlsxwriter.Workbook(path) as book:
        sheet = book.add_worksheet("u")
        for at, row in enumerate([("id", "name"), *enumerate(names, start=1)]):
            sheet.write_row(at, 0, row)


def test_kinds_are_joined_in_one_query_loaded_and_looked_up(
    home: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", PASSWORD)
    port = free_port()
    with running(tmp_path, port) as client:
        client.hset("pet:1", mapping={"pet": "cat"})
        _join(home, tmp_path, f"redis(port => {port}, keys => 'pet:*', password => env('REDIS_PASSWORD'))")
    for path in home.session.home.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes()


def _join(home: Harness, tmp_path: Path, pets: str) -> None:
    users, cities = tmp_path / "users.xlsx", tmp_path / "crm.duckdb"
    _users(users, "ann", "bob")
    with duckdb.connect(str(cities)) as database:
        database.execute("CREATE TABLE cities AS SELECT 1 AS id, 'Rome' AS city")
    (tmp_path / "sales.csv").write_text("id,n\n1,10\n1,5\n3,7\n")
    city = f"duckdb(path => '{cities}', table => 'cities')"
    joined = f"FROM '{users}' u RIGHT JOIN '{tmp_path}/sales.csv' s ON s.id = u.id LEFT JOIN {city} c ON c.id = s.id"
    joined += f" LEFT JOIN {pets} p ON p.key = concat('pet:', s.id)"
    answer = home.query(f"SELECT name, city, pet, sum(n) AS n {joined} GROUP BY ALL")
    assert sorted(answer, key=str) == [("ann", "Rome", "cat", 15), (None, None, None, 7)]
    assert home.query(f"SELECT name FROM excel('{users}', sheet => 'u', range => 'A1:B2')") == [("ann",)]

    home.sql(f"CREATE TABLE users FROM '{users}'; CREATE TABLE cities FROM {city[:-1]}, lookup => 'always')")
    home.sql(f"CREATE TABLE pets (key STRING, pet STRING) FROM {pets[:-1]}, lookup => 'always')")
    home.sql("CREATE STREAM s (id INT, n INT)")
    home.sql(
        "CREATE VIEW v AS SELECT u.name, c.city, p.pet, s.n FROM s JOIN users u ON u.id = s.id"
        " LEFT JOIN cities c ON c.id = s.id LEFT JOIN pets p ON p.key = concat('pet:', s.id)"
    )
    home.insert("s", [(1, 10), (3, 1), (2, 4)])
    assert sorted(home.query("SELECT * FROM v")) == [("ann", "Rome", "cat", 10), ("bob", None, None, 4)]
    _users(users, "carol")
    home.sql("REFRESH TABLE users")
    assert home.query("SELECT * FROM users") == [(1, "carol")]
    for text, message in (
        (f"CREATE STREAM x FROM '{users}'", "no source"),
        (f"SELECT * FROM excel('{users}', sheet => 'v')", "has no sheet v"),
    ):
        with pytest.raises(SqlError, match=message):
            home.sql(text)
