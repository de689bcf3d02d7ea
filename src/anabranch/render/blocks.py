"""Plans as SELECT blocks, with the names of the user's query.

Nodes are folded into as few blocks as possible. An input that does not fold becomes a subquery of FROM, or a common
table expression if it is read more than once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from anabranch.ir.expr import Column, Expr, Subquery
from anabranch.ir.fold import fold
from anabranch.ir.rel import Generate, Project, Rel, Sampled, Scan, TableFunction, Values, Windowed
from anabranch.ir.select import FromItem, SelectBlock, SetBlock
from anabranch.ir.text import Writer
from anabranch.render.spark import JOINS, SETS
from anabranch.sql.columns import of_the_language
from anabranch.sql.lexer import WORD, Token, tokenize
from anabranch.sql.splice import Spliced
from anabranch.sql.syntax import Emission
from anabranch.sql.text import Span, quote_name
from anabranch.sql.windows import call_text, is_call

#: A transformation of each block before it is written.
Shape = Callable[[SelectBlock | SetBlock], SelectBlock | SetBlock]


def blocks(rel: Rel, text: str, shares: Callable[[Rel], bool] = lambda _: True) -> Spliced:
    """A plan as a query; `text` is the query that it was built from. A node that is read twice and `shares` becomes a
    common table expression."""
    writer = _UserWriter(text, shares)
    writer.nested(rel, [column.name for column in rel.columns])
    return writer.written


# ------------------------------------------------------------------------------------------------------- preparing


@dataclass
class Source:
    """A relation of FROM, with the names of its columns."""

    alias: str
    names: dict[Column, str]
    of: Rel | Prepared | str  # a leaf, a subquery, or the name of a common table expression
    item: FromItem | Generate


@dataclass
class Prepared:
    """A SELECT with aliases for its relations, or a set operation."""

    query: SelectBlock | SetBlock
    sources: list[Source] = field(default_factory=list)
    operands: list[Prepared] = field(default_factory=list)


class _Preparation:
    """Folds a plan into blocks, outermost first, and assigns aliases to relations."""

    def __init__(self, root: Rel | None, shares: Callable[[Rel], bool], shape: Shape) -> None:
        self.reads = Counter(reads(root)) if root is not None else Counter()
        self.shares = shares
        self.shape = shape
        self.shared: dict[int, tuple[str, Prepared, list[str]]] = {}  # the common table expressions, by node
        self._pins: list[Rel] = []

    def prepare(self, rel: Rel, taken: frozenset[str]) -> Prepared:
        query = self.shape(fold(rel))
        return self.block(query, taken) if isinstance(query, SelectBlock) else self.operands(query, taken)

    def operands(self, query: SetBlock, taken: frozenset[str]) -> Prepared:
        return Prepared(query, operands=[self.prepare(each, taken) for each in query.operands])

    def block(self, query: SelectBlock, taken: frozenset[str]) -> Prepared:
        merged = query.merged
        query = query.map(lambda expr: expr.substitute(merged)) if merged else query
        made = Prepared(query)
        for item in query.sources:
            here = taken | {source.alias.lower() for source in made.sources}
            made.sources.append(self._source(item, here, here if item.lateral else taken))
        for each in query.generators:
            here = taken | {source.alias.lower() for source in made.sources}
            made.sources.append(Source(_alias("g", here), {c: c.name for c in each.made}, each, each))
        return made

    def _source(self, item: FromItem, taken: frozenset[str], around: frozenset[str]) -> Source:
        rel = item.rel
        if isinstance(rel, Scan | Values | TableFunction | Windowed | Sampled):
            wanted = item.label or rel.label or (rel.source.name if isinstance(rel, Scan) else "t")
            return Source(_alias(wanted, taken), {column: column.name for column in rel.columns}, rel, item)
        alias = _alias(rel.label or "__q0", taken)
        copied = rel
        if self.reads[id(rel)] <= 1 and isinstance(rel, Project) and all(expr.column for _, expr in rel.items):
            copied = rel.input
        if self.reads[id(copied)] > 1 and not isinstance(copied, Scan | Values | TableFunction) and self.shares(copied):
            name, _, names = self._share(copied, around)
            known = dict(zip(copied.columns, names, strict=True))
            if copied is not rel and isinstance(rel, Project):
                known = {column: known[expr.column] for column, expr in rel.items if expr.column is not None}
            return Source(alias, known, name, item)
        inner = self.prepare(rel, around)
        return Source(alias, dict(zip(rel.columns, distinct_names(rel.columns), strict=True)), inner, item)

    def _share(self, rel: Rel, taken: frozenset[str]) -> tuple[str, Prepared, list[str]]:
        known = self.shared.get(id(rel))
        if known is None:
            inner = self.prepare(rel, taken)
            names = frozenset(name.lower() for name, _, _ in self.shared.values())
            known = _alias(rel.label or "__c0", names), inner, distinct_names(rel.columns)
            self.shared[id(rel)] = known
            self._pins.append(rel)
        return known


def _alias(wanted: str, taken: frozenset[str]) -> str:
    """A unique name, so that it hides no name of an enclosing query."""
    name, number = wanted, 0
    stem = wanted.rstrip("0123456789") if wanted.startswith("__") else f"{wanted}_"
    while name.lower() in taken:
        number += 1
        name = f"{stem}{number}"
    return name


def reads(rel: Rel) -> Iterator[int]:
    """The nodes that are read, once for each read."""
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


def distinct_names(columns: Sequence[Column]) -> list[str]:
    """Unique names for columns."""
    taken: set[str] = set()
    names = []
    for column in columns:
        name = column.name if column.name.lower() not in taken else f"__c{column.id}"
        taken.add(name.lower())
        names.append(name)
    return names


# ------------------------------------------------------------------------------------------------------- writing


class BlockWriter(Writer):
    """Writes blocks. A subclass writes leaves and the clause EMIT."""

    def __init__(self, shares: Callable[[Rel], bool] = lambda _: True, shape: Shape = lambda block: block) -> None:
        super().__init__()
        self.shares = shares
        self.shape = shape
        self.scopes: list[list[Source]] = []

    @abstractmethod
    def leaf(self, rel: Rel) -> None:
        """Write a scan, or a relation in windows, after FROM."""

    def emission(self, emission: Emission) -> None:
        """Nothing: emission is not part of a query."""

    def hints(self, block: SelectBlock) -> str:
        """The hints between SELECT and its list."""
        return ""

    def called(self, source: Source) -> bool:
        """Whether a leaf needs no alias for its name."""
        return False

    def nested(self, rel: Rel, names: Sequence[str]) -> None:
        """A whole query, with its common table expressions."""
        preparation = _Preparation(rel, self.shares, self.shape)
        self._whole(preparation, preparation.prepare(rel, self._taken()), names)

    def select(self, block: SelectBlock, names: Sequence[str]) -> None:
        """A whole query that is one block."""
        preparation = _Preparation(None, self.shares, self.shape)
        self._whole(preparation, preparation.block(block, self._taken()), names)

    def opened(self, block: SelectBlock) -> list[Source]:
        """Add the relations of a block to the scope of the expressions written after this."""
        sources = _Preparation(None, self.shares, self.shape).block(block, self._taken()).sources
        self.scopes.append(sources)
        return sources

    def _taken(self) -> frozenset[str]:
        return frozenset(source.alias.lower() for sources in self.scopes for source in sources)

    def _whole(self, preparation: _Preparation, whole: Prepared, names: Sequence[str]) -> None:
        for index, (name, query, given) in enumerate(preparation.shared.values()):
            self.put(f"{', ' if index else 'WITH '}{plain_name(name)} AS (")
            self.query(query, given)
            self.put(")")
        self.put(" " if preparation.shared else "")
        self.query(whole, names)

    def column(self, column: Column) -> str:
        for depth, sources in enumerate(reversed(self.scopes)):
            for source in sources:
                if column in source.names:
                    name = plain_name(source.names[column])
                    return name if depth == 0 and len(sources) == 1 else f"{plain_name(source.alias)}.{name}"
        raise KeyError(f"{column} is not there")

    def subquery(self, subquery: Subquery) -> None:
        self.nested(subquery.rel, distinct_names(subquery.rel.columns))

    # ---- queries

    def query(self, prepared: Prepared, names: Sequence[str]) -> None:
        query = prepared.query
        if isinstance(query, SetBlock):
            self._union(query, prepared.operands, names)
        else:
            self._block(query, prepared.sources, names)
        if query.emission is not None:
            self.emission(query.emission)

    def _union(self, query: SetBlock, operands: Sequence[Prepared], names: Sequence[str]) -> None:
        for index, operand in enumerate(operands):
            self.put(f" {SETS[query.kind]}{' ALL' if query.all else ''} " if index else "")
            inner = operand.query
            plain = isinstance(inner, SelectBlock) and not (inner.order or inner.limited or inner.emission)
            self.put("" if plain else "(")
            self.query(operand, names)
            self.put("" if plain else ")")
        shown = dict(zip(query.columns, names, strict=True))
        self._bounds(query, lambda expr: Expr((plain_name(shown[expr.column]),)) if expr.column in shown else expr)

    def _block(self, block: SelectBlock, sources: list[Source], names: Sequence[str]) -> None:
        self.scopes.append(sources)
        self.put(f"SELECT {self.hints(block)}{'DISTINCT ' if block.distinct else ''}")
        exprs = [item.expr for item in block.items]
        for index, (expr, name) in enumerate(zip(exprs, names, strict=True)):
            self.put(", " if index else "")
            self.expr(expr)
            own = expr.column is not None and self.column(expr.column).rpartition(".")[2] == plain_name(name)
            self.put("" if own else f" AS {quote_name(name)}")
        self.put("1 AS one" if not exprs else "")
        self.from_clause(sources)
        self._condition(" WHERE ", block.where)
        self._groups(block)
        self._condition(" HAVING ", block.having)
        self._condition(" QUALIFY ", block.qualify)
        often = Counter(name.lower() for name in names)
        shown = {expr: name for expr, name in zip(exprs, names, strict=True) if often[name.lower()] == 1}
        self._bounds(block, lambda expr: Expr((plain_name(shown[expr]),)) if expr in shown else expr)
        self.scopes.pop()

    def _condition(self, word: str, condition: Expr | None) -> None:
        if condition is not None:
            self.put(word)
            self.expr(condition)

    def _groups(self, block: SelectBlock) -> None:
        if not block.keys:
            return
        self.put(" GROUP BY ")
        if not block.sets:
            for index, key in enumerate(block.keys):
                self.put(", " if index else "")
                self._key(block, key)
            return
        self.put("GROUPING SETS (")
        for index, positions in enumerate(block.sets):
            self.put(", (" if index else "(")
            self.exprs([block.keys[at] for at in positions])
            self.put(")")
        self.put(")")

    def _key(self, block: SelectBlock, key: Expr) -> None:
        """A key; a plain number would be read as the position of an item."""
        number = len(key.parts) == 1 and isinstance(key.parts[0], str) and key.parts[0].isdecimal()
        self.expr(Expr(("(", *key.parts, "+", "0", ")")) if number else key)

    def _bounds(self, query: SelectBlock | SetBlock, shown: Callable[[Expr], Expr]) -> None:
        if query.order:
            self.put(" ORDER BY ")
            self.sort_keys([replace(key, expr=shown(key.expr)) for key in query.order])
        for word, expr in (("LIMIT", query.limit), ("OFFSET", query.offset)):
            if expr is not None:
                self.put(f" {word} ")
                self.expr(expr)

    # ---- FROM

    def from_clause(self, sources: Sequence[Source]) -> None:
        for index, source in enumerate(sources):
            if isinstance(source.item, Generate):
                names = ", ".join(map(plain_name, source.names.values()))
                self.put(" LATERAL VIEW OUTER " if source.item.outer else " LATERAL VIEW ")
                self.expr(source.item.call)
                self.put(f" {plain_name(source.alias)} AS {names}")
                continue
            self.put(f" {JOINS[source.item.kind]} " if index else " FROM ")
            self.put("LATERAL " if source.item.lateral else "")
            self._relation(source)
            if source.item.on is not None:
                self.put(" ON ")
                self.expr(source.item.on)

    def _relation(self, source: Source) -> None:
        names = f"({', '.join(map(quote_name, source.names.values()))})"
        columns = ""
        if isinstance(source.of, str):
            self.put(plain_name(source.of))
        elif isinstance(source.of, Values):
            self.put("(VALUES ")
            self.exprs(source.of.rows)
            self.put(")")
            columns = names
        elif isinstance(source.of, TableFunction):
            self.expr(source.of.call)
            columns = names
        elif isinstance(source.of, Rel):
            self.leaf(source.of)
        else:
            self.put("(")
            self.query(source.of, list(source.names.values()))
            self.put(")")
        self.put(f" AS {plain_name(source.alias)}{columns}" if columns or not self.called(source) else "")
        self.behind(source)

    def behind(self, source: Source) -> None:
        """Write what follows a relation and its alias."""


class _UserWriter(BlockWriter):
    """Writes queries in the dialect of users."""

    def __init__(self, text: str, shares: Callable[[Rel], bool]) -> None:
        super().__init__(shares)
        self.text = text

    def emission(self, emission: Emission) -> None:
        self.put(" ")
        self._user_text(emission.span, self.text)

    def behind(self, source: Source) -> None:
        refreshable = isinstance(source.item, FromItem) and source.item.rel.refreshable
        self.put(" REFRESHABLE" if refreshable else "")

    def called(self, source: Source) -> bool:
        return isinstance(source.of, Scan) and source.of.written is not None and (
            source.of.source.name.rpartition(".")[2].lower() == source.alias.lower()
        )  # fmt: skip

    def leaf(self, rel: Rel) -> None:
        if isinstance(rel, Sampled):
            self.put("(")
            self.nested(rel.input, [column.name for column in rel.columns])
            self.put(f") {rel.text}")
            return
        assert rel.written is not None
        text, whole, inner = rel.written.text, rel.written.whole, rel.written.inner
        if isinstance(rel, Windowed) and (inner == whole or not is_call(whole.of(text))):
            self._call(rel)
        elif not isinstance(rel, Windowed) or isinstance(rel.input, Scan):
            self._user_text(whole, text)
        else:
            self._user_text(Span(whole.start, inner.start), text)
            self._inside(rel.input, tokenize(inner.of(text))[0].upper not in ("SELECT", "WITH", "VALUES"))
            self._user_text(Span(inner.end, whole.end), text)

    def _inside(self, rel: Rel, brackets: bool) -> None:
        self.put("(" if brackets else "")
        self.nested(rel, [column.name for column in rel.columns])
        self.put(")" if brackets else "")

    def _call(self, rel: Windowed) -> None:
        """Windows in the notation of another system, as a window function."""
        along = plain_name(rel.along.name) if rel.along is not None else None
        before, behind = call_text(rel.window, along, [plain_name(each.name) for each in rel.apart])
        self.put(before)
        if isinstance(rel.input, Scan):
            self.leaf(rel.input)
        else:
            self._inside(rel.input, True)
        self.put(behind)

    def _user_text(self, span: Span, text: str) -> None:
        self.put(span.of(text), span if text is self.text else None)


def plain_name(name: str) -> str:
    """A name without quotes, unless it would be read as something else."""
    plain = name.isascii() and name.isidentifier() and not of_the_language(Token(WORD, name, 0, len(name)))
    return name if plain else quote_name(name)
