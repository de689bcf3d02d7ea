"""What a query is keyed by: the columns that tell which of its answers a change of its input can touch.

A query is keyed by K if its answer over all rows is the union of its answers over the rows of each value of K. Then a
run that brings rows for some values can only change the answer for those:

    one stream      what it groups by, or what every window function is partitioned by
    several         columns that are equal in all of them (a.id = b.auction), and grouped or partitioned by as well
    DISTINCT        all of its columns
    windows that other rows make (sessions, counts of the rows of a key)
                    columns that keep these windows apart (PARTITION BY), and grouped or partitioned by as well

Without such columns the whole answer is computed anew and compared. Two kinds of queries need no key at all, for each
row of theirs comes from one row of each input: those of one stream (`stateless`) and inner joins of several (`join`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from anabranch.plan.blocks import aggregates_in, grouped_tokens
from anabranch.plan.catalog import WINDOW_COLUMNS
from anabranch.sql.calls import chains, closing, conjuncts, session_calls, split_commas
from anabranch.sql.lexer import Span, Token, normal_form, quote_name
from anabranch.sql.splice import Edit
from anabranch.sql.syntax import Query, Relation, Select

INNER = ("", ",", "JOIN", "INNER JOIN", "CROSS JOIN")
DEPENDS = "its windows depend on other rows than a row's own"
INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Input:
    """A relation of a FROM clause as the search for keys sees it."""

    relation: Relation
    columns: dict[str, str]  # name in lower case -> type; those of its window included
    static: bool

    @property
    def exposed(self) -> str:
        return (self.relation.exposed or "").lower()


@dataclass(frozen=True)
class KeyPart:
    """One column of a key: `expression` over the FROM clause, and for each input the column of its own, if any."""

    expression: str
    shown: str | None  # the output column that shows it
    columns: tuple[str | None, ...]  # one entry an input
    position: int = 0  # among the expressions that are grouped by


@dataclass(frozen=True)
class Keying:
    """How a SELECT is keyed. `kind`: stateless (row by row), join (pair by pair), keyed, or whole, and why."""

    kind: str
    parts: tuple[KeyPart, ...] = ()
    reason: str = ""
    every_column: bool = False  # the key is the whole row
    pairs: bool = False  # rows of several inputs only meet: nothing is grouped, ranked or made distinct
    single: bool = False  # each row of the answer comes from one of the windows that other rows make


@dataclass
class _Classes:
    """Columns known to be equal in every row that counts."""

    groups: list[set[tuple[int, str]]] = field(default_factory=list)

    def join(self, one: tuple[int, str], other: tuple[int, str]) -> None:
        touching = [group for group in self.groups if one in group or other in group]
        self.groups = [group for group in self.groups if group not in touching]
        self.groups.append({one, other}.union(*touching))


def find_keys(select: Select, owner: Query, inputs: Sequence[Input], text: str, *, by_key: bool = False) -> Keying:
    """What a SELECT is keyed by. With `by_key` its answers come out key by key, and so a join has one too."""
    found = _obstacle(select, owner, inputs)
    if found is not None:
        return Keying("whole", reason=found)
    search = _Search(select, owner, inputs, text)
    together = any(not columns for columns in search.apart.values())
    live = [index for index, each in enumerate(inputs) if not each.static]
    partitions = search.partitions()
    if partitions is None:
        return Keying("whole", reason="a window function in it has no PARTITION BY")
    aggregated = bool(select.group) or bool(aggregates_in(select, owner))
    pairs = False
    if not aggregated and not partitions and not select.distinct and not search.apart:
        if len(live) == 1:
            return Keying("stateless")
        pairs = not by_key and not search.epochs
        if pairs and all(inputs[index].relation.join in INNER for index in live):
            return Keying("join")
    if select.lateral:
        return Keying("whole", reason="it makes rows of others, and looks at several of them")
    if aggregated and not select.group:
        return Keying("whole", reason="it aggregates everything into one row")
    groups = [grouped_tokens(group, select, search.names) for group in select.group]
    if select.distinct and not groups and not partitions and len(live) == 1 and not search.apart:
        return Keying("keyed", every_column=True)
    parts = search.of_one(groups, partitions, live[0]) if len(live) == 1 else search.of_several(groups, partitions)
    if select.distinct:
        parts = [part for part in parts if part.shown is not None]
    single = search.single(groups, partitions, live, len(parts))
    if not parts:
        reason = "no column is equal in all of its streams and grouped by" if len(live) > 1 else "nothing keys it"
        return Keying("whole", reason=DEPENDS if together else reason, pairs=pairs, single=single)
    return Keying("keyed", tuple(parts), pairs=pairs, single=single)


def joined_by_equals(select: Select, owner: Query, inputs: Sequence[Input], text: str) -> bool:
    """Whether a column of one stream is to equal one of another."""
    live = {index for index, each in enumerate(inputs) if not each.static}
    groups = _Search(select, owner, inputs, text)._classes().groups
    return any(len({index for index, _ in members} & live) > 1 for members in groups)


def limited(owner: Query) -> bool:
    return any(token.upper in ("LIMIT", "OFFSET") for token in owner.order_tokens)


def _obstacle(select: Select, owner: Query, inputs: Sequence[Input]) -> str | None:
    """Why a SELECT cannot be keyed, if there is something that is plain to see."""
    if limited(owner):
        return "LIMIT looks at all rows"
    if select.subqueries:
        return _of_subquery(select)
    if not select.group_plain:
        return "it groups by several sets of columns"
    if any(each.relation.reshaped for each in inputs):
        return "it reshapes its rows"
    if any("NATURAL" in each.relation.join or "LATERAL" in each.relation.join for each in inputs):
        return "it has a NATURAL or LATERAL join"
    if any(_depends(each) and not _apart(each) and not _plain_sessions(each) for each in inputs):
        return DEPENDS
    statics = [each for each in inputs if each.static]
    if statics and not all(each.relation.join in INNER for each in inputs):
        first_is_live = not inputs[0].static
        words = ("LEFT", "SEMI", "ANTI")
        lefts = all(each.relation.join in INNER or each.relation.join.startswith(words) for each in inputs)
        if not (first_is_live and lefts):
            return "a row of a static table without a partner depends on all rows"
    return None


def _of_subquery(select: Select) -> str:
    """Why a subquery that could not be made a join stands in the way."""
    tokens = select.where.tokens if select.where is not None else ()
    inside = {inner.span.start for inner in select.subqueries}
    pieces = list(conjuncts(tokens)) or [tokens]
    for piece in pieces:
        opened = next((i for i, token in enumerate(piece) if token.start in inside), 0)
        words = [token.upper for token in piece[: max(opened - 1, 0)]]
        if words[-1:] == ["IN"] and "NOT" in (words[0], *words[-2:-1]):
            return (
                "NOT IN looks at all rows of its subquery, for one NULL in it leaves nothing; where no NULL can be, "
                "x IS NOT NULL AND x NOT IN (SELECT y ... WHERE y IS NOT NULL) says so"
            )
    return "it has a subquery in an expression that no equation ties to its rows"


def _depends(each: Input) -> bool:
    """Whether the windows of an input are made by other rows than a row's own."""
    return each.relation.window is not None and not each.relation.window.by_row


def _plain_sessions(each: Input) -> bool:
    """Whether the windows of an input are sessions of all rows together: these are apart by time alone."""
    return each.relation.window is not None and each.relation.window.kind == "session"


def _apart(each: Input) -> frozenset[str]:
    """The columns that keep windows apart which other rows make: those of one value say nothing of another's."""
    window = each.relation.window
    if window is None or window.filled or window.pairs != "none" or each.relation.alias_columns:
        return frozenset()
    return frozenset(name.last.lower() for name in window.partition) - set(WINDOW_COLUMNS)


class _Search:
    def __init__(self, select: Select, owner: Query, inputs: Sequence[Input], text: str) -> None:
        self.select = select
        self.owner = owner
        self.inputs = inputs
        self.text = text
        self.names = {name for each in inputs for name in each.columns}
        self.using: set[str] = set()
        # Where any row of an epoch tells whether it is one, no other column keeps the answers apart.
        windows = [each.relation.window for each in inputs if each.relation.window is not None]
        self.epochs = any(window.pairs == "every" for window in windows)
        #: Of the inputs whose windows other rows make, what keeps these apart.
        self.apart = {index: _apart(each) for index, each in enumerate(inputs) if _depends(each)}

    # ---- names

    def resolve(self, tokens: Sequence[Token]) -> tuple[int, str] | None:
        """The input and column that an expression is, if it is just a column."""
        named = list(chains(tokens))
        if len(named) != 1 or not tokens or named[0].span != Span(tokens[0].start, tokens[-1].end):
            return None
        parts = [part.lower() for part in named[0].parts]
        if len(parts) == 1:
            owners = [index for index, each in enumerate(self.inputs) if parts[0] in each.columns]
            return (owners[0], parts[0]) if len(owners) == 1 or (owners and parts[0] in self.using) else None
        owners = [i for i, each in enumerate(self.inputs) if each.exposed == parts[0] and parts[1] in each.columns]
        return (owners[0], parts[1]) if len(parts) == 2 and len(owners) == 1 else None

    def form(self, tokens: Sequence[Token]) -> str:
        """Equal for expressions that mean the same."""
        column = self.resolve(tokens)
        return f"#{column[0]}.{column[1]}" if column is not None else normal_form(list(tokens))

    def shown(self, forms: set[str]) -> str | None:
        """The output column that is one of these expressions."""
        for item in self.select.items:
            if self.form(item.tokens) not in forms:
                continue
            if item.alias is not None:
                return item.alias
            column = self.resolve(item.tokens)
            if column is not None:
                return [token.name for token in item.tokens if token.is_name][-1]
        return None

    # ---- window functions

    def partitions(self) -> list[list[tuple[Token, ...]]] | None:
        """What each window function is partitioned by; None if one is by nothing."""
        places = [item.tokens for item in self.select.items]
        places += [expression.tokens for expression in self.select.tail_expressions]
        if self.owner.body is self.select:
            places.append(self.owner.order_tokens)
        found: list[list[tuple[Token, ...]]] = []
        for tokens in places:
            for index, token in enumerate(tokens):
                if token.upper != "OVER":
                    continue
                if index + 1 >= len(tokens) or tokens[index + 1].text != "(":
                    return None  # a name of the WINDOW clause
                inside = tokens[index + 2 : closing(tokens, index + 1)]
                by = partition_by(inside)
                if not by:
                    return None
                found.append(by)
        return found

    # ---- one stream

    def of_one(
        self, groups: list[tuple[Token, ...]], partitions: list[list[tuple[Token, ...]]], live: int
    ) -> list[KeyPart]:
        if live in self.apart:
            return self._of_apart(groups, partitions, live)
        candidates = groups or partitions[0]
        parts = []
        for position, tokens in enumerate(candidates):
            form = self.form(tokens)
            if groups and any(session_calls(tokens)):  # rows of another session may change it
                continue
            if not all(form in {self.form(each) for each in by} for by in partitions):
                continue
            column = self.resolve(tokens)
            columns: list[str | None] = [None] * len(self.inputs)
            if column is not None and column[0] == live:
                columns[live] = column[1]
            expression = Span(tokens[0].start, tokens[-1].end).of(self.text)
            parts.append(KeyPart(expression, self.shown({form}), tuple(columns), position))
        return parts

    def _of_apart(
        self, groups: list[tuple[Token, ...]], partitions: list[list[tuple[Token, ...]]], live: int
    ) -> list[KeyPart]:
        """Columns that keep the windows of the one stream apart, and that nothing above brings together."""
        parts = []
        for column in sorted(self.apart[live]):
            looked_at = [*([groups] if groups else []), *partitions]
            if not all(any(self.resolve(tokens) == (live, column) for tokens in by) for by in looked_at):
                continue
            own = tuple(column if index == live else None for index in range(len(self.inputs)))
            grouped = [tokens for tokens in groups if self.resolve(tokens) == (live, column)]
            expression = Span(grouped[0][0].start, grouped[0][-1].end).of(self.text) if grouped else ""
            shown = self.shown({f"#{live}.{column}"})
            parts.append(KeyPart(expression or self._qualified(live, column), shown, own))
        return parts

    def single(
        self,
        groups: list[tuple[Token, ...]],
        partitions: list[list[tuple[Token, ...]]],
        live: Sequence[int],
        keys: int,
    ) -> bool:
        """Whether each row of the answer comes from one window of the one stream, whose windows other rows make."""
        if len(live) != 1 or partitions or keys != len(self.apart.get(live[0], ())):
            return False
        bounds = {(live[0], column) for column in WINDOW_COLUMNS}
        return not groups or any(self.resolve(tokens) in bounds for tokens in groups)

    # ---- several streams

    def of_several(self, groups: list[tuple[Token, ...]], partitions: list[list[tuple[Token, ...]]]) -> list[KeyPart]:
        classes = self._classes()
        live = {index for index, each in enumerate(self.inputs) if not each.static}
        outer = [each.relation.join for each in self.inputs if each.relation.join not in INNER]
        lefts = all(join.startswith("LEFT") or join in ("SEMI JOIN", "ANTI JOIN") for join in outer)
        parts = []
        for members in classes.groups:
            if not live <= {index for index, _ in members}:
                continue
            if self.epochs and not any(column == "window_end" for _, column in members):
                continue
            if groups and not any(self.resolve(tokens) in members for tokens in groups):
                continue
            if not all(any(self.resolve(tokens) in members for tokens in by) for by in partitions):
                continue
            own: list[str | None] = [None] * len(self.inputs)
            for index, column in sorted(members):
                if column in self.apart.get(index, (column,)):
                    own[index] = own[index] or column
            if any(own[index] is None for index in self.apart):
                continue
            types = {self.inputs[index].columns[column] for index, column in members}
            if len(types) > 1 and not types <= set(INTEGERS):
                continue
            if outer and len(self.inputs) > 2 and len(members) > sum(column is not None for column in own):
                continue  # two columns that one join has equal are not so where it found no partner
            part = self._part(members, own, groups, outer, lefts)
            if part is not None:
                parts.append(part)
        return parts

    def _part(
        self,
        members: set[tuple[int, str]],
        own: list[str | None],
        groups: list[tuple[Token, ...]],
        outer: list[str],
        lefts: bool,
    ) -> KeyPart | None:
        """The key of a class of equal columns: the column that is there in every row of the answer."""
        ordered = sorted(members)
        if not outer:
            usable = ordered
        elif lefts:
            usable = [(index, column) for index, column in ordered if index == 0]
            if not usable:
                return None
        else:
            if groups:
                return None
            seen = [(index, column) for index, column in enumerate(own) if column is not None and self._seen(index)]
            expression = ", ".join(self._qualified(index, column) for index, column in seen)
            return KeyPart(f"coalesce({expression})", None, tuple(own))
        forms = {f"#{index}.{column}" for index, column in usable}
        if groups:
            grouped = [tokens for tokens in groups if self.resolve(tokens) in usable]
            if not grouped:
                return None
            expression = Span(grouped[0][0].start, grouped[0][-1].end).of(self.text)
        else:
            expression = self._qualified(*usable[0])
        return KeyPart(expression, self.shown(forms), tuple(own))

    def _seen(self, index: int) -> bool:
        """Whether the columns of an input are there behind its join."""
        return not {"SEMI", "ANTI"} & set(self.inputs[index].relation.join.split())

    def _qualified(self, index: int, column: str) -> str:
        exposed = self.inputs[index].relation.exposed
        return f"{quote_name(exposed)}.{quote_name(column)}" if exposed else quote_name(column)

    def _classes(self) -> _Classes:
        classes = _Classes()
        outer = any(each.relation.join not in INNER for each in self.inputs)
        conditions: list[Sequence[Token]] = []
        if self.select.where is not None and not outer:
            conditions.append(self.select.where.tokens)
        for index, each in enumerate(self.inputs):
            tokens: Sequence[Token] = each.relation.condition_tokens
            if tokens and tokens[0].upper == "USING":
                for name in (token.name.lower() for token in tokens[1:] if token.is_name):
                    self.using.add(name)
                    for earlier in range(index):
                        if name in self.inputs[earlier].columns:
                            classes.join((earlier, name), (index, name))
            elif tokens:
                conditions.append(tokens[1:] if tokens[0].upper == "ON" else tokens)
        for tokens in conditions:
            for conjunct in conjuncts(tokens):
                for index, token in enumerate(conjunct):
                    # Behind another join that found no partner, NULL would meet the NULL of any row.
                    if token.text in ("=", "==") or (token.text == "<=>" and not (outer and len(self.inputs) > 2)):
                        one, other = self.resolve(conjunct[:index]), self.resolve(conjunct[index + 1 :])
                        if one is not None and other is not None:
                            classes.join(one, other)
                        break
        return classes


def partition_by(tokens: Sequence[Token]) -> list[tuple[Token, ...]]:
    """The expressions of PARTITION BY inside the brackets of OVER."""
    if len(tokens) < 3 or tokens[0].upper not in ("PARTITION", "DISTRIBUTE"):
        return []
    end = len(tokens)
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "symbol":
            depth += (token.text in "([") - (token.text in ")]")
        if depth == 0 and token.upper in ("ORDER", "ROWS", "RANGE", "SORT"):
            end = index
            break
    return [tuple(piece) for piece in split_commas(tokens[2:end]) if piece]


def with_hidden(select: Select, hidden: Iterable[tuple[str, str]]) -> list[Edit]:
    """Edits that add columns to a SELECT list."""
    added = "".join(f", {expression} AS {quote_name(name)}" for name, expression in hidden)
    last = select.items[-1].span
    return [Edit(Span(last.end, last.end), added)] if added else []


def with_condition(select: Select, condition: str) -> list[Edit]:
    """Edits that ask one thing more of the rows of a SELECT."""
    if select.where is not None:
        start, end = select.where.span.start, select.where.span.end
        return [Edit(Span(start, start), "("), Edit(Span(end, end), f") AND {condition}")]
    assert select.from_span is not None
    return [Edit(Span(select.from_span.end, select.from_span.end), f" WHERE {condition}")]
