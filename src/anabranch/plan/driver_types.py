"""Which expressions mean the same on the driver (DuckDB) as in Spark, by the types of their columns.

`plan/local.py` knows which words the two engines share; here the types decide. Spark's ANSI rules and DuckDB's agree on
whole numbers of any width, and on two values of the same type. They differ on nearly every other implicit cast
(`n <= '2.5'`), on FLOAT, on averages of decimals and on arithmetic that may overflow inside a condition, which DuckDB
rewrites. Whatever is not listed here is declined, and Spark computes it.

Columns are told apart by name alone. A name that stands for values of two types has none, so that nothing is computed
with it here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from anabranch.plan.catalog import Field

if TYPE_CHECKING:
    from sqlglot import exp

WHOLE, DECIMAL, DOUBLE, FLOAT = "whole", "decimal", "double", "float"
STRING, DATE, TIMESTAMP, BOOLEAN, INTERVAL, NULL = "string", "date", "timestamp", "boolean", "interval", "null"
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_SAME = {each: each for each in (DOUBLE, FLOAT, STRING, DATE, TIMESTAMP, BOOLEAN)}
_UNITS = re.compile(r"(SECOND|MINUTE|HOUR|DAY)S?", re.IGNORECASE)
#: Digits that Spark can add to a sum of decimals; wider ones can overflow in one engine and not in the other.
_SUMMED = 28
_MOST_DIGITS = 38
#: Bits of whole numbers that are the same as DOUBLE.
_EXACT = 53
#: How many rows there are at the most, in bits: a count of them does not overflow, nor a sum of so many INT.
_ROWS = 31
#: Microseconds of any time before the year 10000, in bits.
_MICROS = 58


@dataclass(frozen=True)
class Kind:
    """What is known of the values of an expression.

    For whole numbers `width` are the bits of Spark's type, `bits` those that values need. For decimals they are the
    digits in all and behind the point. `overflows`: computing a value can fail.
    """

    family: str
    width: int = 0
    bits: int = 0
    overflows: bool = False


#: Values of which nothing is known, so that nothing is computed with them.
_UNKNOWN = Kind("unknown")
_BOOLEAN, _STRING, _TIMESTAMP, _DOUBLE = Kind(BOOLEAN), Kind(STRING), Kind(TIMESTAMP), Kind(DOUBLE)
_COUNT = Kind(WHOLE, 63, _ROWS)


def fits_driver(text: str, fields: Iterable[Field], before: str = "", behind: str = "") -> bool:
    """Whether a query or an expression of Spark's over these columns means the same in DuckDB, by its types.

    Of a part of a query, `before` and `behind` are the rest of it.
    """
    return _fits(text, tuple((field.name.lower(), field.type) for field in fields), before, behind)


@lru_cache(maxsize=1024)
def _fits(text: str, columns: tuple[tuple[str, str], ...], before: str, behind: str) -> bool:
    from sqlglot import errors, exp, parse_one

    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        tree = parse_one(f"{before}{text}{behind}", dialect="spark")
        part = tree.selects[0] if before and behind and isinstance(tree, exp.Select) else tree
        return _Checker(tree, part, columns).fits()
    except (errors.SqlglotError, RecursionError):
        return False


def _kind_of(type: str) -> Kind:
    if type in _BITS:
        return Kind(WHOLE, _BITS[type], _BITS[type])
    if (digits := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", type)) is not None:
        return Kind(DECIMAL, int(digits[1]), int(digits[2]))
    return Kind(_SAME.get(type, _UNKNOWN.family))


def _comparable(one: Kind, other: Kind) -> bool:
    """Whether two values compare alike in both engines."""
    families = {one.family, other.family}
    if _UNKNOWN.family in families or FLOAT in families or INTERVAL in families:
        return False
    if len(families - {NULL}) < 2 or families == {WHOLE, DOUBLE}:
        return DECIMAL not in families or _digits(one, other) <= _MOST_DIGITS
    return families == {WHOLE, DECIMAL} and _digits(one, other) <= _MOST_DIGITS


def _digits(*kinds: Kind) -> int:
    """The digits of a decimal that holds values of all these kinds."""
    before = [kind.width - kind.bits if kind.family == DECIMAL else kind.bits // 3 + 1 for kind in kinds]
    return max(before) + max(kind.bits if kind.family == DECIMAL else 0 for kind in kinds)


def _common(kinds: Iterable[Kind]) -> Kind:
    """The kind of a value that is one of several; unknown where one of them would be cast to the type of another."""
    found = Kind(NULL)
    for kind in kinds:
        families = {found.family, kind.family}
        if NULL in families:
            found = kind if found.family == NULL else found
        elif families == {WHOLE}:
            width, bits = max(found.width, kind.width), max(found.bits, kind.bits)
            found = Kind(WHOLE, width, bits, found.overflows or kind.overflows)
        elif families == {WHOLE, DECIMAL}:  # a whole number that has room in the decimal
            decimal = found if found.family == DECIMAL else kind
            if _digits(found, kind) > decimal.width:
                return _UNKNOWN
            found = replace(decimal, overflows=found.overflows or kind.overflows)
        elif replace(found, overflows=kind.overflows) == kind:
            found = replace(kind, overflows=found.overflows or kind.overflows)
        else:
            return _UNKNOWN
    return found


class _Checker:
    """One text, as sqlglot reads it, and the part of it that is asked about."""

    def __init__(self, tree: exp.Expr, part: exp.Expr, columns: Sequence[tuple[str, str]]) -> None:
        self.tree = tree
        self.part = part
        self.kinds: Mapping[str, Kind] = {}
        self.given: dict[str, list[Kind]] = {}
        for name, type in columns:
            self.given.setdefault(name, []).append(_kind_of(type))

    def fits(self) -> bool:
        from sqlglot import exp

        if not self._named():
            return False
        # A FLOAT alone, or one aggregate of it, is the same. Beside another number, Spark takes both for DOUBLE, and
        # DuckDB both for FLOAT.
        floats = [each for each in self.tree.find_all(exp.Column) if self.kind(each).family == FLOAT]
        aggregate = self.part if isinstance(self.part, exp.AggFunc) else None
        if any(each is not self.part and each.parent is not aggregate for each in floats):
            return False
        return all(self._fits(node) for node in self.tree.walk())

    def _named(self) -> bool:
        """Find what names stand for: columns, and what a query calls its own. Whether that can be said."""
        from sqlglot import exp

        aliases = [each for each in self.tree.find_all(exp.Alias) if each.alias]
        known = dict(self.given)
        for lateral in self.tree.find_all(exp.Lateral):  # the starts of windows, or how often a row counts
            for name in lateral.alias_column_names:
                known.setdefault(name.lower(), []).append(Kind(WHOLE, 63, _MICROS))
        for _ in range(len(aliases) + 2):
            before, self.kinds = self.kinds, {name: _common(kinds) for name, kinds in known.items()}
            if before == self.kinds:
                return True
            known = {name: list(kinds) for name, kinds in known.items()}
            for alias in aliases:
                kind = self.kind(alias.this)
                same = known.setdefault(alias.alias.lower(), [])
                if kind not in same:
                    same.append(kind)
        return False

    # ---- kinds

    def kind(self, node: exp.Expr) -> Kind:
        """What is known of the values of an expression."""
        from sqlglot import exp

        if isinstance(node, exp.Column):
            return self.kinds.get(node.name.lower(), _UNKNOWN)
        if isinstance(node, exp.Paren | exp.Alias | exp.Subquery | exp.Max | exp.Min | exp.Filter):
            return self.kind(node.this)
        if isinstance(node, exp.Window):
            kind = self.kind(node.this)
            summed = node.this.find(exp.Sum) is not None and kind.bits == kind.width  # nobody asks whether it overflows
            return replace(kind, overflows=True) if summed else kind
        if isinstance(node, exp.Predicate | exp.And | exp.Or | exp.Not | exp.Boolean):
            return _BOOLEAN
        if isinstance(node, exp.Select):
            return self.kind(node.selects[0]) if len(node.selects) == 1 else _UNKNOWN
        found = self._kinds().get(type(node))
        return found(node) if found is not None else _UNKNOWN

    def _kinds(self) -> Mapping[type, Callable[[exp.Expr], Kind]]:
        from sqlglot import exp

        return {
            exp.Literal: _literal,
            exp.Null: lambda _: Kind(NULL),
            exp.Neg: lambda node: self._negative(node),
            exp.Add: lambda node: self._arithmetic(node, lambda one, other: max(one, other) + 1),
            exp.Sub: lambda node: self._arithmetic(node, lambda one, other: max(one, other) + 1),
            exp.Mul: lambda node: self._arithmetic(node, lambda one, other: one + other),
            exp.Case: lambda node: self._case(node),
            exp.Coalesce: lambda node: _common(map(self.kind, (node.this, *node.expressions))),
            exp.Lag: lambda node: self._beside(node),
            exp.Lead: lambda node: self._beside(node),
            exp.Count: lambda _: _COUNT,
            exp.RowNumber: lambda _: replace(_COUNT, width=31),
            exp.Rank: lambda _: replace(_COUNT, width=31),
            exp.DenseRank: lambda _: replace(_COUNT, width=31),
            exp.Sum: lambda node: self._sum(node),
            exp.Avg: lambda _: _DOUBLE,
            exp.Interval: _interval,
            exp.Cast: _cast,
            exp.TryCast: _cast,  # so sqlglot calls a plain CAST of Spark's
            exp.UnixMicros: lambda _: Kind(WHOLE, 63, _MICROS),
            exp.Anonymous: lambda node: {
                "pmod": Kind(WHOLE, 63, _MICROS),
                "timestamp_micros": _TIMESTAMP,
            }.get(node.name.lower(), _UNKNOWN),
        }

    def _negative(self, node: exp.Expr) -> Kind:
        kind = self.kind(node.this)
        if kind.family == WHOLE:  # the least number of a type has no counterpart
            return replace(kind, overflows=kind.overflows or kind.bits == kind.width)
        return kind if kind.family == DOUBLE else _UNKNOWN

    def _arithmetic(self, node: exp.Expr, bits: Callable[[int, int], int]) -> Kind:
        from sqlglot import exp

        one, other = self.kind(node.this), self.kind(node.expression)
        families = {one.family, other.family}
        overflows = one.overflows or other.overflows
        if families == {WHOLE}:
            width, needed = max(one.width, other.width), bits(one.bits, other.bits)
            return Kind(WHOLE, width, min(needed, width), overflows or needed > width)
        if DOUBLE in families and families <= {WHOLE, DOUBLE}:
            return replace(_DOUBLE, overflows=overflows)
        if (one.family, other.family) == (TIMESTAMP, INTERVAL) and not isinstance(node, exp.Mul):
            return one
        return _UNKNOWN

    def _case(self, node: exp.Expr) -> Kind:
        branches = [each.args["true"] for each in node.args["ifs"]]
        default = node.args.get("default")
        return _common(map(self.kind, branches if default is None else [*branches, default]))

    def _beside(self, node: exp.Expr) -> Kind:
        """LAG and LEAD; the value in place of one that is not there is of the same kind."""
        default = node.args.get("default")
        return _common(map(self.kind, [node.this] if default is None else [node.this, default]))

    def _sum(self, node: exp.Expr) -> Kind:
        kind = self.kind(_argument(node))
        if kind.family == WHOLE:
            return Kind(WHOLE, 63, min(63, kind.bits + _ROWS), kind.overflows)
        if kind.family == DECIMAL:
            return Kind(DECIMAL, min(_MOST_DIGITS, kind.width + 10), kind.bits)
        return _DOUBLE if kind.family in (DOUBLE, FLOAT) else _UNKNOWN

    # ---- checks

    def _fits(self, node: exp.Expr) -> bool:
        """Whether one place in the text means the same; those below it are asked themselves."""
        from sqlglot import exp

        if isinstance(node, exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.NullSafeEQ | exp.NullSafeNEQ):
            return self._compares(node.this, node.expression)
        if isinstance(node, exp.Between):
            return self._compares(node.this, node.args["low"], node.args["high"])
        if isinstance(node, exp.In):
            query = node.args.get("query")
            return self._compares(node.this, *([query] if query is not None else node.expressions))
        if isinstance(node, exp.Is):
            return isinstance(node.expression, exp.Null) or self._conditions(node.this)
        if isinstance(node, exp.And | exp.Or):
            return self._conditions(node.this, node.expression)
        if isinstance(node, exp.Not | exp.Where | exp.Having):
            return self._conditions(node.this)
        if isinstance(node, exp.Case):
            conditions = [each.this for each in node.args["ifs"]]
            asked = self._conditions(*conditions) if node.this is None else self._compares(node.this, *conditions)
            return asked and self.kind(node).family != _UNKNOWN.family
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Neg | exp.Coalesce | exp.Lag | exp.Lead | exp.Interval):
            return self.kind(node).family != _UNKNOWN.family
        if isinstance(node, exp.Sum | exp.Avg | exp.Min | exp.Max):
            return self._aggregates(node)
        if isinstance(node, exp.Join):
            return self._joins(node)
        if isinstance(node, exp.SetOperation):
            return self._combines(node)
        if isinstance(node, exp.Group):
            by_place = any(each.is_int for each in node.expressions) or node.args.get("all")
            around = node.parent if by_place else None
            return self._groups(*node.expressions, *(around.selects if isinstance(around, exp.Select) else ()))
        if isinstance(node, exp.Select) and node.args.get("distinct"):
            return self._groups(*node.selects)
        return True

    def _groups(self, *nodes: exp.Expr) -> bool:
        """Whether values are grouped alike: of 0.0 and -0.0, which are equal, Spark shows the first."""
        kinds = [self.kind(each) for each in nodes]
        if any(each.is_star for each in nodes):
            kinds += self.kinds.values()
        return not {kind.family for kind in kinds} & {DOUBLE, FLOAT}

    def _compares(self, value: exp.Expr, *others: exp.Expr) -> bool:
        from sqlglot import exp

        # Without parentheses, Spark and DuckDB group `a = b IN (c)` differently.
        if any(isinstance(each, exp.Predicate | exp.And | exp.Or | exp.Not) for each in (value, *others)):
            return False
        kind = self.kind(value)
        kinds = [self.kind(other) for other in others]
        if any(each.overflows for each in (kind, *kinds)) and not all(map(_is_bound, (value, *others))):
            return False
        return all(_comparable(kind, other) for other in kinds)

    def _conditions(self, *nodes: exp.Expr) -> bool:
        return all(self.kind(node).family in (BOOLEAN, NULL) for node in nodes)

    def _aggregates(self, node: exp.Expr) -> bool:
        from sqlglot import exp

        kind = self.kind(_argument(node))
        if isinstance(node, exp.Sum) and kind.family == DECIMAL:
            return kind.width <= _SUMMED
        if isinstance(node, exp.Avg) and isinstance(node.this, exp.Distinct) and kind.bits > _EXACT:
            return False
        numbers = (WHOLE, DOUBLE, FLOAT)
        return kind.family in numbers if isinstance(node, exp.Sum | exp.Avg) else kind.family != _UNKNOWN.family

    def _joins(self, node: exp.Join) -> bool:
        using = [self.kinds.get(each.name.lower(), _UNKNOWN) for each in node.args.get("using") or ()]
        on = node.args.get("on")
        if node.method == "NATURAL" or any(not _comparable(kind, kind) for kind in using):
            return False
        return on is None or self._conditions(on)

    def _combines(self, node: exp.SetOperation) -> bool:
        from sqlglot import exp

        one, other = node.this.selects, node.expression.selects
        if any(isinstance(each, exp.Star) or each.is_star for each in (*one, *other)):
            # The types of what is shown are compared with Spark's by whoever asks.
            return node is self.tree and len(one) == len(other) == 1
        if node.args.get("distinct") and not self._groups(*one):
            return False
        kinds = [_common((self.kind(left), self.kind(right))) for left, right in zip(one, other, strict=False)]
        return len(one) == len(other) and all(kind.family != _UNKNOWN.family for kind in kinds)


def _is_bound(node: exp.Expr) -> bool:
    """A column, or one and a number more or less, as in bands: `a.n BETWEEN b.n - 5 AND b.n + 5`.

    Of other arithmetic that can overflow, DuckDB may leave out rows for which Spark fails: of `a + 1 > 5` it makes
    `a > 4`.
    """
    from sqlglot import exp

    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub) and node.expression.is_int:
        node = node.this
    return isinstance(node, exp.Column)


def _argument(node: exp.Expr) -> exp.Expr:
    """What is aggregated, DISTINCT or not."""
    from sqlglot import exp

    inside: exp.Expr = node.this
    return inside.expressions[0] if isinstance(inside, exp.Distinct) else inside


def _literal(node: exp.Expr) -> Kind:
    if node.is_string:
        return _STRING
    if not node.is_int:
        return _UNKNOWN
    bits = int(node.this).bit_length()
    return Kind(WHOLE, 31 if bits <= 31 else 63, bits)


def _interval(node: exp.Expr) -> Kind:
    """A number of days or less; other intervals are not the same everywhere."""
    value, unit = node.this, node.args.get("unit")
    plain = value is not None and value.is_string and value.this.isdigit()
    return Kind(INTERVAL) if plain and unit is not None and _UNITS.fullmatch(unit.name) else _UNKNOWN


def _cast(node: exp.Expr) -> Kind:
    return _kind_of(node.args["to"].sql(dialect="spark").lower().replace(" ", ""))
