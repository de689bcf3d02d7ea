"""Translate Spark SQL to DuckDB SQL with the same meaning.

sqlglot parses the text, with every call as the user wrote it, and this module writes it node by node. Each value has a
kind (`duckdb_kinds`), and each function is found by name and the kinds of its arguments (`duckdb_functions`).
Everything else raises `Declined` and is left to Spark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from anabranch.algebra.picks import PICKS, nulls_first
from anabranch.duck import quoted
from anabranch.render.duckdb_functions import Value
from anabranch.render.duckdb_kinds import (
    COUNT,
    DOUBLE,
    FLOAT,
    MICROS,
    NOTHING,
    UNKNOWN,
    WHOLE,
    Kind,
    common,
    comparable,
    kind_of,
    whole,
)
from anabranch.render.duckdb_scope import (
    COPIES,
    MARK,
    STARTS,
    Columns,
    Declined,
    Made,
    Scope,
    called,
    decline,
    nothing_but,
)
from anabranch.render.duckdb_values import Values, families, filtered
from anabranch.types import Field

if TYPE_CHECKING:
    from sqlglot import exp

#: A list of rows of plain columns, and one of its columns.
_FIELD = re.compile(r"`((?:[^`]|``)*)`:(\w+(?:\(\d+,\d+\))?)")
_ROWS = re.compile(rf"array<struct<({_FIELD.pattern}(?:,{_FIELD.pattern})*)>>")


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
        return writer.values.value(tree, Scope()).text
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
        self.values = Values(self.given, schemas, self.query)

    # ---- queries

    def query(self, node: exp.Expr, outer: Scope | None) -> Made:
        from sqlglot import exp

        scope = Scope(outer=outer)
        with_text = self._ctes(node, scope)
        if isinstance(node, exp.Subquery):
            inner = self.query(node.this, scope)
            nothing_but(node, "this", "alias", "with_")
            return Made(f"{with_text}({inner.text})", inner.columns)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, scope, with_text)
        if isinstance(node, exp.Select):
            return self._select(node, scope, with_text)
        decline(f"{type(node).__name__} in place of a query")

    def _ctes(self, node: exp.Expr, scope: Scope) -> str:
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

    def _set_operation(self, node: exp.Expr, scope: Scope, with_text: str) -> Made:
        nothing_but(node, "this", "expression", "distinct", "with_", "order", "limit")
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
        text = f"{with_text}{one.text} {word} {other.text}{self.values.order(node, scope)}{self._limit(node)}"
        return Made(text, columns)

    def _select(self, node: exp.Select, scope: Scope, with_text: str) -> Made:
        nothing_but(
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
        order, limit = self.values.order(node, scope), self._limit(node)
        word = "SELECT DISTINCT" if distinct is not None else "SELECT"
        head = f"{with_text}{word} {', '.join(items)}"
        if not self.first and scope.outer is None:
            self.first = items[0] if items else ""
        return Made(f"{head}{source}{where}{group}{having}{order}{limit}", columns)

    def _from(self, node: exp.Select, scope: Scope) -> str:
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

    def _source(self, node: exp.Expr, scope: Scope) -> str:
        """A relation of FROM, which is added to the scope."""
        from sqlglot import exp

        alias = f" AS {_alias(node)}" if node.alias else ""
        if isinstance(node, exp.Table):
            nothing_but(node, "this", "alias", "joins")
            if not isinstance(node.this, exp.Identifier):
                decline("a function in FROM")
            name = node.this.name
            known = scope.cte(name.lower())
            columns = known if known is not None else self._shown_by(name)
            text = f"{MARK}{name}{MARK}" if name.startswith("@") else quoted(name)
            scope.sources.append(((node.alias or name).lower(), _renamed(columns, node)))
            return self._with_joins(node, f"{text}{alias}", scope)
        if isinstance(node, exp.Subquery):
            nothing_but(node, "this", "alias", "joins")
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

    def _with_joins(self, node: exp.Expr, text: str, scope: Scope) -> str:
        for join in node.args.get("joins") or ():
            text += self._join(join, scope)
        return text

    def _join(self, node: exp.Join, scope: Scope) -> str:
        nothing_but(node, "this", "side", "kind", "on", "using")
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
                kinds = self.values.kinds_in(scope.sources, each.name.lower())
                if any(not comparable(kinds[0], kind) for kind in kinds):
                    decline(f"USING ({each.name}) over other types")
            return f" {word} {text} USING ({', '.join(quoted(each.name) for each in using)})"
        if condition is None:
            if word not in ("CROSS JOIN", "JOIN", "INNER JOIN"):
                decline("a join without a condition")
            return f" CROSS JOIN {text}" if not text.startswith("LATERAL") else f", {text}"
        return f" {word} {text} ON {self.values.condition(condition, scope)}"

    # ---- windows, copies and matches in our own Spark SQL

    def _lateral_view(self, node: exp.Lateral, text: str, scope: Scope, *, alone: bool) -> str:
        columns = [each.lower() for each in node.alias_column_names]
        name, call = node.alias.lower(), node.this
        if node.args.get("outer") or len(columns) != 1 or called(call) != "explode":
            decline("LATERAL VIEW")
        (listed,) = call.expressions
        bounds = listed.expressions if called(listed) == "sequence" else []
        if name == COPIES and len(bounds) == 2 and bounds[0].is_int and bounds[0].name == "1":
            count = self.values.value(bounds[1], scope)
            if count.kind.family != WHOLE:
                decline("copies of a row that are not counted")
            scope.sources.append((name, Columns(((columns[0], COUNT),))))
            listed_text = f"SELECT unnest(range(0, {count.text})) AS {quoted(columns[0])}"
            return f"{text}, LATERAL ({listed_text}) AS {quoted(node.alias)}"
        if name != STARTS or len(bounds) != 3:
            decline("LATERAL VIEW")
        return self._windows(bounds, text, scope, alone=alone)

    def _windows(self, bounds: Sequence[exp.Expr], text: str, scope: Scope, *, alone: bool) -> str:
        """The windows of a row, from the first to the last of `bounds`.

        Sliding windows are a join with numbers, which costs DuckDB half as much as lists of starts. Their number is
        that of the starts from `value - far` to `value`; if the slide divides the size, it is the same for each row,
        else the earliest may be one too many.
        """
        first, last = (self.values.value(bound, scope) for bound in bounds[:2])
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
        value, far = self.values.value(reach[0], scope).text, reach[1]
        # The time of windows is computed before the join: once a row, not once a window.
        scope.start = start = f'("__rows"."__last" - "__starts"."__back" * {slide})'
        wanted = '"__rows"."__last" IS NOT NULL' if (far + 1) % slide == 0 else f"{start} >= {value} - {far}"
        rows = f'(SELECT *, {last.text} AS "__last" FROM {text}) AS "__rows"'
        return f'{rows} JOIN range({far // slide + 1}) AS "__starts"("__back") ON {wanted}'

    def _matches(self, node: exp.Lateral, scope: Scope) -> str:
        """LATERAL inline(`o`.`list`): the rows in a list, the form of the matches of lookups."""
        from sqlglot import exp

        call = node.this
        if called(call) != "inline" or len(call.expressions) != 1 or node.args.get("view"):
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

    def _items(self, node: exp.Select, scope: Scope) -> tuple[list[str], Columns]:
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
            value = self.values.column(inner, scope) if isinstance(inner, exp.Column) else self._item(inner, scope)
            name = item.alias_or_name
            if isinstance(item, exp.Alias):
                items.append(f"{value.text} AS {quoted(item.alias)}")
                known = scope.aliases.get(item.alias.lower(), value.kind)
                scope.aliases[item.alias.lower()] = common((known, value.kind))
            else:
                items.append(value.text)
            shown.append((name.lower(), value.kind))
        return items, Columns(tuple(shown), is_open)

    def _item(self, node: exp.Expr, scope: Scope) -> Value:
        """An output value; in partials it may be a row or a set."""
        from sqlglot import exp

        call = node.this if isinstance(node, exp.Filter) else node
        name = called(call)
        if not self.partial or name not in ("named_struct", "collect_set", *PICKS):
            return self.values.value(node, scope)
        if name == "named_struct":
            return self._row(call, scope)
        if name == "collect_set":
            value = self.values.value(call.expressions[0], scope)
            if len(call.expressions) != 1 or value.kind in (UNKNOWN, NOTHING) or value.kind.family == FLOAT:
                decline(f"collect_set({families([value])})")
            made = Value(f"__set(list(DISTINCT {value.text}))", UNKNOWN)
        else:
            picked, order = call.expressions
            made = Value(
                f"{PICKS[name]}({self._row(picked, scope).text}, {self._row(order, scope, True).text})", UNKNOWN
            )
        if call is node:
            return made
        nothing_but(node, "this", "expression")
        return filtered(made, self.values.condition(node.expression.this, scope))

    def _row(self, node: exp.Expr, scope: Scope, ordered: bool = False) -> Value:
        """A row of plain values, or NULL under a condition; with `ordered`, it compares as in Spark."""
        from sqlglot import exp

        if isinstance(node, exp.Case):
            (branch,) = node.args["ifs"]
            if node.this is not None or node.args.get("default") is not None:
                decline("CASE around rows")
            row = self._row(branch.args["true"], scope, ordered)
            return Value(f"CASE WHEN {self.values.condition(branch.this, scope)} THEN {row.text} END", UNKNOWN)
        if called(node) != "named_struct" or len(node.expressions) % 2:
            decline("a row that is not written out")
        fields = []
        for key, each in zip(node.expressions[::2], node.expressions[1::2], strict=True):
            nested = not ordered and _is_row(each)
            value = self._row(each, scope) if nested else self.values.value(each, scope)
            if value.kind == UNKNOWN and not nested:
                decline(f"a row with {each.sql(dialect='spark')}")
            text = nulls_first(value.text, key.name) if ordered else f"{key.name} := {value.text}"
            fields.append(text)
        return Value(f"struct_pack({', '.join(fields)})", UNKNOWN)

    def _star(self, node: exp.Expr, scope: Scope) -> tuple[str, Columns]:
        from sqlglot import exp

        star = node.this if isinstance(node, exp.Column) else node
        nothing_but(star, "except_")
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

    def _clause(self, node: exp.Select, name: str, word: str, scope: Scope) -> str:
        found = node.args.get(name)
        return "" if found is None else f" {word} {self.values.condition(found.this, scope)}"

    def _group(self, node: exp.Select, scope: Scope, columns: Columns) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        nothing_but(group, "expressions", "all")
        if group.args.get("all") or any(each.is_int for each in group.expressions):
            self._groups_all(columns, scope)
        if group.args.get("all"):
            return " GROUP BY ALL"
        values = [self.values.value(each, scope) for each in group.expressions]
        self._groups(value.kind for value in values)
        return f" GROUP BY {', '.join(value.text for value in values)}"

    def _groups(self, kinds: Iterable[Kind]) -> None:
        """Whether both engines group values alike: of 0.0 and -0.0, which are equal, Spark shows the first."""
        for kind in kinds:
            if kind.family in (DOUBLE, FLOAT):
                decline("groups of DOUBLE or FLOAT")
            if kind == UNKNOWN and self.schemas is not None:
                decline("groups of values of which nothing is known")

    def _groups_all(self, columns: Columns, scope: Scope) -> None:
        self._groups(kind for _, kind in columns.kinds)
        if columns.open:
            self._groups(kind for kinds in self.given.values() for kind in kinds)

    def _limit(self, node: exp.Expr) -> str:
        limit = node.args.get("limit")
        if limit is None:
            return ""
        if not limit.expression.is_int:
            decline("LIMIT of something that is no number")
        return f" LIMIT {limit.expression.name}"


def _bare(scope: Scope) -> Scope:
    """The scope of a subquery in FROM: common table expressions, but no relation beside it."""
    return Scope(outer=scope.outer, ctes=scope.ctes)


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


def _row_of(node: exp.Expr) -> str | None:
    """The relation of STRUCT(relation.*)."""
    from sqlglot import exp

    arguments = node.expressions if called(node) == "struct" else []
    star = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], exp.Column) else None
    plain = star is not None and isinstance(star.this, exp.Star) and not any(star.this.args.values())
    return star.table if star is not None and plain else None


def _is_row(node: exp.Expr) -> bool:
    from sqlglot import exp

    inside = node.args["ifs"][0].args["true"] if isinstance(node, exp.Case) else node
    return called(inside) == "named_struct"


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
    if not lowest.expression.is_int or called(remainder) != "pmod":
        return None
    shifted, divisor = remainder.expressions
    if not isinstance(shifted, exp.Sub) or not shifted.this.is_int or shifted.expression.unnest() != lowest:
        return None
    return (lowest.this, int(lowest.expression.name)) if divisor.is_int and int(divisor.name) == slide else None
