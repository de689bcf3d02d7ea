"""The syntax tree of the dialect: statements, queries and relations, each with its span in the text.

Expressions are spans, never trees: they reach Spark as the user's own text. Names are not resolved here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from anabranch.algebra.rules import Rule
from anabranch.algebra.smoothing import Budget
from anabranch.algebra.windows import (
    Chunks,
    CumulatingWindows,
    Landmark,
    Partitioned,
    Sessions,
    SlideByTuple,
    SlidingWindows,
    WindowType,
)
from anabranch.sql.lexer import SYMBOL, Token
from anabranch.sql.spelling import normal_form
from anabranch.sql.splice import Edit, splice
from anabranch.sql.text import Span

if TYPE_CHECKING:
    from anabranch.sql.dialects.windows import Bracket, SpelledWindow


def respelt(text: str, tokens: Iterable[Token]) -> Iterator[Edit]:
    """Edits for the tokens whose text differs from the source text."""
    return (
        Edit(token.span, token.text)
        for token in tokens
        if not text.startswith(token.text, token.start) or len(token.text) != token.end - token.start
    )


@dataclass(frozen=True)
class Name:
    """A name as written, split at its dots."""

    parts: tuple[str, ...]
    span: Span

    def __str__(self) -> str:
        return ".".join(self.parts)

    @property
    def last(self) -> str:
        return self.parts[-1]


@dataclass(frozen=True)
class Argument:
    """An argument of a table function: positional (no name) or `name => value`."""

    name: str | None
    span: Span
    value: str | int | float | bool | None  # None: not a literal
    tokens: tuple[Token, ...] = ()


#: The hidden column that marks the new rows of an epoch, in the windows of joins of chunks.
NEWEST = "__newest"

WindowKind = Literal["tumble", "hop", "cumulate", "session", "sliding", "landmark", "slide_by_row", "chunks", "own"]


@dataclass(frozen=True)
class WindowSpec:
    """A window function over a relation, in any of its spellings.

    Windows are ranges of an attribute: a column (`time_column`; None is the event time of the stream), the number of a
    row in arrival order, or its arrival time. Arguments are microseconds; with `rows` they are counts of rows or plain
    numbers, and so are the bounds of windows.

    `size` is the gap of a session, `slide` the step of a cumulating window. `offset` is the origin of sliding and
    landmark windows. A window of SLIDE_BY_ROW ends after `every` rows (`by` arrival or rank).
    `partition` holds the columns that partition sessions or counts of rows. `filled` includes windows without rows.
    `block` is the number of chunks in a window of CHUNKS; 0: each chunk by itself. `own` is the window type of a
    registered function (kind "own"), and `columns` the further columns that its windows depend on. `pairs` adds NEWEST:
    whether the row (once), or some row (every), is in the newest slide or chunk of its window. Unused fields are 0.
    """

    kind: WindowKind
    time_column: str | None
    time_span: Span  # of the descriptor, or else of the call
    size: int
    slide: int
    offset: int
    partition: tuple[Name, ...] = ()
    attribute: Literal["column", "row_num", "arrival_ts"] = "column"
    rows: bool = False
    every: int = 0
    by: Literal["row_num", "rank"] = "row_num"
    filled: bool = False
    strategy: Literal["auto", "panes", "windows", "adaptive", "rows", "bins"] = "auto"  # how aggregates are computed
    block: int = 0
    pairs: Literal["none", "once", "every"] = "none"
    own: WindowType[Any] | None = None
    columns: tuple[Name, ...] = ()

    @property
    def needs_numbers(self) -> bool:
        """Whether windows depend on the order of arrival."""
        return self.attribute != "column" or self.type.needs_numbers

    @cached_property
    def type(self) -> WindowType[Any]:
        """The window type of this call."""
        if self.own is not None:
            return self.own
        if self.kind == "session":
            return Sessions(self.size)
        if self.kind == "cumulate":
            return CumulatingWindows(self.size, self.slide, self.offset)
        if self.kind == "landmark":
            return Landmark(self.slide, self.offset)
        if self.kind == "slide_by_row":
            return SlideByTuple(self.size, self.every, "rank" if self.by == "rank" else "number")
        if self.kind == "chunks":
            return Chunks()
        if self.kind != "sliding":
            return SlidingWindows(self.size, self.slide, self.offset % self.slide)
        windows = SlidingWindows(self.size, self.slide, self.offset, "end")
        return Partitioned(windows) if self.counts_by_key else windows

    @property
    def counts_by_key(self) -> bool:
        """Whether rows are counted by key. Time is the same for all keys."""
        return self.kind == "sliding" and bool(self.partition) and self.attribute == "row_num"

    @property
    def along_numbers(self) -> bool:
        """Whether windows are ranges of row numbers in arrival order."""
        return self.attribute == "row_num" or self.type.cut_by_key

    @property
    def by_row(self) -> bool:
        """Whether a row alone determines its windows; a session, for example, depends on other rows."""
        return self.type.by_row and not self.filled


@dataclass(frozen=True)
class Watermark:
    """How progress follows the event times in `column`, by a rule; with `key`, for each value of that column.

    Durations are in microseconds. `expression` is the value of the rule for each row, computed by Spark.
    """

    column: str
    span: Span
    rule: Rule
    idle: int | None = None
    ahead: int | None = None
    key: Name | None = None
    expression: Expression | None = None
    lull: Span | None = None  # of THEN BY CLOCK, after the time-out


@dataclass(frozen=True)
class Relation:
    """An item of a FROM clause.

    `kind` says which of the fields are set: a `name` (with `version` for AS OF), a quoted `path`, a `function` with
    `arguments`, a `subquery`, or text that only Spark parses (`opaque`: VALUES, LATERAL VIEW and the like).
    A window function over a name, a path or a subquery is that relation with `window` set. A watermark function around
    it adds to the `watermarks` that its stream must have.
    """

    kind: Literal["name", "path", "function", "subquery", "opaque"]
    span: Span  # without the alias
    alias: str | None = None
    alias_span: Span | None = None  # AS and column list included
    name: Name | None = None
    path: str | None = None
    function: str | None = None
    arguments: tuple[Argument, ...] = ()
    subquery: Query | None = None
    version: int | None = None
    version_span: Span | None = None  # of AS OF VERSION n or INCLUDING PROVISIONAL
    provisional: bool = False  # results that have not fired yet too
    current: bool = False  # FOR SYSTEM_TIME AS OF PROCTIME()
    window: WindowSpec | None = None
    watermarks: tuple[Watermark, ...] = ()
    join: str = ""  # "" for the first, "," or the words of the join ("LEFT OUTER JOIN")
    condition: Span | None = None  # ON or USING, keyword included
    condition_tokens: tuple[Token, ...] = ()
    alias_columns: tuple[str, ...] = ()  # t(a, b)
    reshaped: bool = False  # followed by PIVOT or UNPIVOT
    lateral: bool = False  # the word is before it: a subquery that sees the relations before it
    cte: str | None = None  # the CTE that this was inlined for
    refreshable: Span | None = None  # of the word REFRESHABLE
    net: Net | None = None  # the rows of the subquery are changes
    sample: Sample | None = None  # a sample of the subquery
    moment: Expression | None = None  # FOR SYSTEM_TIME AS OF with the time of another relation
    versions: Versions | None = None  # each row is joined with the version in force at its time
    implied_conditions: tuple[ImpliedCondition, ...] = ()  # join conditions from a notation
    spelled: SpelledWindow | None = None  # while a SELECT is parsed: windows in the notation of another system
    bracket: Bracket | None = None  # the same, after an input of a join

    @property
    def exposed(self) -> str | None:
        """The name that qualifies the columns of this relation."""
        return self.alias or self.cte or (self.name.last if self.name is not None else None)


@dataclass(frozen=True)
class Comparison:
    """`left sign right`; in a join with versions the right operand is the version's."""

    left: tuple[Token, ...]
    sign: str
    right: tuple[Token, ...]
    span: Span


@dataclass(frozen=True)
class Versions:
    """How a row is joined with a version: the nearest that satisfies `time`, with the same `keys`, within the `bounds`
    and the `tolerance`. Without a right operand `time` compares with the event time of the versions."""

    span: Span  # of the words of the join
    keys: tuple[Comparison, ...]
    time: Comparison
    bounds: tuple[Comparison, ...]
    match: Expression | None = None  # inside MATCH_CONDITION (...)
    moment: Expression | None = None
    tolerance: Expression | None = None

    @property
    def expressions(self) -> Iterator[Expression]:
        """The expressions beside ON."""
        return (each for each in (self.match, self.moment, self.tolerance) if each is not None)


@dataclass(frozen=True)
class ImpliedCondition:
    """A condition from a notation: a text of our own, in which `n0`, `n1` and so on are these columns."""

    text: str
    names: tuple[Name, ...]


@dataclass(frozen=True)
class Net:
    """NET(relation, count)."""

    span: Span
    count: Expression


@dataclass(frozen=True)
class Sample:
    """TABLESAMPLE after a relation, and its text for Spark."""

    span: Span
    text: str


@dataclass(frozen=True)
class Item:
    """One entry of a SELECT list."""

    span: Span
    expression: Span
    alias: str | None
    tokens: tuple[Token, ...]  # of the expression
    bare_alias: Token | None = None  # an alias without AS
    brackets: tuple[Bracket, ...] = ()  # while a SELECT is parsed: windows after its aggregates

    @property
    def star(self) -> bool:
        """Whether it expands to several columns: *, t.*, * EXCEPT (a, b)."""
        for index, token in enumerate(self.tokens):
            if token.text == "*":
                starts = index == 0 or self.tokens[index - 1].text == "."
                return starts and (index + 1 == len(self.tokens) or self.tokens[index + 1].upper == "EXCEPT")
        return False

    @property
    def excluded(self) -> frozenset[str]:
        """The columns of * EXCEPT, in lower case."""
        star = next(index for index, token in enumerate(self.tokens) if token.text == "*")
        return frozenset(token.name.lower() for token in self.tokens[star + 2 :] if token.is_name)


@dataclass(frozen=True)
class Expression:
    span: Span
    tokens: tuple[Token, ...]

    def sql(self, text: str) -> str:
        """The expression as Spark SQL."""
        return splice(text, self.span, respelt(text, self.tokens)).text


@dataclass(frozen=True)
class Select:
    """SELECT ... FROM ... WHERE ... GROUP BY ... HAVING."""

    span: Span
    distinct: bool
    items: tuple[Item, ...]
    from_span: Span | None  # between FROM and the next clause
    relations: tuple[Relation, ...]
    lateral: bool
    where: Expression | None
    group: tuple[Expression, ...]
    group_plain: bool  # False for GROUPING SETS, ROLLUP, CUBE, ALL
    group_span: Span | None
    having: Expression | None
    having_span: Span | None
    tail: bool  # WINDOW, QUALIFY, SORT BY, CLUSTER BY, DISTRIBUTE BY present
    subqueries: tuple[Query, ...]  # inside expressions
    tail_expressions: tuple[Expression, ...] = ()
    qualify: Expression | None = None
    windows: tuple[tuple[str, tuple[Token, ...]], ...] = ()  # WINDOW w AS (...): the tokens in brackets
    views: tuple[LateralView, ...] = ()
    implied: bool = False  # the text has only its relation
    implied_conditions: tuple[ImpliedCondition, ...] = ()  # conditions from a notation, in addition to WHERE
    window: GroupWindow | None = None
    planned: bool = False  # Spark cannot parse it as written

    @property
    def unwritten(self) -> tuple[list[tuple[str, Span | None]], str]:
        """The implied text: pieces before its relation, each with its span, and the text after it."""
        if not self.implied:
            return [], ""
        pieces: list[tuple[str, Span | None]] = []
        for each in self.items:
            pieces.append((", " if pieces else "SELECT ", None))
            pieces += [(f"{token.text} ", token.span) for token in each.tokens]
            pieces.append(("" if each.alias is None else f"AS {each.alias} ", None))
        return [*pieces, ("FROM ", None)], " GROUP BY ALL" if self.group else ""


@dataclass(frozen=True)
class GroupWindow:
    """The window that a SELECT groups by, and its name in Spark. Without a time it uses the event time; `spec` is the
    rest, and None if Spark has to compute an argument."""

    call: Expression
    name: str
    time: tuple[Token, ...]
    spec: WindowSpec | None


@dataclass(frozen=True)
class LateralView:
    """LATERAL VIEW [OUTER] generator(...) alias AS a, b, after the first `after` relations of FROM."""

    span: Span
    outer: bool
    call: Expression
    alias: str | None
    columns: tuple[str, ...]
    after: int


@dataclass(frozen=True)
class SetOperation:
    span: Span
    operands: tuple[Select | Query | Opaque, ...]
    operators: tuple[tuple[str, bool], ...] = ()  # between the operands: UNION, INTERSECT or EXCEPT, and whether ALL


@dataclass(frozen=True)
class Opaque:
    """A query body that only Spark parses: VALUES, TABLE t."""

    span: Span
    rows: tuple[Expression, ...] = ()  # of VALUES


@dataclass(frozen=True)
class Emission:
    """When results are emitted: when windows close (`close`), when triggers fire, with every run (`feed`), or only on
    reading (`read`, as without a clause).

    `first` starts a delay at the first change after an emission rather than at each; `stream` emits the changes
    themselves, with undo, ptime and ver.
    """

    mode: Literal["read", "feed", "close", "triggers"]
    span: Span
    counting: int | None = None
    delay: int | None = None  # microseconds
    first: bool = False
    watermark: bool = False
    end: bool = False
    late: Literal["correct", "archive", "drop", "fail"] = "correct"
    stream: bool = False
    budget: Budget | None = None  # how many closed windows a run may emit

    @property
    def by_key(self) -> bool:
        """Whether results are emitted by key: with a delay, or numbered."""
        return self.mode in ("close", "triggers") or self.stream


@dataclass(frozen=True)
class Query:
    """A whole query: CTEs, a body, ORDER BY and LIMIT, and the emission clause."""

    span: Span  # the emission clause included
    body: Select | SetOperation | Query | Opaque
    ctes: tuple[tuple[str, Query], ...] = ()
    order: Span | None = None  # from ORDER BY to the end of LIMIT/OFFSET
    emission: Emission | None = None
    order_tokens: tuple[Token, ...] = ()
    order_expressions: tuple[Expression, ...] = ()  # of ORDER BY, LIMIT and OFFSET
    cte_columns: tuple[tuple[str, ...], ...] = ()  # the names that WITH name(a, b) gives, one entry a CTE
    cte_spans: tuple[Span, ...] = ()  # from the name to the closing bracket
    dropped: tuple[Span, ...] = ()  # text of unused CTEs
    tokens: tuple[Token, ...] = field(default=(), repr=False, compare=False)  # as they are written

    @property
    def head(self) -> Span:
        """Its first word, where an error is about all of it."""
        return Span(self.span.start, self.span.start + 6)

    def selects(self) -> Iterator[tuple[Select, Query]]:
        """Every SELECT block, with the query that it is in; outer ones first."""
        yield from _selects(self.body, self)
        for _, query in self.ctes:
            yield from query.selects()

    def relations(self) -> Iterator[Relation]:
        """Every relation, including those of subqueries."""
        for select, _ in self.selects():
            yield from select.relations

    def emissions(self) -> Iterator[Emission]:
        """Its emission clause and those of the queries inside it."""
        for query in self.queries():
            if query.emission is not None:
                yield query.emission

    def queries(self) -> Iterator[Query]:
        """This query and every one inside it."""
        yield self
        for inner in self.nested():
            yield from inner.queries()

    def sql(self, text: str) -> str:
        """The text of the query."""
        before, behind = self.body.unwritten if isinstance(self.body, Select) else ([], "")
        return f"{''.join(piece for piece, _ in before)}{self.span.of(text)}{behind}"

    @property
    def spelled(self) -> bool:
        """Whether it uses a notation of another system."""
        versions = any(relation.versions is not None for relation in self.relations())
        return versions or any(select.planned for select, _ in self.selects())

    @property
    def needs_plan(self) -> bool:
        """Whether Spark's SQL cannot express it: then Spark gets the SQL of its plan."""
        return self.spelled or any(relation.window or relation.net for relation in self.relations())

    @property
    def uses_window_ids(self) -> bool:
        """Whether it names the column of window ids, which windows otherwise do not have."""
        return any(token.is_name and token.name.lower() == "window_id" for token in self.tokens)

    @property
    def emits(self) -> bool:
        """Whether it, or a query inside it, has an emission clause."""
        return any(emission.mode != "read" for emission in self.emissions())

    def nested(self) -> Iterator[Query]:
        """The queries directly inside it: common table expressions, subqueries, operands in brackets."""
        yield from (query for _, query in self.ctes)
        yield from _nested(self.body)

    def cte_names(self) -> set[str]:
        return {name.lower() for query in self.queries() for name, _ in query.ctes}


def all_of(relation: Relation, items: tuple[Item, ...] = (), group: Expression | None = None) -> Query:
    """A query whose text has only the relation: all of its rows and columns, or these items."""
    sample = relation.sample.span if relation.sample is not None else None
    behind = (relation.alias_span, relation.version_span, relation.refreshable, sample)
    span = Span(relation.span.start, max(each.end for each in (relation.span, *behind) if each is not None))
    place = Span(span.start, span.start)
    star = Item(place, place, None, (Token(SYMBOL, "*", span.start, span.start),))
    select = Select(
        span=span, distinct=False, items=items or (star,), from_span=span, relations=(relation,), lateral=False,
        where=None, group=() if group is None else (group,), group_plain=group is None,
        group_span=None if group is None else group.span, having=None, having_span=None, tail=False, subqueries=(),
        implied=True,
    )  # fmt: skip
    return Query(span, select, tokens=relation.subquery.tokens if relation.subquery is not None else ())


def _nested(body: Select | SetOperation | Query | Opaque) -> Iterator[Query]:
    if isinstance(body, Query):
        yield body
    elif isinstance(body, SetOperation):
        for operand in body.operands:
            yield from _nested(operand)
    elif isinstance(body, Select):
        yield from (relation.subquery for relation in body.relations if relation.subquery is not None)
        yield from body.subqueries


def _selects(body: Select | SetOperation | Query | Opaque, owner: Query) -> Iterator[tuple[Select, Query]]:
    if isinstance(body, Select):
        yield body, owner
        for relation in body.relations:
            if relation.subquery is not None:
                yield from relation.subquery.selects()
        for inner in body.subqueries:
            yield from inner.selects()
    elif isinstance(body, SetOperation):
        for operand in body.operands:
            yield from _selects(operand, owner)
    elif isinstance(body, Query):
        yield from body.selects()


# ---------------------------------------------------------------------------------------------- statements


@dataclass(frozen=True)
class Statement:
    text: str  # the script; only the statement if rewritten to canonical form
    span: Span
    tokens: tuple[Token, ...] = field(default=(), kw_only=True, repr=False, compare=False)

    @property
    def sql(self) -> str:
        return self.span.of(self.text)

    @property
    def normal(self) -> str:
        """Equal for statements that differ only in blanks, comments and the case of words."""
        return normal_form(self.tokens)


@dataclass(frozen=True)
class ColumnDefinition:
    name: str
    type: str
    span: Span


#: The value of an option: a literal, or `{"env": name}` or `{"secret": name}`, so that no secret is stored.
OptionValue = str | int | float | bool | dict[str, str]


@dataclass(frozen=True)
class SourceSpec:
    """FROM kind(name => value, ...)."""

    kind: str
    options: Mapping[str, OptionValue]
    span: Span
    spans: Mapping[str, Span] = field(default_factory=dict)


@dataclass(frozen=True)
class CreateStream(Statement):
    name: Name
    columns: tuple[ColumnDefinition, ...]
    watermark: Watermark | None
    source: SourceSpec | None
    keep: Literal["all", "nothing"] | None
    fail_on_bad: bool
    if_not_exists: bool
    or_replace: bool
    on_gap: Literal["fail", "skip"] = "fail"
    on_schema_change: Literal["fail", "ignore", "add"] = "fail"
    spans: Mapping[str, Span] = field(default_factory=dict)  # of the clauses above


@dataclass(frozen=True)
class CreateTable(Statement):
    name: Name
    columns: tuple[ColumnDefinition, ...]
    source: SourceSpec | None
    query: Query | None
    if_not_exists: bool
    or_replace: bool
    every_run: bool = False  # REFRESH EVERY RUN


@dataclass(frozen=True)
class CreateView(Statement):
    name: Name
    query: Query
    start: Literal["beginning", "now"] | int
    if_not_exists: bool
    or_replace: bool


@dataclass(frozen=True)
class AlterView(Statement):
    name: Name
    query: Query
    dry_run: bool


@dataclass(frozen=True)
class CreateSink(Statement):
    """CREATE SINK name FROM view INTO kind(name => value, ...)."""

    name: Name
    view: Name
    into: SourceSpec
    if_not_exists: bool
    or_replace: bool = False  # refused by the parser: written rows cannot be replaced


@dataclass(frozen=True)
class CreateFunction(Statement):
    """CREATE FUNCTION name AS 'package.module.function' [RETURNS type]."""

    name: Name
    reference: str
    reference_span: Span
    returns: str | None
    if_not_exists: bool
    or_replace: bool


@dataclass(frozen=True)
class Drop(Statement):
    kind: Literal["stream", "table", "view", "sink", "function"]
    name: Name
    if_exists: bool
    cascade: bool


@dataclass(frozen=True)
class Insert(Statement):
    target: Name
    columns: tuple[str, ...]
    query: Query
    column_spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Update(Statement):
    target: Name
    alias: str | None
    assignments: tuple[tuple[Name, Expression], ...]
    where: Expression | None


@dataclass(frozen=True)
class Delete(Statement):
    target: Name
    alias: str | None
    where: Expression | None


@dataclass(frozen=True)
class Copy(Statement):
    target: Name
    path: str
    path_span: Span
    options: Mapping[str, str | int | float | bool]
    spans: Mapping[str, Span] = field(default_factory=dict)  # of the options


@dataclass(frozen=True)
class CopyTo(Statement):
    """COPY (query) TO 'file'; COPY v TO 'file' copies SELECT * FROM v."""

    query: Query
    path: str
    path_span: Span
    options: Mapping[str, str | int | float | bool]
    spans: Mapping[str, Span] = field(default_factory=dict)  # of the options


@dataclass(frozen=True)
class Advance(Statement):
    target: Name
    to: Expression | None  # None: TO END


@dataclass(frozen=True)
class Refresh(Statement):
    target: Name


@dataclass(frozen=True)
class Show(Statement):
    what: str
    like: str | None = None  # a pattern of function names


@dataclass(frozen=True)
class ShowCreate(Statement):
    """SHOW CREATE STREAM s: the statement that creates it."""

    kind: Literal["stream", "table", "view", "sink"]
    target: Name


@dataclass(frozen=True)
class Describe(Statement):
    """The columns of an object; a file is written as in a FROM clause."""

    target: Name
    is_file: bool = False


@dataclass(frozen=True)
class Explain(Statement):
    """What a query would do; `view` is set for the name of an existing object. The format `rules` prints the query as a
    typed plan, and the plan after each rule that changed it."""

    query: Query
    view: Name | None = None
    analyze: bool = False
    format: Literal["text", "json", "dot", "mermaid", "svg", "rules"] = "text"


@dataclass(frozen=True)
class SetClock(Statement):
    to: Expression | None  # None: the clock of the machine again


@dataclass(frozen=True)
class Subscribe(Statement):
    target: Name
    version: int | None


@dataclass(frozen=True)
class SetOption(Statement):
    key: str
    value: str


@dataclass(frozen=True)
class SelectStatement(Statement):
    query: Query
