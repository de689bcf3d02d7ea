"""Where the join of a stream with static tables may stand above partials of the stream, where it pays, and why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.ir.fold import fold
from anabranch.ir.select import SelectBlock
from anabranch.plan.definitions import Table
from anabranch.plan.eager_aggregation import Choice, choose
from anabranch.plan.panes import PaneBlock, PaneContext, find_panes
from anabranch.plan.relation_builder import builder
from anabranch.sql.parser import parse
from anabranch.sql.syntax import SelectStatement
from plan.test_raise_joins import CATALOG, analyze


def chosen(sql: str, every_run: bool = False) -> tuple[PaneBlock, Choice]:
    (statement,) = parse(sql)
    assert isinstance(statement, SelectStatement)
    table = CATALOG["t"]
    assert isinstance(table, Table)
    catalog = CATALOG.with_objects([replace(table, every_run=every_run)])
    block = fold(builder(statement.text, statement.query, catalog, analyze).query(statement.query, None, {}))
    assert isinstance(block, SelectBlock)
    context = PaneContext(catalog, analyze, lambda _: None)
    panes = find_panes(block, context)
    assert isinstance(panes, PaneBlock), panes
    return panes, choose(block, panes, context, statement.text)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT s.k, label, count(*) FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k, label",
        "SELECT k, count(DISTINCT n) FROM s LEFT JOIN t USING (k) WHERE n > 0 GROUP BY k",
        "SELECT x.k, upper(label), sum(d) FILTER (WHERE n > 1) FROM s AS x LEFT JOIN t ON x.k = t.k AND y > 1"
        " LEFT JOIN u ON u.name = t.label GROUP BY x.k, upper(label), region",
        "SELECT window_start, window_end, s.k, label, count(*) FROM TUMBLE(s, ts, INTERVAL 1 MINUTE) s"
        " LEFT JOIN t ON s.k = t.k GROUP BY window_start, window_end, s.k, label",
    ],
)
def test_it_pays_where_there_are_no_more_partials(sql: str) -> None:
    block, choice = chosen(sql)
    assert choice.block is not None and choice.above is not None and not choice.costs
    assert [key.name for key in choice.block.row_keys] == ["k"]
    assert [each.key for each in choice.block.calls] == [each.key for each in block.calls]
    assert choice.block.windows == block.windows
    assert choice.above.names == {"k": "k"}
    assert choice.reason == "rows are grouped by k anyway, so that a run need not read the table"


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT label, count(*) FROM s LEFT JOIN t ON s.k = t.k GROUP BY label", "grouped by k as well, and be more"),
        ("SELECT s.k, label, count(*) FROM s JOIN t ON s.k = t.k GROUP BY s.k, label", "it leaves rows out"),
        ("SELECT s.k, count(*) FROM s SEMI JOIN t ON s.k = t.k GROUP BY s.k", "it leaves rows out"),
        ("SELECT s.k, count(*) FROM s LEFT JOIN t ON s.k = t.k WHERE y > 1 GROUP BY s.k", "it leaves rows out"),
        ("SELECT s.k, count(*) FROM t JOIN s ON s.k = t.k GROUP BY s.k", "it leaves rows out"),
        ("SELECT s.k, count(*) FROM s LEFT JOIN t ON s.k = t.k AND n > y GROUP BY s.k", "grouped by n as well"),
        ("SELECT s.k, count(*) FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k, n + y", "grouped by n as well"),
    ],
)
def test_it_does_not_pay_where_there_would_be_more(sql: str, reason: str) -> None:
    choice = chosen(sql)[1]
    assert choice.block is not None and reason in choice.costs
    asked = chosen(sql.replace("SELECT", "SELECT /*+ JOIN_ABOVE(t) */", 1))[1]
    assert asked.block == choice.block and asked.forced and not asked.costs


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT s.k, max(y) FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k", "max(y) is not of the stream alone"),
        ("SELECT s.k, count(*) FILTER (WHERE y > n) FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k", "not of the stream"),
        ("SELECT /*+ JOIN_BELOW(t) */ s.k, count(*) FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k", "says JOIN_BELOW"),
    ],
)
def test_it_cannot_be(sql: str, reason: str) -> None:
    choice = chosen(sql)[1]
    assert choice.block is None and reason in choice.costs


@pytest.mark.parametrize(
    ("call", "safe"),
    [("count(*)", True), ("sum(n)", True), ("count(s.k)", True), ("max(ts)", True), ("sum(n + 1)", False),
     ("count(*) FILTER (WHERE n > 1)", False)],
)  # fmt: skip
def test_nothing_fails_for_rows_that_the_join_leaves_out(call: str, safe: bool) -> None:
    assert chosen(f"SELECT s.k, {call} FROM s JOIN t ON s.k = t.k GROUP BY s.k")[1].safe == safe


def test_what_would_be_settled_at_once_stays_below() -> None:
    choice = chosen("SELECT s.k, count(*) FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k", every_run=True)[1]
    assert choice.block is None and choice.costs == "t is refreshed before each run"


def test_a_block_without_tables_has_no_choice() -> None:
    assert chosen("SELECT k, count(*) FROM s GROUP BY k")[1] == Choice()
