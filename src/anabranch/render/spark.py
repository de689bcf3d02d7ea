"""Plans as Spark SQL. One SELECT a node, its columns named by their ids; Spark's optimizer folds them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from anabranch.ir.expr import Column, Subquery
from anabranch.ir.rel import (
    Aggregate,
    Distinct,
    Emit,
    Filter,
    Generate,
    Join,
    OneRow,
    OverRows,
    Project,
    Rel,
    Sampled,
    Scan,
    SetOp,
    TableFunction,
    TopN,
    Values,
    Windowed,
)
from anabranch.ir.text import Writer
from anabranch.plan.windows import ID, windowed_sql
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import Name
from anabranch.sql.text import quote_name

#: How a scan is written in FROM.
Leaf = Callable[[Scan], str]
JOINS = {
    "inner": "JOIN",
    "cross": "CROSS JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
}
SETS = {"union": "UNION", "intersect": "INTERSECT", "except": "EXCEPT"}


def sql(rel: Rel, leaf: Leaf) -> Spliced:
    """A plan as a query with the column names of users."""
    writer = SparkWriter(leaf)
    writer.put("SELECT ")
    writer.put(", ".join(f"{_name(column)} AS {quote_name(column.name)}" for column in rel.columns))
    writer.put(" FROM ")
    writer.input(rel)
    return writer.written


def _name(column: Column) -> str:
    return f"c{column.id}"


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(map(_name, columns)) or "1 AS one"


class SparkWriter(Writer):
    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.leaf = leaf

    def column(self, column: Column) -> str:
        return _name(column)

    def subquery(self, subquery: Subquery) -> None:
        self.rel(subquery.rel)

    def input(self, rel: Rel) -> None:
        """A relation after FROM or JOIN."""
        self.put("(")
        self.rel(rel)
        self.put(")")

    def rel(self, rel: Rel) -> None:
        """A SELECT whose columns are those of the node, in their order, named by their ids."""
        if isinstance(rel, Emit):
            self.rel(rel.input)
            return
        write = getattr(self, f"_{type(rel).__name__.lower()}")
        write(rel)

    # ---- leaves

    def _scan(self, rel: Scan) -> None:
        items = ", ".join(f"{quote_name(column.name)} AS {_name(column)}" for column in rel.columns)
        self.put(f"SELECT {items or '1 AS one'} FROM {self.leaf(rel)}")

    def _values(self, rel: Values) -> None:
        items = ", ".join(f"col{index + 1} AS {_name(column)}" for index, column in enumerate(rel.columns))
        self.put(f"SELECT {items} FROM VALUES ")
        self.exprs(rel.rows)

    def _onerow(self, rel: OneRow) -> None:
        self.put("SELECT 1 AS one")

    def _tablefunction(self, rel: TableFunction) -> None:
        names = ", ".join(_name(column) for column in rel.columns)
        self.put(f"SELECT {names} FROM ")
        self.expr(rel.call)
        self.put(f" AS t({names})")

    # ---- one input

    def _filter(self, rel: Filter) -> None:
        self.put(f"SELECT {_names(rel.columns)} FROM ")
        self.input(rel.input)
        self.put(" WHERE ")
        self.expr(rel.condition)

    def _project(self, rel: Project) -> None:
        self.put("SELECT ")
        for index, (column, expr) in enumerate(rel.items):
            self.put(", " if index else "")
            self.expr(expr)
            self.put(f" AS {_name(column)}")
        self.put("1 AS one" if not rel.items else "")
        if not isinstance(rel.input, OneRow):
            self.put(" FROM ")
            self.input(rel.input)

    def _windowed(self, rel: Windowed) -> None:
        inner = SparkWriter(self.leaf)
        numbers = [column for column in rel.input.columns if column.name in ("_row_num", "_arrival_ts")]
        named = "".join(f", {_name(column)} AS {column.name}" for column in numbers)
        inner.put(f"(SELECT {_names(rel.input.columns)}{named} FROM ")
        inner.input(rel.input)
        inner.put(")")
        partition, besides = (
            tuple(Name((_name(column),), rel.window.time_span) for column in each) for each in (rel.apart, rel.besides)
        )
        time = _name(rel.along) if rel.along else None
        window = replace(rel.window, time_column=time, partition=partition, columns=besides)
        source = windowed_sql(inner.written.text, window, with_id=any(column.name == ID for column in rel.bounds))
        bounds = "".join(f", {column.name} AS {_name(column)}" for column in rel.bounds)
        self.put(f"SELECT {_names(rel.kept)}{bounds} FROM {source}")

    def _sampled(self, rel: Sampled) -> None:
        self.put("SELECT * FROM ")
        self.input(rel.input)
        self.put(f" {rel.text}")

    def _generate(self, rel: Generate) -> None:
        self.put(f"SELECT {_names(rel.columns)} FROM ")
        self.input(rel.input)
        self.put(" LATERAL VIEW OUTER " if rel.outer else " LATERAL VIEW ")
        self.expr(rel.call)
        self.put(f" g AS {_names(rel.made)}")

    def _aggregate(self, rel: Aggregate) -> None:
        self.put("SELECT ")
        for index, (column, expr) in enumerate(rel.keys):
            self.put(", " if index else "")
            self.expr(expr)
            self.put(f" AS {_name(column)}")
        for index, (column, call) in enumerate(rel.calls):
            self.put(", " if index or rel.keys else "")
            self.call(call)
            self.put(f" AS {_name(column)}")
        self.put("1 AS one" if not rel.columns else "")
        self.put(" FROM ")
        self.input(rel.input)
        if rel.sets:
            self._sets(rel)
        elif rel.keys:
            self.put(" GROUP BY ")
            for index, _ in enumerate(rel.keys):
                self.put(", " if index else "")
                self._key(rel, index)

    def _sets(self, rel: Aggregate) -> None:
        self.put(" GROUP BY GROUPING SETS (")
        for number, positions in enumerate(rel.sets):
            self.put(", (" if number else "(")
            for index, position in enumerate(positions):
                self.put(", " if index else "")
                self._key(rel, position)
            self.put(")")
        self.put(")")

    def _key(self, rel: Aggregate, index: int) -> None:
        """A key in GROUP BY, where a plain number would be read as a position."""
        expr = rel.keys[index][1]
        if expr.columns() or not expr.type:
            self.expr(expr)
        else:
            self.put(str(index + 1))

    def _overrows(self, rel: OverRows) -> None:
        self.put(f"SELECT {_names(rel.input.columns)}")
        for column, call in rel.calls:
            self.put(", ")
            self.call(call)
            self.put(f" AS {_name(column)}")
        self.put(" FROM ")
        self.input(rel.input)

    def _distinct(self, rel: Distinct) -> None:
        self.put(f"SELECT DISTINCT {_names(rel.columns)} FROM ")
        self.input(rel.input)

    def _topn(self, rel: TopN) -> None:
        self.put(f"SELECT {_names(rel.columns)} FROM ")
        self.input(rel.input)
        self.order_and_limit(rel)

    def order_and_limit(self, rel: TopN) -> None:
        if rel.order:
            self.put(" ORDER BY ")
            self.sort_keys(rel.order)
        for word, expr in (("LIMIT", rel.limit), ("OFFSET", rel.offset)):
            if expr is not None:
                self.put(f" {word} ")
                self.expr(expr)

    # ---- two inputs

    def _join(self, rel: Join) -> None:
        self.put(f"SELECT {_names(rel.columns)} FROM ")
        self.input(rel.left)
        self.put(f" {JOINS[rel.kind]} {'LATERAL ' if rel.lateral else ''}")
        self.input(rel.right)
        if rel.on is not None:
            self.put(" ON ")
            self.expr(rel.on)

    def _setop(self, rel: SetOp) -> None:
        pairs = zip(rel.left.columns, rel.columns, strict=True)
        self.put(f"SELECT {', '.join(f'{_name(old)} AS {_name(new)}' for old, new in pairs)} FROM (")
        self.input(rel.left)
        self.put(f" {SETS[rel.kind]}{' ALL' if rel.all else ''} ")
        self.input(rel.right)
        self.put(")")
