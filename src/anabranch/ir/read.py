"""Read expressions from tokens: find columns, calls of aggregates and window functions, and subqueries.

After the parser, only this module and `build` read tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from anabranch.errors import NotSupported, SqlError
from anabranch.ir.expr import Call, Column, Expr, Over, Part, SortKey, Subquery
from anabranch.ir.rel import Rel
from anabranch.ir.scope import Aliases, Exposed, Scope
from anabranch.sql.calls import AGGREGATES, Chain, closing, split_commas
from anabranch.sql.columns import names_in, of_the_language
from anabranch.sql.durations import is_unit
from anabranch.sql.lexer import NUMBER, STRING, WORD, Token, tokenize
from anabranch.sql.own_aggregates import OWN_AGGREGATES
from anabranch.sql.own_calls import is_own_call, own_arguments, own_calls
from anabranch.sql.spelling import normal_form
from anabranch.sql.syntax import Query
from anabranch.sql.terms import ends_value
from anabranch.sql.text import Span, quote_name, words

#: The event time of a relation, in views of older homes, where joins with versions were not nodes yet.
EVENT_TIME = "__event_time"
_Piece = tuple[Part, Span | None]


def composed(text: str, by: Mapping[str, Expr]) -> Expr:
    """A text of our own as an expression, with expressions substituted for its names."""
    columns = {Column(-index, name, expr.type): expr for index, (name, expr) in enumerate(by.items())}
    reader = Reader(text, Scope((Exposed(None, tuple(columns)),)), _no_query, origins=False)
    return reader.expr(tokenize(text)[:-1]).substitute(columns)


def _fields(names: Sequence[str], span: Span) -> Iterator[_Piece]:
    """Nested fields of a struct."""
    for name in names:
        yield from ((".", span), (quote_name(name), span))


def _no_query(query: Query) -> Rel:
    raise AssertionError("there is no query in a text of our own")


@dataclass(frozen=True)
class Reader:
    """Reads the expressions of one SELECT block.

    With `first`, aliases of the SELECT list take precedence over columns, as in ORDER BY; else columns do.
    """

    text: str
    scope: Scope
    subquery: Callable[[Query], Rel]
    queries: Mapping[int, Query] = field(default_factory=dict)  # by start offset
    windows: Mapping[str, tuple[Token, ...]] = field(default_factory=dict)  # of the clause WINDOW, by name
    aliases: Aliases = field(default_factory=dict)
    first: bool = False
    origins: bool = True  # whether expressions keep their spans in the text

    def expr(self, tokens: Sequence[Token]) -> Expr:
        """One expression."""
        pieces = self._pieces(tokens)
        spans = tuple(span for _, span in pieces) if self.origins else ()
        return Expr(tuple(part for part, _ in pieces), spans=spans)

    def exprs(self, tokens: Sequence[Token]) -> tuple[Expr, ...]:
        """Expressions with commas between them."""
        return tuple(self.expr(each) for each in split_commas(tokens))

    def sort_keys(self, tokens: Sequence[Token]) -> tuple[SortKey, ...]:
        """The entries of ORDER BY."""
        keys: list[SortKey] = []
        for each in split_commas(tokens):
            end = len(each)
            if [token.upper for token in each[-2:-1]] == ["NULLS"]:
                end -= 2
            if each[end - 1].upper in ("ASC", "DESC") and end > 1:
                end -= 1
            keys.append(SortKey(self.expr(each[:end]), " ".join(token.upper for token in each[end:])))
        return tuple(keys)

    # ---- token by token

    def _pieces(self, tokens: Sequence[Token]) -> list[_Piece]:
        named = {chain.span.start: chain for chain in names_in(tokens)}
        pieces: list[_Piece] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            query = self._query_at(tokens, index)
            if token.upper == "END" and index and ends_value(tokens[index - 1]):  # of CASE, whatever is named end
                pieces.append((token.text, token.span))
                index += 1
            elif query is not None:
                end = closing(tokens, index)
                span = Span(token.start, tokens[end].end)
                origin = span if self.origins else None
                pieces.append((Subquery(_kind(tokens, index), self.subquery(query), origin), span))
                index = end + 1
            elif is_own_call(tokens, index) and not OWN_AGGREGATES[token.text.lower()].parts:
                _, behind, written = next(own_calls(self.text, tokens[index:]))
                span = Span(token.start, tokens[index + behind - 1].end)
                inner = replace(self, text=written, queries={}, origins=False).expr(tokenize(written)[:-1])
                pieces += [(part, span) for part in inner.parts]
                index += behind
            elif (known := self._known_at(tokens, index)) is not None:
                expr, end = known
                pieces += [(part, Span(token.start, tokens[end].end)) for part in expr.parts]
                index = end + 1
            elif (call := self._call_at(tokens, index)) is not None:
                made, index = call
                pieces.append((made, made.origin))
            elif token.start in named:
                chain = named[token.start]
                unit = len(chain.parts) == 1 and _is_unit(tokens, index)
                index += 2 * len(chain.parts) - 1
                if [each.text for each in tokens[index : index + 2]] == [".", "*"]:
                    pieces += self._star(chain.parts[0], chain.span)
                    index += 2
                else:
                    pieces += [(token.text, token.span)] if unit else self._name(chain, token, len(tokens) == 1)
            elif token.text == "*" and _stands_alone(tokens, index):
                pieces += self._star(None, token.span)
                index += 1
            else:
                pieces.append((token.text, token.span))
                index += 1
        return pieces

    def _query_at(self, tokens: Sequence[Token], index: int) -> Query | None:
        if tokens[index].text != "(" or index + 1 == len(tokens) or tokens[index + 1].upper not in ("SELECT", "WITH"):
            return None
        found = self.queries.get(tokens[index + 1].start)
        if found is None:
            span = Span(tokens[index].start, tokens[closing(tokens, index)].end)
            raise NotSupported("a query is not possible here", text=self.text, at=span)
        return found

    def _name(self, chain: Chain, token: Token, alone: bool) -> list[_Piece]:
        alias = self.aliases.get(chain.parts[0].lower()) if len(chain.parts) == 1 else None
        if alias is not None and self.first:
            return self._alias(alias, chain.span)
        if chain.parts[-1].lower() == EVENT_TIME:
            time = self.scope.event_time(chain.parts[0].lower() if len(chain.parts) > 1 else None)
            if time is not None:
                return [(time, chain.span)]
        found = self.scope.find(self.text, chain.parts, chain.span)
        if found is not None:
            if len(chain.parts) == 1 and not alone and token.kind == WORD and token.text.lower() in _IN_EXPRESSIONS:
                what = f"{token.text} can be a column or a keyword"
                hint = f"if it is the column, quote it: `{token.text}`"
                raise NotSupported(what, text=self.text, at=token, hint=hint)
            column, taken = found
            return [(column, chain.span), *_fields(chain.parts[taken:], chain.span)]
        if alias is not None:
            return self._alias(alias, chain.span)
        struct = self.aliases.get(chain.parts[0].lower())
        if struct is not None:
            return [*self._alias(struct, chain.span), *_fields(chain.parts[1:], chain.span)]
        if len(chain.parts) == 1 and of_the_language(token):
            return [(token.text, token.span)]
        raise self.scope.unknown(self.text, chain.parts, chain.span, list(self.aliases))

    @staticmethod
    def _alias(expr: Expr, span: Span) -> list[_Piece]:
        if len(expr.parts) == 1:
            return [(expr.parts[0], span)]
        return [("(", span), *((part, span) for part in expr.parts), (")", span)]

    def _star(self, qualifier: str | None, span: Span) -> list[_Piece]:
        columns = self.scope.starred(qualifier)
        if columns is None:
            raise self.scope.unknown(self.text, (qualifier or "*", "*"), span)
        pieces: list[_Piece] = []
        for column in columns:
            pieces += [(",", span), (column, span)]
        return pieces[1:]

    # ---- calls

    def _known_at(self, tokens: Sequence[Token], index: int) -> tuple[Expr, int] | None:
        """The known expression for the call that starts here, and the index of its last token."""
        called = [each.text for each in tokens[index + 1 : index + 2]] == ["("]
        if not self.aliases or not called or tokens[index].kind != WORD:
            return None
        end = closing(tokens, index + 1)
        found = self.aliases.get(normal_form(tokens[index : end + 1]))
        return None if found is None else (found, end)

    def _call_at(self, tokens: Sequence[Token], index: int) -> tuple[Call, int] | None:
        """The call of an aggregate or window function that starts here, and the index after it."""
        token = tokens[index]
        if token.kind != WORD or index + 1 == len(tokens) or tokens[index + 1].text != "(":
            return None
        if index and tokens[index - 1].text == ".":
            return None
        if is_own_call(tokens, index):
            own_arguments(self.text, tokens, index)  # checks their number
        end = closing(tokens, index + 1)
        after = _Behind(tokens, end)
        if after.over is None and token.text.lower() not in AGGREGATES:
            return None
        inside = list(tokens[index + 2 : end])
        distinct = bool(inside) and inside[0].upper == "DISTINCT"
        inside = inside[1:] if distinct or (inside and inside[0].upper == "ALL" and len(inside) > 1) else inside
        star = [each.text for each in inside] == ["*"]
        # Aggregates read rows, so columns take precedence over aliases of the SELECT list.
        rows = self if after.over is not None else replace(self, first=False)
        made = Call(
            token.text.lower(),
            () if star else rows.exprs(inside),
            distinct,
            rows.sort_keys(after.order[2:]),
            rows.expr(after.filter) if after.filter else None,
            after.nulls,
            None if after.over is None else self._over(after.over),
            star=star,
            origin=Span(token.start, tokens[after.end].end) if self.origins else None,
        )
        return made, after.end + 1

    def _over(self, tokens: Sequence[Token]) -> Over:
        """The window after OVER: a name, or a definition in brackets, which may begin with a name."""
        if len(tokens) == 1:
            return self._over(self._named_window(tokens[0]))
        base = Over()
        if tokens and tokens[0].is_name and tokens[0].upper not in _OVER_WORDS:
            base, tokens = self._over(self._named_window(tokens[0])), tokens[1:]
        clauses = _clauses(tokens)
        partition, order, frame = clauses.get("PARTITION"), clauses.get("ORDER"), clauses.get("FRAME")
        return Over(
            self.exprs(partition) if partition is not None else base.partition,
            self.sort_keys(order) if order is not None else base.order,
            " ".join(token.text for token in frame) if frame is not None else base.frame,
        )

    def _named_window(self, token: Token) -> tuple[Token, ...]:
        found = self.windows.get(token.name.lower())
        if found is None:
            raise SqlError(f"there is no window {token.name}", text=self.text, at=token)
        return found


class _Behind:
    """The clauses of a call after its brackets."""

    def __init__(self, tokens: Sequence[Token], end: int) -> None:
        self.order: tuple[Token, ...] = ()  # of WITHIN GROUP, with the words ORDER BY
        self.filter: tuple[Token, ...] = ()
        self.nulls: Literal["", "IGNORE", "RESPECT"] = ""
        self.over: tuple[Token, ...] | None = None

        def at(*words: str) -> bool:
            return [token.upper for token in tokens[end + 1 : end + 1 + len(words)]] == list(words)

        if at("WITHIN", "GROUP", "("):
            start, end = end + 4, closing(tokens, end + 3)
            self.order = tuple(tokens[start:end])
        if at("FILTER", "("):
            start, end = end + 4, closing(tokens, end + 2)
            self.filter = tuple(tokens[start:end])
        if at("IGNORE", "NULLS") or at("RESPECT", "NULLS"):
            self.nulls = "IGNORE" if tokens[end + 1].upper == "IGNORE" else "RESPECT"
            end += 2
        if at("OVER", "("):
            start, end = end + 3, closing(tokens, end + 2)
            self.over = tuple(tokens[start:end])
        elif at("OVER") and end + 2 < len(tokens):
            end += 2
            self.over = (tokens[end],)
        self.end = end


_OVER_WORDS = frozenset({"PARTITION", "ORDER", "ROWS", "RANGE", "DISTRIBUTE", "CLUSTER", "SORT"})
_STARTS = {"PARTITION": "PARTITION", "DISTRIBUTE": "PARTITION", "ORDER": "ORDER", "SORT": "ORDER"}


def _clauses(tokens: Sequence[Token]) -> dict[str, list[Token]]:
    """PARTITION BY ..., ORDER BY ... and the frame of a window."""
    found: dict[str, list[Token]] = {}
    current: list[Token] = []
    depth = index = 0
    while index < len(tokens):
        token = tokens[index]
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        following = tokens[index + 1].upper if index + 1 < len(tokens) else ""
        if depth == 0 and token.upper in _STARTS and following == "BY":
            current = found.setdefault(_STARTS[token.upper], [])
            index += 2
            continue
        if depth == 0 and token.upper in ("ROWS", "RANGE") and token.kind == WORD:
            found["FRAME"] = list(tokens[index:])
            break
        current.append(token)
        index += 1
    return found


#: Words that are syntax inside expressions: only a quoted one can be a column.
_IN_EXPRESSIONS = words(
    """all and any as between both case collate distinct div else end escape exists false filter for from ignore ilike
    in interval is leading like not null nulls or over placing regexp respect rlike similar some struct then trailing
    true when within"""
)
#: Functions whose first argument is a unit of time.
_OF_UNITS = frozenset({"timestampadd", "timestampdiff", "dateadd", "datediff", "date_add", "date_diff", "extract"})


def _is_unit(tokens: Sequence[Token], index: int) -> bool:
    """Whether a word is a unit of time here, even if a column has that name: INTERVAL 1 DAY, datediff(DAY, a, b)."""
    if not index or tokens[index].kind != WORD or not is_unit(tokens[index].text):
        return False
    before = tokens[index - 1]
    if before.text == "(":
        return index > 1 and tokens[index - 2].text.lower() in _OF_UNITS
    return before.upper == "TO" or before.kind in (NUMBER, STRING)


def _kind(tokens: Sequence[Token], index: int) -> Literal["exists", "in", "scalar"]:
    before = tokens[index - 1].upper if index else ""
    return "exists" if before == "EXISTS" else "in" if before == "IN" else "scalar"


def _stands_alone(tokens: Sequence[Token], index: int) -> bool:
    """Whether a star is a whole argument, not a multiplication."""
    before = tokens[index - 1].text if index else "("
    after = tokens[index + 1].text if index + 1 < len(tokens) else ")"
    return before in ("(", ",") and after in (")", ",")
