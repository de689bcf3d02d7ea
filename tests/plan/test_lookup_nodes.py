"""Joins with tables that are looked up by key, as nodes: what asks, by what, and what stands above it."""

from __future__ import annotations

import pytest

from anabranch.errors import NotSupported
from anabranch.plan.definitions import Table
from anabranch.plan.view import TableLookup, View
from anabranch.types import Field
from plan.test_explain import World

FIELDS = (Field("k", "string"), Field("label", "string"), Field("n", "bigint"), Field("at", "timestamp"))
ASKED = Table("t", "t", "", FIELDS, "sqlite", {"path": "x", "table": "t"}, None, asked="always")


def made(query: str) -> tuple[View, View]:
    """The node that asks, and the view above it."""
    world = World()
    world.catalog = world.catalog.with_objects((ASKED,))
    view = world.make(f"CREATE VIEW v AS {query}")
    (below,) = [each for each in world.catalog.nodes_of(view) if each.query.asks]
    return below, view


def ask(*expressions: str, by: str, columns: str, of: str = "s") -> TableLookup:
    return TableLookup("t", of, expressions, tuple(by.split()), tuple(columns.split()), "_matches_0")


@pytest.mark.parametrize(
    ("query", "asks", "text"),
    [
        ("SELECT s.n, t.label FROM s LEFT JOIN t ON t.k = s.k AND t.n < s.n",
         ask("s.k", by="k", columns="k label n"),
         "SELECT s.n, t.label FROM `{}` AS s LEFT JOIN LATERAL inline(s._matches_0) AS t(`k`, `label`, `n`)"
         " ON t.k = s.k AND t.n < s.n"),
        ("SELECT x.n, y.b FROM s x, t y(a, b, c, d) WHERE y.c = abs(x.n)",
         ask("abs(x.n)", by="n", columns="label n", of="x"),
         "SELECT x.n, y.b FROM `{}` AS x CROSS JOIN LATERAL inline(x._matches_0) AS y(`b`, `c`)"
         " WHERE y.c = abs(x.n)"),
        ("SELECT k, n, ts, label FROM s JOIN t USING (k, n)",
         ask("s.k", "s.n", by="k n", columns="k label n"),
         "SELECT s.k, s.n, s.ts, t.label FROM `{}` AS s JOIN LATERAL inline(s._matches_0) AS t(`k`, `label`, `n`)"
         " ON s.k = t.k AND s.n = t.n"),
        ("SELECT s.n, x FROM s JOIN t ON t.k = s.k LATERAL VIEW explode(split(t.label, ',')) e AS x",
         ask("s.k", by="k", columns="k label"),
         "SELECT s.n, g.x FROM `{}` AS s JOIN LATERAL inline(s._matches_0) AS t(`k`, `label`) ON t.k = s.k"
         " LATERAL VIEW explode(split(t.label, ',')) g AS x"),
        ("SELECT n FROM s LEFT ANTI JOIN t ON t.k = s.k",
         ask("s.k", by="k", columns="k"),
         "SELECT s.n FROM `{}` AS s CROSS JOIN LATERAL inline(CASE WHEN NOT coalesce(exists(s._matches_0, __match ->"
         " (__match.`k`) = s.k), false) THEN array(named_struct('__half', true)) END) AS __half_1(`__half`)"),
    ],
)  # fmt: skip
def test_a_node_keeps_what_each_row_found(query: str, asks: TableLookup, text: str) -> None:
    below, view = made(query)
    assert below.query.asks == (asks,)
    assert (below.operator, below.time, [each.name for each in below.fields]) == (
        "lookup", "ts", ["k", "n", "ts", "_asked", "_matches_0"],
    )  # fmt: skip
    assert view.operator == "stateless" and list(view.query.views.values()) == [below.id] and not view.query.tables
    assert view.query.text.replace("`s`", "s") == text.format(f"@v:{below.id}")


def test_rows_in_windows_ask_as_they_came() -> None:
    below, view = made(
        "SELECT window_start, t.label, count(*) AS c FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) w JOIN t ON t.k = w.k"
        " GROUP BY window_start, t.label"
    )
    assert (
        below.query.asks[0].expressions == ("w.k",) and not below.query.views and list(below.query.streams) == ["@s:s"]
    )
    assert view.operator == "keyed" and view.keying.narrows[0].times == (("ts", 0, 60_000_000), None)


def test_what_breaks_ties_is_what_the_query_shows() -> None:
    _, view = made("SELECT row_number() OVER (PARTITION BY s.k ORDER BY s.n) AS r FROM s JOIN t ON t.k = s.k")
    assert "ORDER BY s.n, s.ts, t.k)" in view.query.text.replace("`s`", "s")
    _, view = made("SELECT row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM s LEFT SEMI JOIN t ON t.k = s.k")
    assert "ORDER BY s.n, s.ts)" in view.query.text.replace("`s`", "s")


@pytest.mark.parametrize(
    ("query", "message", "place"),
    [
        ("SELECT s.n FROM t JOIN s ON t.k = s.k", "for the rows of a stream", "t"),
        ("SELECT s.n FROM s FULL JOIN t ON t.k = s.k", "for the rows of a stream", "t"),
        ("SELECT s.n FROM s JOIN TUMBLE(t, at, INTERVAL 1 DAY) x ON x.k = s.k", "as it is now",
         "TUMBLE(t, at, INTERVAL 1 DAY)"),
        ("SELECT s.n FROM s JOIN (SELECT k FROM t WHERE n > 1) x ON x.k = s.k", "can only be joined", "t"),
        ("SELECT k FROM s UNION ALL SELECT k FROM t", "can only be joined", "t"),
        ("SELECT n FROM s WHERE n = (SELECT max(n) FROM t)", "can only be joined", "t"),
        ("SELECT s._row_num FROM s JOIN t ON t.k = s.k", "without row numbers", "s"),
        ("SELECT s.n FROM s, t", "no condition of this join contains a key", "t"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_where_it_stands(query: str, message: str, place: str) -> None:
    with pytest.raises(NotSupported) as caught:
        made(query)
    error = caught.value
    assert message in error.message and error.text is not None
    assert error.text[error.start : error.end] == place
