"""The shapes a text of the dialect parses into: statements, queries and relations, each with its place in the text.

Expressions are spans, never trees: they reach Spark as the user's own text. Nothing here knows what a name means.
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
from anabranch.sql.lexer import SYMBOL, Span, Token, normal_form
from anabranch.sql.splice import Edit, splice

if TYPE_CHECKING:
    from anabranch.sql.dialects.windows import Bracket, SpelledWindow


def respelt(text: str, tokens: Iterable[Token]) -> Iterator[Edit]:
    """What is to be written of these tokens where it is not what the text has."""
    return (
        Edit(token.span, token.text)
        for token in tokens
        if not text.startswith(token.text, token.start) or len(token.text) != token.end - token.start
    )


@dataclass(frozen=True)
class Name:
    """A name as written, with the parts between its dots."""

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


#: The column that says what is new in an epoch, in the windows of joins of chunks that ask for it; never shown.
NEWEST = "__newest"

WindowKind = Literal["tumble", "hop", "cumulate", "session", "sliding", "landmark", "slide_by_row", "chunks", "own"]


@dataclass(frozen=True)
class WindowSpec:
    """A window function over a relation, in any of its spellings.

    Windows lie along an attribute: a column (`time_column`; None is the event time of the stream), the number of a row
    in the order of arrival, or the time of its arrival. Figures are microseconds; with `rows` they are counts of rows
    or plain numbers, and so are the bounds of windows.

    `size` is the gap of a session, `slide` the step of a cumulating window. `offset` is the origin of sliding and
    landmark windows. `every` is after how many rows (`by` arrival or by rank) a window of SLIDE_BY_ROW ends.
    `partition` holds the columns that sessions, or counts of rows, are kept apart by. `filled` asks for windows without
    rows too. `block` is how many chunks a window of CHUNKS holds, counted in chunks then; 0 is each chunk by itself.
    `own` are the windows of a function that a window type has brought, of the kind of that name, and `columns` those
    that they depend on besides.
    `pairs` asks for NEWEST: whether the row (once), or some row (every), is in the newest slide or chunk of its window.
    What a kind has no use for is 0.
    """

    kind: WindowKind
    time_column: str | None
    time_span: Span  # of the descriptor; of the whole call where there is none
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

    @cached_property
    def type(self) -> WindowType[Any]:
        """The type of windows that this is a spelling of."""
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
        """Whether the rows of each key are counted apart. Time is the same for all keys."""
        return self.kind == "sliding" and bool(self.partition) and self.attribute == "row_num"

    @property
    def along_numbers(self) -> bool:
        """Whether windows lie along the numbers of rows in the order of arrival."""
        return self.attribute == "row_num" or self.type.cut_by_key

    @property
    def by_row(self) -> bool:
        """Whether a row is enough to tell its windows: a session, say, depends on the rows around it."""
        return self.type.by_row and not self.filled


@dataclass(frozen=True)
class Watermark:
    """How progress follows the event times in `column`, by a rule; with `key`, for each value of that column.

    Durations in microseconds. `expression` is what the rule has Spark compute of each row.
    """

    column: str
    span: Span
    rule: Rule
    idle: int | None = None
    ahead: int | None = None
    key: Name | None = None
    expression: Expression | None = None
    lull: Span | None = None  # of THEN BY CLOCK, behind the time-out


@dataclass(frozen=True)
class Relation:
    """One thing in a FROM clause.

    `kind` says which of the fields are set: a `name` (with `version` for AS OF), a quoted `path`, a `function` with
    `arguments`, a `subquery`, or text that is Spark's own business (`opaque`: VALUES, LATERAL VIEW and the like).
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
    provisional: bool = False  # what has not fired yet as well
    current: bool = False  # FOR SYSTEM_TIME AS OF PROCTIME()
    window: WindowSpec | None = None
    watermarks: tuple[Watermark, ...] = ()
    join: str = ""  # "" for the first, "," or the words of the join ("LEFT OUTER JOIN")
    condition: Span | None = None  # ON or USING, keyword included
    condition_tokens: tuple[Token, ...] = ()
    alias_columns: tuple[str, ...] = ()  # t(a, b)
    reshaped: bool = False  # PIVOT or UNPIVOT behind it
    lateral: bool = False  # the word is before it: a subquery that sees the relations before it
    cte: str | None = None  # the CTE that stood here in its place
    refreshable: Span | None = None  # of the word REFRESHABLE
    net: Net | None = None  # the rows of the subquery are changes
    sample: Sample | None = None  # some of the rows of the subquery
    moment: Expression | None = None  # FOR SYSTEM_TIME AS OF with the time of another relation
    versions: Versions | None = None  # each row is joined with the version in force at its time
    meets: tuple[Meeting, ...] = ()  # conditions of its join that a notation stands for
    spelled: SpelledWindow | None = None  # while a SELECT is read: windows in the notation of another system
    bracket: Bracket | None = None  # the same, behind an input of a join

    @property
    def exposed(self) -> str | None:
        """The name by which columns of this relation can be qualified."""
        return self.alias or self.cte or (self.name.last if self.name is not None else None)


@dataclass(frozen=True)
class Comparison:
    """`left sign right`; in a join with versions these are on the right."""

    left: tuple[Token, ...]
    sign: str
    right: tuple[Token, ...]
    span: Span


@dataclass(frozen=True)
class Versions:
    """Which of the versions in a relation a row is joined with: the nearest that `time` allows, of the same `keys`, and
    as near as the `bounds` and the `tolerance` say. Without a right side `time` compares with their event time."""

    span: Span  # of the words of the join
    keys: tuple[Comparison, ...]
    time: Comparison
    bounds: tuple[Comparison, ...]
    match: Expression | None = None  # inside MATCH_CONDITION (...)
    moment: Expression | None = None
    tolerance: Expression | None = None

    @property
    def expressions(self) -> Iterator[Expression]:
        """What is written beside ON."""
        return (each for each in (self.match, self.moment, self.tolerance) if each is not None)


@dataclass(frozen=True)
class Meeting:
    """A condition that a notation stands for: a text of our own, in which `n0`, `n1` and so on are these columns."""

    text: str
    names: tuple[Name, ...]


@dataclass(frozen=True)
class Net:
    """NET(relation, count)."""

    span: Span
    count: Expression


@dataclass(frozen=True)
class Sample:
    """TABLESAMPLE behind a relation, and how Spark has it."""

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
    brackets: tuple[Bracket, ...] = ()  # while a SELECT is read: windows behind its aggregates

    @property
    def star(self) -> bool:
        """Whether it stands for several columns: *, t.*, * EXCEPT (a, b)."""
        for index, token in enumerate(self.tokens):
            if token.text == "*":
                starts = index == 0 or self.tokens[index - 1].text == "."
                return starts and (index + 1 == len(self.tokens) or self.tokens[index + 1].upper == "EXCEPT")
        return False

    @property
    def left_out(self) -> frozenset[str]:
        """The columns behind * EXCEPT, in lower case."""
        star = next(index for index, token in enumerate(self.tokens) if token.text == "*")
        return frozenset(token.name.lower() for token in self.tokens[star + 2 :] if token.is_name)


@dataclass(frozen=True)
class Expression:
    span: Span
    tokens: tuple[Token, ...]

    def sql(self, text: str) -> str:
        """The expression as Spark reads it."""
        return splice(text, self.span, respelt(text, self.tokens)).text


@dataclass(frozen=True)
class Select:
    """SELECT ... FROM ... WHERE ... GROUP BY ... HAVING."""

    span: Span
    distinct: bool
    items: tuple[Item, ...]
    from_span: Span | None  # what stands between FROM and the next clause
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
    windows: tuple[tuple[str, tuple[Token, ...]], ...] = ()  # WINDOW w AS (...): what stands between the brackets
    views: tuple[LateralView, ...] = ()
    implied: bool = False  # only its relation is written
    meets: tuple[Meeting, ...] = ()  # conditions beside WHERE that a notation stands for
    window: GroupWindow | None = None
    planned: bool = False  # Spark would not read it as it is written

    @property
    def unwritten(self) -> tuple[list[tuple[str, Span | None]], str]:
        """What is not written of it: before its relation, piece by piece with what it stands for, and behind it."""
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
    """The window that a SELECT groups by, and what Spark calls it. Without a time it lies along the event time; `spec`
    are its windows but for that, and none where a figure is computed."""

    call: Expression
    name: str
    time: tuple[Token, ...]
    spec: WindowSpec | None


@dataclass(frozen=True)
class LateralView:
    """LATERAL VIEW [OUTER] generator(...) alias AS a, b, behind the first `after` relations of FROM."""

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
    """A query body that is Spark's own business: VALUES, TABLE t."""

    span: Span
    rows: tuple[Expression, ...] = ()  # of VALUES


@dataclass(frozen=True)
class Emission:
    """When results come out: when windows close (`close`), when triggers fire, with every run (`feed`), or just when
    somebody looks (`read`, as without a clause).

    `first` starts a delay at the first change after an emission rather than at each; `stream` shows the changes
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
    budget: Budget | None = None  # how much of what closes a run may show

    @property
    def by_key(self) -> bool:
        """Whether answers come out key by key: later than they are known, or numbered."""
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
    dropped: tuple[Span, ...] = ()  # text of CTEs that nothing reads any more
    tokens: tuple[Token, ...] = field(default=(), repr=False, compare=False)  # as they are written

    def selects(self) -> Iterator[tuple[Select, Query]]:
        """Every SELECT block, with the query whose body it is part of; outer ones first."""
        yield from _selects(self.body, self)
        for _, query in self.ctes:
            yield from query.selects()

    def relations(self) -> Iterator[Relation]:
        """Every relation, those of subqueries included."""
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
        """The query as it stands in the text, as a query."""
        before, behind = self.body.unwritten if isinstance(self.body, Select) else ([], "")
        return f"{''.join(piece for piece, _ in before)}{self.span.of(text)}{behind}"

    @property
    def spelled(self) -> bool:
        """Whether something in it is in the words of another system."""
        versions = any(relation.versions is not None for relation in self.relations())
        return versions or any(select.planned for select, _ in self.selects())

    @property
    def needs_plan(self) -> bool:
        """Whether it says what Spark's SQL has no words for: it reaches Spark as its plan is written."""
        return self.spelled or any(relation.window or relation.net for relation in self.relations())

    @property
    def asks_for_window_ids(self) -> bool:
        """Whether it names the column of the ids of windows; windows have none otherwise."""
        return any(token.is_name and token.name.lower() == "window_id" for token in self.tokens)

    @property
    def emits(self) -> bool:
        """Whether it, or a query inside it, says when results come out."""
        return any(emission.mode != "read" for emission in self.emissions())

    def nested(self) -> Iterator[Query]:
        """The queries directly inside it: common table expressions, subqueries, operands in brackets."""
        yield from (query for _, query in self.ctes)
        yield from _nested(self.body)

    def cte_names(self) -> set[str]:
        return {name.lower() for query in self.queries() for name, _ in query.ctes}


def all_of(relation: Relation, items: tuple[Item, ...] = (), group: Expression | None = None) -> Query:
    """A query of which only the relation is written: all of its rows and columns, or these items."""
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
    text: str  # the whole script; the statement alone where it was rewritten to its canonical form
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


#: The value of an option: a literal, or `{"env": name}` and `{"secret": name}` for what must not be written down.
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
    or_replace: bool = False  # refused by the parser: what was written would stay


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
    """COPY (query) TO 'file'; COPY v TO 'file' is that of SELECT * FROM v."""

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
    like: str | None = None  # a pattern for names of functions


@dataclass(frozen=True)
class ShowCreate(Statement):
    """SHOW CREATE STREAM s: the statement that makes it."""

    kind: Literal["stream", "table", "view", "sink"]
    target: Name


@dataclass(frozen=True)
class Describe(Statement):
    """The columns of something; a file is given as it stands in a FROM clause."""

    target: Name
    is_file: bool = False


@dataclass(frozen=True)
class Explain(Statement):
    """What a query would do; `view` is set where it is just the name of something there is. The format `rules` is the
    query as a typed plan, and that plan after each rule that changed it."""

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
