"""Translate plans to DuckDB SQL, with types found without Spark.

A plan is written as Spark SQL with unique column names, and that is translated to DuckDB SQL. `fields_of` replaces
Spark's analyser when plans are built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.ir.expr import Expr
from anabranch.ir.rel import Aggregate, Distinct, Filter, Join, OneRow, OverRows, Project, Rel, Scan, SetOp, TopN
from anabranch.render.duckdb import Writer, parsed
from anabranch.render.duckdb_kinds import spark_type_of
from anabranch.render.duckdb_scope import MARK, Declined, decline
from anabranch.render.spark import SparkWriter
from anabranch.render.spark_names import name_of
from anabranch.types import Field

#: Replaces a name that only Spark knows; a query that shows it is declined.
UNNAMED = "\0"
_NODES = (Aggregate, Distinct, Filter, Join, OneRow, OverRows, Project, Scan, SetOp, TopN)


@dataclass(frozen=True)
class _Typed:
    text: str
    fields: list[Field]


def fields_of(text: str, schemas: Mapping[str, Sequence[Field]]) -> list[Field]:
    """The columns of a query over placeholders, the same as Spark's; raises Declined."""
    return _typed(text, schemas).fields


def sql(rel: Rel, leaf: Callable[[Scan], str]) -> str:
    """The DuckDB SQL of a plan, with its columns in order; raises Declined."""
    _check(rel)
    scans: dict[str, Scan] = {}

    def placeholder(scan: Scan) -> str:
        name = f"@{len(scans)}"
        scans[name] = scan
        return f"`{name}`"

    text = _written(rel, placeholder)
    pieces = _typed(text, {name: scan.schema for name, scan in scans.items()}).text.split(MARK)
    for index in range(1, len(pieces), 2):
        pieces[index] = leaf(scans[pieces[index]])
    return "".join(pieces)


def _written(rel: Rel, leaf: Callable[[Scan], str]) -> str:
    """A plan as Spark SQL. Its ORDER BY is outermost, since DuckDB need not keep the order of a subquery."""
    top: Rel = rel
    if isinstance(rel, Project) and isinstance(rel.input, TopN) and all(expr.column for expr in rel.exprs()):
        top = rel.input
    shown = [expr.column for expr in rel.exprs()] if isinstance(rel, Project) and top is not rel else rel.columns
    writer = SparkWriter(leaf)
    writer.put(f"SELECT {', '.join(writer.column(column) for column in shown if column is not None)} FROM ")
    writer.input(top.input if isinstance(top, TopN) else top)
    if isinstance(top, TopN):
        writer.order_and_limit(top)
    return writer.written.text


def _check(rel: Rel) -> None:
    """Decline unknown nodes, and misplaced aggregates, for which Spark reports the error."""
    for node in rel.walk():
        if not isinstance(node, _NODES):
            decline(type(node).__name__)
        if isinstance(node, Aggregate | OverRows):
            inner = [expr for _, call in node.calls for expr in call.exprs()]
            _check_exprs([*inner, *(expr for _, expr in node.keys)] if isinstance(node, Aggregate) else inner)
        else:
            _check_exprs(list(node.exprs()))
        if isinstance(node, Join) and node.lateral:
            decline("LATERAL")
        if isinstance(node, TopN) and (node.offset is not None or (node.limit and not _is_number(node.limit))):
            decline("OFFSET" if node.offset is not None else "LIMIT of something that is no number")


def _check_exprs(exprs: Sequence[Expr]) -> None:
    for expr in exprs:
        if any(True for _ in expr.calls()):
            decline("an aggregate or a window function inside another expression")
        if any(inner.rel.free for inner in expr.subqueries()):
            decline("a subquery that reads the rows around it")


def _is_number(expr: Expr) -> bool:
    return len(expr.parts) == 1 and isinstance(expr.parts[0], str) and expr.parts[0].isdecimal()


def _typed(text: str, schemas: Mapping[str, Sequence[Field]]) -> _Typed:
    from sqlglot import errors, exp

    if MARK in text:
        decline("a text with a NUL character")
    try:
        tree = parsed(text)
        if not isinstance(tree, exp.Query):
            decline("what is no query")
        made = Writer(schemas=schemas).query(tree, None)
    except (errors.SqlglotError, RecursionError) as error:
        raise Declined(str(error).splitlines()[0] if str(error) else "it is nested too deeply") from error
    first = tree
    while isinstance(first, exp.SetOperation | exp.Subquery):
        first = first.this
    items = first.expressions
    if len(items) != len(made.columns.kinds):  # with a star
        names = [name for name, _ in made.columns.kinds]
    else:
        names = [item.alias or name_of(item) or UNNAMED for item in items]
    fields = []
    for name, (_, kind) in zip(names, made.columns.kinds, strict=True):
        type = spark_type_of(kind)
        if type is None:
            decline(f"a value of type {kind.family}")
        fields.append(Field(name, type))
    return _Typed(made.text, fields)
