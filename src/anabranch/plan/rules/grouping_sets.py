"""Expands GROUPING SETS, ROLLUP and CUBE to a union of plain GROUP BYs, each with its own keys:

    SELECT k, g, grouping(g) AS all_g, sum(n) AS n FROM s GROUP BY ROLLUP (k, g)

is

    SELECT k, g, CAST(0 AS TINYINT) AS all_g, sum(n) AS n FROM s GROUP BY k, g
    UNION ALL SELECT k, CAST(NULL AS STRING) AS g, CAST(1 AS TINYINT) AS all_g, sum(n) AS n FROM s GROUP BY k
    UNION ALL SELECT CAST(NULL AS INT) AS k, CAST(NULL AS STRING) AS g, ... FROM s GROUP BY (1 = 1)

Over no rows there is no row, not even for the empty set, as in Spark. Only if the empty set is the only one is there a
row; the builder has turned such a query into an aggregate without keys.
"""

from __future__ import annotations

from anabranch.ir.expr import Call, Column, Expr
from anabranch.ir.rel import Aggregate, Filter, Project, Rel, SetOp
from anabranch.plan.rules import RuleContext

#: More sets than these are computed as one query.
MAX_SETS = 16
#: The key of the empty set: all rows are one group, and no rows are none.
_ALL = Expr(("(", "1", "=", "1", ")"), "boolean")


def expand_grouping_sets(rel: Rel, context: RuleContext) -> Rel | None:
    if not isinstance(rel, Project):
        return None
    having = rel.input if isinstance(rel.input, Filter) else None
    groups = having.input if having is not None else rel.input
    if not isinstance(groups, Aggregate) or not 1 < len(groups.sets) <= MAX_SETS:
        return None
    made: Rel | None = None
    for positions in groups.sets:
        constants = {
            **{column: _null(column) for at, (column, _) in enumerate(groups.keys) if at not in positions},
            **{
                column: value
                for column, call in groups.calls
                if (value := _grouping_value(call, groups, positions)) is not None
            },
        }
        keys = tuple(groups.keys[at] for at in positions) or ((context.new("all", "boolean"), _ALL),)
        calls = tuple((column, call) for column, call in groups.calls if column not in constants)
        branch: Rel = Aggregate(groups.input, keys, calls)
        if having is not None:
            branch = Filter(branch, having.condition.substitute(constants))
        items = tuple(
            (column, constants[expr.column] if expr.column in constants else expr.substitute(constants))
            for column, expr in rel.items
        )
        branch = Project(branch, tuple(_named(item, context) for item in items))
        made = branch if made is None else SetOp("union", True, made, branch, rel.columns)
    # An expression that Spark takes for a key but that is written differently would lack its columns in some sets.
    return made if made is not None and made.free <= rel.free else None


def _named(item: tuple[Column, Expr], context: RuleContext) -> tuple[Column, Expr]:
    """An item with a new column, unless it only passes a column on."""
    column, expr = item
    return item if expr.column == column else (context.new(column.name, column.type), expr)


def _null(column: Column) -> Expr:
    return Expr(("CAST", "(", "NULL", "AS", column.type.upper(), ")"), column.type)


def _grouping_value(call: Call, groups: Aggregate, positions: tuple[int, ...]) -> Expr | None:
    """The value of grouping(k) and grouping_id() in a set: a 1 for each key that the set lacks."""
    if call.name not in ("grouping", "grouping_id"):
        return None
    keys = [expr.normal for _, expr in groups.keys]
    positions_asked = [keys.index(each.normal) for each in call.args if each.normal in keys] or range(len(keys))
    bits = "".join(str(int(at not in positions)) for at in positions_asked)
    return Expr(("CAST", "(", str(int(bits, 2)), "AS", "TINYINT" if call.name == "grouping" else "BIGINT", ")"))
