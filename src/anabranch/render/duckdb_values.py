"""The values and conditions of a text of Spark SQL, each with its kind, as DuckDB computes the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from anabranch.duck import quoted, quoted_text
from anabranch.render import duckdb_functions as functions
from anabranch.render.duckdb_functions import Value
from anabranch.render.duckdb_kinds import (
    BOOLEAN,
    COUNT,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INTERVAL,
    MICROS,
    NOTHING,
    NULL,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    WHOLE,
    Kind,
    common,
    comparable,
    duckdb_type_of,
    kind_of,
    whole,
)
from anabranch.render.duckdb_scope import MARK, STARTS, Columns, Made, Scope, decline, nothing_but
from anabranch.types import Field

if TYPE_CHECKING:
    from sqlglot import exp

_UNITS = re.compile(r"(SECOND|MINUTE|HOUR|DAY)S?", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2} ([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?", re.ASCII)
_BOOLEAN = Kind(BOOLEAN)
_SIGNS = {"EQ": "=", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "IntDiv": "div"}
_BITWISE = {"BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^"}


class Values:
    """Writes values; `given` has the kinds of columns by name, `query` writes a subquery.

    With `schemas`, the columns of each placeholder are known, and a value has a known kind.
    """

    def __init__(
        self,
        given: Mapping[str, Sequence[Kind]],
        schemas: Mapping[str, Sequence[Field]] | None,
        query: Callable[[exp.Expr, Scope], Made],
    ) -> None:
        self.given = given
        self.schemas = schemas
        self.query = query

    def value(self, node: exp.Expr, scope: Scope) -> Value:
        """A value with its kind."""
        from sqlglot import exp

        name = type(node).__name__
        if isinstance(node, exp.Paren):
            inner = self.value(node.this, scope)
            return Value(f"({inner.text})", inner.kind, inner.bound, inner.literal)
        if isinstance(node, exp.Column):
            found = self.column(node, scope)
            return found if self.schemas is None or found.kind != UNKNOWN else decline(f"the type of {node.name}")
        if isinstance(node, exp.Literal):
            return _literal(node)
        if isinstance(node, exp.Null):
            return Value("NULL", NOTHING)
        if isinstance(node, exp.Boolean):
            return Value("true" if node.this else "false", _BOOLEAN)
        if isinstance(node, exp.Anonymous):
            return self._call(node, scope)
        if isinstance(node, exp.Predicate | exp.And | exp.Or | exp.Not):
            return Value(self._predicate(node, scope), _BOOLEAN)
        if name in _ARITHMETIC or name in _BITWISE:
            return self._operator(node, name, scope)
        made = self._other(node, name, scope)
        return made if made is not None else decline(f"{node.sql(dialect='spark')}")

    def _other(self, node: exp.Expr, name: str, scope: Scope) -> Value | None:
        from sqlglot import exp

        if isinstance(node, exp.Neg):
            return functions.negated(self.value(node.this, scope))
        if isinstance(node, exp.BitwiseNot):
            value = self.value(node.this, scope)
            return Value(f"(~ {value.text})", value.kind) if value.kind.family == WHOLE else None
        if isinstance(node, exp.DPipe):
            sides = [
                self._beside(each, scope, exp.Add | exp.Sub | exp.Mul | exp.Div)
                for each in (node.this, node.expression)
            ]
            return functions.call("concat", sides)
        if isinstance(node, exp.Case):
            return self._case(node, scope)
        if isinstance(node, exp.Cast):
            return self._cast(node, scope)
        if isinstance(node, exp.Interval):
            return _interval(node)
        if isinstance(node, exp.Window):
            return self._window(node, scope)
        if isinstance(node, exp.Filter):
            made = self.value(node.this, scope)
            nothing_but(node, "this", "expression")
            inside = self.condition(node.expression.this, scope)
            return filtered(made, inside)
        if isinstance(node, exp.Subquery):
            inner = self.query(node.this, scope)
            if len(inner.columns.kinds) != 1 or inner.columns.open or node.alias:
                return None
            return Value(f"({inner.text})", inner.columns.kinds[0][1])
        return None

    def column(self, node: exp.Column, scope: Scope) -> Value:
        from sqlglot import exp

        if isinstance(node.this, exp.Star) or node.args.get("db") is not None:
            decline(node.sql(dialect="spark"))
        name, table = node.name.lower(), node.table.lower()
        if table == STARTS and scope.start:
            return Value(scope.start, whole("bigint", MICROS))
        text = f"{quoted(node.table)}.{quoted(node.name)}" if table else quoted(node.name)
        return Value(text, self._kind_of_column(name, table, scope), True)

    def _kind_of_column(self, name: str, table: str, scope: Scope) -> Kind:
        around: Scope | None = scope
        while around is not None:
            sources = [each for each in around.sources if not table or each[0] == table]
            found = self.kinds_in(sources, name)
            if not table and name in around.aliases:
                found.append(around.aliases[name])
            if found:
                return common(found)
            around = around.outer
        if self.schemas is not None or (table and not self._is_relation(table, scope)):
            decline(f"{table}.{name}" if table else name)  # a field of a struct, or unknown
        return common(self.given[name]) if name in self.given and not scope.sources else UNKNOWN

    def kinds_in(self, sources: Iterable[tuple[str, Columns]], name: str) -> list[Kind]:
        """The kinds of a column in those relations that have it."""
        found = (columns.find(name) or (self.given.get(name) if columns.open else None) for _, columns in sources)
        return [common(kinds) for kinds in found if kinds]

    def _is_relation(self, table: str, scope: Scope | None) -> bool:
        if scope is None:
            return False
        if not scope.sources and scope.outer is None:
            return True  # an expression alone: its FROM is unknown
        return any(name == table for name, _ in scope.sources) or self._is_relation(table, scope.outer)

    def _call(self, node: exp.Anonymous, scope: Scope, *, over: bool = False) -> Value:
        from sqlglot import exp

        name = str(node.this).lower()
        arguments = list(node.expressions)
        if name == "count":
            return self._count(arguments, scope)
        if name in functions.AGGREGATES:
            distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
            given = arguments[0].expressions if distinct else arguments
            if len(given) != 1 or (distinct and (over or arguments[0].args.get("on"))):
                decline(f"{name} of {len(given)} values")
            value = self.value(given[0], scope)
            if value.kind.family == FLOAT and not isinstance(given[0], exp.Column):
                decline(f"{name} of FLOAT")
            made = functions.AGGREGATES[name](value, distinct, over)
            return made if made is not None else decline(f"{name}({families([value])})")
        values = [self.value(each, scope) for each in arguments]
        # With another number, Spark casts a FLOAT to DOUBLE, and DuckDB casts both to FLOAT.
        made = None if any(value.kind.family == FLOAT for value in values) else functions.call(name, values)
        return made if made is not None else decline(f"{name}({families(values)})")

    def _count(self, arguments: Sequence[exp.Expr], scope: Scope) -> Value:
        from sqlglot import exp

        if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            return Value("count(*)", COUNT)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        given = arguments[0].expressions if distinct else arguments
        if len(given) != 1:
            decline("count of several values")
        value = self.value(given[0], scope)
        return Value(f"count({'DISTINCT ' if distinct else ''}{value.text})", COUNT)

    def _operator(self, node: exp.Expr, name: str, scope: Scope) -> Value:
        from sqlglot import exp

        pair = [self.value(each, scope) for each in (node.this, node.expression)]
        one, other = (
            _as_double(each, value, pair) for each, value in zip((node.this, node.expression), pair, strict=True)
        )
        if name in _BITWISE:
            made = functions.bitwise(
                _BITWISE[name], *(self._beside(e, scope, exp.Binary) for e in (node.this, node.expression))
            )
        else:
            sign = _ARITHMETIC[name]
            made = functions.arithmetic(sign, one, other) or functions.moved(sign, one, other)
        return made if made is not None else decline(f"{node.key}({families([one, other])})")

    def _beside(self, node: exp.Expr, scope: Scope, others: Any) -> Value:
        """An operand that is not one of some operators, which the two grammars may group differently."""
        if isinstance(node, others):
            decline("operators without parentheses")
        return self.value(node, scope)

    def _case(self, node: exp.Case, scope: Scope) -> Value | None:
        given = node.this
        text, values = "CASE", []
        for each in node.args["ifs"]:
            if given is None:
                condition = self.condition(each.this, scope)
            else:
                condition = self._compared("=", given, each.this, scope)
            value = self.value(each.args["true"], scope)
            values.append(value)
            text += f" WHEN {condition} THEN {value.text}"
        default = node.args.get("default")
        if default is not None:
            values.append(self.value(default, scope))
            text += f" ELSE {values[-1].text}"
        kind = common(value.kind for value in values)
        return None if kind == UNKNOWN or kind.family == FLOAT else Value(f"{text} END", kind)

    def _cast(self, node: exp.Cast, scope: Scope) -> Value | None:
        nothing_but(node, "this", "to", "_type", "safe")
        to = kind_of(node.args["to"].sql(dialect="spark").lower().replace(" ", ""))
        written = duckdb_type_of(to)
        if written is None:
            return None
        if node.this.is_string:  # TIMESTAMP '...', DATE '...'
            return _moment(node.this.name, to)
        if to.family == DOUBLE and node.this.is_number and re.fullmatch(r"\d{1,18}\.\d{1,18}", node.this.name):
            return Value(f"CAST('{node.this.name}' AS DOUBLE)", to)
        return functions.cast(self.value(node.this, scope), to, written)

    def _window(self, node: exp.Window, scope: Scope) -> Value | None:
        from sqlglot import exp

        nothing_but(node, "this", "partition_by", "order", "spec", "over")
        call = node.this
        chosen = ""
        if isinstance(call, exp.Filter):
            chosen = f" FILTER (WHERE {self.condition(call.expression.this, scope)})"
            call = call.this
        if not isinstance(call, exp.Anonymous):
            return None
        made = self._over(call, scope)
        if made is None:
            return None
        parts = []
        if node.args.get("partition_by"):
            keys = [self.value(each, scope) for each in node.args["partition_by"]]
            parts.append(f"PARTITION BY {', '.join(key.text for key in keys)}")
        order = self.order(node, scope).strip()
        if order:
            parts.append(order)
        if node.args.get("spec") is not None:
            parts.append(self._frame(node.args["spec"], scope))
        return Value(f"{made.text}{chosen} OVER ({' '.join(parts)})", made.kind)

    def _over(self, call: exp.Anonymous, scope: Scope) -> Value | None:
        name = str(call.this).lower()
        arguments = call.expressions
        if name in functions.RANKS:
            return Value(f"{name}()", functions.RANKS[name]) if not arguments else None
        if name == "ntile":
            return (
                Value(f"ntile({arguments[0].name})", whole("int"))
                if len(arguments) == 1 and arguments[0].is_int
                else None
            )
        if name in ("lag", "lead"):
            values = [self.value(each, scope) for each in arguments]
            kind = common(value.kind for value in (*values[:1], *values[2:]))
            steps_fit = len(values) < 2 or isinstance(values[1].literal, int)
            if not values or len(values) > 3 or not steps_fit or kind == UNKNOWN or kind.family == FLOAT:
                return None
            return Value(f"{name}({', '.join(value.text for value in values)})", kind)
        if name in ("first_value", "last_value", "first", "last") and len(arguments) == 1:
            value = self.value(arguments[0], scope)
            return (
                None
                if value.kind == UNKNOWN
                else Value(f"{name.removesuffix('_value')}_value({value.text})", value.kind)
            )
        made = self._call(call, scope, over=True)
        return made if name == "count" or name in functions.AGGREGATES else None

    def _frame(self, node: exp.Expr, scope: Scope) -> str:
        nothing_but(node, "kind", "start", "start_side", "end", "end_side")

        def bound(at: Any, side: Any) -> str:
            if at is None or isinstance(at, str):
                return f"{at or 'CURRENT ROW'} {side or ''}".strip()
            value = self.value(at, scope)
            if not isinstance(value.literal, int) and value.kind.family != INTERVAL:
                decline("a frame whose bound is no number")
            return f"{value.text} {side}"

        start = bound(node.args.get("start"), node.args.get("start_side"))
        if node.args.get("end") is None:
            return f"{node.args['kind']} {start}"
        return f"{node.args['kind']} BETWEEN {start} AND {bound(node.args['end'], node.args.get('end_side'))}"

    def order(self, node: exp.Expr, scope: Scope) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        return f" ORDER BY {', '.join(self._ordered(each, scope) for each in order.expressions)}"

    def _ordered(self, node: exp.Expr, scope: Scope) -> str:
        from sqlglot import exp

        if not isinstance(node, exp.Ordered):
            decline("ORDER BY")
        value = self.value(node.this, scope)
        down = "DESC" if node.args.get("desc") else "ASC"
        return f"{value.text} {down} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"

    # ---- conditions

    def condition(self, node: exp.Expr, scope: Scope) -> str:
        value = self.value(node, scope)
        if value.kind.family not in (BOOLEAN, NULL):
            decline(f"a condition that is a {value.kind.family}")
        return value.text

    def _predicate(self, node: exp.Expr, scope: Scope) -> str:
        from sqlglot import exp

        name = type(node).__name__
        if isinstance(node, exp.And | exp.Or):
            one, other = self.condition(node.this, scope), self.condition(node.expression, scope)
            return f"({one} {name.upper()} {other})"
        if isinstance(node, exp.Not):
            return f"(NOT {self.condition(node.this, scope)})"
        if name in _SIGNS:
            return self._compared(_SIGNS[name], node.this, node.expression, scope)
        if isinstance(node, exp.NullSafeEQ):
            return self._compared("IS NOT DISTINCT FROM", node.this, node.expression, scope)
        if isinstance(node, exp.NullSafeNEQ):
            return self._compared("IS DISTINCT FROM", node.this, node.expression, scope)
        if isinstance(node, exp.Between):
            nothing_but(node, "this", "low", "high")
            texts = self._comparable(scope, node.this, node.args["low"], node.args["high"])
            return f"({texts[0]} BETWEEN {texts[1]} AND {texts[2]})"
        if isinstance(node, exp.In):
            return self._in(node, scope)
        if isinstance(node, exp.Is):
            if isinstance(node.expression, exp.Null):
                return f"({self.value(node.this, scope).text} IS NULL)"
            if isinstance(node.expression, exp.Boolean):
                return f"({self.condition(node.this, scope)} IS {'TRUE' if node.expression.this else 'FALSE'})"
        if isinstance(node, exp.Exists):
            inner = self.query(node.this.this if isinstance(node.this, exp.Subquery) else node.this, scope)
            return f"EXISTS ({inner.text})"
        if isinstance(node, exp.Like):
            nothing_but(node, "this", "expression")
            made = functions.like(self.value(node.this, scope), self.value(node.expression, scope))
            return made.text if made is not None else decline("LIKE")
        decline(node.sql(dialect="spark"))

    def _in(self, node: exp.In, scope: Scope) -> str:
        query = node.args.get("query")
        if query is None:
            nothing_but(node, "this", "expressions")
            value, *others = self._comparable(scope, node.this, *node.expressions)
            return f"({value} IN ({', '.join(others)}))"
        inner = self.query(query.this, scope)
        if len(inner.columns.kinds) != 1 or inner.columns.open:
            decline("IN of several columns")
        value = self._comparable(scope, node.this)[0]
        if not comparable(self.value(node.this, scope).kind, inner.columns.kinds[0][1]):
            decline("IN of another type")
        return f"({value} IN ({inner.text}))"

    def _compared(self, sign: str, one: exp.Expr, other: exp.Expr, scope: Scope) -> str:
        left, right = self._comparable(scope, one, other)
        return f"({left} {sign} {right})"

    def _comparable(self, scope: Scope, *nodes: exp.Expr) -> list[str]:
        """Values, cast for a comparison with the first one."""
        from sqlglot import exp

        # Without parentheses, Spark and DuckDB group `a = b IN (c)` differently.
        if any(isinstance(each, exp.Predicate | exp.And | exp.Or | exp.Not) for each in nodes):
            decline("comparisons without parentheses")
        values = [self.value(each, scope) for each in nodes]
        values = [_beside_others(each, value, values) for each, value in zip(nodes, values, strict=True)]
        # DuckDB may skip arithmetic that fails in Spark: it turns `a + 1 > 5` into `a > 4`.
        if any(value.kind.fails for value in values) and not all(value.bound for value in values):
            decline("a comparison of what can overflow")
        for other in values[1:]:
            if not comparable(values[0].kind, other.kind):
                decline(f"a comparison of {families([values[0], other])}")
        return [value.text for value in values]


def _as_double(node: exp.Expr, value: Value, beside: Sequence[Value]) -> Value:
    """A decimal literal beside a DOUBLE is a DOUBLE too."""
    from sqlglot import exp

    if value.kind.family != DECIMAL or all(other.kind.family != DOUBLE for other in beside):
        return value
    inner = node.unnest()
    sign = "-" if isinstance(inner, exp.Neg) else ""
    number = inner.this.unnest() if sign else inner
    return Value(f"CAST('{sign}{number.name}' AS DOUBLE)", Kind(DOUBLE)) if isinstance(number, exp.Literal) else value


def _beside_others(node: exp.Expr, value: Value, beside: Sequence[Value]) -> Value:
    """A literal as Spark compares it with the other operand: a text beside a date or a time is one."""
    found = _as_double(node, value, beside)
    times = {other.kind.family for other in beside} & {DATE, TIMESTAMP}
    if len(times) != 1 or not isinstance(value.literal, str) or not node.unnest().is_string:
        return found
    (family,) = times
    day = re.fullmatch(r"\d{4}-\d{2}-\d{2}", value.literal, re.ASCII) is not None
    made = _moment(f"{value.literal} 00:00" if day and family == TIMESTAMP else value.literal, Kind(family))
    return made if made is not None else found


def families(values: Sequence[Value]) -> str:
    return ", ".join(value.kind.family for value in values)


def filtered(made: Value, condition: str) -> Value:
    """An aggregate with FILTER. An aggregate inside another function gets the FILTER there."""
    wrapped = made.text.startswith(("__total(", "__set("))
    clause = f" FILTER (WHERE {condition})"
    return Value(f"{made.text[:-1]}{clause})" if wrapped else f"{made.text}{clause}", made.kind)


def _literal(node: exp.Expr) -> Value:
    if node.is_string:
        if MARK in node.name:
            decline("a text with a NUL character")
        return Value(quoted_text(node.name), Kind(STRING), False, node.name)
    if node.is_int and int(node.name) < 2**63:
        bits = int(node.name).bit_length()
        return Value(node.name, Kind(WHOLE, 31 if bits <= 31 else 63, bits), False, int(node.name))
    plain = re.fullmatch(r"(\d{1,18})\.(\d{1,18})", node.name)
    if plain is None:
        decline(f"the number {node.name}")
    before, behind = plain[1].lstrip("0"), plain[2]
    kind = Kind("decimal", max(len(before) + len(behind), len(behind)), len(behind))
    return Value(f"CAST({node.name} AS {duckdb_type_of(kind)})", kind)


def _interval(node: exp.Expr) -> Value | None:
    """An interval of days or smaller units; others differ between engines."""
    value, unit = node.this, node.args.get("unit")
    if (
        value is None
        or not value.is_string
        or not value.name.isdigit()
        or unit is None
        or not _UNITS.fullmatch(unit.name)
    ):
        return None
    return Value(f"INTERVAL {quoted_text(value.name)} {unit.name}", Kind(INTERVAL))


def _moment(text: str, to: Kind) -> Value | None:
    """A literal date, or time in UTC."""
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return None
    if to.family == "date" and re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return Value(f"DATE {quoted_text(text)}", to)
    if to.family == "timestamp" and re.fullmatch(_TIME, text):
        full = text if len(text) > 16 else f"{text}:00"
        return Value(f"make_timestamptz(epoch_us(TIMESTAMP {quoted_text(full)}))", to)
    return None
