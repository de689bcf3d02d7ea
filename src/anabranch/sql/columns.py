"""The columns that a query can read and returns, as far as its text alone shows, and a check of the names in it.

`None` for columns means that only Spark knows them; then nothing is checked. In doubt a name passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.errors import SqlError, UnknownName, WrongType, did_you_mean
from anabranch.sql.calls import Chain, chains, closing, only_name
from anabranch.sql.durations import is_unit
from anabranch.sql.lexer import QUOTED, STRING, WORD, Token
from anabranch.sql.syntax import (
    NEWEST,
    Expression,
    ImpliedCondition,
    Item,
    Opaque,
    Query,
    Relation,
    Select,
    SetOperation,
    WindowSpec,
)
from anabranch.sql.text import Span, words

Columns = Mapping[str, str | None]  # name -> type, if known; names keep their case
WINDOW_COLUMNS: Columns = {"window_start": "timestamp", "window_end": "timestamp", "window_time": "timestamp"}
_INTEGERS = ("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long")
_NUMBERS = (*_INTEGERS, "float", "real", "double")

#: Keywords inside expressions.
_WORDS = words(
    """all and any as asc at between both by case collate cross cube current current_catalog current_database
    current_date current_path current_schema current_time current_timestamp current_user day desc distinct distribute
    div else end escape except exists false filter first following for from full group grouping having
    ignore ilike in inner interval
    into is join last lateral leading left like limit localtimestamp natural not null nulls offset on or order outer
    over overlay partition placing position preceding range regexp respect right rlike rollup row rows select semi
    session_user sets similar some sort struct symmetric table then to trailing true unbounded union unknown user using
    values void when where window with within zone dayofyear dayofweek yearofweek doy dow isodow"""
)


@dataclass(frozen=True)
class Scope:
    """The relations of a SELECT by qualifier, and the scope of the enclosing query."""

    relations: tuple[tuple[str | None, Columns | None], ...]
    outer: Scope | None = None
    aliases: frozenset[str] = frozenset()  # aliases of the SELECT list
    open: bool = False  # some of its columns are unknown

    @property
    def complete(self) -> bool:
        here = not self.open and all(columns is not None for _, columns in self.relations)
        return here and (self.outer is None or self.outer.complete)

    def names(self) -> Iterator[str]:
        for _, columns in self.relations:
            yield from columns or ()
        if self.outer is not None:
            yield from self.outer.names()

    def qualifiers(self) -> Iterator[str]:
        for name, _ in self.relations:
            if name is not None:
                yield name
        if self.outer is not None:
            yield from self.outer.qualifiers()

    def has(self, name: str) -> bool:
        return any(name == column.lower() for column in self.names())

    def qualified(self, qualifier: str) -> tuple[bool, Columns | None]:
        """Whether the relation exists, and its columns."""
        for name, columns in self.relations:
            if name is not None and name.lower() == qualifier:
                return True, columns
        return self.outer.qualified(qualifier) if self.outer is not None else (False, None)


_ANYTHING = Scope((), open=True)


def check_window(text: str, window: WindowSpec, columns: Columns) -> None:
    """The columns of a window must exist, and the type of its time column must fit its arguments."""
    for column in (*window.partition, *window.columns):
        _found(text, column.last, column.span, columns)
    if window.time_column is None:
        return
    found = _found(text, window.time_column, window.time_span, columns)
    type = (columns[found] or "").lower()
    if not type or window.type.cut_by_key:
        return
    timed = type.startswith("timestamp") or type == "date"
    message, hint = None, None
    if window.rows and type not in _INTEGERS:
        message = f"{found} is a {type.upper()}, and windows of numbers need a whole number"
        hint = "write lengths of time, as in INTERVAL 1 MINUTE" if timed else "declare it as INT or BIGINT"
        hint += ", or count rows: DESCRIPTOR(row_num)"
    elif not window.rows and not timed and not type.startswith("decimal") and type not in _NUMBERS:
        message = f"{found} is a {type.upper()}, and windows need a TIMESTAMP"
        hint = f"declare {found} as TIMESTAMP, or as a number of seconds since 1970"
        if type.startswith("struct"):
            hint = f"the time of a window is window_time({found}): put a query around it that shows that as a column"
    if message is not None:
        span = window.time_span
        raise WrongType(message, text=text, at=span, hint=hint)


def _found(text: str, name: str, span: Span, columns: Columns) -> str:
    """A column in the spelling of its relation."""
    found = next((column for column in columns if column.lower() == name.lower()), None)
    if found is None:
        raise _unknown(text, name, span, columns)
    return found


def _unknown(text: str, name: str, span: Span, known: Sequence[str] | Columns, hint: str | None = None) -> UnknownName:
    shown = [each for each in known if not each.rpartition(".")[2].startswith("__")]
    hint = hint or did_you_mean(name, shown)
    return UnknownName(f"there is no column {name}", text=text, at=span, hint=hint)


@dataclass
class Resolver:
    """Walks a query with the columns of the objects it may read."""

    text: str
    objects: Mapping[str, Columns | None]  # by lower-case name
    ctes: dict[str, Columns | None] = field(default_factory=dict)
    #: Collects errors; without it the first one is raised. `also` is a further check of each SELECT.
    report: Callable[[SqlError], None] | None = None
    also: Callable[[Select, Scope], None] | None = None
    with_id: bool = False  # whether windows have ids

    # ---- queries

    def query(self, query: Query, outer: Scope | None = None) -> Columns | None:
        """Check a query and return its output columns."""
        self.with_id = self.with_id or query.uses_window_ids
        before = dict(self.ctes)
        for name, _ in query.ctes:  # the columns of a recursive one are unknown
            self.ctes[name.lower()] = None
        for (name, inner), given in zip(query.ctes, query.cte_columns, strict=False):
            columns = self.query(inner, outer)
            self.ctes[name.lower()] = _renamed(columns, given)
        columns = self._body(query.body, outer, query)
        self.ctes = before
        return columns

    def _body(self, body: Select | SetOperation | Query | Opaque, outer: Scope | None, owner: Query) -> Columns | None:
        if isinstance(body, Select):
            return self._select(body, outer, owner.order_expressions if owner.body is body else ())
        if isinstance(body, Query):
            return self.query(body, outer)
        if isinstance(body, SetOperation):
            found = [self._body(operand, outer, owner) for operand in body.operands]
            return None if found[0] is None else dict.fromkeys(found[0], None)
        return None

    def _select(self, select: Select, outer: Scope | None, order: Sequence[Expression]) -> Columns | None:
        reshaped = select.lateral or any(relation.reshaped for relation in select.relations)
        around = _ANYTHING if select.lateral else outer  # LATERAL sees the relations beside it
        relations = [(relation.exposed, self._relation(relation, around)) for relation in select.relations]
        aliases = frozenset(_given_names(select.items)) | ({select.window.name} if select.window is not None else set())
        rows = Scope(tuple(relations), outer, frozenset(), reshaped)
        groups = Scope(tuple(relations), outer, aliases, reshaped)
        for item in select.items:  # an item may use the aliases before it
            self.expression(item.tokens, groups)
        for relation in select.relations:
            self._condition(relation, rows)
        self._check_implied(select.implied_conditions, rows)
        if select.where is not None:
            self.expression(select.where.tokens, rows, aliases)
        for part in [*select.group, *([select.having] if select.having is not None else []), *order]:
            self.expression(part.tokens, groups)
        for inner in select.subqueries:
            self.query(inner, rows)
        window, (_, columns) = select.window, relations[0] if len(relations) == 1 else (None, None)
        time = _plain_name(window.time) if window is not None and window.time else None
        if window is not None and window.spec is not None and select.planned and time is not None and columns:
            check_window(self.text, replace(window.spec, time_column=time), columns)
        if self.also is not None:
            self.also(select, groups)
        return None if reshaped else self._output(select, relations)

    def _condition(self, relation: Relation, scope: Scope) -> None:
        tokens = relation.condition_tokens
        if tokens and tokens[0].upper == "ON":
            self.expression(tokens[1:], scope)
        self._check_implied(relation.implied_conditions, scope)
        for each in relation.versions.expressions if relation.versions is not None else ():
            self.expression(each.tokens, scope)

    def _check_implied(self, conditions: Sequence[ImpliedCondition], scope: Scope) -> None:
        for name in (name for each in conditions for name in each.names if scope.complete):
            self._qualified(name.parts, name.span, scope)

    def _relation(self, relation: Relation, outer: Scope | None) -> Columns | None:
        columns: Columns | None = None
        if relation.subquery is not None:
            columns = self.query(relation.subquery, outer)
        elif relation.name is not None:
            name = str(relation.name).lower()
            columns = self.ctes[name] if name in self.ctes else self.objects.get(name)
        if relation.window is not None and columns is not None:
            check_window(self.text, relation.window, columns)
            bounds = dict.fromkeys(WINDOW_COLUMNS, "bigint") if relation.window.rows else WINDOW_COLUMNS
            columns = {**columns, **bounds, **({"window_id": "bigint"} if self.with_id else {})}
            columns = {**columns, **({NEWEST: "boolean"} if relation.window.pairs != "none" else {})}
        if relation.provisional and columns is not None:
            columns = {**columns, "_final": "boolean"}
        return _renamed(columns, relation.alias_columns)

    def _output(self, select: Select, relations: list[tuple[str | None, Columns | None]]) -> Columns | None:
        result: dict[str, str | None] = {}
        for item in select.items:
            tokens = item.tokens
            if item.alias is not None:
                result[item.alias] = self._type(tokens, relations)
            elif tokens[-1].text == "*" and len(tokens) in (1, 3):
                for name, columns in relations:
                    if len(tokens) == 1 or (name or "").lower() == tokens[0].name.lower():
                        if columns is None:
                            return None
                        result.update({each: type for each, type in columns.items() if each != NEWEST})
                if len(tokens) == 3 and not result:
                    return None
            elif (name := _plain_name(tokens)) is not None:
                result[name] = self._type(tokens, relations)
            else:
                return None
        return result

    def _type(self, tokens: Sequence[Token], relations: list[tuple[str | None, Columns | None]]) -> str | None:
        """The type of a plain column; None for other expressions, whose type only Spark knows."""
        name = _plain_name(tokens)
        types = [
            type
            for qualifier, columns in relations
            for column, type in (columns or {}).items()
            if name is not None
            and column.lower() == name.lower()
            and (len(tokens) == 1 or (qualifier or "").lower() == tokens[0].name.lower())
        ]
        return types[0] if len(types) == 1 and len(tokens) in (1, 3) else None

    # ---- expressions

    def expression(self, tokens: Sequence[Token], scope: Scope, not_yet: frozenset[str] = frozenset()) -> None:
        """Refuse a name that is no column in scope."""
        if not scope.complete:
            return
        places = {token.start: index for index, token in enumerate(tokens)}
        calls = {token.text.lower() for token in tokens if token.kind == WORD}
        for chain in names_in(tokens):
            index = places[chain.span.start]
            first, token = chain.parts[0].lower(), tokens[index]
            if first in scope.aliases or first.startswith("_"):
                continue
            if scope.has(first) or (first in ("window", "session_window") and first in calls):
                continue
            if len(chain.parts) > 1 or _star_behind(tokens, index + 1):
                self._qualified(chain.parts, chain.span, scope)
                continue
            if of_the_language(token):
                continue
            if token.kind == QUOTED and "(" in first:  # `count(1)`: a name that Spark generated
                continue
            hint = None
            if first in not_yet:
                hint = "names given in the SELECT list cannot be used in WHERE"
            self._wrong(self.unknown(chain.parts[0], chain.span, list(scope.names()), hint))

    def _wrong(self, problem: SqlError) -> None:
        if self.report is None:
            raise problem
        self.report(problem)

    def _qualified(self, parts: tuple[str, ...], span: Span, scope: Scope) -> None:
        there, columns = scope.qualified(parts[0].lower())
        if not there and len(parts) > 2:  # sys.runs.version
            there, columns = scope.qualified(parts[1].lower())
            parts = parts[1:]
        if not there:
            known = [*scope.qualifiers(), *scope.names()]
            self._wrong(
                UnknownName(
                    f"there is no column or relation {parts[0]} here",
                    text=self.text,
                    at=span,
                    hint=did_you_mean(parts[0], known),
                )
            )
            return
        if columns is not None and len(parts) > 1:
            wanted = parts[1].lower()
            if wanted not in {column.lower() for column in columns} and not wanted.startswith("_"):
                self._wrong(self.unknown(".".join(parts[:2]), span, [f"{parts[0]}.{column}" for column in columns]))

    def unknown(self, name: str, span: Span, known: Sequence[str] | Columns, hint: str | None = None) -> UnknownName:
        return _unknown(self.text, name, span, known, hint)


def names_in(tokens: Sequence[Token]) -> Iterator[Chain]:
    """The names of an expression that can be columns, keywords included."""
    places = {token.start: index for index, token in enumerate(tokens)}
    skipped = list(_not_columns(tokens))
    lambdas = set(_lambda_variables(tokens))
    for chain in chains(tokens):
        index = places[chain.span.start]
        before = tokens[index - 1].text if index else ""
        inside = any(span.start <= chain.span.start < span.end for span in skipped)
        if not inside and before not in (".", ":") and chain.parts[0].lower() not in lambdas:
            yield chain


def of_the_language(token: Token) -> bool:
    """Whether an unquoted name may be a keyword instead."""
    word = token.text.lower()
    return token.kind == WORD and (word in _WORDS or is_unit(word) or word[0].isdigit())


def _renamed(columns: Columns | None, given: tuple[str, ...]) -> Columns | None:
    if not given or columns is None or len(given) != len(columns):
        return columns if not given else dict.fromkeys(given, None)
    return dict(zip(given, columns.values(), strict=True))


def _plain_name(tokens: Sequence[Token]) -> str | None:
    """The output name of `price` or `b.price`."""
    named = only_name(tokens)
    return named.parts[-1] if named is not None else None


def _given_names(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        if item.alias is not None:
            yield item.alias.lower()
        elif item.tokens and item.tokens[-1].text == ")":  # a generator names its own columns
            yield from ("col", "key", "value", "pos")


def _star_behind(tokens: Sequence[Token], index: int) -> bool:
    return index + 1 < len(tokens) and tokens[index].text == "." and tokens[index + 1].text == "*"


def _lambda_variables(tokens: Sequence[Token]) -> Iterator[str]:
    """x in x -> ..., and both in (x, y) -> ..."""
    for index, token in enumerate(tokens):
        if token.text != "->" or index == 0:
            continue
        before = index - 1
        if tokens[before].is_name:
            yield tokens[before].name.lower()
        while before > 0 and tokens[before].text != "(":
            before -= 1
            if tokens[before].is_name and tokens[index - 1].text == ")":
                yield tokens[before].name.lower()


def type_spans(tokens: Sequence[Token]) -> Iterator[Span]:
    """The spans of types, after AS and ::, and of subqueries, which are checked on their own."""
    for index, token in enumerate(tokens[:-1]):
        if token.text == "(" and tokens[index + 1].upper in ("SELECT", "WITH", "FROM", "VALUES"):
            yield Span(token.start, tokens[closing(tokens, index)].end)
        elif token.upper in ("AS", "::"):
            yield Span(token.start, tokens[_end_of_type(tokens, index + 1)].end)


def _not_columns(tokens: Sequence[Token]) -> Iterator[Span]:
    """Spans without columns: types, names of arguments and windows, units, subqueries."""
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if following is None:
            return
        if token.text == "(" and following.upper in ("SELECT", "WITH", "FROM", "VALUES"):
            yield Span(token.start, tokens[closing(tokens, index)].end)
        elif token.upper in ("AS", "::"):  # a type, or the name of a field
            yield Span(token.start, tokens[_end_of_type(tokens, index + 1)].end)
        elif token.is_name and (following.text == "=>" or following.kind == STRING):
            yield token.span
        elif token.upper in ("OVER", "COLLATE"):
            yield following.span
        elif token.upper == "EXTRACT" and following.text == "(":
            yield tokens[min(index + 2, len(tokens) - 1)].span


def _end_of_type(tokens: Sequence[Token], index: int) -> int:
    """The last token of a type that starts at `index`: a word, and the brackets after it."""
    depth, last = 0, index
    for position in range(index, len(tokens)):
        text = tokens[position].text
        opens = {"(": 1, "<": 1, ")": -1, ">": -1, ">>": -2, ">>>": -3}.get(text, 0)
        if depth + opens < 0:
            break
        if depth == 0 and not opens and position > index and not _goes_on(tokens[position]):
            break
        depth += opens
        last = position
    return last


def _goes_on(token: Token) -> bool:
    return token.kind == WORD and (is_unit(token.text) or token.upper == "TO")
