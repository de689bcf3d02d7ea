"""Subqueries in conditions: what they are planned as."""

from __future__ import annotations

import pytest

from anabranch.plan.catalog import Catalog, Field, Stream, Table, View, to_json
from anabranch.plan.subqueries import without_subqueries
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement

S = (Field("k", "string"), Field("n", "int"), Field("m", "int"), Field("ts", "timestamp"))
R = (Field("k", "string"), Field("p", "int"), Field("id", "bigint"), Field("rts", "timestamp"))
T = (Field("k", "string"), Field("label", "string"))


def _stream(name: str, fields: tuple[Field, ...]) -> Stream:
    return Stream(name, name, "", fields, "ts", None, None, None, None, {}, "all", False, 0)


VIEW = View("v", "v", "SELECT k, n FROM s", "", S[:2], (), None, {}, {}, {}, "feed", "beginning")
CATALOG = Catalog(
    {
        each.id: to_json(each)
        for each in (_stream("s", S), _stream("r", R), Table("t", "t", "", T, None, {}, None), VIEW)
    }
)


def _analyze(text: str, schemas: dict[str, tuple[Field, ...]]) -> list[Field]:
    """Every column is an INT: what is compared is of one type."""
    return [Field(f"x{index}", "int") for index in range(text.count(" AS `x"))]


def planned(text: str) -> str:
    (statement,) = parse(text)
    assert isinstance(statement, SelectStatement)
    made, query = without_subqueries(statement.text, statement.query, CATALOG, _analyze)
    return query.span.of(made)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            "SELECT * FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND rts"
            " BETWEEN ts - INTERVAL 1 HOUR AND ts)",
            "SELECT * FROM s LEFT SEMI JOIN r AS `r` ON `r`.k = `s`.k AND `r`.rts BETWEEN `s`.ts - INTERVAL 1 HOUR"
            " AND `s`.ts",
        ),
        (
            "SELECT * FROM s WHERE n > 1 AND NOT EXISTS (SELECT * FROM r WHERE k = s.k AND (p > 1 OR p < n))",
            "SELECT * FROM s LEFT ANTI JOIN r AS `r` ON `r`.k = `s`.k AND (`r`.p > 1 OR `r`.p < `s`.n)"
            " WHERE n > 1 AND true",
        ),
        (  # the same stream inside: its names hide those around it
            "SELECT n FROM s WHERE EXISTS (SELECT 1 FROM s AS x WHERE x.k = s.k AND m < s.m)",
            "SELECT n FROM s LEFT SEMI JOIN s AS `x` ON `x`.k = `s`.k AND `x`.m < `s`.m",
        ),
        (
            "SELECT n FROM s AS o WHERE EXISTS (SELECT 1 FROM r AS o, s AS u WHERE o.k = u.k AND o.p = m)",
            None,  # m is a column of the subquery's own s, so nothing ties it to the query around it
        ),
        (
            "SELECT n FROM s WHERE k IN (SELECT k FROM r WHERE p > 1)",
            "SELECT n FROM s LEFT SEMI JOIN r AS `r` ON `s`.k = `r`.k AND `r`.p > 1",
        ),
        (
            "SELECT n FROM s WHERE n IN (SELECT n + 1 FROM s)",
            "SELECT n FROM s LEFT SEMI JOIN (SELECT n + 1 AS `__k0` FROM s) AS `__q0` ON `s`.n = `__q0`.`__k0`",
        ),
        (
            "SELECT n FROM s WHERE (n, m) IN (SELECT p, max(id) FROM r GROUP BY p HAVING count(*) > 2)",
            "SELECT n FROM s LEFT SEMI JOIN (SELECT p, max(id) AS `__k1` FROM r GROUP BY p HAVING count(*) > 2)"
            " AS `__q0` ON `s`.n = `__q0`.`p` AND `s`.m = `__q0`.`__k1`",
        ),
        (
            "SELECT n FROM s WHERE n IS NOT NULL AND n NOT IN (SELECT p FROM r WHERE p IS NOT NULL)",
            "SELECT n FROM s LEFT ANTI JOIN r AS `r` ON `s`.n = `r`.p AND `r`.p IS NOT NULL"
            " WHERE n IS NOT NULL AND true",
        ),
        (  # several relations inside: a query of its own
            "SELECT n FROM s WHERE EXISTS (SELECT 1 FROM r JOIN v ON r.p = v.n WHERE r.k = s.k AND id > 1 AND v.n < m)",
            "SELECT n FROM s LEFT SEMI JOIN (SELECT r.k AS `__k0`, v.n AS `__k1` FROM r JOIN v ON r.p = v.n"
            " WHERE id > 1) AS `__q0` ON `__q0`.`__k0` = s.k AND `__q0`.`__k1` < `s`.m",
        ),
        (  # an aggregate reads the rows that are left
            "SELECT m, count(*) FROM s x WHERE n > 0 AND EXISTS (SELECT 1 FROM r WHERE r.k = x.k) GROUP BY m",
            "SELECT m, count(*) FROM (SELECT * FROM s AS `x` LEFT SEMI JOIN r AS `r` ON `r`.k = `x`.k) x"
            " WHERE n > 0 AND true GROUP BY m",
        ),
        (
            "SELECT s.n, p FROM s JOIN r ON s.k = r.k WHERE EXISTS (SELECT 1 FROM v WHERE v.n = p)",
            "SELECT s.n, p FROM s JOIN (SELECT * FROM r AS `r` LEFT SEMI JOIN v AS `v` ON `v`.n = `r`.p) AS `r`"
            " ON s.k = r.k",
        ),
        (
            "SELECT n FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k) AND m NOT IN (1, 2)"
            " AND EXISTS (SELECT 1 FROM r WHERE r.p = m)",
            "SELECT n FROM (SELECT * FROM s AS `s` LEFT SEMI JOIN r AS `__q0` ON `__q0`.p = `s`.m) AS `s`"
            " LEFT SEMI JOIN r AS `r` ON `r`.k = `s`.k WHERE true AND m NOT IN (1, 2) AND true",
        ),
        (
            "SELECT * FROM s WHERE n > (SELECT max(p) FROM r WHERE r.k = s.k AND id > 0)",
            "SELECT `s`.* FROM s LEFT JOIN (SELECT r.k AS `__k0`, max(p) AS `__v0_0` FROM r WHERE id > 0 GROUP BY r.k)"
            " AS `__q0` ON `__q0`.`__k0` = `s`.k WHERE n > (`__q0`.`__v0_0`)",
        ),
        (
            "SELECT n, (SELECT count(*) + coalesce(sum(p), 0) FROM r WHERE s.k = r.k) AS c FROM s",
            "SELECT n, (coalesce(`__q0`.`__v0_0`, 0) + coalesce(`__q0`.`__v0_1`, 0)) AS c FROM s"
            " LEFT JOIN (SELECT r.k AS `__k0`, count(*) AS `__v0_0`, sum(p) AS `__v0_1` FROM r GROUP BY r.k)"
            " AS `__q0` ON `__q0`.`__k0` = `s`.k",
        ),
        (
            "SELECT m, sum(n) AS n FROM s WHERE n >= (SELECT avg(n) FROM s AS x WHERE x.k = s.k) GROUP BY m",
            "SELECT m, sum(n) AS n FROM (SELECT `s`.*, `__q0`.`__v0_0` FROM s AS `s` LEFT JOIN"
            " (SELECT x.k AS `__k0`, avg(n) AS `__v0_0` FROM s AS x GROUP BY x.k) AS `__q0` ON `__q0`.`__k0` = `s`.k)"
            " AS `s` WHERE n >= (`s`.`__v0_0`) GROUP BY m",
        ),
        (  # the innermost first
            "SELECT n FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k AND p IN (SELECT v.n FROM v))",
            "SELECT n FROM s LEFT SEMI JOIN (SELECT r.k AS `__k0` FROM r LEFT SEMI JOIN v AS `v` ON `r`.p = `v`.n"
            " WHERE true) AS `__q0` ON `__q0`.`__k0` = s.k",
        ),
    ],
)
def test_a_subquery_becomes_a_join(written: str, read: str | None) -> None:
    assert planned(written) == (read or written)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n FROM s WHERE n NOT IN (SELECT p FROM r)",  # one NULL in it, and nothing is left
        "SELECT n FROM s WHERE n NOT IN (SELECT p FROM r WHERE p IS NOT NULL)",  # of a NULL it depends on all rows
        "SELECT n FROM s WHERE n > 1 OR EXISTS (SELECT 1 FROM r WHERE r.k = s.k)",
        "SELECT n FROM s WHERE EXISTS (SELECT 1 FROM r)",
        "SELECT n FROM s WHERE EXISTS (SELECT max(p) FROM r WHERE r.k = s.k)",  # there is always a row
        "SELECT n FROM s WHERE n > (SELECT max(p) FROM r)",
        "SELECT n FROM s WHERE n > (SELECT max(p) FROM r WHERE r.p < s.n)",
        "SELECT n FROM s WHERE n > (SELECT p FROM r WHERE r.k = s.k)",  # two rows are an error
        "SELECT n FROM s WHERE size((SELECT collect_list(p) FROM r WHERE r.k = s.k)) = 0",
        "SELECT n FROM s WHERE n IN (SELECT p FROM r WHERE r.k = s.k ORDER BY p LIMIT 1)",
        "SELECT n FROM s WHERE k IN (SELECT k FROM t)",  # a static table is met once
        "SELECT label FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.k = t.k)",
        "SELECT k FROM s LEFT JOIN r USING (k) WHERE EXISTS (SELECT 1 FROM v WHERE v.n = p)",  # of rows without partner
        "SELECT count(*) FROM s, r WHERE EXISTS (SELECT 1 FROM v WHERE v.n = p AND v.k = s.k)",
        "SELECT n FROM s WHERE EXISTS (SELECT 1 FROM r WHERE EXISTS (SELECT 1 FROM v WHERE v.n = m AND v.k = r.k))",
        "SELECT k, count(*) FROM s GROUP BY k HAVING k IN (SELECT k FROM r)",
    ],
)
def test_what_could_mean_something_else_stays(text: str) -> None:
    assert planned(text) == text
