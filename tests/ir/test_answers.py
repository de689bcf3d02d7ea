"""A query that is built into a plan and written as SQL again, before and after all rules, gives the same columns and
rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.engine import queries, read
from anabranch.engine.frames import fields_of
from anabranch.ir.build import Builder
from anabranch.plan.bind import Binder
from anabranch.plan.name_resolution import NameResolver, placeholder
from anabranch.plan.rules import RuleContext, normalize
from anabranch.plan.rules.order import RULES
from anabranch.render.blocks import blocks
from anabranch.render.spark import sql
from anabranch.sql.parser import parse
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import SelectStatement
from anabranch.testing import Harness
from anabranch.types import Field
from law import queries as law

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # each query twice, and an analysis for each of its SELECTs

ROWS = """
INSERT INTO s VALUES
  ('a', 1, 5, 1.50, 0.5, true, TIMESTAMP '2026-01-01 00:00:01'),
  ('a', 1, -2, 2.50, NULL, false, TIMESTAMP '2026-01-01 00:00:03'),
  ('b', 2, 7, NULL, 1e300, NULL, TIMESTAMP '2026-01-01 00:00:12'),
  (NULL, NULL, NULL, 0.01, -1.5, true, TIMESTAMP '2026-01-01 00:00:25'),
  ('', 2, 3, 9.99, 2.5, false, TIMESTAMP '2026-01-01 00:00:14'),
  ('b', 1, 3, 9.99, 2.5, true, TIMESTAMP '2026-01-01 00:00:15')
"""
MORE = {
    "correlated": "SELECT s.k, (SELECT max(n) FROM s y WHERE y.k = s.k) AS m FROM s WHERE EXISTS (SELECT 1 FROM names"
    " WHERE names.k = s.k) AND g NOT IN (SELECT w FROM names WHERE w IS NOT NULL AND w > 2)",
    "exists": "SELECT k, n FROM s WHERE n > 0 AND EXISTS (SELECT 1 FROM s AS y WHERE y.g = s.g AND y.n > s.n)",
    "not exists": "SELECT s.k, label FROM s JOIN names USING (k) WHERE NOT EXISTS (SELECT 1 FROM s y WHERE y.n = s.g)",
    "in, groups": "SELECT g, count(*) AS c FROM s WHERE k IN (SELECT k FROM s GROUP BY k HAVING max(n) > 1) GROUP BY 1",
    "not in": "SELECT k FROM s WHERE n IS NOT NULL AND n NOT IN (SELECT g FROM s WHERE g IS NOT NULL)",
    "in, several": "SELECT k FROM s WHERE (g, k) IN (SELECT y.g, z.k FROM s y JOIN s z ON y.k = z.k)",
    "a value": "SELECT k, n - (SELECT avg(y.n) + count(*) FROM s y WHERE y.k = s.k) AS d FROM s"
    " WHERE n >= (SELECT min(n) FROM s y WHERE y.g = s.g)",
    "having in": "SELECT k, max(n) AS m FROM s GROUP BY k HAVING k IN"
    " (SELECT label FROM names UNION ALL SELECT k FROM s)",
    "renamed twice": "SELECT l, sum(v) AS n FROM (SELECT upper(k) AS l, n + g AS v FROM (SELECT g AS n, n AS g, k"
    " FROM s WHERE g > 0)) WHERE v > 0 GROUP BY l HAVING sum(v) > 1",
    "rollup of a query": "SELECT k, count(*) AS c, grouping(k) AS a FROM (SELECT k, g, max(n) AS n FROM s GROUP BY k,"
    " g) GROUP BY ROLLUP (k)",
    "natural join": "SELECT * FROM s NATURAL JOIN names",
    "using, outer": "SELECT k, s.n, label FROM s FULL JOIN names USING (k)",
    "using, all columns": "SELECT * FROM s LEFT JOIN names USING (k)",
    "using, half": "SELECT * FROM (SELECT n, k FROM s) LEFT SEMI JOIN names USING (k)",
    "without names": "SELECT g + 1, count(*), sum(n) * 2, upper(k) FROM s GROUP BY g, k",
    "lambdas": "SELECT transform(array(1, 2, g), x -> x + g) AS l, aggregate(array(n), 0, (a, k) -> a + k) FROM s",
    "qualify": "SELECT k, n FROM s QUALIFY row_number() OVER w = 1 WINDOW w AS (PARTITION BY k ORDER BY n DESC, ts)",
    "rollup": "SELECT k, g, count(*) AS c, grouping_id() AS i, grouping(k) FROM s GROUP BY ROLLUP (k, g)",
    "cube": "SELECT k, g + 1 AS h, sum(n) FROM s GROUP BY CUBE (k, g + 1) HAVING count(*) > 0",
    "values": "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t(x, y) WHERE x > 1",
    "constants": "SELECT 1 AS a, 'x' UNION ALL SELECT 2.5, 'y' ORDER BY a DESC",
    "set operations": "SELECT k FROM s INTERSECT SELECT k FROM names UNION SELECT label FROM names"
    " EXCEPT SELECT 'beta'",
    "a cte twice": "WITH t AS (SELECT k, count(*) AS c FROM s GROUP BY k)"
    " SELECT a.k, b.c FROM t a JOIN t b ON a.c = b.c AND a.k <=> b.k",
    "a table function": "SELECT id * 2 AS d FROM range(4) WHERE id > 1",
    "lateral": "SELECT s.k, t.c FROM s, LATERAL (SELECT count(*) AS c FROM names m WHERE m.k = s.k) t",
    "words and types": "SELECT CAST(n AS STRING) AS k, n::double, INTERVAL 1 day, DATE '2020-01-01',"
    " extract(year FROM ts), CASE WHEN b THEN 1 ELSE 0 END FROM s",
    "fields": "SELECT t.p.a, p.b + 1 FROM (SELECT named_struct('a', n, 'b', g) AS p FROM s) t",
    "sessions": "SELECT k, window_start, window_end, count(*) AS c FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts),"
    " INTERVAL 5 SECONDS) GROUP BY k, window_start, window_end",
    "spark's windows": "SELECT window.start, k, count(*) AS c FROM s GROUP BY window(ts, '10 seconds'), k",
    "windows of rows": "SELECT count(*) AS c, window_start FROM TUMBLE(TABLE s, DESCRIPTOR(row_num), 2)"
    " GROUP BY window_start, window_end",
    "ids of windows": "SELECT window_id(), count(*) AS c FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL 10 SECONDS)"
    " GROUP BY window_id, window_start, window_end",
    "a frame": "SELECT k, sum(n) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 5 SECONDS PRECEDING AND"
    " CURRENT ROW) AS r FROM s",
    "generators": "SELECT k, posexplode(array(n, g)) FROM s",
    "tables of the system": "SELECT stream, count(*) FROM sys.runs GROUP BY stream",
}


def compare(home: Harness, text: str) -> str | None:
    """What differs between a query as it is bound today and its plan; None if nothing does."""
    core = home.session._core
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    snapshot = core.snapshot()
    catalog = core.catalog(snapshot)
    bound = Binder(statement.text, catalog, statement.query).bind()

    def analyze(asked: Spliced, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
        empty = {name: core.frames.empty(fields) for name, fields in schemas.items()}
        return fields_of(core.frames.sql(asked, empty, source=statement.text))

    context = NameResolver(
        statement.text,
        catalog,
        statement.query,
        analyze,
        lambda reference: queries._columns(catalog, reference, statement.text),
    )
    builder = Builder(statement.text, context)
    rel = builder.query(statement.query, None, {})
    relations = {each: read.relation(core, found, snapshot) for each, found in bound.references.items()}
    old = queries.over(core, bound, relations, statement.text)
    before = sorted(map(_plain, old.collect()))
    made = normalize(rel, RULES, RuleContext(builder.types, builder.new))
    frames = [core.frames.sql(sql(rel, placeholder), relations), core.frames.sql(sql(made, placeholder), relations)]
    for each in (rel, made):
        (again,) = parse(blocks(each, statement.text).text)
        assert isinstance(again, SelectStatement)
        rebound = Binder(again.text, catalog, again.query).bind()
        frames.append(queries.over(core, rebound, relations, again.text))
    for new in frames:
        if fields_of(old) != fields_of(new):
            return f"{fields_of(old)} became {fields_of(new)}"
        after = sorted(map(_plain, new.collect()))
        if before != after:
            return f"{before} became {after}"
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}"
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else repr(value)


def test_a_plan_gives_what_its_query_gives(home: Harness) -> None:
    home.sql(law.STREAM)
    home.sql(law.TABLE)
    home.sql(ROWS)
    asked = {**law.QUERIES, **MORE}
    assert {name: found for name, text in asked.items() if (found := compare(home, text)) is not None} == {}


def test_plans_of_nexmark(tmp_path: Path, spark: SparkSession) -> None:
    from nexmark import test_nexmark as nexmark

    with Harness(tmp_path / "home", spark) as home:
        for stream in nexmark.STREAMS:
            home.sql(nexmark.create(stream))
            rows = ", ".join(f"({', '.join(map(_literal, row))})" for row in nexmark.rows(stream)[1])
            home.sql(f"INSERT INTO {stream} VALUES {rows}")
        found = {name: compare(home, text) for name, text in nexmark.QUERIES.items()}
        assert {name: each for name, each in found.items() if each is not None} == {}


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value}'"
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'" if isinstance(value, str) else str(value)
