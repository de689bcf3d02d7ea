"""ON SCHEMA CHANGE and ON GAP: what a stream does when the columns of its source change, or its position is gone."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyarrow import orc

from anabranch.errors import SourceError, SqlError
from anabranch.sql.checking import check_script
from anabranch.testing import Harness
from sources.mysql_server import MysqlServer
from sources.postgres_server import PostgresServer

SERVERS = ["postgres", "mysql"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE STREAM s (a INT) FROM rate() ON GAP SKIP", "ON GAP SKIP does not apply to rate"),
        ("CREATE STREAM s (a INT) FROM 'a.csv' ON GAP SKIP", "ON GAP SKIP does not apply to files"),
        ("CREATE STREAM s FROM rate() ON SCHEMA CHANGE ADD", "ADD does not apply to rate"),
        ("CREATE STREAM s FROM 'a.csv' ON SCHEMA CHANGE SKIP", "expected FAIL, IGNORE or ADD"),
        ("CREATE STREAM s FROM 'a.csv' ON SCHEMA FAIL", "CHANGE"),
        ("CREATE STREAM s FROM 'a.csv' ON LOVE FAIL", "expected ERROR, GAP or SCHEMA CHANGE"),
    ],
)
def test_policies_that_mean_nothing_are_refused(statement: str, message: str) -> None:
    assert message in check_script(statement)[0][0].message


def _write(folder: Path, format: str, name: str, rows: dict[str, list[object]]) -> None:
    path = folder / f"{name}.{format}"
    table = pa.table(rows)
    if format == "parquet":
        parquet.write_table(table, path)
    elif format == "orc":
        orc.write_table(table, path)
    elif format == "csv":
        lines = [",".join(map(str, row)) for row in zip(*rows.values(), strict=True)]
        path.write_text("\n".join([",".join(rows), *lines]) + "\n")
    else:
        path.write_text("".join(f"{str(row).replace(chr(39), chr(34))}\n" for row in table.to_pylist()))


@pytest.mark.spark
@pytest.mark.parametrize("format", ["csv", "parquet", "orc", "json"])
def test_new_and_missing_columns_of_files(home: Harness, tmp_path: Path, format: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    _write(folder, format, "a", {"a": [1, 2], "b": ["x", "y"]})
    source = f"files('{folder}/*.{format}', settle => '0 seconds')"
    for name, policy in (("strict", "FAIL"), ("loose", "IGNORE"), ("wide", "ADD")):
        home.sql(f"CREATE STREAM {name} FROM {source} ON SCHEMA CHANGE {policy}")
        home.sql(f"CREATE VIEW v_{name} AS SELECT a, b FROM {name} WHERE a > 0")
    home.sql("CREATE VIEW counts AS SELECT b, count(*) AS c FROM wide GROUP BY b")
    with pytest.raises(SqlError, match="ON SCHEMA CHANGE ADD"):
        home.sql("CREATE VIEW stars AS SELECT * FROM wide")
    home.sql(f"CREATE STREAM chosen (b STRING{', c INT' if format == 'json' else ''}) FROM {_titled(source, format)}")
    home.sql("CREATE STREAM kept KEEP ALL FROM " + source + " ON SCHEMA CHANGE ADD")
    for name in ("strict", "loose", "wide", "chosen", "kept"):
        assert home.query(f"SELECT count(*) FROM {name}") == [(2,)]
    _write(folder, format, "b", {"a": [3], "b": ["z"], "d": [7]})
    with pytest.raises(SourceError, match=r"b\.\w+ has other columns than the stream; new: d"):
        home.query("SELECT count(*) FROM strict")
    assert home.query("SELECT a, b FROM loose ORDER BY a") == [(1, "x"), (2, "y"), (3, "z")]
    assert len(home.query("SELECT * FROM chosen")) == 3
    for name in ("wide", "kept"):  # a column is there when a run has brought it
        assert home.query(f"SELECT count(*) FROM {name}") == [(3,)]
    rows = [(1, "x", None), (2, "y", None), (3, "z", 7)]
    assert home.query("SELECT a, b, d FROM wide ORDER BY a") == rows
    assert home.query("SELECT a, b, d FROM kept ORDER BY a") == rows
    assert home.query("SELECT * FROM v_wide ORDER BY a") == [row[:2] for row in rows]
    home.sql("CREATE VIEW sums AS SELECT d, count(*) AS c FROM wide GROUP BY d; DROP VIEW v_strict; DROP STREAM strict")
    assert home.table("counts") == [("x", 1), ("y", 1), ("z", 1)]
    home.reopen()
    _write(folder, format, "c", {"a": [4], "d": [8]})
    assert home.query("SELECT a, b, d FROM wide ORDER BY a") == [*rows, (4, None, 8)]
    assert home.query("SELECT a, b, d FROM kept ORDER BY a") == [*rows, (4, None, 8)]
    assert sorted(home.query("SELECT * FROM sums"), key=str) == [(7, 1), (8, 1), (None, 2)]
    if format == "json":
        assert home.query("SELECT count(*) FROM chosen") == [(4,)]
    else:
        with pytest.raises(SourceError, match="missing: b STRING"):
            home.query("SELECT count(*) FROM chosen")


def _titled(source: str, format: str) -> str:
    return source.replace(")", ", header => true)") if format == "csv" else source


@pytest.mark.spark
def test_a_type_that_does_not_fit_is_shown(home: Harness, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": pa.array([1], pa.int64())}), tmp_path / "a.parquet")
    home.sql(f"CREATE STREAM s FROM '{tmp_path}/*.parquet' ON SCHEMA CHANGE ADD")
    parquet.write_table(pa.table({"a": pa.array([2], pa.int32())}), tmp_path / "b.parquet")
    assert home.query("SELECT sum(a) FROM s") == [(3,)]
    parquet.write_table(pa.table({"a": ["3"]}), tmp_path / "c.parquet")
    with pytest.raises(SourceError, match="of another type: a is STRING, not BIGINT"):
        home.query("SELECT sum(a) FROM s")


@pytest.mark.spark
@pytest.mark.parametrize("name", SERVERS)
def test_columns_and_rows_of_a_table_that_go_away(home: Harness, name: str, request: pytest.FixtureRequest) -> None:
    server = cast("PostgresServer | MysqlServer", request.getfixturevalue(name))
    server.run("DROP TABLE IF EXISTS gone", "CREATE TABLE gone (id int primary key, k varchar(9), n int)")
    server.run("INSERT INTO gone VALUES (1, 'a', 1), (2, 'b', 2)")
    source = server.source(table="gone")
    home.sql(f"CREATE STREAM strict FROM {source}")
    home.sql(f"CREATE STREAM loose FROM {source} ON SCHEMA CHANGE IGNORE ON GAP SKIP")
    home.sql("CREATE VIEW v AS SELECT id, k, n FROM loose; CREATE VIEW w AS SELECT count(*) AS c FROM strict")
    assert home.query("SELECT c FROM w") == [(2,)] and len(home.table("v")) == 2
    server.run("ALTER TABLE gone ADD COLUMN x int", "ALTER TABLE gone DROP COLUMN n")
    server.run("INSERT INTO gone VALUES (3, 'c', 9)")
    with pytest.raises(SourceError, match="gone has other columns than the stream; new: x INT; missing: n INT"):
        home.query("SELECT c FROM w")
    assert home.table("v") == [(1, "a", 1), (2, "b", 2), (3, "c", None)]
    server.run("ALTER TABLE gone DROP COLUMN x", "ALTER TABLE gone ADD COLUMN n int", "DELETE FROM gone WHERE id > 1")
    with pytest.raises(SourceError, match="the rows up to key 2, which was taken last, are gone: its last key is 1"):
        home.query("SELECT c FROM w")
    assert len(home.table("v")) == 3
    server.run("INSERT INTO gone VALUES (2, 'again', 5)")
    assert (2, "again", 5) in home.table("v")
    (bad,) = home.query("SELECT reason FROM sys.bad_rows")
    assert "are gone: its last key is 1" in bad[0]
