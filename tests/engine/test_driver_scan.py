"""Runs and answers without a Spark job: what DuckDB gives is what Spark gives, and what it cannot give is Spark's."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from anabranch import duck
from anabranch.engine import answer, driver_changes, driver_scan
from anabranch.engine.frames import Frames
from anabranch.errors import AnabranchError
from anabranch.testing import Harness

pytestmark = pytest.mark.spark

COLUMNS = "k STRING, n INT, big BIGINT, d DECIMAL(12,2), x DOUBLE, b BOOLEAN, wide STRING, ts TIMESTAMP"
TYPES = pa.schema(
    [
        ("k", pa.string()), ("n", pa.int32()), ("big", pa.int64()), ("d", pa.decimal128(12, 2)), ("x", pa.float64()),
        ("b", pa.bool_()), ("wide", pa.string()), ("ts", pa.timestamp("us", "UTC")),
    ]
)  # fmt: skip
HOP = "HOP(s, ts, INTERVAL 2 SECONDS, INTERVAL {} SECONDS, STRATEGY => '{}')"
VALUES = "count(*) AS c, count(n) AS cn, sum(n) AS sn, max(big) AS mb, sum(d) AS sd, min(x) AS nx, max(x) AS mx"
VIEWS = {
    "panes": f"SELECT k, window_start, {VALUES} FROM {HOP.format(6, 'panes')} GROUP BY k, window_start, window_end",
    "windows": f"SELECT k, window_start, {VALUES} FROM {HOP.format(6, 'windows')} GROUP BY k, window_start, window_end",
    "uneven": f"SELECT x, window_end, max(k) AS mk FROM {HOP.format(5, 'panes')} GROUP BY x, window_start, window_end",
    "some": f"SELECT window_start, count(*) AS c, max(b) AS mb FROM {HOP.format(6, 'windows')} WHERE n > 1 OR b"
    " GROUP BY window_start, window_end",
    "all_of_it": f"SELECT {VALUES} FROM s",
    "narrowed": "SELECT k, CAST(max(d) AS BIGINT) AS d, CAST(max(x) AS STRING) AS x FROM s GROUP BY k",
}  # fmt: skip
SPARK_ONLY = f"SELECT soundex(k) AS u, count(*) AS c FROM {HOP.format(6, 'panes')} GROUP BY soundex(k), window_start"
QUESTIONS = [
    "SELECT count(*) AS n, sum(sn) AS s, max(sd) AS d, min(nx) AS x FROM panes",
    "SELECT k, sum(c), count(DISTINCT window_start) AS w FROM windows WHERE c > 1 GROUP BY k ORDER BY k NULLS LAST",
    "SELECT * FROM uneven WHERE mk = 'a' OR mk IS NULL",
    "SELECT window_start, mb FROM some WHERE window_start >= '2026-01-01 00:00:04' ORDER BY 1 DESC LIMIT 3",
    "SELECT * FROM all_of_it",
    "SELECT CAST(max(mx) AS STRING) AS x, CAST(max(sd) AS BIGINT) AS d, CAST(max(window_start) AS STRING) AS w"
    " FROM panes",
    "SELECT * FROM narrowed",
]
#: Questions that DuckDB answers: they need no cast but of the width of a number, and no view below groups by a double.
BY_DUCKDB = [*QUESTIONS[:2], *QUESTIONS[3:5]]


def some_rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return [
        {
            "k": chance.choice(["a", "b", "", None]),
            "n": chance.choice([None, -(2**31), 0, 1, 2]),
            "big": chance.choice([None, 2**63 - 1, -(2**63), 5]),
            "d": chance.choice([None, Decimal("9999999999.99"), Decimal("-0.01"), Decimal("1.10")]),
            "x": chance.choice([None, math.nan, math.inf, 0.0, -0.0, 1.5]),
            "b": chance.choice([None, True, False]),
            "wide": "never looked at",
            "ts": start + timedelta(microseconds=chance.randrange(-4_000_000, 12_000_000)),
        }
        for _ in range(count)
    ]


def rows(table: pa.Table) -> list[str]:
    """The rows in an order of their own. Of the two zeros, either is the least and the greatest."""
    plain = (
        [0.0 if each == 0 and isinstance(each, float) else each for each in row.values()] for row in table.to_pylist()
    )
    return sorted(map(repr, plain))


def kinds(table: pa.Table) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in table.schema]


def test_runs_and_answers_are_the_same_by_duckdb(
    home: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger runs are taken in by DuckDB as well, unless something in them is Spark's."""
    chance, folder = random.Random(7), tmp_path / "in"
    folder.mkdir()
    placed = home.session._core.place
    placed.limits = replace(placed.limits, small_run_bytes=-1)
    asked: list[list[str] | None] = []
    of = driver_scan.DriverScan.of.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        driver_scan.DriverScan, "of", classmethod(lambda cls, *given: asked.append(given[-1]) or of(cls, *given))
    )

    def take(file: str) -> None:
        parquet.write_table(pa.Table.from_pylist(some_rows(chance, 60), TYPES), folder / file)
        home.session.sql("SELECT count(*) FROM panes").toArrow()

    home.sql(f"CREATE STREAM s ({COLUMNS}, WATERMARK FOR ts AS ts) FROM parquet(path => '{folder}/*.parquet')")
    for view, query in VIEWS.items():
        home.sql(f"CREATE VIEW {view} AS {query}")
    take("0.parquet")
    take("1.parquet")
    assert len(asked) == 2 and all(each is not None and "wide" not in each for each in asked)
    home.sql(f"CREATE VIEW spark_only AS {SPARK_ONLY}")
    take("2.parquet")
    assert len(asked) == 2  # one of the views has Spark read the rows, and so they are read for all
    for view, query in VIEWS.items():
        assert rows(home.session.sql(f"SELECT * FROM {view}").df.toArrow()) == rows(home.session.sql(query).toArrow())
    answers: list[Any] = []
    by_near = answer.rows
    monkeypatch.setattr(answer, "rows", lambda *each: answers.append(by_near(*each)) or answers[-1])
    for text in QUESTIONS:
        answers.clear()
        result = home.session.sql(text)
        by_duckdb, by_spark = result.toArrow(), result.df.toArrow()
        assert any(each is not None for each in answers) == (text in BY_DUCKDB), text
        assert kinds(by_duckdb) == kinds(by_spark), text
        assert rows(by_duckdb) == rows(by_spark), text


#: A view on a stream of its own, and whether its rows are read from their files as they are.
BOUNDS = "GROUP BY window_start, window_end"
ALONE = {
    "hop": (f"SELECT k, window_start, window_end, count(*) AS c, sum(n) AS n, max(big) AS m"
            f" FROM {HOP.format(6, 'panes')} {BOUNDS}, k", True),
    "keyless": ("SELECT window_start, min(n) AS n, max(b) AS b"
                f" FROM {HOP.format(10, 'panes')} WHERE n > 0 OR b {BOUNDS}", True),
    "shifted": ("SELECT window_end, count(*) AS c, max(k) AS k"
                " FROM TUMBLE(s, ts, INTERVAL 3 SECONDS, INTERVAL 1 SECOND) GROUP BY window_end", True),
    "wid": (f"SELECT k, window_start, max(n) AS n FROM {HOP.format(6, 'windows')} {BOUNDS}, k", True),
    "spans": (f"SELECT k, window_start, sum(n) AS n FROM {HOP.format(6, 'adaptive')} {BOUNDS}, k", True),
    "keys": ("SELECT b, n, count(*) AS c, max(ts) AS t FROM s GROUP BY b, n", True),
    "one": ("SELECT count(*) AS c, max(big) AS m, min(ts) AS t FROM s", True),
    "fractions": (f"SELECT window_start, max(x) AS x FROM {HOP.format(6, 'panes')} {BOUNDS}", False),
}  # fmt: skip


def test_rows_are_read_where_they_lie(home: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one view reads a stream, DuckDB takes its rows from their files: late ones, old ones, and not all files."""
    chance, found = random.Random(13), dict[str, list[bool]]()
    placed = home.session._core.place
    placed.limits = replace(placed.limits, small_run_bytes=-1)
    monkeypatch.setattr(duck, "FEW_PLACES", 1)
    of = driver_scan.FileScan.of.__func__  # type: ignore[attr-defined]

    def find_files(cls: type[driver_scan.FileScan], stream: Any, *given: Any) -> driver_scan.FileScan | None:
        made: driver_scan.FileScan | None = of(cls, stream, *given)
        found.setdefault(stream.name, []).append(made is not None)
        return made

    monkeypatch.setattr(driver_scan.FileScan, "of", classmethod(find_files))
    for name, (query, _) in ALONE.items():
        (tmp_path / name).mkdir()
        source = f"parquet(path => '{tmp_path}/{name}/*.parquet')"
        home.sql(f"CREATE STREAM s_{name} ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL 2 SECONDS) FROM {source}")
        home.sql(f"CREATE VIEW v_{name} AS {query.replace('(s,', f'(s_{name},').replace('FROM s', f'FROM s_{name}')}")

    def take(file: str, rows: list[dict[str, Any]], schema: pa.Schema = TYPES, **more: Any) -> None:
        for name in ALONE:
            path = tmp_path / name / file
            parquet.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=20, **more)
            home.session.sql(f"SELECT count(*) FROM v_{name}").toArrow()

    take("0.parquet", some_rows(chance, 60))
    old = [each | {"ts": each["ts"] - timedelta(days=365 * 57)} for each in some_rows(chance, 60)]
    take("1.parquet", [*some_rows(chance, 50), *old])
    without_zone = TYPES.set(TYPES.get_field_index("ts"), pa.field("ts", pa.timestamp("us")))
    take("2.parquet", [each | {"ts": each["ts"].replace(tzinfo=None)} for each in some_rows(chance, 60)], without_zone)
    take("3.parquet", some_rows(chance, 60), write_statistics=False)
    take("4.parquet", [*some_rows(chance, 60), {**some_rows(chance, 1)[0], "ts": None}])
    take("5.parquet", some_rows(chance, 60))
    for name, (query, in_place) in ALONE.items():
        assert found[f"s_{name}"] == [in_place, in_place, False, False, False, in_place], name
        batch = home.session.sql(query.replace("(s,", f"(s_{name},").replace("FROM s", f"FROM s_{name}")).toArrow()
        assert rows(home.session.sql(f"SELECT * FROM v_{name}").toArrow()) == rows(batch), name
    figures = "late_rows, rows, bad_rows, low, high, progress"
    told = {
        name: home.query(f"SELECT {figures} FROM sys.runs WHERE stream = 's_{name}' ORDER BY run") for name in ALONE
    }
    assert all(each == told["fractions"] for each in told.values()), told
    assert any(run[0] for run in told["hop"][:2])


def test_windows_are_there_if_the_rows_of_their_view_are(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views that share panes have windows where they have rows: one made later too, and one with many windows a row."""
    monkeypatch.setattr(duck, "FEW_PLACES", 1)
    home.sql("CREATE STREAM s (k STRING, n INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) KEEP ALL")
    hop = "HOP(s, ts, INTERVAL 1 SECOND, INTERVAL {} SECONDS)"
    views = {
        "every": f"SELECT k, window_start, count(*) AS c FROM {hop.format(3)} GROUP BY k, window_start, window_end",
        "some": f"SELECT window_end, max(n) AS n FROM {hop.format(3)} WHERE n > 1 GROUP BY k, window_start, window_end",
        "long": f"SELECT k, window_start, sum(n) AS n FROM {hop.format(40)} GROUP BY k, window_start, window_end",
        "after": f"SELECT k, window_time, min(n) AS n FROM {hop.format(5)} WHERE n < 1 GROUP BY k, window_time",
    }
    chance = random.Random(3)
    for name, query in views.items():
        home.sql(f"CREATE VIEW {name} AS {query}")
        given = [
            (
                row["k"],
                chance.choice([None, 0, 1, 2, 3]),
                row["ts"] - timedelta(days=365 * 56 + 14) * chance.randrange(2),
            )
            for row in some_rows(chance, 12)
        ]
        home.insert("s", given)
        for made in list(views)[: list(views).index(name) + 1]:
            by_duckdb = home.session.sql(f"SELECT * FROM {made}").toArrow()
            assert rows(by_duckdb) == rows(home.session.sql(views[made]).toArrow()), made


def test_what_does_not_fit_is_told_by_spark(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum that is too large is an error, whoever computes it."""
    home.sql("CREATE STREAM s (k STRING, n BIGINT); CREATE VIEW v AS SELECT k, sum(n) AS n FROM s GROUP BY k")
    home.insert("s", [("a", 2**63 - 1), ("b", 1)])
    given: list[Any] = []
    by_duckdb = answer.rows
    monkeypatch.setattr(answer, "rows", lambda *each: given.append(by_duckdb(*each)) or given[-1])
    with pytest.raises(AnabranchError, match="overflow"):
        home.session.sql("SELECT sum(n) + 1 AS n FROM v").toArrow()
    assert given == [None]
    assert home.query("SELECT max(n) AS n FROM v") == [(2**63 - 1,)] and given[-1] is not None
    home.insert("s", [("c", 2**63 - 1), ("c", 1)])  # neither row is to blame: they are taken in
    with pytest.raises(AnabranchError, match="view v: overflow"):
        home.table("v")


def test_changes_of_casts_are_those_of_spark(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """What DuckDB would round is left to Spark, and not tried."""
    tried: list[str] = []
    fits = driver_changes.DriverChanges.fits
    monkeypatch.setattr(
        driver_changes.DriverChanges,
        "fits",
        lambda self, of, view: fits(self, of, view) and (tried.append(view.name) or True),
    )
    home.sql("CREATE STREAM s (k STRING, n BIGINT, x DOUBLE)")
    home.sql("CREATE VIEW narrow AS SELECT k, CAST(max(x) AS INT) AS y FROM s GROUP BY k EMIT CHANGES")
    home.sql("CREATE VIEW wide AS SELECT k, CAST(max(n) AS INT) AS y FROM s GROUP BY k EMIT CHANGES")
    home.insert("s", [("a", 1, 1.7), ("b", 2, -2.5)])
    home.insert("s", [("b", 1, 3.5)])
    assert sorted(home.query("SELECT * FROM narrow")) == [("a", 1), ("b", 3)]
    assert sorted(home.query("SELECT * FROM wide")) == [("a", 1), ("b", 2)]
    assert "narrow" not in tried


def test_a_question_is_analysed_once(home: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until something changes that its columns depend on."""
    home.sql("CREATE STREAM s (k STRING, n BIGINT, x DOUBLE); CREATE VIEW v AS SELECT k, max(n) AS y FROM s GROUP BY k")
    home.insert("s", [("a", 1, 1.5), ("b", 2, 2.5)])
    analysed: list[Any] = []
    by_spark = Frames.sql
    monkeypatch.setattr(Frames, "sql", lambda *given, **more: analysed.append(given[1]) or by_spark(*given, **more))

    def ask() -> tuple[list[Any], int]:
        analysed.clear()
        found = home.session.sql("SELECT sum(Y) AS y FROM v").toArrow()
        return [found.schema.field("y").type, found.to_pylist()[0]["y"]], len(analysed)

    assert ask() == ([pa.int64(), 3], 1)
    assert ask() == ([pa.int64(), 3], 0)
    home.sql("DROP VIEW v; CREATE VIEW v AS SELECT k, max(x) AS y FROM s GROUP BY k")
    assert ask() == ([pa.float64(), 4.0], 1)
    home.sql("SET spark.sql.caseSensitive = true")
    with pytest.raises(AnabranchError, match="there is no column Y"):
        ask()


RULES = {
    "marks": ("FROM PUNCTUATION WHERE k = '' OR n > 1", True),
    "computed": ("AS CASE WHEN ts IS NULL THEN ts ELSE ts - INTERVAL 3 SECONDS END", True),
    "text beside a time": ("AS CASE WHEN ts < '2026-01-01 00:00:05' THEN ts ELSE ts - INTERVAL 3 SECONDS END", True),
    "greatest": ("AS greatest(ts, TIMESTAMP '2026-01-01 00:00:01') - INTERVAL 1 SECOND", True),
    "of_spark": ("AS CAST(from_unixtime(unix_timestamp(ts)) AS TIMESTAMP)", False),
    "percentile": ("PERCENTILE 80 OF 5 ROWS EVERY 2 ROWS", True),
    "lagging": ("LAGGING 7 ROWS", True),
    "by key": ("AS ts - INTERVAL 2 SECONDS PER KEY k", True),
    "by number": ("AS ts PER KEY n", True),
    "marks by key": ("FROM PUNCTUATION WHERE n > 1 PER KEY k", True),
    "percentile by key": ("PERCENTILE 80 OF 3 ROWS PER KEY b", True),
    "by day": ("AS ts PER KEY d", False),
}


@pytest.mark.parametrize("name", RULES)
def test_progress_is_the_same_by_duckdb(home: Harness, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Rules that look at every row, or at the order of rows: bounds, late rows and answers after each run."""
    rule, by_duckdb = RULES[name]
    found: list[driver_scan.DriverScan | None] = []
    of = driver_scan.DriverScan.of.__func__  # type: ignore[attr-defined]

    def asked(cls: type[driver_scan.DriverScan], stream: Any, *given: Any) -> driver_scan.DriverScan | None:
        if stream.name == "other":
            return None
        found.append(of(cls, stream, *given))
        return found[-1]

    monkeypatch.setattr(driver_scan.DriverScan, "of", classmethod(asked))
    columns = "k STRING, n INT, b BOOLEAN, d DATE, ts TIMESTAMP"
    for stream in ("s", "other"):
        home.sql(f"CREATE STREAM {stream} ({columns}, WATERMARK FOR ts {rule})")
        windows = f"TUMBLE({stream}, ts, INTERVAL 2 SECONDS)"
        query = f"SELECT window_end, count(*) AS c, sum(n) AS n FROM {windows} GROUP BY window_start, window_end"
        home.sql(f"CREATE VIEW of_{stream} AS {query} EMIT ON WINDOW CLOSE LATE DROP")
    chance = random.Random(11)
    for _ in range(6):
        rows = [
            (each["k"], None if each["n"] is None else each["n"] % 3, each["b"], each["ts"].date(), each["ts"])
            for each in some_rows(chance, chance.randrange(1, 9))
        ]
        told = []
        for stream in ("s", "other"):
            home.insert(stream, rows)
            told.append(
                home.query(
                    "SELECT kind, partition, progress, high, late_rows, disorder FROM sys.progress"
                    f" WHERE kind <> 'view' AND stream = '{stream}' ORDER BY kind, partition"
                )
                + sorted(home.query(f"SELECT * FROM of_{stream}"))
            )
        assert told[0] == told[1]
    assert found and all((each is not None) == by_duckdb for each in found)
