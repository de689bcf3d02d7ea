"""The same answers, wherever they are computed: on the driver where that may be, or by Spark alone."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.engine.place import Backend, Limits, Place
from anabranch.errors import AnabranchError, UsageError
from anabranch.render.duckdb import driver_sql
from anabranch.testing import Harness
from render.driver_help import FIELDS, Expressions, table
from seeds import soaked

STREAMS = """
CREATE STREAM s (k STRING, n INT, d DECIMAL(10,2), ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE STREAM t (k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
"""
VIEWS = {
    "live": "SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k EMIT CHANGES",
    "means": "SELECT s.k, count(*) AS c FROM s JOIN t ON s.k = t.k GROUP BY s.k HAVING avg(d) >= 10 EMIT CHANGES",
    "best": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY n DESC, ts) AS r FROM s) WHERE r = 1"
    " EMIT CHANGES",
    "closed": "SELECT window_start, k, sum(n) AS n FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 1 MINUTE)"
    " GROUP BY window_start, k EMIT ON WINDOW CLOSE",
}
#: The average of a is exactly 10; that of the doubles of its values is less, whatever the order.
S = [("a", 1, Decimal("2.88"), "2024-01-01 00:00:01"), ("a", 2, Decimal("10.79"), "2024-01-01 00:00:02")]
S += [("a", 3, Decimal("16.33"), "2024-01-01 00:00:03"), ("b", None, Decimal("9.99"), "2024-01-01 00:01:04")]
S += [("b", 7, None, "2024-01-01 00:02:00"), (None, 5, Decimal("99.00"), "2024-01-01 00:03:00")]
T = [("a", 2, "2024-01-01 00:00:01"), ("b", 9, "2024-01-01 00:00:02"), (None, 1, "2024-01-01 00:00:02")]


def test_the_same_answers_with_and_without_the_driver(tmp_path: Path, spark: SparkSession) -> None:
    """Every view shows the same with both, and what Spark gives for its query over all rows."""
    found: dict[str, dict[str, Any]] = {}
    for backend in get_args(Backend):
        with Harness(tmp_path / backend, spark, backend=backend) as home:
            home.sql(STREAMS + "".join(f"CREATE VIEW {name} AS {query};" for name, query in VIEWS.items()))
            home.insert("s", S[:4])
            home.insert("t", T)
            home.insert("s", S[4:])
            home.advance("s")
            home.advance("t")
            found[backend] = {name: home.table(name) for name in VIEWS}
            if backend == "auto":
                plain = {name: query.partition(" EMIT")[0] for name, query in VIEWS.items()}
                wanted = {name: home.batch(query, s=S, t=T) for name, query in plain.items()}
    assert found == dict.fromkeys(get_args(Backend), wanted)
    assert [row[0] for row in wanted["means"]] == ["a"]


def test_what_spark_refuses_is_refused(home: Harness) -> None:
    """A text that is no whole number is compared with none: a query fails, and a view lacks the rows."""
    home.sql(STREAMS)
    home.sql("CREATE VIEW v AS SELECT count(*) AS c FROM s WHERE n <= '2.5'")
    home.insert("s", S)
    assert home.query("SELECT lacks FROM sys.views WHERE name = 'v'") == [(len(S),)]
    with pytest.raises(AnabranchError, match=r"2\.5"):
        home.query("SELECT count(*) AS c FROM s WHERE n <= '2.5'")


def test_an_unknown_backend() -> None:
    with pytest.raises(UsageError, match="a backend is 'auto' or 'spark' or 'driver', not 'sparc'"):
        anabranch.connect(backend="sparc")  # type: ignore[arg-type]


def test_a_session_changes_where_work_runs(home: Harness) -> None:
    assert home.session.sql("SET anabranch.backend = 'spark'").message == "anabranch.backend is spark"
    home.sql(STREAMS)
    home.sql("CREATE VIEW live AS " + VIEWS["live"])
    home.insert("s", S[:2])
    home.sql("SET anabranch.backend = driver")
    home.insert("s", S[2:])
    assert home.table("live") == [(None, 1, 5), ("a", 3, 6), ("b", 2, 7)]
    with pytest.raises(UsageError, match="a backend is"):
        home.sql("SET anabranch.backend = 'sparc'")


def test_limits_decide_where_work_runs() -> None:
    small = Limits().with_settings({"run_bytes": "4 MB", "changes_rows": 200_000, "answer_rows": "100"})
    for backend, limits, run, changes, answer in (
        ("auto", Limits(), True, True, True),
        ("auto", small, False, False, False),
        ("spark", Limits(), False, False, False),
        ("driver", small, True, True, True),
    ):
        place = Place(backend, limits)  # type: ignore[arg-type]
        assert bool(place.takes_run(10 << 20)) is run and bool(place.takes_changes(1_000_000, 0)) is changes
        assert bool(place.takes_answer(1000)) is answer and place.takes_little(1) is (backend != "spark")
    assert not Place("auto").takes_changes(0, 200_000_000)
    assert str(Place("auto").takes_closing(1)) == "on the driver"
    assert str(Place("spark").takes_closing(1)) == "by Spark: anabranch.backend is spark"
    assert (
        str(Place("auto", small).takes_answer(1234)) == "by Spark: 1,234 rows are more than anabranch.answer_rows, 100"
    )
    assert Place("driver").takes_changes(0, 200_000_000)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("run_byte", "1", "there is no limit run_byte"),
        ("run_bytes", "much", "the limit run_bytes is a number of bytes, or a size such as '64 MB', not 'much'"),
        ("run_bytes", "-1", "the limit run_bytes is a number of bytes"),
        ("state_rows", "1 MB", "the limit state_rows is a whole number, not '1 MB'"),
        ("memory_bytes", "1000", "the limit memory_bytes is 64 MB or more, not 1,000 bytes: DuckDB fails with less"),
        ("task_memory_bytes", "1 MB", "the limit task_memory_bytes is 64 MB or more"),
    ],
)
def test_limits_that_are_none(name: str, value: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        anabranch.connect(limits={name: value})


def test_a_session_changes_limits(home: Harness) -> None:
    """Whatever is small, the answers are the same."""
    assert home.session.sql("SET anabranch.changes_rows = 0").message == "anabranch.changes_rows is 0"
    assert home.session.sql("SET anabranch.run_bytes = '1 KB'").message == "anabranch.run_bytes is 1,024"
    with pytest.raises(AnabranchError, match=r"did you mean anabranch\.run_bytes"):
        home.sql("SET anabranch.run_byte = 1")
    with pytest.raises(UsageError, match="memory_bytes is 64 MB or more"):
        home.sql("SET anabranch.memory_bytes = 10")
    home.sql("SET anabranch.held_bytes = 0")
    home.sql(STREAMS)
    home.sql("CREATE VIEW live AS " + VIEWS["live"])
    home.insert("s", S[:2])
    home.sql("SET anabranch.small_rows = 0")
    home.insert("s", S[2:])
    assert home.table("live") == [(None, 1, 5), ("a", 3, 6), ("b", 2, 7)]


def _check_random(home: Harness, seed: int, views: int) -> None:
    """Views with random conditions, on partials and in joins that keep their changes, over hostile values."""
    rows = table(30, seed)
    given = [tuple(row.values()) for row in rows.to_pylist()]
    columns = ", ".join(f"{field.name} {field.type}" for field in FIELDS)
    home.sql(f"CREATE STREAM r ({columns})")
    spark = home.session.spark
    spark.createDataFrame(rows).createOrReplaceTempView("__raw")
    alone, joined = Expressions(seed), Expressions(seed, ("p.", "q."))
    queries: list[str] = []
    while len(queries) < views:
        if len(queries) % 3 < 2:
            condition, value = alone.condition(1), alone.column(*alone.same())
            query = f"SELECT {value} AS z, count(*) AS c, max(k) AS m FROM r WHERE {condition} GROUP BY {value}"
            fits = driver_sql(condition, lambda _: None, FIELDS)
        else:
            condition = joined.condition(0)
            query = f"SELECT p.id AS a, q.id AS b FROM r AS p JOIN r AS q ON p.k = q.k AND ({condition})"
            fits = driver_sql(condition, lambda _: None, FIELDS)
        try:
            spark.sql(query.replace("FROM r", "FROM __raw").replace("JOIN r", "JOIN __raw")).toArrow()
        except Exception:  # Spark refuses it: see above
            continue
        if fits is not None or len(queries) % 2:
            queries.append(query)
    clauses = ["" if "JOIN" not in query else " EMIT CHANGES" for query in queries]
    made = zip(queries, clauses, strict=True)
    home.sql("".join(f"CREATE VIEW v{index} AS {query}{end};" for index, (query, end) in enumerate(made)))
    home.insert("r", given[:20])
    home.insert("r", given[20:])
    for index, query in enumerate(queries):
        assert repr(home.table(f"v{index}")) == repr(home.batch(query, r=given)), query


def test_views_with_random_conditions(home: Harness) -> None:
    """What a view shows is what Spark gives for its query over the rows."""
    _check_random(home, 3, 3)


@pytest.mark.parametrize("seed", soaked(21, 22))
def test_more_views_with_random_conditions(home: Harness, seed: int) -> None:
    _check_random(home, seed, 18)
