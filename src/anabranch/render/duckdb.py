"""Translate Spark SQL to DuckDB SQL with the same meaning.

sqlglot parses the text, with every call as the user wrote it, and this module writes it node by node. Each value has a
kind (`duckdb_kinds`), and each function is found by name and the kinds of its arguments (`duckdb_functions`).
Everything else raises `Declined` and is left to Spark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from anabranch.algebra.picks import PICKS, nulls_first
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
from anabranch.types import Field

if TYPE_CHECKING:
    from sqlglot import exp

#: The mark around the name of a placeholder in the output.
MARK = "\0"
_UNITS = re.compile(r"(SECOND|MINUTE|HOUR|DAY)S?", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2} ([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?", re.ASCII)
#: A list of rows of plain columns, and one of its columns.
_FIELD = re.compile(r"`((?:[^`]|``)*)`:(\w+(?:\(\d+,\d+\))?)")
_ROWS = re.compile(rf"array<struct<({_FIELD.pattern}(?:,{_FIELD.pattern})*)>>")
_BOOLEAN = Kind(BOOLEAN)
#: The names, in our own Spark SQL, of the windows of a row and of its copies.
STARTS, COPIES = "__starts", "__copies"
_SIGNS = {"EQ": "=", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "IntDiv": "div"}
_BITWISE = {"BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^"}


class Declined(Exception):
    """An expression is left to Spark; the message is the reason."""


def decline(reason: str) -> NoReturn:
    raise Declined(reason)


def driver_sql(
    text: str, relation: Callable[[str], str | None], fields: Iterable[Field], *, before: str = "", behind: str = ""
) -> str | None:
    """The text for DuckDB, or None. `relation` returns the text for a placeholder; `fields` are the columns of all
    relations in the text. For part of a query, `before` and `behind` are the rest of it."""
    found = _written(text, tuple((each.name.lower(), each.type) for each in fields), before, behind)
    if isinstance(found, Declined):
        return None
    pieces = found.split(MARK)
    for index in range(1, len(pieces), 2):
        put = relation(pieces[index])
        if put is None:
            return None
        pieces[index] = put
    return "".join(pieces)


def why_declined(text: str, fields: Iterable[Field]) -> str | None:
    """The reason why a text is left to Spark; None if it is not."""
    found = _written(text, tuple((each.name.lower(), each.type) for each in fields), "", "")
    return str(found) if isinstance(found, Declined) else None


@lru_cache(maxsize=2048)
def _written(text: str, columns: tuple[tuple[str, str], ...], before: str, behind: str) -> str | Declined:
    """The text for DuckDB, cached, since each run of a view needs it."""
    from sqlglot import errors, exp

    if MARK in text:
        return Declined("a text with a NUL character")
    try:
        tree = parsed(f"{before}{text}{behind}")
        writer = Writer(columns, partial=bool(behind))
        if isinstance(tree, exp.Query):
            made = writer.query(tree, None)
            if not before:
                return made.text
            return writer.first if behind else made.text.removeprefix("SELECT * FROM ")
        return writer.value(tree, _Scope()).text
    except Declined as found:
        return found
    except (errors.SqlglotError, RecursionError) as error:
        return Declined(str(error).splitlines()[0] if str(error) else "it is nested too deeply")


def parsed(text: str) -> exp.Expr:
    from sqlglot import parse_one

    return parse_one(text, dialect=_dialect())


@lru_cache(maxsize=1)
def _dialect() -> Any:
    """Spark's grammar in sqlglot, but with every call under its written name."""
    from sqlglot.dialects.spark import Spark

    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    known: Any = Spark.Parser
    calls = {
        "FUNCTIONS": {},
        "NO_PAREN_FUNCTIONS": {},
        "FUNCTION_PARSERS": {"CAST": known.FUNCTION_PARSERS["CAST"]},
        "NO_PAREN_FUNCTION_PARSERS": {"CASE": known.NO_PAREN_FUNCTION_PARSERS["CASE"]},
    }
    return type("SparkCalls", (Spark,), {"Parser": type("Parser", (known,), calls)})


def _struct_kinds(type: str) -> tuple[tuple[str, Kind], ...] | None:
    """The columns of a list of rows, the form in which nodes keep rows of external tables; None for another list.

    >>> [name for name, _ in _struct_kinds("array<struct<`id`:bigint,`N`:decimal(3,1)>>") or ()]
    ['id', 'n']
    """
    whole = _ROWS.fullmatch(type)
    if whole is None:
        return None
    parts = _FIELD.findall(whole.group(1))
    return tuple((name.replace("``", "`").lower(), kind_of(type)) for name, type in parts)


@dataclass(frozen=True)
class Columns:
    """The columns of a relation, in order; `open`: it may have others too."""

    kinds: tuple[tuple[str, Kind], ...] = ()
    open: bool = False

    def find(self, name: str) -> list[Kind]:
        return [kind for each, kind in self.kinds if each == name]


@dataclass
class _Scope:
    """The relations of a SELECT by name, the aliases of its items, and the scope of the enclosing SELECT."""

    sources: list[tuple[str, Columns]] = field(default_factory=list)
    aliases: dict[str, Kind] = field(default_factory=dict)
    outer: _Scope | None = None
    ctes: dict[str, Columns] = field(default_factory=dict)
    start: str = ""  # the text of the start of a row's window, if windows are numbered

    def cte(self, name: str) -> Columns | None:
        if name in self.ctes:
            return self.ctes[name]
        return self.outer.cte(name) if self.outer is not None else None


@dataclass(frozen=True)
class _Made:
    text: str
    columns: Columns


class Writer:
    """Writes one text; `columns` have the types of the columns of placeholders and tables.

    With `schemas`, the columns of each placeholder are known, and the text may name no others. With `partial`, a value
    may be a row or a set, since only the algebra reads it.
    """

    def __init__(
        self,
        columns: Sequence[tuple[str, str]] = (),
        schemas: Mapping[str, Sequence[Field]] | None = None,
        *,
        partial: bool = False,
    ) -> None:
        self.schemas = schemas
        self.partial = partial
        self.given: dict[str, list[Kind]] = {}
        self.lists: dict[str, set[str]] = {}  # the types of columns that are lists
        for name, type in columns:
            self.given.setdefault(name, []).append(kind_of(type))
            if type.startswith("array<"):
                self.lists.setdefault(name, set()).add(type)
        self.first = ""  # the first value of the outermost SELECT
        self.rows: dict[str, Columns] = {}  # columns that are whole rows, by name, with their columns

    # ---- queries

    def query(self, node: exp.Expr, outer: _Scope | None) -> _Made:
        from sqlglot import exp

        scope = _Scope(outer=outer)
        with_text = self._ctes(node, scope)
        if isinstance(node, exp.Subquery):
            inner = self.query(node.this, scope)
            self._nothing_but(node, "this", "alias", "with_")
            return _Made(f"{with_text}({inner.text})", inner.columns)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, scope, with_text)
        if isinstance(node, exp.Select):
            return self._select(node, scope, with_text)
        decline(f"{type(node).__name__} in place of a query")

    def _ctes(self, node: exp.Expr, scope: _Scope) -> str:
        found = node.args.get("with_")
        if found is None:
            return ""
        if found.args.get("recursive"):
            decline("a recursive query")
        texts = []
        for each in found.expressions:
            made = self.query(each.this, scope)
            columns = _renamed(made.columns, each)
            scope.ctes[each.alias.lower()] = columns
            texts.append(f"{_alias(each)} AS ({made.text})")
        return f"WITH {', '.join(texts)} "

    def _set_operation(self, node: exp.Expr, scope: _Scope, with_text: str) -> _Made:
        self._nothing_but(node, "this", "expression", "distinct", "with_", "order", "limit")
        one, other = self.query(node.this, scope), self.query(node.expression, scope)
        word = type(node).__name__.upper() + ("" if node.args.get("distinct") else " ALL")
        columns = one.columns
        if one.columns.open or other.columns.open:
            # The caller compares the types of the output with Spark's.
            only_stars = all(each.open and not each.kinds for each in (one.columns, other.columns))
            if node.parent is not None or not only_stars or node.args.get("distinct"):
                decline("a set operation over columns whose types are not known")
        else:
            if len(one.columns.kinds) != len(other.columns.kinds):
                decline("a set operation over different numbers of columns")
            pairs = zip(one.columns.kinds, other.columns.kinds, strict=True)
            columns = Columns(tuple((name, common((left, right))) for (name, left), (_, right) in pairs))
            if any(kind == UNKNOWN for _, kind in columns.kinds):
                decline("a set operation over columns of different types")
            if node.args.get("distinct") or word.startswith(("EXCEPT", "INTERSECT")):
                self._groups(kind for _, kind in columns.kinds)
        scope.sources.append(("", columns))
        text = f"{with_text}{one.text} {word} {other.text}{self._order(node, scope)}{self._limit(node)}"
        return _Made(text, columns)

    def _select(self, node: exp.Select, scope: _Scope, with_text: str) -> _Made:
        self._nothing_but(
            node, "expressions", "from_", "joins", "laterals", "where", "group", "having", "order", "limit", "distinct",
            "with_", "hint",
        )  # fmt: skip
        source = self._from(node, scope)
        items, columns = self._items(node, scope)
        where = self._clause(node, "where", "WHERE", scope)
        group = self._group(node, scope, columns)
        having = self._clause(node, "having", "HAVING", scope)
        distinct = node.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on") is not None:
                decline("DISTINCT ON")
            self._groups_all(columns, scope)
        order, limit = self._order(node, scope), self._limit(node)
        word = "SELECT DISTINCT" if distinct is not None else "SELECT"
        head = f"{with_text}{word} {', '.join(items)}"
        if not self.first and scope.outer is None:
            self.first = items[0] if items else ""
        return _Made(f"{head}{source}{where}{group}{having}{order}{limit}", columns)

    def _from(self, node: exp.Select, scope: _Scope) -> str:
        from_ = node.args.get("from_")
        laterals = node.args.get("laterals") or []
        if from_ is None:
            if laterals or node.args.get("joins"):
                decline("a join without FROM")
            return ""
        text = self._source(from_.this, scope)
        for join in node.args.get("joins") or ():
            text += self._join(join, scope)
        for lateral in laterals:
            text = self._lateral_view(lateral, text, scope, alone=not node.args.get("joins") and len(laterals) == 1)
        return f" FROM {text}"

    def _source(self, node: exp.Expr, scope: _Scope) -> str:
        """A relation of FROM, which is added to the scope."""
        from sqlglot import exp

        alias = f" AS {_alias(node)}" if node.alias else ""
        if isinstance(node, exp.Table):
            self._nothing_but(node, "this", "alias", "joins")
            if not isinstance(node.this, exp.Identifier):
                decline("a function in FROM")
            name = node.this.name
            known = scope.cte(name.lower())
            columns = known if known is not None else self._shown_by(name)
            text = f"{MARK}{name}{MARK}" if name.startswith("@") else quoted(name)
            scope.sources.append(((node.alias or name).lower(), _renamed(columns, node)))
            return self._with_joins(node, f"{text}{alias}", scope)
        if isinstance(node, exp.Subquery):
            self._nothing_but(node, "this", "alias", "joins")
            if isinstance(node.this, exp.Table):
                return self._with_joins(node, f"({self._source(node.this, scope)}){alias}", scope)
            made = self.query(node.this, scope.outer if scope.outer is not None else _bare(scope))
            scope.sources.append((node.alias.lower(), _renamed(made.columns, node)))
            return self._with_joins(node, f"({made.text}){alias}", scope)
        if isinstance(node, exp.Lateral):
            return self._matches(node, scope)
        decline(f"{type(node).__name__} in FROM")

    def _shown_by(self, name: str) -> Columns:
        if self.schemas is None:
            return Columns(open=True)
        if name not in self.schemas:
            decline(f"{name} in FROM")
        return Columns(tuple((each.name.lower(), kind_of(each.type)) for each in self.schemas[name]))

    def _with_joins(self, node: exp.Expr, text: str, scope: _Scope) -> str:
        for join in node.args.get("joins") or ():
            text += self._join(join, scope)
        return text

    def _join(self, node: exp.Join, scope: _Scope) -> str:
        self._nothing_but(node, "this", "side", "kind", "on", "using")
        text = self._source(node.this, scope)
        kind, side = (node.kind or "").upper(), (node.side or "").upper()
        if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):  # DuckDB has no other
            word = f"{kind} JOIN"
        elif kind in ("", "INNER", "OUTER", "CROSS") and side in ("", "LEFT", "RIGHT", "FULL"):
            word = f"{side or kind} JOIN".replace("OUTER ", "").strip()
        else:
            decline(f"{side} {kind} JOIN")
        condition, using = node.args.get("on"), node.args.get("using")
        if using:
            for each in using:
                kinds = [kind for kind in map(self._of_source(each.name.lower()), scope.sources) if kind is not None]
                if any(not comparable(kinds[0], kind) for kind in kinds):
                    decline(f"USING ({each.name}) over other types")
            return f" {word} {text} USING ({', '.join(quoted(each.name) for each in using)})"
        if condition is None:
            if word not in ("CROSS JOIN", "JOIN", "INNER JOIN"):
                decline("a join without a condition")
            return f" CROSS JOIN {text}" if not text.startswith("LATERAL") else f", {text}"
        return f" {word} {text} ON {self._condition(condition, scope)}"

    def _of_source(self, name: str) -> Callable[[tuple[str, Columns]], Kind | None]:
        def found(source: tuple[str, Columns]) -> Kind | None:
            kinds = source[1].find(name) or (self.given.get(name, []) if source[1].open else [])
            return common(kinds) if kinds else None

        return found

    # ---- windows, copies and matches in our own Spark SQL

    def _lateral_view(self, node: exp.Lateral, text: str, scope: _Scope, *, alone: bool) -> str:
        columns = [each.lower() for each in node.alias_column_names]
        name, call = node.alias.lower(), node.this
        if node.args.get("outer") or len(columns) != 1 or _called(call) != "explode":
            decline("LATERAL VIEW")
        (listed,) = call.expressions
        bounds = listed.expressions if _called(listed) == "sequence" else []
        if name == COPIES and len(bounds) == 2 and bounds[0].is_int and bounds[0].name == "1":
            count = self.value(bounds[1], scope)
            if count.kind.family != WHOLE:
                decline("copies of a row that are not counted")
            scope.sources.append((name, Columns(((columns[0], COUNT),))))
            listed_text = f"SELECT unnest(range(0, {count.text})) AS {quoted(columns[0])}"
            return f"{text}, LATERAL ({listed_text}) AS {quoted(node.alias)}"
        if name != STARTS or len(bounds) != 3:
            decline("LATERAL VIEW")
        return self._windows(bounds, text, scope, alone=alone)

    def _windows(self, bounds: Sequence[exp.Expr], text: str, scope: _Scope, *, alone: bool) -> str:
        """The windows of a row, from the first to the last of `bounds`.

        Sliding windows are a join with numbers, which costs DuckDB half as much as lists of starts. Their number is
        that of the starts from `value - far` to `value`; if the slide divides the size, it is the same for each row,
        else the earliest may be one too many.
        """
        first, last = (self.value(bound, scope) for bound in bounds[:2])
        slide = _whole_cast(bounds[2])
        if first.kind.family != WHOLE or last.kind.family != WHOLE or slide is None:
            decline("windows along something that is no number")
        kind = whole("bigint", MICROS)
        reach = _reach(bounds[0], slide)
        source_name = scope.sources[-1][0] if scope.sources else ""
        scope.sources.append((STARTS, Columns((("start", kind),))))
        if reach is None or not alone or source_name != "__rows":
            listed = f"SELECT unnest(range({first.text}, {last.text} + 1, {slide})) AS start"
            return f'{text}, LATERAL ({listed}) AS "__starts"'
        value, far = self.value(reach[0], scope).text, reach[1]
        # The time of windows is computed before the join: once a row, not once a window.
        scope.start = start = f'("__rows"."__last" - "__starts"."__back" * {slide})'
        wanted = '"__rows"."__last" IS NOT NULL' if (far + 1) % slide == 0 else f"{start} >= {value} - {far}"
        rows = f'(SELECT *, {last.text} AS "__last" FROM {text}) AS "__rows"'
        return f'{rows} JOIN range({far // slide + 1}) AS "__starts"("__back") ON {wanted}'

    def _matches(self, node: exp.Lateral, scope: _Scope) -> str:
        """LATERAL inline(`o`.`list`): the rows in a list, the form of the matches of lookups."""
        from sqlglot import exp

        call = node.this
        if _called(call) != "inline" or len(call.expressions) != 1 or node.args.get("view"):
            decline("LATERAL")
        column = call.expressions[0]
        if not isinstance(column, exp.Column) or not column.table:
            decline("LATERAL inline")
        found, alias = Columns(open=True), ""
        if node.alias:
            known = self.lists.get(column.name.lower(), set())
            rows = _struct_kinds(next(iter(known))) if len(known) == 1 else None
            if rows is None:
                decline("LATERAL inline")
            found, alias = _renamed(Columns(rows), node), f" AS {_alias(node)}"
        scope.sources.append((node.alias.lower(), found))
        named = f"{quoted(column.table)}.{quoted(column.name)}"
        return f"LATERAL (SELECT unnest({named}, recursive := true)){alias}"

    # ---- the parts of a SELECT

    def _items(self, node: exp.Select, scope: _Scope) -> tuple[list[str], Columns]:
        from sqlglot import exp

        items: list[str] = []
        shown: list[tuple[str, Kind]] = []
        is_open = False
        for item in node.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                text, columns = self._star(item, scope)
                items.append(text)
                shown += columns.kinds
                is_open = is_open or columns.open
                continue
            inner = item.this if isinstance(item, exp.Alias) else item
            whole_row = _row_of(inner)
            if whole_row is not None and isinstance(item, exp.Alias) and not node.args.get("group"):
                (self.rows[item.alias.lower()],) = (each for name, each in scope.sources if name == whole_row.lower())
                items.append(f"{quoted(whole_row)} AS {quoted(item.alias)}")
                shown.append((item.alias.lower(), UNKNOWN))
                continue
            # A column of unknown kind can be passed on.
            value = self._column(inner, scope) if isinstance(inner, exp.Column) else self._item(inner, scope)
            name = item.alias_or_name
            if isinstance(item, exp.Alias):
                items.append(f"{value.text} AS {quoted(item.alias)}")
                known = scope.aliases.get(item.alias.lower(), value.kind)
                scope.aliases[item.alias.lower()] = common((known, value.kind))
            else:
                items.append(value.text)
            shown.append((name.lower(), value.kind))
        return items, Columns(tuple(shown), is_open)

    def _item(self, node: exp.Expr, scope: _Scope) -> Value:
        """An output value; in partials it may be a row or a set."""
        from sqlglot import exp

        call = node.this if isinstance(node, exp.Filter) else node
        name = _called(call)
        if not self.partial or name not in ("named_struct", "collect_set", *PICKS):
            return self.value(node, scope)
        if name == "named_struct":
            return self._row(call, scope)
        if name == "collect_set":
            value = self.value(call.expressions[0], scope)
            if len(call.expressions) != 1 or value.kind in (UNKNOWN, NOTHING) or value.kind.family == FLOAT:
                decline(f"collect_set({_families([value])})")
            made = Value(f"__set(list(DISTINCT {value.text}))", UNKNOWN)
        else:
            picked, order = call.expressions
            made = Value(
                f"{PICKS[name]}({self._row(picked, scope).text}, {self._row(order, scope, True).text})", UNKNOWN
            )
        if call is node:
            return made
        self._nothing_but(node, "this", "expression")
        return _filtered(made, self._condition(node.expression.this, scope))

    def _row(self, node: exp.Expr, scope: _Scope, ordered: bool = False) -> Value:
        """A row of plain values, or NULL under a condition; with `ordered`, it compares as in Spark."""
        from sqlglot import exp

        if isinstance(node, exp.Case):
            (branch,) = node.args["ifs"]
            if node.this is not None or node.args.get("default") is not None:
                decline("CASE around rows")
            row = self._row(branch.args["true"], scope, ordered)
            return Value(f"CASE WHEN {self._condition(branch.this, scope)} THEN {row.text} END", UNKNOWN)
        if _called(node) != "named_struct" or len(node.expressions) % 2:
            decline("a row that is not written out")
        fields = []
        for key, each in zip(node.expressions[::2], node.expressions[1::2], strict=True):
            nested = not ordered and _is_row(each)
            value = self._row(each, scope) if nested else self.value(each, scope)
            if value.kind == UNKNOWN and not nested:
                decline(f"a row with {each.sql(dialect='spark')}")
            text = nulls_first(value.text, key.name) if ordered else f"{key.name} := {value.text}"
            fields.append(text)
        return Value(f"struct_pack({', '.join(fields)})", UNKNOWN)

    def _star(self, node: exp.Expr, scope: _Scope) -> tuple[str, Columns]:
        from sqlglot import exp

        star = node.this if isinstance(node, exp.Column) else node
        self._nothing_but(star, "except_")
        table = node.table.lower() if isinstance(node, exp.Column) else None
        excluded = {each.name.lower() for each in star.args.get("except_") or ()}
        sources = [columns for name, columns in scope.sources if table in (None, name)]
        if not sources and table in self.rows:
            sources = [self.rows[table or ""]]
        if not sources:
            decline(f"{node.sql()} of nothing")
        kinds = [(name, kind) for columns in sources for name, kind in columns.kinds if name not in excluded]
        text = f"{quoted(node.table)}.*" if isinstance(node, exp.Column) else "*"
        hidden = [quoted(each.name) for each in star.args.get("except_") or ()]
        if scope.start and table in (None, "__rows"):
            hidden.append('"__last"')
        exclude = f" EXCLUDE ({', '.join(hidden)})" if hidden else ""
        return f"{text}{exclude}", Columns(tuple(kinds), any(columns.open for columns in sources))

    def _clause(self, node: exp.Select, name: str, word: str, scope: _Scope) -> str:
        found = node.args.get(name)
        return "" if found is None else f" {word} {self._condition(found.this, scope)}"

    def _group(self, node: exp.Select, scope: _Scope, columns: Columns) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        self._nothing_but(group, "expressions", "all")
        if group.args.get("all") or any(each.is_int for each in group.expressions):
            self._groups_all(columns, scope)
        if group.args.get("all"):
            return " GROUP BY ALL"
        values = [self.value(each, scope) for each in group.expressions]
        self._groups(value.kind for value in values)
        return f" GROUP BY {', '.join(value.text for value in values)}"

    def _groups(self, kinds: Iterable[Kind]) -> None:
        """Whether both engines group values alike: of 0.0 and -0.0, which are equal, Spark shows the first."""
        for kind in kinds:
            if kind.family in (DOUBLE, FLOAT):
                decline("groups of DOUBLE or FLOAT")
            if kind == UNKNOWN and self.schemas is not None:
                decline("groups of values of which nothing is known")

    def _groups_all(self, columns: Columns, scope: _Scope) -> None:
        self._groups(kind for _, kind in columns.kinds)
        if columns.open:
            self._groups(kind for kinds in self.given.values() for kind in kinds)

    def _order(self, node: exp.Expr, scope: _Scope) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        return f" ORDER BY {', '.join(self._ordered(each, scope) for each in order.expressions)}"

    def _ordered(self, node: exp.Expr, scope: _Scope) -> str:
        from sqlglot import exp

        if not isinstance(node, exp.Ordered):
            decline("ORDER BY")
        value = self.value(node.this, scope)
        down = "DESC" if node.args.get("desc") else "ASC"
        return f"{value.text} {down} NULLS {'FIRST' if node.args.get('nulls_first') else 'LAST'}"

    def _limit(self, node: exp.Expr) -> str:
        limit = node.args.get("limit")
        if limit is None:
            return ""
        if not limit.expression.is_int:
            decline("LIMIT of something that is no number")
        return f" LIMIT {limit.expression.name}"

    def _nothing_but(self, node: exp.Expr, *known: str) -> None:
        """Decline a node with other arguments than these, which would be dropped."""
        for name, value in node.args.items():
            if value and name not in known:
                decline(f"{name.strip('_')} of {type(node).__name__}")

    # ---- values

    def value(self, node: exp.Expr, scope: _Scope) -> Value:
        """A value with its kind."""
        from sqlglot import exp

        name = type(node).__name__
        if isinstance(node, exp.Paren):
            inner = self.value(node.this, scope)
            return Value(f"({inner.text})", inner.kind, inner.bound, inner.literal)
        if isinstance(node, exp.Column):
            found = self._column(node, scope)
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

    def _other(self, node: exp.Expr, name: str, scope: _Scope) -> Value | None:
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
            self._nothing_but(node, "this", "expression")
            inside = self._condition(node.expression.this, scope)
            return _filtered(made, inside)
        if isinstance(node, exp.Subquery):
            inner = self.query(node.this, scope)
            if len(inner.columns.kinds) != 1 or inner.columns.open or node.alias:
                return None
            return Value(f"({inner.text})", inner.columns.kinds[0][1])
        return None

    def _column(self, node: exp.Column, scope: _Scope) -> Value:
        from sqlglot import exp

        if isinstance(node.this, exp.Star) or node.args.get("db") is not None:
            decline(node.sql(dialect="spark"))
        name, table = node.name.lower(), node.table.lower()
        if table == STARTS and scope.start:
            return Value(scope.start, whole("bigint", MICROS))
        text = f"{quoted(node.table)}.{quoted(node.name)}" if table else quoted(node.name)
        return Value(text, self._kind_of_column(name, table, scope), True)

    def _kind_of_column(self, name: str, table: str, scope: _Scope) -> Kind:
        around: _Scope | None = scope
        while around is not None:
            sources = [each for each in around.sources if not table or each[0] == table]
            found = [kind for kind in map(self._of_source(name), sources) if kind is not None]
            if not table and name in around.aliases:
                found.append(around.aliases[name])
            if found:
                return common(found)
            around = around.outer
        if self.schemas is not None or (table and not self._is_relation(table, scope)):
            decline(f"{table}.{name}" if table else name)  # a field of a struct, or unknown
        return common(self.given[name]) if name in self.given and not scope.sources else UNKNOWN

    def _is_relation(self, table: str, scope: _Scope | None) -> bool:
        if scope is None:
            return False
        if not scope.sources and scope.outer is None:
            return True  # an expression alone: its FROM is unknown
        return any(name == table for name, _ in scope.sources) or self._is_relation(table, scope.outer)

    def _call(self, node: exp.Anonymous, scope: _Scope, *, over: bool = False) -> Value:
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
            return made if made is not None else decline(f"{name}({_families([value])})")
        values = [self.value(each, scope) for each in arguments]
        # With another number, Spark casts a FLOAT to DOUBLE, and DuckDB casts both to FLOAT.
        made = None if any(value.kind.family == FLOAT for value in values) else functions.call(name, values)
        return made if made is not None else decline(f"{name}({_families(values)})")

    def _count(self, arguments: Sequence[exp.Expr], scope: _Scope) -> Value:
        from sqlglot import exp

        if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            return Value("count(*)", COUNT)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        given = arguments[0].expressions if distinct else arguments
        if len(given) != 1:
            decline("count of several values")
        value = self.value(given[0], scope)
        return Value(f"count({'DISTINCT ' if distinct else ''}{value.text})", COUNT)

    def _operator(self, node: exp.Expr, name: str, scope: _Scope) -> Value:
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
        return made if made is not None else decline(f"{node.key}({_families([one, other])})")

    def _beside(self, node: exp.Expr, scope: _Scope, others: Any) -> Value:
        """An operand that is not one of some operators, which the two grammars may group differently."""
        if isinstance(node, others):
            decline("operators without parentheses")
        return self.value(node, scope)

    def _case(self, node: exp.Case, scope: _Scope) -> Value | None:
        given = node.this
        text, values = "CASE", []
        for each in node.args["ifs"]:
            if given is None:
                condition = self._condition(each.this, scope)
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

    def _cast(self, node: exp.Cast, scope: _Scope) -> Value | None:
        self._nothing_but(node, "this", "to", "_type", "safe")
        to = kind_of(node.args["to"].sql(dialect="spark").lower().replace(" ", ""))
        written = duckdb_type_of(to)
        if written is None:
            return None
        if node.this.is_string:  # TIMESTAMP '...', DATE '...'
            return _moment(node.this.name, to)
        if to.family == DOUBLE and node.this.is_number and re.fullmatch(r"\d{1,18}\.\d{1,18}", node.this.name):
            return Value(f"CAST('{node.this.name}' AS DOUBLE)", to)
        return functions.cast(self.value(node.this, scope), to, written)

    def _window(self, node: exp.Window, scope: _Scope) -> Value | None:
        from sqlglot import exp

        self._nothing_but(node, "this", "partition_by", "order", "spec", "over")
        call = node.this
        chosen = ""
        if isinstance(call, exp.Filter):
            chosen = f" FILTER (WHERE {self._condition(call.expression.this, scope)})"
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
        order = self._order(node, scope).strip()
        if order:
            parts.append(order)
        if node.args.get("spec") is not None:
            parts.append(self._frame(node.args["spec"], scope))
        return Value(f"{made.text}{chosen} OVER ({' '.join(parts)})", made.kind)

    def _over(self, call: exp.Anonymous, scope: _Scope) -> Value | None:
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

    def _frame(self, node: exp.Expr, scope: _Scope) -> str:
        self._nothing_but(node, "kind", "start", "start_side", "end", "end_side")

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

    # ---- conditions

    def _condition(self, node: exp.Expr, scope: _Scope) -> str:
        value = self.value(node, scope)
        if value.kind.family not in (BOOLEAN, NULL):
            decline(f"a condition that is a {value.kind.family}")
        return value.text

    def _predicate(self, node: exp.Expr, scope: _Scope) -> str:
        from sqlglot import exp

        name = type(node).__name__
        if isinstance(node, exp.And | exp.Or):
            one, other = self._condition(node.this, scope), self._condition(node.expression, scope)
            return f"({one} {name.upper()} {other})"
        if isinstance(node, exp.Not):
            return f"(NOT {self._condition(node.this, scope)})"
        if name in _SIGNS:
            return self._compared(_SIGNS[name], node.this, node.expression, scope)
        if isinstance(node, exp.NullSafeEQ):
            return self._compared("IS NOT DISTINCT FROM", node.this, node.expression, scope)
        if isinstance(node, exp.NullSafeNEQ):
            return self._compared("IS DISTINCT FROM", node.this, node.expression, scope)
        if isinstance(node, exp.Between):
            self._nothing_but(node, "this", "low", "high")
            texts = self._comparable(scope, node.this, node.args["low"], node.args["high"])
            return f"({texts[0]} BETWEEN {texts[1]} AND {texts[2]})"
        if isinstance(node, exp.In):
            return self._in(node, scope)
        if isinstance(node, exp.Is):
            if isinstance(node.expression, exp.Null):
                return f"({self.value(node.this, scope).text} IS NULL)"
            if isinstance(node.expression, exp.Boolean):
                return f"({self._condition(node.this, scope)} IS {'TRUE' if node.expression.this else 'FALSE'})"
        if isinstance(node, exp.Exists):
            inner = self.query(node.this.this if isinstance(node.this, exp.Subquery) else node.this, scope)
            return f"EXISTS ({inner.text})"
        if isinstance(node, exp.Like):
            self._nothing_but(node, "this", "expression")
            made = functions.like(self.value(node.this, scope), self.value(node.expression, scope))
            return made.text if made is not None else decline("LIKE")
        decline(node.sql(dialect="spark"))

    def _in(self, node: exp.In, scope: _Scope) -> str:
        query = node.args.get("query")
        if query is None:
            self._nothing_but(node, "this", "expressions")
            value, *others = self._comparable(scope, node.this, *node.expressions)
            return f"({value} IN ({', '.join(others)}))"
        inner = self.query(query.this, scope)
        if len(inner.columns.kinds) != 1 or inner.columns.open:
            decline("IN of several columns")
        value = self._comparable(scope, node.this)[0]
        if not comparable(self.value(node.this, scope).kind, inner.columns.kinds[0][1]):
            decline("IN of another type")
        return f"({value} IN ({inner.text}))"

    def _compared(self, sign: str, one: exp.Expr, other: exp.Expr, scope: _Scope) -> str:
        left, right = self._comparable(scope, one, other)
        return f"({left} {sign} {right})"

    def _comparable(self, scope: _Scope, *nodes: exp.Expr) -> list[str]:
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
                decline(f"a comparison of {_families([values[0], other])}")
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


def _bare(scope: _Scope) -> _Scope:
    """The scope of a subquery in FROM: common table expressions, but no relation beside it."""
    return _Scope(outer=scope.outer, ctes=scope.ctes)


def _renamed(columns: Columns, node: exp.Expr) -> Columns:
    """Columns renamed by an alias."""
    names = [each.lower() for each in node.alias_column_names]
    if not names:
        return columns
    if columns.open or len(names) != len(columns.kinds):
        decline("names for columns that are not known")
    return Columns(tuple((name, kind) for name, (_, kind) in zip(names, columns.kinds, strict=True)))


def _alias(node: exp.Expr) -> str:
    names = node.alias_column_names
    listed = f"({', '.join(map(quoted, names))})" if names else ""
    return f"{quoted(node.alias)}{listed}"


def _called(node: exp.Expr) -> str:
    """The name of the function that a node calls."""
    from sqlglot import exp

    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""


def _row_of(node: exp.Expr) -> str | None:
    """The relation of STRUCT(relation.*)."""
    from sqlglot import exp

    arguments = node.expressions if _called(node) == "struct" else []
    star = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], exp.Column) else None
    plain = star is not None and isinstance(star.this, exp.Star) and not any(star.this.args.values())
    return star.table if star is not None and plain else None


def _is_row(node: exp.Expr) -> bool:
    from sqlglot import exp

    inside = node.args["ifs"][0].args["true"] if isinstance(node, exp.Case) else node
    return _called(inside) == "named_struct"


def _families(values: Sequence[Value]) -> str:
    return ", ".join(value.kind.family for value in values)


def _filtered(made: Value, condition: str) -> Value:
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


def _whole_cast(node: exp.Expr) -> int | None:
    """The number in CAST(number AS BIGINT)."""
    from sqlglot import exp

    inside = node.this if isinstance(node, exp.Cast) else None
    return int(inside.name) if inside is not None and inside.is_int and int(inside.name) > 0 else None


def _reach(first: exp.Expr, slide: int) -> tuple[exp.Expr, int] | None:
    """The time of windows, and how far before it one may start.

    From `(value - far + pmod(number - (value - far), slide))`, the start of the first window.
    """
    from sqlglot import exp

    node = first.unnest()
    if not isinstance(node, exp.Add) or not isinstance(node.this, exp.Sub):
        return None
    lowest, remainder = node.this, node.expression
    if not lowest.expression.is_int or _called(remainder) != "pmod":
        return None
    shifted, divisor = remainder.expressions
    if not isinstance(shifted, exp.Sub) or not shifted.this.is_int or shifted.expression.unnest() != lowest:
        return None
    return (lowest.this, int(lowest.expression.name)) if divisor.is_int and int(divisor.name) == slide else None
