"""Plans as SELECT blocks, with the names that the user gave: for the part of planning that reads queries as text.

Nodes are folded into as few blocks as there can be. What a node cannot be folded into becomes a subquery of FROM, or a
common table expression where it is read more than once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from anabranch.ir.expr import Column, Expr, SortKey, Subquery, of_column
from anabranch.ir.rel import (
    Aggregate,
    Distinct,
    Emit,
    Filter,
    Generate,
    Join,
    OneRow,
    OverRows,
    Project,
    Rel,
    Scan,
    SetOp,
    TableFunction,
    TopN,
    Values,
    Windowed,
)
from anabranch.ir.text import Writer
from anabranch.render.spark import JOINS, SETS
from anabranch.sql.columns import of_the_language
from anabranch.sql.lexer import WORD, Span, Token, quote_name, tokenize
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import Emission


def blocks(rel: Rel, text: str, shares: Callable[[Rel], bool] = lambda _: True) -> Spliced:
    """A plan as a query; `text` is the one that it was built from. What is read twice and `shares` is a common table
    expression."""
    writer = _BlockWriter(text, shares)
    writer.nested(rel, [column.name for column in rel.columns])
    return writer.written


# ------------------------------------------------------------------------------------------------------- blocks


class _Stage(IntEnum):
    """How far a block is written: what comes next in the text of a SELECT."""

    FROM = 0
    WHERE = 1
    GROUP = 2
    HAVING = 3
    OVER = 4
    QUALIFY = 5
    ITEMS = 6
    DISTINCT = 7
    ORDER = 8
    EMIT = 9


@dataclass
class _Source:
    """One relation of FROM, with the names that its columns have in it."""

    alias: str
    names: dict[Column, str]
    of: Rel | _Query | str  # a leaf, a subquery, or the name of a common table expression
    join: str = ""
    on: Expr | None = None
    lateral: bool = False
    call: Expr | None = None  # of LATERAL VIEW
    outer: bool = False
    refreshable: bool = False


@dataclass
class _Block:
    columns: tuple[Column, ...]
    sources: list[_Source] = field(default_factory=list)
    where: list[Expr] = field(default_factory=list)
    keys: list[Expr] | None = None
    sets: tuple[tuple[int, ...], ...] = ()
    having: list[Expr] = field(default_factory=list)
    qualify: list[Expr] = field(default_factory=list)
    made: dict[Column, Expr] = field(default_factory=dict)  # columns that are none of FROM
    items: bool = False  # whether `columns` are those of the SELECT list
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    emission: Emission | None = None
    stage: _Stage = _Stage.FROM

    def expr(self, expr: Expr) -> Expr:
        """An expression over the columns of FROM."""
        whole = self.made.get(expr.column) if expr.column is not None else None
        return whole if whole is not None else expr.substitute(self.made)


@dataclass
class _Union:
    """A set operation."""

    columns: tuple[Column, ...]
    kind: str
    all: bool
    operands: list[_Query]
    order: tuple[SortKey, ...] = ()
    limit: Expr | None = None
    offset: Expr | None = None
    emission: Emission | None = None

    @property
    def bare(self) -> bool:
        return not self.order and self.limit is None and self.offset is None and self.emission is None


_Query = _Block | _Union


class _Folder:
    """Folds nodes into blocks, from the leaves up."""

    def __init__(self, root: Rel, shares: Callable[[Rel], bool]) -> None:
        self.reads = Counter(_read(root))
        self.shares = shares
        self.shared: dict[int, tuple[str, _Query, list[str]]] = {}  # what common table expressions stand for
        self.taken: set[str] = set()
        self._pins: list[Rel] = []

    def fold(self, rel: Rel) -> _Query:
        if isinstance(rel, SetOp):
            left = self.fold(rel.left)
            self.taken -= set(_aliases(left))
            right = self.fold(rel.right)
            same = isinstance(left, _Union) and left.bare and (left.kind, left.all) == (rel.kind, rel.all)
            operands = [*left.operands, right] if isinstance(left, _Union) and same else [left, right]
            return _Union(rel.columns, rel.kind, rel.all, operands)
        if isinstance(rel, Emit):
            below = self.fold(rel.input)
            if below.emission is not None:
                below = self._wrapped(rel.input, below)
            below.emission = rel.emission
            if isinstance(below, _Block):
                below.stage = _Stage.EMIT
            return below
        if isinstance(rel, OneRow):
            return _Block(())
        if isinstance(rel, Filter):
            return self._filter(rel)
        if isinstance(rel, Project):
            return self._project(rel)
        if isinstance(rel, Aggregate):
            return self._aggregate(rel)
        if isinstance(rel, OverRows):
            block = self._open(rel.input, _Stage.HAVING)
            block.made |= {column: Expr((call.map(block.expr),)) for column, call in rel.calls}
            return _at(block, _Stage.OVER, rel)
        if isinstance(rel, Generate):
            block = self._open(rel.input, _Stage.FROM)
            names = {column: column.name for column in rel.made}
            block.sources.append(_Source(self._alias("g"), names, rel, call=rel.call, outer=rel.outer))
            return _at(block, _Stage.FROM, rel)
        if isinstance(rel, Distinct):
            block = self._open(rel.input, _Stage.ITEMS)
            block.distinct = block.items = True
            return _at(block, _Stage.DISTINCT, rel)
        if isinstance(rel, TopN):
            return self._top(rel)
        return _Block(rel.columns, self._sources(rel))

    def _filter(self, rel: Filter) -> _Query:
        block = self._open(rel.input, _Stage.QUALIFY)
        place, stage = block.where, _Stage.WHERE
        if block.stage >= _Stage.OVER:
            place, stage = block.qualify, _Stage.QUALIFY
        elif block.stage >= _Stage.GROUP:
            place, stage = block.having, _Stage.HAVING
        place.append(block.expr(rel.condition))
        return _at(block, stage, rel)

    def _aggregate(self, rel: Aggregate) -> _Query:
        block = self._open(rel.input, _Stage.WHERE)
        keys = [(column, block.expr(expr)) for column, expr in rel.keys]
        calls = {column: Expr((call.map(block.expr),)) for column, call in rel.calls}
        block.keys, block.sets = [expr for _, expr in keys], rel.sets
        block.made |= {column: expr for column, expr in keys if expr.column != column} | calls
        return _at(block, _Stage.GROUP, rel)

    def _project(self, rel: Project) -> _Query:
        below = self.fold(rel.input)
        renames = [expr.column for _, expr in rel.items]
        whole = len(set(renames)) == len(renames) == len(below.columns) and None not in renames
        if isinstance(below, _Union):
            if renames == list(below.columns):
                below.columns = rel.columns
                return below
            below = self._wrapped(rel.input, below)
        elif (
            below.stage == _Stage.EMIT
            or _stays_apart(rel.input)
            or (below.stage >= _Stage.ITEMS and (None in renames or (below.distinct and not whole)))
        ):
            below = self._wrapped(rel.input, below)
        stage = max(below.stage, _Stage.ITEMS)
        below.made |= {column: below.expr(expr) for column, expr in rel.items if expr.column != column}
        below.items = True
        return _at(below, stage, rel)

    def _top(self, rel: TopN) -> _Query:
        below = self.fold(rel.input)
        done = not below.bare if isinstance(below, _Union) else below.stage >= _Stage.ORDER
        if done:
            below = self._wrapped(rel.input, below)
        below.order, below.limit, below.offset = rel.order, rel.limit, rel.offset
        return _at(below, _Stage.ORDER, rel) if isinstance(below, _Block) else below

    # ---- FROM

    def _open(self, rel: Rel, most: _Stage) -> _Block:
        """The block of a node, if it is not written further than that; else one that reads it."""
        block = self.fold(rel)
        return block if isinstance(block, _Block) and block.stage <= most else self._wrapped(rel, block)

    def _wrapped(self, rel: Rel, folded: _Query) -> _Block:
        self.taken -= set(_aliases(folded))  # a subquery of FROM hides no name of what is beside it
        return _Block(rel.columns, [self._derived(rel, folded)])

    def _sources(self, rel: Rel) -> list[_Source]:
        if not isinstance(rel, Join):
            return [self._source(rel)]
        left = self._sources(rel.left) if isinstance(rel.left, Join) else [self._source(rel.left)]
        right = self._source(rel.right)
        right.join, right.on, right.lateral = JOINS[rel.kind], rel.on, rel.lateral
        return [*left, right]

    def _source(self, rel: Rel) -> _Source:
        made = self._plain_source(rel)
        made.refreshable = rel.refreshable
        return made

    def _plain_source(self, rel: Rel) -> _Source:
        if isinstance(rel, Scan | Values | TableFunction) or (isinstance(rel, Windowed) and rel.written is not None):
            alias = self._alias(rel.label or (rel.source.name if isinstance(rel, Scan) else "t"))
            return _Source(alias, {column: column.name for column in rel.columns}, rel)
        return self._derived(rel)

    def _derived(self, rel: Rel, folded: _Query | None = None) -> _Source:
        """A subquery, or the name of a common table expression."""
        alias = self._alias(rel.label or "__q0")
        copied = rel
        if self.reads[id(rel)] == 1 and isinstance(rel, Project) and all(expr.column for _, expr in rel.items):
            copied = rel.input
        if self.reads[id(copied)] > 1 and not isinstance(copied, Scan | Values | TableFunction) and self.shares(copied):
            name, _, names = self._share(copied)
            known = dict(zip(copied.columns, names, strict=True))
            if copied is not rel and isinstance(rel, Project):
                known = {column: known[expr.column] for column, expr in rel.items if expr.column is not None}
            return _Source(alias, known, name)
        query = folded if folded is not None else self.fold(rel)
        return _Source(alias, dict(zip(rel.columns, _distinct_names(rel.columns), strict=True)), query)

    def _share(self, rel: Rel) -> tuple[str, _Query, list[str]]:
        known = self.shared.get(id(rel))
        if known is None:
            query = self.fold(rel)
            known = self._alias(rel.label or "__c0"), query, _distinct_names(rel.columns)
            self.shared[id(rel)] = known
            self._pins.append(rel)
        return known

    def _alias(self, wanted: str) -> str:
        """A name that no other relation has: names of queries around one must not be hidden."""
        name, number = wanted, 0
        stem = wanted.rstrip("0123456789") if wanted.startswith("__") else f"{wanted}_"
        while name.lower() in self.taken:
            number += 1
            name = f"{stem}{number}"
        self.taken.add(name.lower())
        return name


def _stays_apart(rel: Rel) -> bool:
    """Whether a rule has named a relation, so that it becomes a node of its own."""
    return rel.label is not None and rel.label.startswith("__")


def _aliases(query: _Query) -> Iterator[str]:
    if isinstance(query, _Union):
        for operand in query.operands:
            yield from _aliases(operand)
    else:
        yield from (source.alias.lower() for source in query.sources)


def _at(block: _Block, stage: _Stage, rel: Rel) -> _Block:
    block.stage, block.columns = stage, rel.columns
    return block


def _read(rel: Rel) -> Iterator[int]:
    """The nodes that are read, as often as they are."""
    seen: set[int] = set()
    left = [rel]
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        below = [*node.inputs, *(inner.rel for expr in node.exprs() for inner in expr.subqueries())]
        yield from map(id, below)
        left += below


def _distinct_names(columns: Sequence[Column]) -> list[str]:
    """The names of columns, each once."""
    taken: set[str] = set()
    names = []
    for column in columns:
        name = column.name if column.name.lower() not in taken else f"__c{column.id}"
        taken.add(name.lower())
        names.append(name)
    return names


# ------------------------------------------------------------------------------------------------------- writing


class _BlockWriter(Writer):
    def __init__(self, text: str, shares: Callable[[Rel], bool]) -> None:
        super().__init__()
        self.text = text
        self.shares = shares
        self.scopes: list[list[_Source]] = []

    def nested(self, rel: Rel, names: Sequence[str]) -> None:
        """A whole query, with common table expressions of its own."""
        folder = _Folder(rel, self.shares)
        folder.taken = {source.alias.lower() for sources in self.scopes for source in sources}
        whole = folder.fold(rel)
        for index, (name, query, given) in enumerate(folder.shared.values()):
            self.put(f"{', ' if index else 'WITH '}{_quoted(name)} AS (")
            self.query(query, given)
            self.put(")")
        self.put(" " if folder.shared else "")
        self.query(whole, names)

    def column(self, column: Column) -> str:
        for depth, sources in enumerate(reversed(self.scopes)):
            for source in sources:
                if column in source.names:
                    name = _quoted(source.names[column])
                    return name if depth == 0 and len(sources) == 1 else f"{_quoted(source.alias)}.{name}"
        raise KeyError(f"{column} is not there")

    def subquery(self, subquery: Subquery) -> None:
        self.nested(subquery.rel, _distinct_names(subquery.rel.columns))

    # ---- queries

    def query(self, query: _Query, names: Sequence[str]) -> None:
        if isinstance(query, _Union):
            self._union(query, names)
        else:
            self._block(query, names)
        if query.emission is not None:
            self.put(" ")
            self._user_text(query.emission.span, self.text)

    def _union(self, query: _Union, names: Sequence[str]) -> None:
        for index, operand in enumerate(query.operands):
            self.put(f" {SETS[query.kind]}{' ALL' if query.all else ''} " if index else "")
            plain = isinstance(operand, _Block) and operand.stage < _Stage.ORDER
            self.put("" if plain else "(")
            self.query(operand, names)
            self.put("" if plain else ")")
        shown = dict(zip(query.columns, names, strict=True))
        self._bounds(query, lambda expr: Expr((_quoted(shown[expr.column]),)) if expr.column in shown else expr)

    def _block(self, block: _Block, names: Sequence[str]) -> None:
        self.scopes.append(block.sources)
        self.put("SELECT DISTINCT " if block.distinct else "SELECT ")
        exprs = [block.expr(of_column(column)) for column in block.columns]
        for index, (expr, name) in enumerate(zip(exprs, names, strict=True)):
            self.put(", " if index else "")
            self.expr(expr)
            own = expr.column is not None and self.column(expr.column).rpartition(".")[2] == _quoted(name)
            self.put("" if own else f" AS {quote_name(name)}")
        self.put("1 AS one" if not exprs else "")
        self._from(block.sources)
        self._all(" WHERE ", block.where)
        self._groups(block)
        self._all(" HAVING ", block.having)
        self._all(" QUALIFY ", block.qualify)
        shown = dict(zip(exprs, names, strict=True))

        def sorted_by(expr: Expr) -> Expr:
            made = block.expr(expr)
            return Expr((_quoted(shown[made]),)) if made in shown else made

        self._bounds(block, sorted_by)
        self.scopes.pop()

    def _all(self, word: str, conditions: Sequence[Expr]) -> None:
        """Conditions that all hold, in brackets where there are several."""
        for index, condition in enumerate(conditions):
            self.put(" AND " if index else word)
            self.put("(" if len(conditions) > 1 else "")
            self.expr(condition)
            self.put(")" if len(conditions) > 1 else "")

    def _groups(self, block: _Block) -> None:
        if not block.keys:
            return
        self.put(" GROUP BY ")
        if not block.sets:
            self.exprs(block.keys)
            return
        self.put("GROUPING SETS (")
        for index, positions in enumerate(block.sets):
            self.put(", (" if index else "(")
            self.exprs([block.keys[at] for at in positions])
            self.put(")")
        self.put(")")

    def _bounds(self, query: _Query, shown: Callable[[Expr], Expr]) -> None:
        if query.order:
            self.put(" ORDER BY ")
            self.sort_keys([replace(key, expr=shown(key.expr)) for key in query.order])
        for word, expr in (("LIMIT", query.limit), ("OFFSET", query.offset)):
            if expr is not None:
                self.put(f" {word} ")
                self.expr(expr)

    # ---- FROM

    def _from(self, sources: Sequence[_Source]) -> None:
        for index, source in enumerate(sources):
            if source.call is not None:
                names = ", ".join(map(_quoted, source.names.values()))
                self.put(" LATERAL VIEW OUTER " if source.outer else " LATERAL VIEW ")
                self.expr(source.call)
                self.put(f" {_quoted(source.alias)} AS {names}")
                continue
            self.put(f" {source.join} " if index else " FROM ")
            self.put("LATERAL " if source.lateral and not isinstance(source.of, TableFunction) else "")
            self._relation(source)
            if source.on is not None:
                self.put(" ON ")
                self.expr(source.on)

    def _relation(self, source: _Source) -> None:
        names = f"({', '.join(map(quote_name, source.names.values()))})"
        columns = ""
        if isinstance(source.of, str):
            self.put(_quoted(source.of))
        elif isinstance(source.of, Values):
            self.put("(VALUES ")
            self.exprs(source.of.rows)
            self.put(")")
            columns = names
        elif isinstance(source.of, TableFunction):
            self.expr(source.of.call)
            columns = names
        elif isinstance(source.of, Rel):
            self._leaf(source.of)
        else:
            self.put("(")
            self.query(source.of, list(source.names.values()))
            self.put(")")
        self.put(f" AS {_quoted(source.alias)}{columns}" if columns or not self._called(source) else "")
        self.put(" REFRESHABLE" if source.refreshable else "")

    def _called(self, source: _Source) -> bool:
        """Whether a relation has its name without an alias."""
        return isinstance(source.of, Scan) and source.of.written is not None and (
            source.of.source.name.rpartition(".")[2].lower() == source.alias.lower()
        )  # fmt: skip

    def _leaf(self, rel: Rel) -> None:
        assert rel.written is not None
        text, whole, inner = rel.written.text, rel.written.whole, rel.written.inner
        if not isinstance(rel, Windowed) or isinstance(rel.input, Scan):
            self._user_text(whole, text)
            return
        self._user_text(Span(whole.start, inner.start), text)
        named = tokenize(inner.of(text))[0].upper not in ("SELECT", "WITH", "VALUES")
        self.put("(" if named else "")
        self.nested(rel.input, [column.name for column in rel.input.columns])
        self.put(")" if named else "")
        self._user_text(Span(inner.end, whole.end), text)

    def _user_text(self, span: Span, text: str) -> None:
        self.put(span.of(text), span if text is self.text else None)


def _quoted(name: str) -> str:
    """A name as people write it, where it cannot be taken for something else."""
    plain = name.isascii() and name.isidentifier() and not of_the_language(Token(WORD, name, 0, len(name)))
    return name if plain else quote_name(name)
