"""Decorrelates subqueries to joins, so that they have keys:

    SELECT * FROM a WHERE n > 0 AND EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.ts < a.ts)
    SELECT * FROM a WHERE k IN (SELECT k FROM b GROUP BY k HAVING count(*) > 2)
    SELECT * FROM a WHERE n > (SELECT max(p) FROM b WHERE b.k = a.k)

are

    SELECT * FROM a LEFT SEMI JOIN b ON b.k = a.k AND b.ts < a.ts WHERE n > 0
    SELECT * FROM a LEFT SEMI JOIN (SELECT k FROM b GROUP BY k HAVING count(*) > 2) AS q ON a.k = q.k
    SELECT a.* FROM a LEFT JOIN (SELECT k, max(p) AS p FROM b GROUP BY k) AS q ON q.k = a.k WHERE n > q.p

NOT EXISTS becomes an anti join; so does NOT IN where neither operand can be NULL. Where rows are also joined or
aggregated, the subquery is joined to the relation that it refers to, in a derived table.

Where it refers to rows of static tables, it is reduced to distinct values, so that it lives on partials:

    SELECT label FROM t WHERE EXISTS (SELECT 1 FROM b WHERE b.k = t.k AND p > 1)
    SELECT label FROM t WHERE n > (SELECT sum(p) FROM b WHERE b.k = t.k)

are

    SELECT label FROM t JOIN (SELECT k FROM b WHERE p > 1 GROUP BY k) AS q ON t.k = q.k
    SELECT label FROM t JOIN (SELECT k, sum(p) AS p FROM b GROUP BY k) AS q ON q.k = t.k WHERE n > q.p

Not decorrelated: subqueries under OR, uncorrelated ones, those that read only static tables, and those correlated with
static tables by anything but equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.ir.expr import Column, Expr, Part, Subquery, of_column
from anabranch.ir.logic import Membership, comparison, conjunction, conjuncts, equation, listed, membership
from anabranch.ir.rel import (
    Aggregate,
    Computed,
    Emit,
    Filter,
    Join,
    JoinKind,
    OverRows,
    Project,
    Rel,
    Scan,
    Windowed,
    is_live,
)
from anabranch.plan.rules import RuleContext
from anabranch.sql.text import words
from anabranch.types import INTEGERS

#: Aggregates that are NULL over no rows; count is 0, and others are unknown here.
_NULL_OF_NOTHING = words(
    """min max sum avg mean min_by max_by stddev stddev_pop stddev_samp std variance var_pop var_samp bool_and bool_or
    every some median"""
)


@dataclass(frozen=True)
class _Joined:
    """A decorrelated subquery: the relation to join, the join condition, and the expression for its value."""

    right: Rel
    kind: JoinKind
    on: Expr
    value: Expr | None = None
    subquery: Subquery | None = None  # the subquery that the value replaces


def decorrelate(rel: Rel, context: RuleContext) -> Rel | None:
    if not isinstance(rel, Project | Aggregate | OverRows):
        return None
    below = rel.input
    source, conditions = (below.input, conjuncts(below.condition)) if isinstance(below, Filter) else (below, [])
    for index, condition in enumerate(conditions):
        asked = membership(condition)
        others = [*conditions[:index], *conditions[index + 1 :]]
        if asked is not None:
            joined = _membership(asked, source, others, context)
            placed = _placed(source, joined, isinstance(rel, Project)) if joined is not None else None
            placed = placed or _join_static(source, _asked_values(asked, source, others, context))
            if placed is not None:
                return replace(rel, input=_filtered(placed, others))
            continue
        for subquery in _scalars([condition]):
            joined = _value(subquery, source, context)
            if joined is None:
                continue
            asks = _with_value(condition, joined)
            placed = _placed(source, joined, isinstance(rel, Project)) or _join_static(source, joined, asks)
            if placed is not None:
                conditions[index] = asks
                return replace(rel, input=_filtered(placed, conditions))
    if not isinstance(rel, Project) or isinstance(source, Aggregate | OverRows):
        return None
    for subquery in _scalars([expr for _, expr in rel.items]):
        joined = _value(subquery, source, context)
        placed = _placed(source, joined, True) or _join_static(source, joined) if joined is not None else None
        if joined is not None and placed is not None:
            items = tuple((column, _with_value(expr, joined)) for column, expr in rel.items)
            return replace(rel, input=_filtered(placed, conditions), items=items)
    return None


def _scalars(exprs: Sequence[Expr]) -> list[Subquery]:
    return [part for expr in exprs for part in expr.parts if isinstance(part, Subquery) and part.kind == "scalar"]


def _filtered(rel: Rel, conditions: Sequence[Expr]) -> Rel:
    condition = conjunction(conditions)
    return Filter(rel, condition) if condition is not None else rel


def _with_value(expr: Expr, joined: _Joined) -> Expr:
    """An expression with the subquery replaced by the value of the join."""

    def change(part: Part) -> Part | Expr:
        return joined.value if part is joined.subquery and joined.value is not None else part

    return expr.map(change)


# ------------------------------------------------------------------------------------------------- the subquery


def _rows(rel: Rel) -> tuple[Rel, list[Expr]] | None:
    """The relations of FROM and their conditions, if nothing else is below a SELECT list."""
    conditions: list[Expr] = []
    if isinstance(rel, Filter):
        conditions, rel = conjuncts(rel.condition), rel.input
    if any(True for each in conditions for _ in each.subqueries()) or rel.free:
        return None
    return (rel, conditions) if _is_from(rel) else None


def _is_from(rel: Rel) -> bool:
    """Whether a relation is a FROM clause: one relation, or several joined ones."""
    return not isinstance(rel, Filter | Aggregate | OverRows | Emit) or rel.label is not None


def _membership(asked: Membership, source: Rel, others: Sequence[Expr], context: RuleContext) -> _Joined | None:
    """EXISTS and IN as a semi join, NOT EXISTS and NOT IN as an anti join."""
    inner = asked.subquery.rel
    asks = any(isinstance(each, Scan) and each.source.looked_up for each in inner.walk())
    if not (asks or is_live(inner)) or any(isinstance(each, Emit) for each in inner.walk()):
        return None
    kind: JoinKind = "anti" if asked.negated else "semi"
    rows = _rows(inner.input) if isinstance(inner, Project) else None
    if rows is None:
        return None if asks else _whole(asked, inner, kind, source, others, context)
    assert isinstance(inner, Project)
    below, conditions = rows
    if asks and not isinstance(below, Scan):  # an external table is looked up row by row
        return None
    items = [expr for _, expr in inner.items]
    if any(True for each in items for _ in each.subqueries()):
        return None
    pairs = _pairs(asked, items, source, below, context)
    if pairs is None or any(right.columns() & inner.free for _, right in pairs):
        return None
    if asked.negated and pairs and not _never_null(pairs, others, conditions):
        return None
    tied = [each for each in conditions if each.columns() & inner.free]
    if not tied and not pairs:
        return None
    leaf = isinstance(below, Scan) or (isinstance(below, Windowed) and below.window.by_row)
    if leaf and all(right.column is not None for _, right in pairs):
        on = conjunction([*(_equal(left, right) for left, right in pairs), *conditions])
        assert on is not None
        return _Joined(below, kind, on)
    return _derived(below, kind, [each for each in conditions if each not in tied], tied, pairs, context)


def _derived(
    below: Rel,
    kind: JoinKind,
    local: Sequence[Expr],
    tied: Sequence[Expr],
    pairs: Sequence[tuple[Expr, Expr]],
    context: RuleContext,
) -> _Joined:
    """The local part of the subquery as a derived table, with the columns that the join needs."""
    items: dict[Expr, Column] = {}

    def column(expr: Expr) -> Column:
        if expr not in items:
            own = expr.column
            items[expr] = own if own is not None else context.new(f"__k{len(items)}", expr.type)
        return items[expr]

    equal = [_equal(left, of_column(column(right))) for left, right in pairs]
    for each in tied:
        for own in sorted(each.columns() & set(below.columns), key=lambda found: found.id):
            column(of_column(own))
    on = conjunction([*equal, *tied])
    assert on is not None
    return _Joined(Project(_filtered(below, local), tuple((made, expr) for expr, made in items.items())), kind, on)


def _whole(
    asked: Membership, inner: Rel, kind: JoinKind, source: Rel, others: Sequence[Expr], context: RuleContext
) -> _Joined | None:
    """An uncorrelated subquery, whatever it computes: x IN (SELECT k FROM b GROUP BY k)."""
    if asked.left is None or inner.free or (asked.negated and not _groups_without_null(inner)):
        return None
    pairs = _pairs(asked, [of_column(column) for column in inner.columns], source, inner, context)
    if pairs is None or (asked.negated and not all(_says_not_null(left, others) for left, _ in pairs)):
        return None
    on = conjunction(_equal(left, right) for left, right in pairs)
    assert on is not None
    return _Joined(inner, kind, on)


def _pairs(
    asked: Membership, items: Sequence[Expr], source: Rel, inner: Rel, context: RuleContext
) -> list[tuple[Expr, Expr]] | None:
    """The equated expressions of x IN (SELECT y ...); None where their types differ and Spark would cast."""
    if asked.left is None:
        return []
    lefts = listed(asked.left, len(items))
    if lefts is None or (asked.negated and len(lefts) > 1):
        return None
    pairs = list(zip(lefts, items, strict=True))
    return pairs if _same_types(pairs, source, inner, context) else None


def _same_types(pairs: Sequence[tuple[Expr, Expr]], one: Rel, other: Rel, context: RuleContext) -> bool:
    """Whether the operands have equal types: for others, equality depends on the form of the query."""
    lefts, rights = context.types([left for left, _ in pairs], one), context.types([right for _, right in pairs], other)
    return all(a == b or {a, b} <= set(INTEGERS) for a, b in zip(lefts, rights, strict=True))


def _equal(left: Expr, right: Expr) -> Expr:
    spans = (*(left.spans or (None,) * len(left.parts)), None, *(right.spans or (None,) * len(right.parts)))
    return Expr((*left.parts, "=", *right.parts), "boolean", spans)


def _never_null(pairs: Sequence[tuple[Expr, Expr]], outside: Sequence[Expr], inside: Sequence[Expr]) -> bool:
    return all(_says_not_null(left, outside) and _says_not_null(right, inside) for left, right in pairs)


def _says_not_null(expr: Expr, conditions: Sequence[Expr]) -> bool:
    return any(each.normal == (*expr.normal, "is", "not", "null") for each in conditions)


def _groups_without_null(inner: Rel) -> bool:
    """Whether HAVING excludes NULL from the only column of a subquery."""
    if not isinstance(inner, Project) or not isinstance(inner.input, Filter) or len(inner.items) != 1:
        return False
    groups = inner.input.input
    return isinstance(groups, Aggregate) and bool(groups.keys) and (
        _says_not_null(inner.items[0][1], conjuncts(inner.input.condition))
    )  # fmt: skip


def _value(subquery: Subquery, source: Rel, context: RuleContext) -> _Joined | None:
    """A scalar subquery, (SELECT max(p) FROM b WHERE b.k = a.k): one row for each k."""
    inner = subquery.rel
    if not isinstance(inner, Project) or len(inner.items) != 1 or not is_live(inner):
        return None
    groups, item = inner.input, inner.items[0][1]
    rows = _rows(groups.input) if isinstance(groups, Aggregate) and not groups.keys else None
    if rows is None or item.columns() & inner.free or any(isinstance(each, Emit) for each in inner.walk()):
        return None
    assert isinstance(groups, Aggregate)
    below, conditions = rows
    tied = _tied(conditions, inner.free, source, below, context)
    if tied is None:
        return None
    keys, on, local = tied
    values: dict[Column, Column | Expr] = {}
    for column, call in groups.calls:
        if call.name == "count":
            values[column] = Expr(("coalesce", "(", column, ",", "0", ")"), column.type)
        elif call.name not in _NULL_OF_NOTHING or call.order:
            return None
    right = Aggregate(_filtered(below, local), tuple(keys), groups.calls)
    named = Project(right, tuple((column, of_column(column)) for column in right.columns))
    whole = values.get(item.column) if item.column is not None else None
    value = whole if isinstance(whole, Expr) else item.substitute(values)
    return _Joined(named, "left", on, value, subquery)


def _tied(
    conditions: Sequence[Expr], free: frozenset[Column], source: Rel, below: Rel, context: RuleContext
) -> tuple[list[Computed], Expr, list[Expr]] | None:
    """The correlation of a subquery: the inner operands of its equations as keys, the equations over these keys, and
    its other conditions. None where there is no equation, or anything else correlates it."""
    keys: list[Computed] = []
    equations: list[Expr] = []
    pairs: list[tuple[Expr, Expr]] = []
    local: list[Expr] = []
    for each in conditions:
        if not each.columns() & free:
            local.append(each)
            continue
        found = _own_side(each, free)
        if found is None:
            return None
        own, sign, around = found
        column = own.column or context.new(f"__k{len(keys)}", own.type)
        if any(column == known for known, _ in keys):
            column = context.new(f"__k{len(keys)}", column.type)
        keys.append((column, own))
        pairs.append((around, own))
        equations.append(Expr((column, sign, *around.parts), "boolean", (None, None, *around.spans)))
    on = conjunction(equations)
    return (keys, on, local) if on is not None and _same_types(pairs, source, below, context) else None


def _own_side(expr: Expr, free: frozenset[Column]) -> tuple[Expr, str, Expr] | None:
    """A comparison split into an operand over the subquery's own rows, the operator, and one over the outer rows."""
    sides = equation(expr)
    if sides is None:
        return None
    one, sign, other = sides
    for own, around in ((one, other), (other, one)):
        if own.columns() and not own.columns() & free and around.columns() and around.columns() <= free:
            return own, sign, around
    return None


# ------------------------------------------------------------------------------------------ asked of static tables


def _asked_values(asked: Membership, source: Rel, others: Sequence[Expr], context: RuleContext) -> _Joined | None:
    """EXISTS and IN as a join with the distinct values of a subquery."""
    inner = asked.subquery.rel
    if not is_live(inner) or any(isinstance(each, Emit) for each in inner.walk()):
        return None
    if asked.negated and asked.left is not None:
        excluded = _excludes_null(inner)
        if not excluded or not _says_not_null(asked.left, others):
            return None
    pairs = _pairs(asked, [of_column(column) for column in inner.columns], source, inner, context)
    values = _untied(inner, asked.left is not None, source, context) if pairs is not None else None
    if pairs is None or values is None:
        return None
    rel, tied = values
    on = conjunction([*(_equal(left, right) for left, right in pairs), *tied])
    if on is None:
        return None
    return _Joined(_distinct(rel), "anti" if asked.negated else "inner", on)


def _excludes_null(inner: Rel) -> bool:
    """Whether a subquery with one column excludes NULL from it."""
    if not isinstance(inner, Project) or not isinstance(inner.input, Filter) or len(inner.items) != 1:
        return False
    return _says_not_null(inner.items[0][1], conjuncts(inner.input.condition))


def _untied(inner: Rel, shows: bool, source: Rel, context: RuleContext) -> tuple[Rel, list[Expr]] | None:
    """An uncorrelated form of a subquery, for all values of its keys, which become columns; and the correlating
    equations. With `shows`, its own columns count too."""
    if not inner.free:
        return inner, []
    if not isinstance(inner, Project):
        return None
    having = inner.input if isinstance(inner.input, Filter) and isinstance(inner.input.input, Aggregate) else None
    body = having.input if having is not None else inner.input
    groups = body if isinstance(body, Aggregate) else None
    rows = _rows(groups.input if groups is not None else body)
    if rows is None or (groups is not None and (not groups.keys or groups.sets)):
        return None
    above = [*(expr for _, expr in inner.items), *([having.condition] if having is not None else [])]
    above += groups.exprs() if groups is not None else ()
    if any(expr.columns() & inner.free or any(True for _ in expr.subqueries()) for expr in above):
        return None
    below, conditions = rows
    tied = _tied(conditions, inner.free, source, below, context)
    if tied is None:
        return None
    keys, on, local = tied
    made = _filtered(below, local)
    if groups is not None:
        known = {expr.normal: column for column, expr in groups.keys}
        more = [(column, expr) for column, expr in keys if expr.normal not in known]
        made = Aggregate(made, (*groups.keys, *more), groups.calls)
        made = Filter(made, having.condition) if having is not None else made
        keys = [(column, of_column(known.get(expr.normal, column))) for column, expr in keys]
    items = dict(inner.items) if shows else {}
    renamed: dict[Column, Column] = {}
    for column, expr in keys:
        if column in items and items[column].normal != expr.normal:
            renamed[column] = context.new(column.name, column.type)
        items[renamed.get(column, column)] = expr
    return Project(made, tuple(items.items())), [on.substitute(renamed) if renamed else on]


def _distinct(rel: Rel) -> Rel:
    """The distinct rows of a relation."""
    groups = rel.input if isinstance(rel, Project) else None
    groups = groups.input if isinstance(groups, Filter) else groups
    keys = groups.keys if isinstance(groups, Aggregate) and not groups.sets else ()
    if keys and {column for column, _ in keys} <= {expr.column for expr in rel.exprs()}:
        return rel
    return Project(
        Aggregate(rel, tuple((column, of_column(column)) for column in rel.columns), ()),
        tuple((column, of_column(column)) for column in rel.columns),
    )


def _join_static(source: Rel, joined: _Joined | None, asks: Expr | None = None) -> Rel | None:
    """The relations of FROM joined with the values of a subquery on static tables among them. An inner join where the
    condition `asks` holds for no row without a value."""
    if joined is None:
        return None
    used = joined.on.columns() - set(joined.right.columns)
    about = [each for each in _leaves(source) if used & set(each.columns)]
    if not used or not used <= set(source.columns) or any(map(is_live, about)):
        return None
    if any(isinstance(each, Scan) and each.source.looked_up for each in _leaves(source)):
        return None
    needed = asks is not None and _needs(asks, frozenset(joined.right.columns))
    return Join(source, joined.right, "inner" if needed else joined.kind, joined.on)


def _needs(condition: Expr, columns: frozenset[Column]) -> bool:
    """Whether a condition is a comparison that does not hold where these columns are NULL."""
    sides = comparison(condition)
    if sides is None or sides[1] == "<=>":
        return False
    return any(side.columns() & columns and all(map(_is_arithmetic, side.parts)) for side in (sides[0], sides[2]))


def _is_arithmetic(part: Part) -> bool:
    return isinstance(part, Column) or (isinstance(part, str) and (part in "+-*/()" or part[0].isdigit()))


# ------------------------------------------------------------------------------------------------- where it goes


def _placed(source: Rel, joined: _Joined, by_row: bool) -> Rel | None:
    """The relations of FROM with the subquery joined to those that it refers to."""
    used = joined.on.columns() - set(joined.right.columns)
    if not used or not used <= set(source.columns) or not _all_live(source, used):
        return None
    if any(isinstance(each, Scan) and each.source.looked_up for each in _leaves(source)):
        return None
    join = Join(source, joined.right, joined.kind, joined.on)
    if not isinstance(source, Join):
        return join if by_row and _is_plain(source) else _inside(source, joined)
    target = _target(source, used)
    if target is None or isinstance(target, Join):
        return join if by_row and joined.kind != "left" and isinstance(target, Join) else None
    made = _inside(target, joined)
    return _replaced(source, target, made) if made is not None else None


def _inside(target: Rel, joined: _Joined) -> Rel | None:
    """A relation of FROM joined in a derived table, under its own name."""
    if not _is_plain(target):
        return None
    join = Join(target, joined.right, joined.kind, joined.on)
    value = joined.value.columns() if joined.value is not None else frozenset()
    shown = [column for column in join.columns if column in target.columns or column in value]
    return Project(join, tuple((column, of_column(column)) for column in shown), label=target.label)


def _is_plain(rel: Rel) -> bool:
    return not isinstance(rel, Windowed) or rel.window.by_row


def _target(rel: Rel, used: frozenset[Column]) -> Rel | None:
    """The smallest subtree of a join with these columns, if joining the subquery there first is equivalent."""
    if not isinstance(rel, Join):
        return rel
    if used <= set(rel.left.columns) and rel.kind in ("inner", "cross", "left", "semi", "anti") and not rel.lateral:
        return _target(rel.left, used)
    if used <= set(rel.right.columns) and rel.kind in ("inner", "cross") and not rel.lateral:
        return _target(rel.right, used)
    return rel if rel.kind in ("inner", "cross", "left", "semi", "anti") and not rel.lateral else None


def _replaced(rel: Rel, target: Rel, by: Rel) -> Rel:
    if rel is target:
        return by
    if isinstance(rel, Join):
        return replace(rel, left=_replaced(rel.left, target, by), right=_replaced(rel.right, target, by))
    return rel


def _leaves(rel: Rel) -> list[Rel]:
    return [*_leaves(rel.left), *_leaves(rel.right)] if isinstance(rel, Join) else [rel]


def _all_live(source: Rel, used: frozenset[Column]) -> bool:
    return all(is_live(each) for each in _leaves(source) if used & set(each.columns))
