"""The names that Spark gives to columns without an alias, such as `count(1)` and `(price * 2)`.

None for an expression whose name only Spark knows. tests/render/test_spark_names.py compares each with Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.sql.text import words

if TYPE_CHECKING:
    from sqlglot import exp

_BINARY = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "IntDiv": "div", "EQ": "=", "GT": ">", "GTE": ">=",
    "LT": "<", "LTE": "<=", "NullSafeEQ": "<=>", "And": "AND", "Or": "OR",
}  # fmt: skip
#: Functions whose column name is the written name, then the names of the arguments.
_PLAIN = words(
    """count sum avg mean min max count_if bool_and bool_or every some any bit_and bit_or bit_xor
    upper lower ucase lcase reverse length char_length character_length len octet_length bit_length
    ltrim rtrim substring substr left right repeat instr startswith endswith contains lpad rpad translate split_part
    ascii md5 sha1 sha abs sign negative rint isnan bit_count pmod
    year month day dayofmonth quarter dayofyear weekofyear dayofweek weekday hour minute second
    unix_seconds unix_micros unix_millis unix_date timestamp_micros timestamp_millis timestamp_seconds
    to_date to_timestamp last_day datediff date_diff date_add date_sub add_months date_trunc trunc
    coalesce nvl ifnull nvl2 nullif greatest least concat concat_ws
    row_number rank dense_rank percent_rank cume_dist"""
)
_TYPES = {"STRING", "INT", "BIGINT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "DATE", "TIMESTAMP", "BOOLEAN"}


class _Unsure(Exception):
    """Only Spark knows this name."""


def name_of(node: exp.Expr) -> str | None:
    """The name of a column with this expression; a cast column keeps its own."""
    from sqlglot import exp

    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column):
        return node.this.name
    try:
        return _named(node)
    except _Unsure:
        return None


def _named(node: exp.Expr) -> str:
    from sqlglot import exp

    kind = type(node).__name__
    if isinstance(node, exp.Paren):
        return _named(node.this)
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and not node.args.get("db"):
        return node.name
    if isinstance(node, exp.Literal) and (node.is_string or node.name.replace(".", "", 1).isdigit()):
        return node.name
    if isinstance(node, exp.Null):
        return "NULL"
    if isinstance(node, exp.Boolean):
        return "true" if node.this else "false"
    if kind in _BINARY:
        return f"({_named(node.this)} {_BINARY[kind]} {_named(node.expression)})"
    if isinstance(node, exp.NEQ):
        return f"(NOT ({_named(node.this)} = {_named(node.expression)}))"
    if isinstance(node, exp.Neg):
        literal = isinstance(node.this, exp.Literal)
        return f"-{_named(node.this)}" if literal else f"(- {_named(node.this)})"
    if isinstance(node, exp.Anonymous):
        return _called(node)
    if isinstance(node, exp.Filter):
        return f"{_named(node.this)} FILTER (WHERE {_named(node.expression.this)})"
    if isinstance(node, exp.Cast):
        return f"CAST({_named(node.this)} AS {_type(node)})"
    if isinstance(node, exp.Case) and node.this is None:
        branches = "".join(f" WHEN {_named(each.this)} THEN {_named(each.args['true'])}" for each in node.args["ifs"])
        default = node.args.get("default")
        return f"CASE{branches}{'' if default is None else f' ELSE {_named(default)}'} END"
    if isinstance(node, exp.In) and not node.args.get("query") and node.expressions:
        return f"({_named(node.this)} IN ({', '.join(map(_named, node.expressions))}))"
    return _negated(node)


def _negated(node: exp.Expr) -> str:
    from sqlglot import exp

    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return f"({_named(node.this)} IS NULL)"
    if isinstance(node, exp.Not):
        inner = node.this
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return f"({_named(inner.this)} IS NOT NULL)"
        return f"(NOT {_named(inner)})"
    raise _Unsure


def _called(node: exp.Anonymous) -> str:
    from sqlglot import exp

    name = str(node.this).lower()
    arguments: list[Any] = list(node.expressions)
    if name not in _PLAIN or (name in ("substring", "substr") and len(arguments) < 3):
        raise _Unsure
    if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        return "count(1)"
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    given = arguments[0].expressions if distinct else arguments
    return f"{name}({'DISTINCT ' if distinct else ''}{', '.join(map(_named, given))})"


def _type(node: exp.Cast) -> str:
    written = node.args["to"].sql(dialect="spark").upper().replace(" ", "")
    if node.this.is_string or node.args.get("safe") or not (written in _TYPES or written.startswith("DECIMAL(")):
        raise _Unsure
    return str(written)
