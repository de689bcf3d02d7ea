"""A join with static tables above the partials of its stream, chosen where it pays.

    SELECT s.k, label, count(*) FROM s LEFT JOIN t ON s.k = t.k GROUP BY s.k, label

A row of a stream meets a static table as it is in the run that takes the row in. As long as nobody refreshes the table,
all rows meet the same one, and it makes no difference when they do. So the pane table of such a block need not have any
files: its partials are had from those of the stream alone,

    SELECT s.k, label, sum(rows) FROM (SELECT k, count(*) AS rows FROM s GROUP BY k) AS s LEFT JOIN t ... GROUP BY ...

and a run reads no table. The first REFRESH that changes the table settles what is there: the partials, joined with the
table as it was, become files of the pane table, and from there on each run joins its rows. What stands above the pane
table knows nothing of all this.

It pays where there are no more partials than before, and it is never done where a table would be settled at once. A
query can ask for either way: SELECT /*+ JOIN_ABOVE(t) */ ..., SELECT /*+ JOIN_BELOW(t) */ ...
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.plan.bind import Binder, refuse
from anabranch.plan.blocks import STREAM, Analyze, Block, BlockCall, find_block
from anabranch.plan.catalog import Above, Table
from anabranch.plan.hints import HINTS, called
from anabranch.plan.late_joins import Join, Unfit, pieces_of
from anabranch.plan.strategy import Loads
from anabranch.sql.calls import chains, span_of
from anabranch.sql.lexer import Span, Token, quote_name
from anabranch.sql.parser import parse
from anabranch.sql.splice import Edit, splice
from anabranch.sql.syntax import Relation, Select, SelectStatement

_HINT = re.compile(r"\bJOIN_(ABOVE|BELOW)\s*\(([^()]*)\)", re.IGNORECASE)
#: Types of which equal values can differ.
_NOT_ALIKE = re.compile(r"\b(float|double|map|variant|void|collate)\b")
#: Aggregates that take values of all types as they are.
_ANY_TYPE = ("count", "min", "max")
#: Joins in which every row of the stream is there once at least.
_KEEP_ALL = ("LEFT JOIN", "LEFT OUTER JOIN")
_EXAMPLE = "as in SELECT /*+ JOIN_ABOVE(t) */ ... FROM s JOIN t ON t.k = s.k, with a static table t"


@dataclass(frozen=True)
class Choice:
    """What is known of a block over static tables: how it can be had from partials of its stream, and what for.

    `block` are these partials. Without them, or where `costs` says why it does not pay unless they are there already,
    the join stays below; `reason` says in which way it pays.
    """

    asked: str = ""  # "above", "below", or nothing
    block: Block | None = None
    above: Above | None = None  # over a pane table that is not known yet, without columns
    reason: str = ""
    costs: str = ""
    safe: bool = False  # whether nothing of it can fail for rows that the join leaves out

    @property
    def forced(self) -> bool:
        return self.asked == "above"


def choose(block: Block, binder: Binder, analyze: Analyze, loads: Loads) -> Choice:
    """Whether the join of a block can stand above the partials of its stream, and whether that pays."""
    if not block.statics:
        return Choice()
    asked, span = _asked(block.select, binder)
    if asked == "below":
        return Choice(asked, costs="the query says JOIN_BELOW")
    try:
        return _Raising(block, binder, analyze).choice(asked, loads)
    except Unfit as unfit:
        if asked and span is not None:
            what = f"this join cannot stand above partials of the stream: {unfit}"
            raise refuse(binder.text, span, what, "leave the hint out") from None
        return Choice(asked, costs=str(unfit))


def _asked(select: Select, binder: Binder) -> tuple[str, Span | None]:
    """What a hint asks for, and where it says so."""
    found: tuple[str, Span | None] = ("", None)
    head = Span(select.span.start, select.items[0].span.start) if select.items else select.span
    for hint in HINTS.finditer(binder.text, head.start, head.end):
        for call in _HINT.finditer(binder.text, hint.start(), hint.end()):
            for name in re.finditer(r"[^\s,]+", call[2]):
                span = Span(call.start(2) + name.start(), call.start(2) + name.end())
                relations = [each for each in select.relations if called(each) == name[0].strip("`").lower()]
                if not relations or not isinstance(_target(relations[0], binder), Table):
                    raise refuse(binder.text, span, f"no static table of this SELECT is called {name[0]}", _EXAMPLE)
                found = call[1].lower(), span
    return found


def _target(relation: Relation, binder: Binder) -> object:
    reference = binder.resolve(relation)
    return binder.catalog.objects.get(reference.target) if reference is not None else None


class _Raising:
    """One block over a stream and static tables, to be had from partials of the stream."""

    def __init__(self, block: Block, binder: Binder, analyze: Analyze) -> None:
        self.block = block
        self.select = block.select
        self.binder = binder
        self.text = binder.text
        self.analyze = analyze
        self.join = Join(block.select, block.owner, block.relation, binder, analyze, True)

    def choice(self, asked: str, loads: Loads) -> Choice:
        self._fit()
        needed = self._needed()
        plain, computed = self._keys()
        columns = list(dict.fromkeys((*needed, *plain.values())))
        self._check_columns(columns, needed)
        below = self._below(columns, list(computed.values()), loads)
        names = {name: key.name for name, key in zip(columns, below.keys, strict=False)}
        places = [key.name for key in below.keys[len(columns) : len(columns) + len(computed)]]
        exposed = self.block.relation.exposed or ""
        keys = {key.name: key.expression for key in self.block.row_keys}
        keys |= {name: f"{quote_name(exposed)}.`__k{index}`" for index, name in enumerate(computed)}
        where = " AND ".join(f"({span_of(piece).of(self.text)})" for piece in self._conditions()[1]) or None
        above = Above("", exposed, self._from(), where, names, keys, tuple(places))
        more = [name for name in needed if name not in plain.values()]
        costs = "" if asked else self._costs(more, where)
        return Choice(
            asked, below, above, self._reason(needed), costs, not computed and all(map(self._safe, self.block.calls))
        )

    # ---- whether it can be

    def _fit(self) -> None:
        block = self.block
        self.join.fit()
        if any(each.version is not None or each.current for each in self.select.relations):
            raise Unfit("it reads a table as of another time")
        for id in block.statics.values():
            table = self.binder.catalog[id]
            assert isinstance(table, Table)
            if table.every_run:
                raise Unfit(f"{table.name} is refreshed before each run")
            if any(field.name.startswith("__") for field in table.fields):
                raise Unfit(f"{table.name} has columns whose names start with __")
        if block.relation.window is not None and (block.windows is None or block.spans or block.bins):
            raise Unfit("its windows are not kept as panes")
        for each in block.calls:
            self._check(each)

    def _check(self, each: BlockCall) -> None:
        """What is of the stream alone can be merged behind the join: a partial counts with each of its partners."""
        call, written = each.call, each.call.span.of(self.text)
        asked = [*call.arguments, *([call.condition] if call.condition is not None else [])]
        if not all(map(self.join.is_below, asked)):
            raise Unfit(f"{written} is not of the stream alone")
        as_written = tuple(span_of(argument).of(self.text) for argument in call.arguments)
        if not each.aggregate.raised or call.order or each.arguments != as_written:
            raise Unfit(f"{written} cannot be merged behind a join")

    def _check_columns(self, columns: Sequence[str], needed: Sequence[str]) -> None:
        """Rows are grouped before they are joined: what groups hold equal has to be the same for the join."""
        types = {field.name: field.type for field in self.block.stream.fields}
        for name in columns:
            if name.startswith("__"):
                raise Unfit(f"the name of {name} starts with __")
            if name in needed and _NOT_ALIKE.search(types.get(name, "")):
                raise Unfit(f"equal values of {name} can differ")

    def _safe(self, each: BlockCall) -> bool:
        """Whether an aggregate cannot fail for rows that the join would have left out."""
        types = {field.name.lower(): field.type for field in self.block.stream.fields}
        named = [list(chains(argument)) for argument in each.call.arguments]
        plain = all(len(n) == 1 and n[0].span == span_of(a) for n, a in zip(named, each.call.arguments, strict=True))
        texts = any(types.get(n[0].parts[-1].lower(), "string") == "string" for n in named) if plain else True
        return plain and each.call.condition is None and (each.aggregate.name in _ANY_TYPE or not texts)

    # ---- what is asked of partials

    def _needed(self) -> list[str]:
        """The columns of the stream that are read above its partials."""
        found: list[str] = []
        for relation in self.select.relations:
            tokens = relation.condition_tokens
            if tokens and tokens[0].upper == "USING":
                own = self.join.columns[self.join.home]
                found += [own[token.name.lower()] for token in tokens[1:] if token.name.lower() in own]
            elif tokens:
                found += self.join.stream_columns(tokens[1:])
        for piece in self._conditions()[1]:
            found += self.join.stream_columns(piece)
        for key in self.block.row_keys:
            if not self.join.is_below(key.tokens):
                found += self.join.stream_columns(key.tokens)
        return list(dict.fromkeys(found))

    def _keys(self) -> tuple[dict[str, str], dict[str, tuple[Token, ...]]]:
        """What rows are grouped by and is the stream's alone, by name: its columns, and what is computed of them."""
        plain: dict[str, str] = {}
        computed: dict[str, tuple[Token, ...]] = {}
        for key in self.block.row_keys:
            own = self.join.stream_columns(key.tokens)
            if not own or not self.join.is_below(key.tokens):
                continue
            named = list(chains(key.tokens))
            if (
                len(named) == 1
                and named[0].span == span_of(key.tokens)
                and own[0].lower() == named[0].parts[-1].lower()
            ):
                plain[key.name] = own[0]
            else:
                computed[key.name] = key.tokens
        return plain, computed

    def _conditions(self) -> tuple[list[tuple[Token, ...]], list[tuple[Token, ...]]]:
        """What WHERE asks of the stream alone, and what it asks besides."""
        pieces = pieces_of(self.select.where.tokens) if self.select.where is not None else []
        return [each for each in pieces if self.join.is_below(each)], [
            each for each in pieces if not self.join.is_below(each)
        ]

    def _below(self, columns: Sequence[str], computed: Sequence[tuple[Token, ...]], loads: Loads) -> Block:
        """The block of the stream alone."""
        block, relation = self.block, self.block.relation
        exposed = quote_name(relation.exposed or "")
        keys = [f"{exposed}.{quote_name(name)}" for name in columns]
        keys += [span_of(tokens).of(self.text) for tokens in computed]
        keys += dict.fromkeys(key.name for key in block.keys if key.window)
        items = [*keys, *(each.call.span.of(self.text) for each in block.calls)] or ["count(*)"]
        where = " AND ".join(f"({span_of(piece).of(self.text)})" for piece in self._conditions()[0])
        sql = f"SELECT {', '.join(items)} FROM {relation.span.of(self.text)} AS {exposed}"
        sql += (f" WHERE {where}" if where else "") + (f" GROUP BY {', '.join(keys)}" if keys else "")
        try:
            statement = parse(sql)[0]
            assert isinstance(statement, SelectStatement)
            select = statement.query.body
            assert isinstance(select, Select)
            binder = Binder(statement.text, self.binder.catalog, statement.query)
            found = find_block(select, statement.query, binder, self.analyze, loads)
        except AnabranchError:
            raise Unfit("its stream cannot be aggregated on its own") from None
        if isinstance(found, str):
            raise Unfit(found)
        if found.windows != block.windows or len(found.calls) != len(block.calls) or len(found.keys) != len(keys):
            raise Unfit("its stream cannot be aggregated on its own in the same way")
        return found

    def _from(self) -> str:
        """The FROM clause over partials in the place of the stream."""
        edits = []
        for relation in self.select.relations:
            if relation is self.block.relation:
                source, name = STREAM, relation.exposed or ""
            else:
                table = _target(relation, self.binder)
                assert isinstance(table, Table)
                source, name = quote_name(f"@t:{table.id}"), relation.exposed or table.name
            edits.append(Edit(relation.span, source if relation.alias else f"{source} AS {quote_name(name)}"))
        assert self.select.from_span is not None
        return splice(self.text, self.select.from_span, edits).text

    # ---- whether it pays

    def _costs(self, more: Sequence[str], where: str | None) -> str:
        """Why there would be more partials than with the join below them; nothing if there would not."""
        if more:
            return f"partials of the stream would be grouped by {', '.join(more)} as well, and be more"
        filters = [each.join for each in self.select.relations if each.join not in ("", *_KEEP_ALL)]
        if filters or where is not None or self.select.relations[0] is not self.block.relation:
            return "it leaves rows out, and partials of the stream would be kept for them, too"
        return ""

    def _reason(self, needed: Sequence[str]) -> str:
        by = f"by {', '.join(needed)} " if needed else ""
        return f"rows are grouped {by}anyway, so that a run need not read the table"
