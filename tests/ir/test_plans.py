"""Plans of queries: what each is built into (files of a query and its plan), and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import SqlError, UnknownName
from anabranch.ir.expr import Column, Expr, of_column
from anabranch.ir.rel import MalformedPlan, Project, Scan, SetOp, Source
from anabranch.ir.show import show
from ir.plan_help import Untyped, plan

PLANS = sorted((Path(__file__).parent / "plans").glob("*.plan"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_query_is_built_into_its_plan(path: Path) -> None:
    sql, _, wanted = path.read_text().partition("\n\n")
    assert show(plan(sql)) + "\n" == wanted


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_reads_nothing_that_is_not_there(path: Path) -> None:
    assert not plan(path.read_text().partition("\n\n")[0]).free


def test_spark_is_asked_once_for_each_select() -> None:
    context = Untyped()
    plan("SELECT k, sum(n) FROM s WHERE k IN (SELECT k FROM b WHERE m > 1) GROUP BY k ORDER BY 2", context)
    assert len(context.analyses) == 2


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT q FROM s", "there is no column q"),
        ("SELECT s.q FROM s", "there is no column s.q"),
        ("SELECT t.k FROM s", "there is no column or relation t here"),
        ("SELECT k FROM s JOIN b ON s.k = b.k", "k is ambiguous"),
        ("SELECT t.* FROM s", "there is no column or relation t here"),
        ("SELECT k FROM s UNION SELECT k, m FROM b", "UNION of 1 and 2 columns"),
        ("SELECT x FROM (SELECT k, n FROM s) AS t(x)", "1 names for 2 columns"),
        ("SELECT sum(n) OVER w FROM s", "there is no window w"),
        ("SELECT k FROM s JOIN names USING (label)", "there is no column label"),
        ("SELECT count(*) FROM names <VISIBLE '1 day'>", "it is not clear which column has the time"),
    ],
)
def test_what_is_wrong_is_pointed_at(sql: str, message: str) -> None:
    with pytest.raises(SqlError) as error:
        plan(sql)
    assert message in str(error.value) and "^" in str(error.value)


def test_the_end_of_a_case_is_no_name() -> None:
    shown = show(plan("SELECT n AS end FROM s ORDER BY CASE WHEN end > 1 THEN end ELSE CASE n WHEN end THEN 2 END END"))
    assert "= CASE WHEN n#2 > 1 THEN n#2 ELSE CASE n#2 WHEN n#2 THEN 2 END END" in shown


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean label"):
        plan("SELECT lable FROM names")


def test_nodes_that_do_not_fit_are_not_made() -> None:
    one, two = Column(1, "a", "int"), Column(2, "b", "int")
    scan = Scan(Source("table", "t", "t"), (one, two))
    with pytest.raises(MalformedPlan, match="a column twice"):
        Project(scan, ((one, of_column(one)), (one, of_column(two))))
    with pytest.raises(MalformedPlan, match="2 and 1 columns"):
        SetOp("union", True, scan, Project(scan, ((one, of_column(one)),)), (Column(3, "a", "int"),))


def test_an_expression_takes_others_in_place_of_its_columns() -> None:
    one, two = Column(1, "a", "int"), Column(2, "b", "int")
    sum_of = Expr((one, "*", two))
    made = sum_of.substitute({one: Expr((two, "+", "1"))})
    assert made.parts == ("(", two, "+", "1", ")", "*", two)
    assert made.columns() == {two}
