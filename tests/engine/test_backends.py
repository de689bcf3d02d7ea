"""The same answers, wherever they are computed: on the driver where that may be, or by Spark alone."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch
from anabranch.errors import AnabranchError, UsageError
from anabranch.plan.local import local_text
from anabranch.testing import Harness
from plan.driver_help import FIELDS, Expressions, table

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
#: The averages of a are exactly 10, which is less in the doubles of its values.
S = [("a", 1, Decimal("10.10"), "2024-01-01 00:00:01"), ("a", 2, Decimal("9.90"), "2024-01-01 00:00:02")]
S += [("a", 3, Decimal("10.00"), "2024-01-01 00:00:03"), ("b", None, Decimal("9.99"), "2024-01-01 00:01:04")]
S += [("b", 7, None, "2024-01-01 00:02:00"), (None, 5, Decimal("99.00"), "2024-01-01 00:03:00")]
T = [("a", 2, "2024-01-01 00:00:01"), ("b", 9, "2024-01-01 00:00:02"), (None, 1, "2024-01-01 00:00:02")]


def test_the_same_answers_with_and_without_the_driver(tmp_path: Path, spark: SparkSession) -> None:
    """Every view shows the same with both, and what Spark gives for its query over all rows."""
    found: dict[str, dict[str, Any]] = {}
    for backend in ("auto", "spark"):
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
    assert found["auto"] == wanted
    assert found["spark"] == wanted
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
    with pytest.raises(UsageError, match="a backend is 'auto' or 'spark', not 'sparc'"):
        anabranch.connect(backend="sparc")  # type: ignore[arg-type]


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
            fits = local_text(condition, lambda _: None, FIELDS)
        else:
            condition = joined.condition(0)
            query = f"SELECT p.id AS a, q.id AS b FROM r AS p JOIN r AS q ON p.k = q.k AND ({condition})"
            fits = local_text(condition, lambda _: None, FIELDS)
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22])
def test_more_views_with_random_conditions(home: Harness, seed: int) -> None:
    _check_random(home, seed, 18)
